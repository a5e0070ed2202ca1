"""What stands before every request: which paths exist, how large a body may be, security headers.

Gradio serves more than this page needs (a proxy to other hosts, files by path, run histories, an
editor); only the paths of ``OPEN`` are let through, everything else is 404. A plain ASGI middleware:
streams pass untouched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .body import Body, objection
from .headers import Answer
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
_JSON = re.compile(f"/{_API}/(queue/join|call/(v2/)?generate)")


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
        body = Body(receive, MAX_BODY if path == f"/{_API}/upload" else SMALL_BODY)
        if scope["method"] == "POST" and _JSON.fullmatch(path):
            whole = await body.whole()
            why = "" if body.too_large else objection(whole)
            if why:
                await self._refuse(400, scope, receive, send, why)
                return
        answer = Answer(send, self.frame)

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

    async def _refuse(
        self, status: int, scope: Scope, receive: Receive, send: Send, why: str = ""
    ) -> None:
        self.refused(status)
        words = {
            404: "There is nothing here.",
            405: "This method is not used here.",
            413: "The request is too large.",
            429: "Too many requests: wait a minute.",
        }
        response = JSONResponse({"detail": why or words[status]}, status_code=status)
        await response(scope, receive, Answer(send, self.frame))


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


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


__all__ = ["Guard", "app_parts"]
