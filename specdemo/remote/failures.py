"""What can go wrong at a server, each as one sentence that names the server and never its key."""

from __future__ import annotations

import json
from typing import Any

import httpx

from ..errors import InputError
from .servers import KINDS, Server

AGAIN = (429, 502, 503, 504)  # worth another try, as long as no token has come
SHOWN = 200  # characters of a server's own words


class ServerError(InputError):
    """A server could not be used or broke off. ``again``: the same request may succeed later;
    ``status``: the HTTP status, 0 when there was none."""

    def __init__(self, key: str, *, again: bool = False, status: int = 0, **values: Any) -> None:
        super().__init__(key, **values)
        self.again, self.status = again, status


def clean(server: Server, text: object) -> str:
    """A server's words, fit for a sentence: one line, short, without the key it may have echoed."""
    words = " ".join(str(text).split())
    for secret in (server.api_key, server.baseline_key):
        if secret:
            words = words.replace(secret, "[key]")
    words = "".join(c for c in words if c.isprintable())
    return words[:SHOWN].rstrip(" .") or "no reason given"


def from_status(server: Server, status: int, body: bytes) -> ServerError:
    """The sentence for a response that is not 200; ``body`` may be anything."""
    why, name = clean(server, message_of(body)), server.name
    if status in (401, 403):
        return ServerError("server_key", status=status, name=name)
    if status == 404 and "model" in why.lower():
        return ServerError("server_model", status=status, name=name, model=server.model or "?")
    if status == 429:
        return ServerError("server_busy", status=status, again=True, name=name)
    if status >= 500:
        again = status in AGAIN
        return ServerError("server_failed", status=status, again=again, name=name, code=status, why=why)
    if 300 <= status < 400:
        why = "it redirects, which is not followed"
    return ServerError("server_refused", status=status, name=name, code=status, why=why)


def message_of(body: bytes) -> str:
    """The words in an error body; the engines wrap them in different objects."""
    try:
        data = json.loads(body)
    except RecursionError:
        return ""
    except ValueError:
        return "" if b"<" in body[:200] else body[:1000].decode("utf-8", "replace")
    while isinstance(data, dict):
        data = next((data[k] for k in ("error", "message", "detail", "msg") if data.get(k)), "")
    if isinstance(data, list):  # FastAPI lists what was wrong with a request
        data = "; ".join(str(item.get("msg", "")) for item in data if isinstance(item, dict))
    return "" if data is None else str(data)


def from_exception(server: Server, error: Exception, begun: bool) -> ServerError:
    """The sentence for a failed connection. ``begun``: the response had started.

    The exception's own text is not used: it may hold the address."""
    name = server.name
    if isinstance(error, httpx.ConnectTimeout):
        return ServerError("server_down", again=True, name=name, why="no answer to the connection")
    if isinstance(error, (httpx.ConnectError, OSError)) and not begun:
        return ServerError("server_down", again=True, name=name, why="no connection to its address")
    if begun:
        return ServerError("server_cut", name=name)
    if isinstance(error, (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError)):
        return ServerError("server_down", again=True, name=name, why="it closed the connection")
    return garbage(server, "no HTTP")


def garbage(server: Server, why: str) -> ServerError:
    return ServerError("server_garbage", name=server.name, engine=KINDS[server.kind], why=why)


def silent(server: Server, seconds: float) -> ServerError:
    return ServerError("server_silent", name=server.name, seconds=f"{seconds:g}")


def too_much(server: Server, what: str) -> ServerError:
    return ServerError("server_limit", name=server.name, what=what)


def cut(server: Server) -> ServerError:
    return ServerError("server_cut", name=server.name)
