"""What all engines' streams are brought to: chunks of tokens, and the text split among the tokens."""

from __future__ import annotations

import codecs
import math
from dataclasses import dataclass, field
from typing import Any

from ..events import Reason

UNKNOWN_ID = -1  # the server did not report this token's id


@dataclass(frozen=True, slots=True)
class Counters:
    """A server's own counts for one request. ``accepted`` and ``drafted`` tokens, ``steps`` with a
    draft, None where not reported. ``per_step``: (accepted, drafted) of each of these steps, in
    order, or empty. ``histogram[i]``: steps that accepted i tokens, or empty. ``mean_length``:
    tokens per step where only that is told. ``source``: where the counts come from; ``own``: they
    are of this request alone, not of all that the server did meanwhile."""

    source: str
    accepted: int | None = None
    drafted: int | None = None
    steps: int | None = None
    per_step: tuple[tuple[int, int], ...] = ()
    histogram: tuple[int, ...] = ()
    mean_length: float | None = None
    own: bool = True


@dataclass(frozen=True, slots=True)
class Chunk:
    """One event of a stream. ``ids`` of its tokens (``UNKNOWN_ID`` where not reported), ``pieces``
    their texts and ``probs`` their plain softmax probabilities (None where not reported); ``text``
    what the chunk adds to the answer, in which stop texts are cut and characters whole.

    ``progress``: cumulative (drafted, accepted) counts, where the server sends them with each
    token. ``reason`` and ``counters`` come with the end. ``counted``: False when the server does not
    tell how many tokens the chunk holds and it is taken for one."""

    ids: tuple[int, ...] = ()
    text: str = ""
    pieces: tuple[str | None, ...] = ()
    probs: tuple[float | None, ...] = ()
    progress: tuple[int, int] | None = None
    prompt_tokens: int | None = None
    reason: Reason | None = None
    counters: Counters | None = None
    model: str = ""
    counted: bool = True


@dataclass(slots=True)
class Splitter:
    """Gives each token its part of the text, so that the parts add up to the server's text exactly.

    A server may hold text back (a stop text may begin there, or a character is incomplete); such
    text goes to the token that finally brings it."""

    _owed: str = ""

    def split(self, text: str, pieces: tuple[str | None, ...]) -> list[str]:
        """Parts of ``text``, one for each of ``pieces``; unknown pieces (None) share what is left."""
        parts = ["" for _ in pieces]
        if not parts:
            self._owed = ""  # nothing to give it to: the caller adds it to the next chunk
            return parts
        late = self._owed[: len(text)] if text.startswith(self._owed[: len(text)]) else ""
        self._owed = self._owed[len(late) :] if late else ""
        parts[0], rest = late, text[len(late) :]
        open_part: int | None = None  # the first token of unknown text since the last known one
        for index, piece in enumerate(pieces):
            if piece is None:
                open_part = index if open_part is None else open_part
                continue
            at = rest.find(piece) if open_part is not None else 0
            if at >= 0 and rest.startswith(piece, at):
                if open_part is not None:
                    parts[open_part] += rest[:at]
                    open_part = None
                parts[index] += piece
                rest = rest[at + len(piece) :]
            elif piece.startswith(rest):  # the end of this piece is held back
                parts[index] += rest
                self._owed += piece[len(rest) :]
                rest = ""
            else:
                open_part = index if open_part is None else open_part
        parts[len(parts) - 1 if open_part is None else open_part] += rest
        return parts


@dataclass(slots=True)
class ByteText:
    """Texts of tokens given as bytes: a character belongs to the token that completes it."""

    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def piece(self, data: Any) -> str | None:
        return self._decoder.decode(bytes(data)) if isinstance(data, list) else None


def text_of(value: Any) -> str:
    """A server's text; lone surrogates, which JSON can express, become replacement characters."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("a text that is none")
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def ids_of(value: Any) -> tuple[int, ...]:
    """Token ids. Raises ``TypeError`` for anything else."""
    if value is None:
        return ()
    if not isinstance(value, list) or any(type(id_) is not int for id_ in value):
        raise TypeError("token ids that are none")
    return tuple(value)


def count_of(value: Any) -> int | None:
    """A count, or None where there is none. Raises ``TypeError`` for what no count can be."""
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value < 2**53 or value != int(value):
        raise TypeError("a count that is none")
    return int(value)


def probability(logprob: Any) -> float | None:
    """exp(logprob), None for what is no log-probability (vLLM sends -9999 for "not among them")."""
    if type(logprob) not in (int, float) or not math.isfinite(logprob) or logprob <= -9999.0:
        return None
    return min(1.0, math.exp(logprob))
