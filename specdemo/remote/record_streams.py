"""Record what real servers send, for tests: a proxy notes the bytes between a client and a server.

    python -m specdemo.remote.record_streams --server llamacpp=http://127.0.0.1:8080 --out tests/streams

runs a few short prompts through the usual clients and writes one JSON file each: the exchanges in
order (method, path, the request's JSON, status, content type, the answer's pieces with their times).
Headers are not kept, so no key can be; of ``/metrics`` only what the clients read is.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from ..events import Finished
from .generation import generate
from .servers import Server, parse_server

FORMAT = 1
_COUNT = "one two three four five six one two three four five six one two three four"
_COPY = "Copy this list.\n- apples and pears\n- plums and figs\nCopy:\n- apples and pears\n-"

# name: (prompt, raw, sampling parameters)
CASES: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "count": (_COUNT, True, {"max_new_tokens": 24}),
    "copy": (_COPY, True, {"max_new_tokens": 30}),
    "chat": ("Write the word hello four times.", False, {"max_new_tokens": 32}),
    "answer": ("Say hi.", False, {"max_new_tokens": 64}),
    "stop": (_COUNT, True, {"max_new_tokens": 24, "stop": (" four five six",)}),
    "utf8": ("Say hi to 你好 😀. Repeat it: 你好 😀", False, {"max_new_tokens": 24}),
    "sampled": (_COUNT, True, {"max_new_tokens": 24, "temperature": 0.8, "seed": 7}),
}


@dataclass(slots=True)
class Recorder:
    """The exchanges seen so far."""

    server: Server
    exchanges: list[dict[str, Any]] = field(default_factory=list)

    def handler(recorder) -> type[BaseHTTPRequestHandler]:  # two selves meet here
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                recorder._pass_on(self, None)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                recorder._pass_on(self, json.loads(body))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler

    def _pass_on(self, handler: BaseHTTPRequestHandler, body: Any) -> None:
        began, server = time.perf_counter(), self.server
        key = {"authorization": f"Bearer {server.api_key}"} if server.api_key else {}
        pieces: list[dict[str, Any]] = []
        url = server.base_url + handler.path
        with httpx.stream(handler.command, url, json=body, headers=key, timeout=600) as response:
            kind = response.headers.get("content-type", "")
            handler.send_response(response.status_code)
            handler.send_header("content-type", kind)
            handler.send_header("connection", "close")
            handler.end_headers()
            for chunk in response.iter_raw():
                handler.wfile.write(chunk)
                at = round(time.perf_counter() - began, 4)
                # Latin-1 keeps the bytes as they came, halves of characters included.
                pieces.append({"at": at, "bytes": chunk.decode("latin-1")})
        handler.close_connection = True
        if handler.path == "/metrics":
            lines = "".join(piece["bytes"] for piece in pieces).splitlines(keepends=True)
            pieces = [{"at": 0.0, "bytes": "".join(line for line in lines if _read(line))}]
        self.exchanges.append(
            {
                "method": handler.command,
                "path": handler.path,
                "request": body,
                "status": response.status_code,
                "content_type": kind,
                "answer": pieces,
            }
        )


def _read(line: str) -> bool:
    """Whether a client looks at this line of ``/metrics`` (the second kind: that there are any)."""
    return not line.startswith("#") and ("spec_decode" in line or "num_requests_running" in line)


@contextmanager
def proxy(recorder: Recorder) -> Iterator[Server]:
    """The recorded server as a client should address it; the key is added behind the proxy."""
    http = ThreadingHTTPServer(("127.0.0.1", 0), recorder.handler())
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield replace(recorder.server, base_url=f"http://127.0.0.1:{http.server_address[1]}", api_key="")
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def record(server: Server, case: str) -> dict[str, Any]:
    """One case of ``CASES`` on ``server`` as a recording."""
    from ..sampling import SamplingParams  # torch: only for who records

    prompt, raw, settings = CASES[case]
    recorder = Recorder(server)
    with proxy(recorder) as recorded:
        *_, last = generate(recorded, prompt, SamplingParams(**settings), raw=raw)
    assert isinstance(last, Finished)
    return {
        "format": FORMAT,
        "kind": server.kind,
        "case": case,
        "prompt": prompt,
        "raw": raw,
        "settings": settings,
        "exchanges": recorder.exchanges,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", required=True, help="NAME=URL[,kind=KIND][,model=MODEL]")
    parser.add_argument("--out", type=Path, required=True, help="folder for the recordings")
    parser.add_argument("--label", default="", help="part of the file names: the drafter, say")
    parser.add_argument("--case", action="append", choices=CASES, help="default: all")
    args = parser.parse_args()
    server = parse_server(args.server)
    args.out.mkdir(parents=True, exist_ok=True)
    for case in args.case or CASES:
        recording = record(server, case)
        name = "_".join(part for part in (server.kind, args.label, case) if part)
        text = json.dumps(recording, ensure_ascii=True, separators=(",", ":"))
        (args.out / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        print(name, f"{len(text) // 1000} kB")


if __name__ == "__main__":
    main()
