"""Starts ``app.py`` as a host does, and looks at its process from outside."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "assets" / "results"


@dataclass
class App:
    url: str
    process: psutil.Process

    def figures(self) -> dict[str, float]:
        """Memory (MB), threads and open files of the process, and its queue."""
        lines = httpx.get(f"{self.url}/metrics", timeout=30).text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {
            "memory_mb": round(self.process.memory_info().rss / 1e6, 1),
            "threads": self.process.num_threads(),
            "open_files": self.process.num_fds(),
            "waiting": float(values["specdemo_waiting"]),
            "running": float(values["specdemo_running"]),
        }

    def wait_until_idle(self, seconds: float = 60) -> float:
        """Seconds until nothing runs or waits. Raises ``TimeoutError``."""
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            now = self.figures()
            if not now["waiting"] and not now["running"]:
                return time.monotonic() - began
            time.sleep(0.05)
        raise TimeoutError("the device was not freed")


@contextmanager
def app(*flags: str) -> Iterator[App]:
    """The app with the embedded model, ready for runs."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "app.py", "--port", str(port), "--log", "off", *flags]
    running = subprocess.Popen(command, cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    try:
        while True:
            try:
                if httpx.get(f"{url}/healthz", timeout=30).status_code == 200:
                    break
            except httpx.HTTPError:
                pass
            if running.poll() is not None:
                raise RuntimeError("the app ended")
            time.sleep(0.5)
        yield App(url, psutil.Process(running.pid))
    finally:
        running.terminate()
        running.wait(60)


def one_run(url: str, prompt: str, drafter: str, length: int, seed: int = 0) -> dict[str, Any]:
    """A run by plain HTTP, as a new visitor; its last state."""
    data = [prompt, drafter, length, 0.0, seed, {}]
    sent = httpx.post(f"{url}/gradio_api/call/generate", json={"data": data}, timeout=60)
    sent.raise_for_status()
    address, last = f"{url}/gradio_api/call/generate/{sent.json()['event_id']}", ""
    with httpx.stream("GET", address, timeout=300) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: ["):
                last = line[6:]
    return json.loads(last)[0]


def write(name: str, result: dict[str, Any]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / name).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
