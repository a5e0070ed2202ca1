"""Which serving engines there are, and how the host names them. A visitor can only pick a name.

A server is configured by ``--server`` or by ``SPECDEMO_SERVERS`` (entries separated by spaces):

    NAME=URL[,kind=KIND][,model=MODEL][,baseline=URL]

``kind`` may be left out when NAME is a kind. ``baseline`` is an endpoint of the same kind and model
without speculation. Keys come from ``SPECDEMO_KEY_<NAME>`` and ``SPECDEMO_KEY_<NAME>_BASELINE``
alone, never from the command line, where every user of the machine could read them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from ..errors import InputError

KINDS: dict[str, str] = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llamacpp": "llama.cpp server",
    "trtllm": "TensorRT-LLM",
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")


@dataclass(frozen=True, slots=True)
class Server:
    """One configured endpoint. ``base_url`` ends without a slash and without ``/v1``; ``model`` may
    be empty: the server's first model is taken. Keys are never shown, not even by ``repr``."""

    name: str
    kind: str
    base_url: str
    model: str = ""
    api_key: str = field(default="", repr=False)
    baseline: str | None = None
    baseline_key: str = field(default="", repr=False)

    def without_speculation(self) -> Server | None:
        """The baseline endpoint as a server of its own, or None where none is configured."""
        if self.baseline is None:
            return None
        return replace(
            self,
            name=f"{self.name}-baseline",
            base_url=self.baseline,
            api_key=self.baseline_key,
            baseline=None,
            baseline_key="",
        )


def describe(server: Server) -> dict[str, Any]:
    """What a page or a recording may know: neither address nor key."""
    return {
        "name": server.name,
        "kind": server.kind,
        "engine": KINDS[server.kind],
        "model": server.model,
        "baseline": server.baseline is not None,
    }


def parse_server(entry: str, environ: Mapping[str, str] | None = None) -> Server:
    """A server from ``NAME=URL[,kind=...][,model=...][,baseline=URL]``.

    Raises ``InputError``; its sentence never repeats an address, which might hold a secret."""
    environ = os.environ if environ is None else environ
    name, equals, rest = entry.strip().partition("=")
    url, *options = rest.split(",")
    if not equals or not _NAME.fullmatch(name):
        raise InputError("server_syntax", why="it must read NAME=URL")
    values: dict[str, str] = {}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals or not value or key not in ("kind", "model", "baseline") or key in values:
            raise InputError("server_syntax", why="options are kind=, model= and baseline=, once each")
        values[key] = value
    kind = values.get("kind", name)
    if kind not in KINDS:
        raise InputError("server_syntax", why=f"kind must be one of {', '.join(KINDS)}")
    base_url = _address(url)
    baseline = _address(values["baseline"]) if "baseline" in values else None
    api_key = _key(environ, name)
    baseline_key = _key(environ, f"{name}_baseline")
    if not baseline_key and baseline and urlsplit(baseline).hostname == urlsplit(base_url).hostname:
        baseline_key = api_key  # the same host already has it
    return Server(name, kind, base_url, values.get("model", ""), api_key, baseline, baseline_key)


def _key(environ: Mapping[str, str], name: str) -> str:
    key = environ.get("SPECDEMO_KEY_" + re.sub(r"[^A-Z0-9]", "_", name.upper()), "").strip()
    if not key.isascii() or not key.isprintable():
        raise InputError("server_syntax", why=f"the key of {name} holds characters that no header may")
    return key


def _address(url: str) -> str:
    """Scheme, host, port and path; nothing that hides a secret or points elsewhere."""
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port  # the port is checked when it is read
    except ValueError as error:
        raise InputError("server_syntax", why="the address is not a URL") from error
    if parts.scheme not in ("http", "https") or not host:
        raise InputError("server_syntax", why="the address must begin with http:// or https://")
    if parts.username is not None or parts.password is not None:
        raise InputError("server_syntax", why="a key belongs in SPECDEMO_KEY_<NAME>, not in the address")
    if parts.query or parts.fragment or any(c.isspace() for c in parts.geturl()):
        raise InputError("server_syntax", why="the address must not hold spaces, ? or #")
    path = parts.path.rstrip("/").removesuffix("/v1")
    return f"{parts.scheme}://{parts.netloc}{path}"


_CONFIGURED: dict[str, Server] = {}


def configure(
    entries: Iterable[str] = (), environ: Mapping[str, str] | None = None
) -> dict[str, Server]:
    """Set the servers of this process from the environment and from ``--server`` entries, which
    win. Called once by the host at the start. Raises ``InputError`` for a bad or doubled entry."""
    environ = os.environ if environ is None else environ
    servers: dict[str, Server] = {}
    for group in (environ.get("SPECDEMO_SERVERS", "").split(), list(entries)):
        names: set[str] = set()
        for entry in group:
            server = parse_server(entry, environ)
            if server.name in names:
                raise InputError("server_syntax", why=f"the name {server.name} is used twice")
            names.add(server.name)
            servers[server.name] = server
    _CONFIGURED.clear()
    _CONFIGURED.update(servers)
    return dict(servers)


def configured_servers() -> dict[str, Server]:
    """The servers a visitor may choose from, by name."""
    return dict(_CONFIGURED)


def find(name: str) -> Server:
    """A configured server. Raises ``InputError`` for any other name, an address above all."""
    if name not in _CONFIGURED:
        known = ", ".join(_CONFIGURED) or "none is configured"
        raise InputError("unknown_server", name=str(name)[:40], known=known)
    return _CONFIGURED[name]
