"""The app as a process of its own: signals, start-up, wrong settings."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from hosted import until

ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def process(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``app.py`` as a host starts it, and its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "app.py", "--model", str(folder), "--port", str(port), *flags]
    running = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        yield running, f"http://127.0.0.1:{port}"
    finally:
        running.kill()
        running.wait()


@pytest.fixture(scope="module")
def folder(tiny_llama: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model with a long context and no end token, so that a run lasts."""
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny_llama[0].save_pretrained(folder)
    for name in ("config.json", "generation_config.json"):
        values = json.loads((folder / name).read_text())
        values |= {"eos_token_id": 0} | ({"max_position_embeddings": 50_000} if name[0] == "c" else {})
        (folder / name).write_text(json.dumps(values))
    tiny_llama[1].save_pretrained(folder)
    return folder


def answers(url: str, path: str = "/healthz") -> int:
    try:
        return httpx.get(url + path, timeout=5).status_code
    except httpx.HTTPError:
        return 0


@pytest.mark.skipif(os.name != "posix", reason="signals as of POSIX")
def test_sigterm_in_mid_run_ends_the_run_and_the_process(folder: Path) -> None:
    from gradio_client import Client

    flags = ("--dtype", "fp32", "--device", "cpu", "--max-output", "40000")
    with process(folder, *flags) as (running, url):
        until(lambda: answers(url) == 200, 280)
        client = Client(url, verbose=False)
        job = client.submit("The quick brown fox", "none", 40_000, 0.0, 0, {}, api_name="/generate")
        until(lambda: any(state["state"] == "running" for state in job.outputs()), 60)
        running.terminate()
        assert running.wait(60) == 0
        told = running.stderr.read() if running.stderr else ""
        assert "stopped by SIGTERM" in told and "Traceback" not in told
        assert job.outputs()[-1]["state"] in ("stopped", "running")
        assert answers(url) == 0


@pytest.mark.skipif(os.name != "posix", reason="signals as of POSIX")
def test_the_page_is_there_while_the_model_loads_and_can_be_stopped(
    folder: Path, tmp_path: Path
) -> None:
    slow = tmp_path / "slow"
    shutil.copytree(folder, slow)
    (slow / "model.safetensors").unlink()
    os.mkfifo(slow / "model.safetensors")  # reading it never ends, as on a dead network disk
    with process(slow, "--dtype", "fp32", "--device", "cpu") as (running, url):
        until(lambda: answers(url) == 503, 280)
        assert answers(url, "/") == 200
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
        assert "stopped by SIGINT" in (running.stderr.read() if running.stderr else "")


def test_wrong_settings_end_the_start_with_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "app.py", "--port", "x"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 2
    assert done.stderr.strip() == "specdemo: --port must be a whole number from 0 to 65535, not 'x'."
