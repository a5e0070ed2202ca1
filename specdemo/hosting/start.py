"""``python app.py`` and ``python -m specdemo serve``: from settings to a served page, and its end."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from typing import Any

from .. import remote
from ..config import Config, load
from ..ui.backend import default_loader
from . import lent, logs, zerogpu
from .backend import HostedBackend

GRACE = 10.0  # seconds for the runs under way to end


def serve(flags: argparse.Namespace | None = None) -> int:
    """Serve the page until SIGTERM or SIGINT. The page is there at once; the model loads behind it.

    Returns the exit code. Raises ``ConfigError`` for wrong settings, before anything is started."""
    config = load(None, flags)
    logs.set_up(config.log)
    backend = make_backend(config)
    ended = _signals()
    demo = launch(backend)
    print(f"specdemo: {demo.local_url}", file=sys.stderr, flush=True)
    logs.write("serving", device=config.device, models=list(config.models), users=len(config.users))
    if not lent():  # else the model was loaded before the page, as a lent GPU needs it
        backend.start()
    name = _wait(ended)
    shut_down(backend, demo)
    print(f"specdemo: stopped by {name}; runs under way were ended.", file=sys.stderr, flush=True)
    return 0


def make_backend(config: Config) -> HostedBackend:
    """The backend for these settings, nothing loaded yet (but on ZeroGPU)."""
    if config.models:
        os.environ["SPECDEMO_MODELS"] = ",".join(config.models)
    servers = remote.configure(config.servers)
    if lent():
        backend: HostedBackend = zerogpu.LentBackend(config, servers.values())
        backend.start().wait()
        return backend
    loader = default_loader(config.model, config.dtype, config.device, config.threads)
    return HostedBackend(loader, servers.values(), config)


def launch(backend: HostedBackend, **options: Any) -> Any:
    """The page with the host's settings; ``options`` go to Gradio's ``launch``."""
    from ..ui.page import launch as launch_page

    config = backend.config
    settings: dict[str, Any] = {
        "server_name": config.host,
        "server_port": config.port or None,
        "root_path": config.root_path or None,
        "prevent_thread_lock": True,
        "auth": list(config.users.items()) or None,
    }
    return launch_page(backend, **{**settings, **options})


def shut_down(backend: HostedBackend, demo: Any) -> None:
    """End the runs within a round, let their pages hear of it, close the server."""
    logs.write("stopping", waiting=backend.worker.waiting)
    workers = (backend.worker, backend.network)
    for worker in workers:
        worker.close()
    until = time.monotonic() + GRACE
    while any(worker.busy for worker in workers) and time.monotonic() < until:
        time.sleep(0.02)
    time.sleep(0.3)  # the pages' handlers send the last words
    demo.close(verbose=False)


def _signals() -> list[str]:
    """A list that gets the name of the signal that asks us to end (main thread only)."""
    names: list[str] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda n, _: names.append(signal.Signals(n).name))
    return names


def _wait(names: list[str]) -> str:
    while not names:
        time.sleep(0.1)
    return names[0]
