"""The events of a run: small, frozen, JSON-able. All that engine and page share.

A run is ``Started``, then per round one ``Drafted`` and one ``Verified``, then ``Finished``.
Every event carries ids *and* text, so that a replay needs neither model nor tokenizer.
This module imports nothing heavy: a replay runs without torch.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

SCHEMA_VERSION = 1

Origin = Literal["accepted", "corrected", "bonus", "target"]
Judgement = Literal["accepted", "rejected", "not_judged"]
Reason = Literal["eos", "stop", "length", "context", "cancelled", "error", "cut"]

_LARGEST = 1e300
ORIGINS: tuple[str, ...] = get_args(Origin)
REASONS: tuple[str, ...] = get_args(Reason)


class RecordingError(ValueError):
    """A line is not an event of this schema. The message is one sentence for the reader."""


@dataclass(frozen=True, slots=True)
class Started:
    """The run begins; everything needed to repeat and to label it.

    ``settings`` holds the sampling parameters and the drafter's controls as plain values;
    ``environment`` the device's name, threads and library versions; ``note`` words for the
    reader (for instance "acceptance inferred from chunks").
    """

    type: ClassVar[str] = "started"
    version: int
    model: str
    drafter: str
    prompt: str
    prompt_tokens: int
    settings: Mapping[str, Any]
    device: str
    dtype: str
    seed: int
    lossless: bool
    environment: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


@dataclass(frozen=True, slots=True)
class DraftNode:
    """One proposed token. ``parent`` is the index of another node, -1 for the root (the last
    committed token). ``q`` is the probability the draft gave it, None for a deterministic draft."""

    id: int
    text: str
    parent: int
    q: float | None


@dataclass(frozen=True, slots=True)
class Drafted:
    """The draft's proposal of a round; ``ms`` is the time the draft took, in milliseconds.

    ``source`` names the sub-drafter that proposed (``auto``), empty otherwise."""

    type: ClassVar[str] = "drafted"
    round: int
    nodes: tuple[DraftNode, ...]
    ms: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the most likely tokens at a position: p of the target, q of the draft (None where
    the draft gave no distribution) and the residual probability (None where nothing was refused)."""

    id: int
    text: str
    p: float
    q: float | None = None
    residual: float | None = None


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What verification said of one draft node.

    ``p``: target probability when tested (None if not judged). ``threshold``: the probability of
    acceptance, min(1, p/q) for the exact rule. ``draw``: the uniform number u it was compared with,
    None when no draw was needed (greedy, or threshold 0 or 1)."""

    judgement: Judgement
    p: float | None = None
    threshold: float | None = None
    draw: float | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A committed token. ``p`` is its probability under the distribution it was judged by or drawn
    from (after temperature and filters; 1.0 when greedy), ``q`` the draft's, ``node`` the index of
    its draft node or None. ``text`` may be empty: bytes of a character that a later token completes,
    or a special token. ``alternatives`` are the likeliest tokens at its position (traced runs only).
    ``prob`` is the target's plain softmax probability before temperature and filters (traced runs)."""

    id: int
    text: str
    origin: Origin
    p: float | None = None
    q: float | None = None
    node: int | None = None
    prob: float | None = None
    alternatives: tuple[Alternative, ...] = ()
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict of a round: one ``NodeVerdict`` per node of the ``Drafted`` before it, and the
    committed tokens in order. ``ms``: the target pass and the verification walk; ``overhead_ms``:
    everything else since the last event, in milliseconds, the consumer's time excluded.
    ``target_ms``: the target's forward pass alone, part of ``ms``."""

    type: ClassVar[str] = "verified"
    round: int
    verdicts: tuple[NodeVerdict, ...]
    tokens: tuple[Token, ...]
    ms: float
    overhead_ms: float = 0.0
    target_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The run ends. ``text`` is the concatenation of the token texts, ``token_ids`` their ids.
    ``summary``: see ``metrics.summarise``. ``message``: one sentence when ``reason`` is error/cut."""

    type: ClassVar[str] = "finished"
    reason: Reason
    text: str
    token_ids: tuple[int, ...]
    summary: Mapping[str, Any]
    message: str = ""


Event = Started | Drafted | Verified | Finished
_EVENTS: dict[str, type] = {e.type: e for e in (Started, Drafted, Verified, Finished)}
_NESTED: dict[str, type] = {
    "nodes": DraftNode,
    "verdicts": NodeVerdict,
    "tokens": Token,
    "alternatives": Alternative,
}


def to_dict(event: Event) -> dict[str, Any]:
    """Plain JSON-able values, the ``type`` first."""
    return {"type": event.type, **_plain(event)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no infinity
    return value


def to_json(event: Event) -> str:
    """One line of JSON; lone surrogates cannot occur because everything is ASCII-escaped."""
    return json.dumps(to_dict(event), separators=(",", ":"))


def from_dict(data: Any) -> Event:
    """The inverse of ``to_dict``. Raises ``RecordingError`` for anything that is not an event."""
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        raise RecordingError("This is not a specdemo recording: a line without a type.")
    kind = _EVENTS.get(data["type"])
    if kind is None:
        raise RecordingError(f"Unknown event type {data['type'][:40]!r} in the recording.")
    return _build(kind, {k: v for k, v in data.items() if k != "type"})


def _build(kind: type, data: Any) -> Any:
    if not isinstance(data, dict):
        raise RecordingError(f"A {kind.__name__} in the recording is not an object.")
    known = {f.name: f for f in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for name, f in known.items():
        if name in data:
            values[name] = _value(kind, f, data[name])
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise RecordingError(f"A {kind.__name__} in the recording lacks {name!r}.")
    return kind(**values)


def _value(kind: type, f: dataclasses.Field[Any], value: Any) -> Any:
    """Check one value against the field's annotation (all are strings: future annotations)."""
    if f.name in _NESTED and "tuple" in str(f.type):
        if not isinstance(value, list):
            raise RecordingError(f"{kind.__name__}.{f.name} in the recording is not a list.")
        return tuple(_build(_NESTED[f.name], item) for item in value)
    annotation = str(f.type)
    if value is None and "None" in annotation:
        return None
    if annotation.startswith("tuple[int"):
        good = isinstance(value, list) and all(type(v) is int for v in value)
        value = tuple(value) if good else value
    elif annotation.startswith("int"):
        good = type(value) is int
    elif annotation.startswith("float"):
        # A bound, not only finiteness: a whole number of JSON may be too large for a float.
        good = type(value) in (int, float) and -_LARGEST <= value <= _LARGEST
        value = float(value) if good else value
    elif annotation.startswith("str"):
        good = isinstance(value, str)
    elif annotation.startswith("bool"):
        good = isinstance(value, bool)
    elif annotation.startswith("Mapping"):
        good = isinstance(value, dict) and _is_plain(value)
    else:
        good = value in get_args(
            {"Origin": Origin, "Judgement": Judgement, "Reason": Reason}[annotation]
        )
    if not good:
        raise RecordingError(f"{kind.__name__}.{f.name} in the recording has a wrong value.")
    return value


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Numbers, texts and shallow containers: what ``to_json`` can write out again."""
    if isinstance(value, (dict, list)):
        items = value.values() if isinstance(value, dict) else value
        return depth < 8 and all(_is_plain(item, depth + 1) for item in items)
    return True


def from_json(line: str) -> Event:
    """Parse one line. Raises ``RecordingError`` with one sentence."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RecordingError("A line of the recording is not JSON.") from error
    return from_dict(data)


def read_events(lines: Iterable[str]) -> Iterator[Event]:
    """Events of a JSON-lines stream, blank lines skipped. Raises ``RecordingError``."""
    for line in lines:
        if line.strip():
            yield from_json(line)
