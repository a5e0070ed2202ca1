"""Bodies of requests: never larger than allowed, no file named by an address, no half characters."""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.types import Message, Receive

_HALF = re.compile("[\ud800-\udfff]")


ADDRESS = "A file must be uploaded: an address is not fetched."
BROKEN = "The request is no JSON that can be read."
HALF = "The text holds half of a character (a lone surrogate), which no model can read: remove it."


def objection(body: bytes) -> str:
    """Why a JSON body is not taken, empty when it is.

    A file given by its address would be fetched by Gradio; lone surrogates, which JSON can carry,
    would break the stream of its answers."""
    try:
        waiting: list[Any] = [json.loads(body)]
    except (ValueError, RecursionError):
        return BROKEN
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            path = value.get("path")
            if isinstance(path, str) and "meta" in value and "://" in path:
                return ADDRESS
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str) and not value.isascii() and _HALF.search(value):
            return HALF
    return ""


class Body:
    """Counts what comes in; ends the request when it is more than announced or allowed."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive, self._left = receive, most
        self._again: Message | None = None
        self.too_large = False

    async def whole(self) -> bytes:
        """The whole body; it is given to the app again as one message."""
        parts: list[bytes] = []
        more = True
        while more and not self.too_large:
            message = await self()
            parts.append(message.get("body", b""))
            more = message["type"] == "http.request" and message.get("more_body", False)
        body = b"".join(parts)
        self._again = {"type": "http.request", "body": body, "more_body": False}
        return body

    async def __call__(self) -> Message:
        if self._again is not None and not self.too_large:
            message, self._again = self._again, None
            return message
        message = await self._receive()
        if message["type"] == "http.request":
            self._left -= len(message.get("body", b""))
            if self._left < 0:
                self.too_large = True
                return {"type": "http.disconnect"}
        return message
