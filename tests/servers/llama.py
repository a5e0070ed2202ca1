"""A real llama.cpp server (the one inside PyPI's ``xllamacpp``) as a process of its own.

``python tests/servers/llama.py MODEL.gguf [option=value ...]`` prints its address and serves until
its standard input closes, so that it cannot outlive whoever started it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path


def serve(model: str, options: dict[str, str]) -> None:
    """``options``: ``spec`` = none, ngram or draft; ``slots``; ``threads``; ``key``; ``synth`` = mean
    accepted length to force (only for tests that need refusals and acceptances in known numbers)."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"smollm2"}
    params.n_parallel = int(options.get("slots", "1"))
    params.n_ctx = 1024 * params.n_parallel
    # Two threads on a busy machine wait for each other: more only where speed is measured.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(options.get("threads", "1"))
    params.endpoint_metrics = True
    params.warmup = False
    if "key" in options:
        params.api_keys = [options["key"]]
    kinds = xllamacpp.common_speculative_type
    spec = options.get("spec", "none")
    if spec == "ngram":
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        params.speculative.ngram_simple.size_n = 3
        params.speculative.ngram_simple.size_m = 4
    elif spec == "draft":
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        draft = params.speculative.draft
        draft.mparams.path = model
        draft.n_max = 4
        draft.cpuparams.n_threads = 1
        draft.cpuparams_batch.n_threads = 1
    if "synth" in options:
        params.speculative.synth_len = float(options["synth"])
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()
    os._exit(0)  # the server's own end waits for connections that clients keep open


@contextlib.contextmanager
def running(model: Path, **options: str) -> Iterator[str]:
    """The base URL of a server that lives as long as the block."""
    command = [sys.executable, __file__, str(model), *(f"{k}={v}" for k, v in options.items())]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout and process.stderr
    try:
        address = process.stdout.readline().strip()
        if not address.startswith("http"):
            raise RuntimeError(f"The llama.cpp server did not start: {process.stderr.read()[-2000:]}")
        yield address
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        process.stderr.close()


if __name__ == "__main__":
    serve(sys.argv[1], dict(option.split("=", 1) for option in sys.argv[2:]))
