"""A real HTTP server on loopback that plays a recorded exchange, byte for byte, or a fault."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

STREAMS = Path(__file__).parent.parent / "streams"


def load(name: str) -> dict[str, Any]:
    return json.loads((STREAMS / f"{name}.json").read_text(encoding="utf-8"))


def names(start: str = "") -> list[str]:
    return sorted(path.stem for path in STREAMS.glob(f"{start}*.json"))


def stream_of(recording: dict[str, Any]) -> dict[str, Any]:
    """The exchange that is the answer's stream."""
    return next(e for e in recording["exchanges"] if e["content_type"].startswith("text/event-stream"))


def answer_of(exchange: dict[str, Any]) -> bytes:
    return "".join(piece["bytes"] for piece in exchange["answer"]).encode("latin-1")


Play = Callable[["Handler", bytes], None]


def whole(handler: Handler, answer: bytes) -> None:
    handler.wfile.write(answer)


def bytewise(handler: Handler, answer: bytes) -> None:
    """Every read of the client ends somewhere else, within characters too."""
    for start in range(0, len(answer), 7):
        handler.wfile.write(answer[start : start + 7])
        handler.wfile.flush()


def broken_after(share: float) -> Play:
    """Reset the connection after part of the answer."""

    def play(handler: Handler, answer: bytes) -> None:
        handler.wfile.write(answer[: int(len(answer) * share)])
        handler.wfile.flush()
        time.sleep(1.0)  # a reset would throw away what is still on its way
        handler.reset()

    return play


def ended_after(share: float) -> Play:
    """An orderly end of the response, with the rest of the answer missing."""
    return lambda handler, answer: handler.wfile.write(answer[: int(len(answer) * share)]) and None


def then(share: float, tail: bytes) -> Play:
    """Part of the answer, up to a whole event, then something else."""

    def play(handler: Handler, answer: bytes) -> None:
        events = answer.split(b"\n\n")
        handler.wfile.write(b"\n\n".join(events[: int(len(events) * share)]) + b"\n\n" + tail)

    return play


def silent_after(share: float) -> Play:
    """Part of the answer, then nothing, until the client goes away."""

    def play(handler: Handler, answer: bytes) -> None:
        if share:
            then(share, b"")(handler, answer)
            handler.wfile.flush()
        handler.wait_for_hangup()

    return play


def endless(handler: Handler, answer: bytes) -> None:
    """The first event again and again, with a pause, until the client goes away."""
    handler.wfile.write(answer.split(b"\n\n")[0] + b"\n\n")
    handler.wfile.flush()
    handler.wait_for_hangup()


class Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def _answer(self, body: Any) -> None:
        site = self.site
        site.requests.append((self.command, self.path, body, dict(self.headers)))
        status = site.statuses.pop(0) if self.path in site.streaming and site.statuses else 200
        if status != 200:
            self._send(status, "application/json", site.error_body)
            return
        queue = site.exchanges.get((self.command, self.path), [])
        if not queue:
            self._send(404, "application/json", b'{"error": {"message": "no such path"}}')
            return
        # The last answer of a path is given for ever.
        exchange = queue.pop(0) if len(queue) > 1 else queue[0]
        answer = site.transform(self.path, answer_of(exchange))
        kind = exchange["content_type"]
        if not kind.startswith("text/event-stream"):
            self._send(exchange["status"], kind, answer)
            return
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        site.streaming_began.set()
        site.play(self, answer)

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        if 300 <= status < 400:
            self.send_header("location", "http://127.0.0.1:9/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def reset(self) -> None:
        """Close with RST instead of FIN."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def wait_for_hangup(self) -> None:
        self.connection.settimeout(20)
        try:
            gone = self.connection.recv(1) == b""
        except ConnectionError:
            gone = True
        except TimeoutError:
            gone = False
        self.site.hangups.append(gone)
        self.site.hung_up.set()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@dataclass
class Site:
    """What the server does, and what it saw. ``statuses`` are used up by the streaming paths first."""

    exchanges: dict[tuple[str, str], list[dict[str, Any]]]
    play: Play = whole
    statuses: list[int] = field(default_factory=list)
    error_body: bytes = b'{"error": {"message": "out of order"}}'
    transform: Callable[[str, bytes], bytes] = lambda path, answer: answer
    requests: list[tuple[str, str, Any, dict[str, str]]] = field(default_factory=list)
    hangups: list[bool] = field(default_factory=list)
    hung_up: threading.Event = field(default_factory=threading.Event)
    streaming_began: threading.Event = field(default_factory=threading.Event)
    url: str = ""

    @property
    def streaming(self) -> set[str]:
        return {
            path
            for (_, path), queue in self.exchanges.items()
            if queue[0]["content_type"].startswith("text/event-stream")
        }

    def asked(self, path: str) -> int:
        return sum(request[1] == path for request in self.requests)


@contextmanager
def replaying(recording: dict[str, Any], play: Play = whole, **site: Any) -> Iterator[Site]:
    exchanges: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for exchange in recording["exchanges"]:
        exchanges.setdefault((exchange["method"], exchange["path"]), []).append(exchange)
    with serving(Site(exchanges, play, **site)) as served:
        yield served


@contextmanager
def serving(site: Site) -> Iterator[Site]:
    handler = type("SiteHandler", (Handler,), {"site": site})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
