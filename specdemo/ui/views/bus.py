"""The growing text of JSON lines that the server sends to the page. It is only ever appended to.

Gradio's scripts read and copy a component's whole value at each update, so a text that keeps growing
makes every update of a long run dearer than the last. ``windowed`` texts begin anew from time to time,
with the lines of the last seconds in them: the browser may miss updates that come while it is busy.
``whole`` closes such a run; from it the page takes whatever it has missed.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable
from itertools import count
from typing import Any

from ...events import Event, to_json

_serial = count(1)
PART = 64_000  # characters of a windowed text, at least, before it begins anew
OVERLAP = 4.0  # seconds whose lines a new text repeats


class Bus:
    """Lines for one run of the page: events, and words to the page itself.

    The first line is unique, so that the page knows a new text from a longer one; it tells the number
    of the line that follows, unless that is the first of all."""

    def __init__(self, slots: Iterable[str], windowed: bool = False, **label: Any) -> None:
        self._lines: list[str] = []
        self._serial, self._windowed = next(_serial), windowed
        self._text, self._size, self._first = "", 0, 0  # of the present text, its lines and its first
        self._limit = PART
        self._asked: deque[tuple[float, int]] = deque()  # when the text was asked for, lines till then
        about = {"label": label} if label else {}
        self.page("reset", slots=list(slots), serial=self._serial, **about)

    def page(self, do: str, **values: Any) -> Bus:
        """A word to the page: ``open`` a slot, ``status``, ``data`` ..."""
        self._lines.append(_line(do, **values))
        return self

    def status(self, state: str, key: str = "", **values: Any) -> Bus:
        return self.page("status", state=state, key=key, values=values)

    def error(self, sentence: str) -> Bus:
        return self.page("status", state="error", message=sentence)

    def event(self, event: Event) -> Bus:
        self._lines.append(to_json(event) + "\n")
        return self

    def lines(self, lines: Iterable[str]) -> Bus:
        """Events that are JSON lines already."""
        self._lines.extend(f"{line}\n" for line in lines)
        return self

    @property
    def text(self) -> str:
        """What the page is to have now: everything so far, or of a windowed text its last part."""
        self._text += "".join(self._lines[self._size :])
        self._size = len(self._lines)
        if self._windowed:
            self._begin_anew()
        return self._text

    @property
    def whole(self) -> str:
        """Everything, from the first line on."""
        return self.text if not self._first else "".join(self._lines)

    def _begin_anew(self) -> None:
        now = time.monotonic()
        self._asked.append((now, self._size))
        while len(self._asked) > 1 and self._asked[1][0] <= now - OVERLAP:
            self._asked.popleft()
        if len(self._text) < self._limit:
            return
        asked, first = self._asked[0]
        kept = "".join(self._lines[first:])
        if asked <= now - OVERLAP and 2 * len(kept) < len(self._text):
            self._first, self._limit = first, max(PART, 2 * len(kept))
            self._text = _line("more", serial=self._serial, first=first) + kept
        else:
            self._limit = len(self._text) + PART // 4


def _line(do: str, **values: Any) -> str:
    return json.dumps({"type": "page", "do": do, **values}, separators=(",", ":")) + "\n"
