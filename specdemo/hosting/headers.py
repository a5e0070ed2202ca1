"""Security headers: a Content-Security-Policy that knows the page's own scripts by their hashes."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import MutableMapping, Sequence
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Send

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


class Answer:
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
