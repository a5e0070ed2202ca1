"""The committed output: text, ids and the end of a run, decided token by token in order.

Text and ids always agree: a token behind the end is in neither. A stop text may lie across tokens
and rounds, so what could still become a part of one is not yet ``settled``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .events import Reason


class Output:
    """Collects tokens until one of the ends is reached; the earliest wins, whatever came in one run.

    ``limit``: ``max_new_tokens``. ``room``: tokens the context still holds."""

    def __init__(self, eos: Collection[int], stop: Sequence[str], limit: int, room: int) -> None:
        self._eos, self._stop, self._limit, self._room = eos, stop, limit, room
        self.ids: list[int] = []
        self.texts: list[str] = []
        self._text = ""
        self.reason: Reason | None = None
        self.settled = 0  # tokens that no later stop text can take back

    @property
    def text(self) -> str:
        return self._text

    def push(self, token: int, piece: str) -> None:
        """Take one token. Must not be called once ``reason`` is set."""
        if token in self._eos:
            piece, self.reason = "", "eos"
        before = len(self._text)
        self.ids.append(token)
        self.texts.append(piece)
        self._text += piece
        if self.reason is None and self._stop and piece:
            self._find_stop(before)
        if self.reason is None:
            if len(self.ids) >= self._limit:
                self.reason = "length"
            elif len(self.ids) >= self._room:
                self.reason = "context"
        self.settled = len(self.ids) if self.reason else self._settled()

    def _find_stop(self, before: int) -> None:
        hits = [self._text.find(s, max(0, before - len(s) + 1)) for s in self._stop]
        hits = [hit for hit in hits if hit >= 0]
        if hits:
            self._cut(min(hits))
            self.reason = "stop"

    def _cut(self, end: int) -> None:
        """Drop everything from character ``end`` on; a token that straddles it keeps its first part."""
        self._text = self._text[:end]
        start, kept = 0, 0
        for piece in self.texts:
            if start >= end:
                break
            if start + len(piece) > end:
                self.texts[kept] = piece[: end - start]
            start += len(piece)
            kept += 1
        del self.ids[kept:], self.texts[kept:]

    def _settled(self) -> int:
        if not self._stop:
            return len(self.ids)
        held = max(_overlap(self._text, stop) for stop in self._stop)
        end, start = len(self._text) - held, len(self._text)
        for index in range(len(self.ids) - 1, -1, -1):
            stop, start = start, start - len(self.texts[index])
            # A token without text may be the first bytes of a character that a stop text begins with.
            if start < end and stop <= end:
                return index + 1
        return 0


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of ``text`` that is a proper beginning of ``stop``."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
