"""The growing text of JSON lines that the server sends to the page. It is only ever appended to."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import count
from typing import Any

from ...events import Event, to_json

_serial = count(1)


class Bus:
    """Lines for one run of the page: events, and words to the page itself.

    The first line is unique, so that the page knows a new text from a longer one."""

    def __init__(self, slots: Iterable[str], **label: Any) -> None:
        self._parts: list[str] = []
        self.page(
            "reset", slots=list(slots), serial=next(_serial), **({"label": label} if label else {})
        )

    def page(self, do: str, **values: Any) -> Bus:
        """A word to the page: ``open`` a slot, ``status``, ``data`` ..."""
        self._parts.append(
            json.dumps({"type": "page", "do": do, **values}, separators=(",", ":")) + "\n"
        )
        return self

    def status(self, state: str, key: str = "", **values: Any) -> Bus:
        return self.page("status", state=state, key=key, values=values)

    def error(self, sentence: str) -> Bus:
        return self.page("status", state="error", message=sentence)

    def event(self, event: Event) -> Bus:
        self._parts.append(to_json(event) + "\n")
        return self

    def lines(self, lines: Iterable[str]) -> Bus:
        """Events that are JSON lines already."""
        self._parts.extend(f"{line}\n" for line in lines)
        return self

    @property
    def text(self) -> str:
        """Everything so far. Parts are joined once and kept joined: the text is asked for often."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0]
