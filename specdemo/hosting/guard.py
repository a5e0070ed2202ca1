"""What stands before every request: which paths exist, how large a body may be, security headers.

Gradio serves more than this page needs (a proxy to other hosts, files by path, run histories, an
editor); only the paths of ``OPEN`` are let through, everything else is 404. A plain ASGI middleware:
streams pass untouched.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .visitors import Buckets, address_of

if TYPE_CHECKING:
    from ..ui.backend import Backend

MAX_BODY = 9_000_000  # bytes; an uploaded recording and its wrapping
SMALL_BODY = 1_000_000  # bytes, of everything that is no upload
UPLOADS = 120  # a minute and network address
FAILED_LOGINS = 30  # a minute and network address

_API = "gradio_api"
_CALLS = (
    "queue/join|queue/data|cancel|reset|heartbeat/[\\w-]+|upload|upload_progress|info|app_id"
    "|login_check|user|startup-events|theme\\.css|call/generate(/[\\w-]+)?|call/v2/generate(/[\\w-]+)?"
)
_PAGE = (
    "|config|login|logout|theme\\.css|robots\\.txt|manifest\\.json|favicon\\.ico|pwa_icon(/\\d+)?"
    "|assets/.*|static/.*|svelte/.*|specdemo/.*|healthz|metrics"
)
OPEN = re.compile(f"/(?:{_PAGE}|{_API}/(?:{_CALLS}))/?")
METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_INLINE = re.compile(rb"<script(?![^>]*\bsrc=)[^>]*>(.*?)</script>", re.DOTALL | re.IGNORECASE)


def policy(inline: bytes, frame: Sequence[str] = ()) -> str:
    """The Content-Security-Policy for a page whose HTML is ``inline``: only our own origin, and the
    scripts that stand in the HTML itself, by their hashes. ``frame``: who may show us in a frame.

    'unsafe-eval' is Gradio's: it builds the functions of ``js=`` and ``js_on_load`` from strings,
    which are the program's own, never a visitor's."""
    hashes = [hashlib.sha256(found[1]).digest() for found in _INLINE.finditer(inline)]
    scripts = " ".join(f"'sha256-{base64.b64encode(h).decode()}'" for h in hashes)
    rules = {
        "default-src": "'self'",
        "script-src": f"'self' 'unsafe-eval' {scripts}".strip(),
        "style-src": "'self' 'unsafe-inline'",
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "object-src": "'none'",
        "base-uri": "'self'",
        "form-action": "'self'",
        "frame-ancestors": " ".join(["'self'", *frame]),
    }
    return "; ".join(f"{name} {value}" for name, value in rules.items())


@dataclass
class Guard:
    """``app`` behind it. ``frame``: origins that may frame the page; ``proxy``: see ``visitors``;
    ``uploading``: whether files may be sent; ``refused(status)`` is called for every refusal."""

    app: ASGIApp
    frame: Sequence[str] = ()
    proxy: bool = False
    uploading: bool = True
    refused: Callable[[int], None] = lambda status: None
    uploads: Buckets = field(default_factory=lambda: Buckets(UPLOADS))
    logins: Buckets = field(default_factory=lambda: Buckets(FAILED_LOGINS))
    locked: set[str] = field(default_factory=set)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":  # the page has none
                await send({"type": "websocket.close", "code": 1008})
                return
            await self.app(scope, receive, send)
            return
        path, status = self._path(scope), self._refusal(scope)
        if status:
            await self._refuse(status, scope, receive, send)
            return
        body = _Body(receive, MAX_BODY if path == f"/{_API}/upload" else SMALL_BODY)
        answer = _Answer(send, self.frame)

        async def watched(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._login(path, scope, message["status"])
            if body.too_large:  # whatever the app made of the half body
                return
            await answer(message)

        try:
            await self.app(scope, body, watched)
        except Exception:
            if not body.too_large:
                raise
        if body.too_large and not answer.started:
            await self._refuse(413, scope, receive, send)

    @staticmethod
    def _path(scope: Scope) -> str:
        path, root = scope["path"], scope.get("root_path", "")
        path = path.removeprefix(root) if root and path.startswith(root) else path
        return path.rstrip("/") or "/"

    def _refusal(self, scope: Scope) -> int:
        """The status of a refusal, 0 when the request may pass."""
        path, headers = self._path(scope), _headers(scope)
        if not OPEN.fullmatch(path) or ".." in path or "\\" in path:
            return 404
        if scope["method"] not in METHODS:
            return 405
        length = headers.get("content-length", "0")
        most = MAX_BODY if path == f"/{_API}/upload" else SMALL_BODY
        if not length.isdecimal() or int(length) > most:
            return 413
        address = self._address(scope)
        if path == f"/{_API}/upload" and not self.uploading:
            return 404
        if path == f"/{_API}/upload" and self.uploads.take(address):
            return 429
        if path == "/login" and scope["method"] == "POST" and self.logins.wait(address):
            return 429
        return 0

    def _address(self, scope: Scope) -> str:
        client = scope.get("client") or ("", 0)
        return address_of(client[0], _headers(scope), self.proxy)

    def _login(self, path: str, scope: Scope, status: int) -> None:
        if path == "/login" and status in (400, 401):
            self.logins.take(self._address(scope))

    async def _refuse(self, status: int, scope: Scope, receive: Receive, send: Send) -> None:
        self.refused(status)
        words = {
            404: "There is nothing here.",
            405: "This method is not used here.",
            413: "The request is too large.",
            429: "Too many requests: wait a minute.",
        }
        response = JSONResponse({"error": words[status]}, status_code=status)
        await response(scope, receive, _Answer(send, self.frame))


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


class _Body:
    """Counts what comes in; ends the request when it is more than announced or allowed."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._left = receive, most
        self.too_large = False

    async def __call__(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                self.too_large = True
                return {"type": "http.disconnect"}
        return message


class _Answer:
    """Adds the headers. HTML is held back until it is whole, for the hashes of its scripts."""

    def __init__(self, send: Send, frame: Sequence[str]) -> None:
        self._send, self._frame = send, frame
        self._held: MutableMapping[str, Any] | None = None
        self._html = b""
        self.started = False

    async def __call__(self, message: Message) -> None:
        self.started = True
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=list(message["headers"]))
            message = {**message, "headers": headers.raw}
            if headers.get("content-type", "").startswith("text/html"):
                self._held = message
                return
            self._secure(headers, b"")
        elif self._held is not None:
            self._html += message.get("body", b"")
            if message.get("more_body"):
                return
            self._secure(MutableHeaders(raw=self._held["headers"]), self._html)
            await self._send(self._held)
            self._held = None
            message = {"type": "http.response.body", "body": self._html}
        await self._send(message)

    def _secure(self, headers: MutableHeaders, html: bytes) -> None:
        headers["content-security-policy"] = policy(html, self._frame)
        headers["x-content-type-options"] = "nosniff"
        headers["referrer-policy"] = "no-referrer"
        headers["permissions-policy"] = "camera=(), microphone=(), geolocation=()"
        if not self._frame:
            headers["x-frame-options"] = "SAMEORIGIN"  # it knows no list of origins


def app_parts(backend: Backend, routes: Sequence[BaseRoute] = ()) -> dict[str, Any]:
    """Arguments for the FastAPI app that serves ``backend``'s page: routes and middleware."""
    from .backend import HostedBackend
    from .health import routes as health_routes

    config, metrics = backend.config, None
    found = list(routes)
    if isinstance(backend, HostedBackend):
        found += health_routes(backend)
        metrics = backend.metrics.requests

    def refused(status: int) -> None:
        if metrics is not None:
            metrics.labels(str(status)).inc()

    guard = Middleware(
        Guard, frame=config.frame, proxy=config.proxy, uploading=config.recordings, refused=refused
    )
    return {"routes": found, "middleware": [guard]}


__all__ = ["Guard", "app_parts", "policy"]
