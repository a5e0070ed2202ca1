"""Reading the host's settings: texts to values, and the sentences for what is wrong with them."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .errors import InputError

if TYPE_CHECKING:
    from .config import Config

_KEY = re.compile(r"SPECDEMO_KEY_[A-Z0-9_]+")
_USER = re.compile(r"[^\s:,]{1,40}")


def parsed(f: dataclasses.Field[Any], raw: Any) -> Any:
    """A text as the type of the field's default. Raises ``ValueError``, its message without the
    value where that is secret."""
    default, metadata = f.default, f.metadata
    if isinstance(default, tuple):
        entries = raw if isinstance(raw, list) else re.split(r"[\s,]+" if _plain(f) else r"\s+", raw)
        return tuple(entry.strip() for entry in entries if entry.strip())
    text = str(raw).strip()
    shown = repr(text)[:60]
    if isinstance(default, bool):
        known = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}
        if text.lower() not in known:
            raise ValueError(f"must be on or off, not {shown}")
        return known[text.lower()]
    if isinstance(default, (int, float)):
        kind = type(default)
        low, high = metadata["low"], metadata["high"]
        try:
            number = kind(text)
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            what = "a whole number" if kind is int else "a number"
            raise ValueError(f"must be {what} from {low} to {high}, not {shown}")
        return number
    if metadata["choices"] and text not in metadata["choices"]:
        raise ValueError(f"must be one of {', '.join(metadata['choices'])}, not {shown}")
    return text


def _plain(f: dataclasses.Field[Any]) -> bool:
    """Whether a comma parts two entries (in a server's entry it parts the options)."""
    return f.name != "servers"


def unknown(environ: Mapping[str, str], known: Iterable[str]) -> list[str]:
    """A sentence for every ``SPECDEMO_`` variable that nothing reads: it is a misspelling."""
    known = list(known)
    mistakes = []
    for name in sorted(environ):
        if name.startswith("SPECDEMO_") and name not in known and not _KEY.fullmatch(name):
            close = difflib.get_close_matches(name, known, 1)
            hint = f": did you mean {close[0]}?" if close else "."
            mistakes.append(f"{name} is not a setting that specdemo knows{hint}")
    return mistakes


def contradictions(config: Config, sources: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """Mistakes that show only once the values are there."""
    from .remote.servers import parse_server

    mistakes: list[str] = []
    names: set[str] = set()
    for pair in config.auth:
        user, colon, password = pair.partition(":")
        if not colon or not _USER.fullmatch(user) or len(password) < 4:
            mistakes.append(
                "SPECDEMO_AUTH must be USER:PASSWORD pairs parted by commas, each password of four "
                "characters or more."
            )
            break
        if user in names:
            mistakes.append(f"SPECDEMO_AUTH names the user {user} twice.")
        names.add(user)
    seen: set[str] = set()
    for entry in config.servers:
        try:
            server = parse_server(entry, environ)
        except InputError as error:
            mistakes.append(f"{sources['servers']}: {error}")
            continue
        if server.name in seen:
            mistakes.append(f"{sources['servers']} names the server {server.name} twice.")
        seen.add(server.name)
    for origin in config.frame:
        if not re.fullmatch(r"https?://[A-Za-z0-9.*:-]+", origin):
            mistakes.append(
                f"{sources['frame']} must hold origins such as https://example.org, not {origin[:60]!r}."
            )
    if config.dtype == "q4" and config.device == "cuda":
        mistakes.append(f"{sources['dtype']} is q4, which runs on the cpu only: choose bf16 for cuda.")
    if config.root_path and not re.fullmatch(r"(/[\w.~-]+)+", config.root_path):
        mistakes.append(f"{sources['root_path']} must be a path such as /demo, not a whole address.")
    return mistakes
