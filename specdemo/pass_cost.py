"""What a verify pass of several rows costs on this device, in one-row passes: measured once, kept.

Adaptive drafters choose their depth by it. It is kept in the cache folder per model, dtype, device and
threads, so that a seed gives the same drafts, and hence the same sampled text, in the next process too.
``specdemo.cost`` measures the whole curve for people; this is the short form for the engine.
"""

from __future__ import annotations

import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import cache, environment
from .target import Session, Target

ROWS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32)
CONTEXTS = (64, 1024)  # tokens in the cache while measuring: attention makes wide passes dearer
TURNS = 7
_VERSION = 7  # of what a file holds; raise it when passes change their cost


@dataclass(frozen=True, slots=True)
class Measured:
    """Relative cost by rows; between the measured numbers linear, beyond them along the last slope."""

    relative: Mapping[int, float]

    def __call__(self, rows: int) -> float:
        if rows in self.relative:
            return self.relative[rows]
        known = sorted(self.relative)
        above = next((index for index, value in enumerate(known) if value > rows), len(known) - 1)
        low, high = known[max(0, above - 1)], known[max(1, above)]
        slope = (self.relative[high] - self.relative[low]) / (high - low)
        return self.relative[low] + slope * (rows - low)


@dataclass(frozen=True, slots=True)
class ByContext:
    """Cost by rows at each of a few context lengths."""

    curves: Mapping[int, Mapping[int, float]]

    def __call__(self, rows: int) -> float:
        """Behind the shortest context."""
        return Measured(self.curves[min(self.curves)])(rows)

    def at(self, context: int) -> Measured:
        """The cost behind ``context`` tokens: between the measured lengths linear, beyond them that of
        the nearest."""
        known = sorted(self.curves)
        above = next((length for length in known if length >= context), known[-1])
        below = max((length for length in known if length <= context), default=known[0])
        share = 0.0 if above == below else (context - below) / (above - below)
        low, high = self.curves[below], self.curves[above]
        curve = Measured({rows: low[rows] + share * (high[rows] - low[rows]) for rows in low})
        return Measured(
            {rows: curve(rows) for rows in range(1, max(low) + 1)}
        )  # asked many times a round


def pass_cost(target: Target) -> ByContext:
    """The cost function of a target: from the cache folder, else measured now (some seconds for the
    embedded model) and written there. A folder that cannot be written is no error."""
    path = cache.root() / "pass-cost" / f"{key_of(target)}.json"
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        kept = {
            int(context): {int(rows): float(value) for rows, value in curve.items()}
            for context, curve in json.loads(path.read_text("utf-8")).items()
        }
        whole = all(set(curve) == set(ROWS) and min(curve.values()) > 0 for curve in kept.values())
        if CONTEXTS[0] in kept and whole:
            return ByContext(kept)
    room = target.shape.context - max(ROWS)
    measured = {c: measure(target, c) for c in CONTEXTS if c <= room or c == CONTEXTS[0]}
    with suppress(OSError):
        write(path, json.dumps(measured))
    return ByContext(measured)


def measure(target: Target, context: int = CONTEXTS[0]) -> dict[int, float]:
    """Time of a chain pass by rows behind ``context`` tokens, relative to one row, never falling with
    the number of rows (a wider pass that seems cheaper is noise, see ``rising``).

    Every turn times each number of rows next to one row, and the median of turns counts: a machine that
    changes its speed, or has other work, changes both."""
    target.settle()
    session = target.open(context + max(ROWS))
    try:
        session.prefill([token % target.shape.vocab for token in range(context)])
        for rows in ROWS:
            pass_seconds(target, session, rows)  # the first makes buffers
        turns = [[_ratio(target, session, rows) for rows in ROWS] for _ in range(TURNS)]
    finally:
        session.close()
    ratios = [statistics.median(column) for column in zip(*turns, strict=True)]
    return dict(zip(ROWS, (round(value, 3) for value in rising([1.0, *ratios[1:]])), strict=True))


def rising(values: Sequence[float]) -> list[float]:
    """The nearest numbers that never fall and never lie below the first (which stays as it is): where
    they fell, neighbours share their mean. A spike must not make all that comes after it dear."""
    first, blocks = values[0], [[values[0], 1]]
    for value in values[1:]:
        blocks.append([max(value, first), 1])
        while len(blocks) > 2 and blocks[-2][0] > blocks[-1][0]:
            (high, many), (low, more) = blocks[-2:]
            blocks[-2:] = [[(high * many + low * more) / (many + more), many + more]]
    return [value for value, count in blocks for _ in range(int(count))]


def _ratio(target: Target, session: Session, rows: int) -> float:
    return pass_seconds(target, session, rows) / pass_seconds(target, session, 1)


def pass_seconds(target: Target, session: Session, rows: int) -> float:
    """One pass over a chain of ``rows`` tokens, the device waited for before and after."""
    tokens, parents = list(range(rows)), range(-1, rows - 1)
    target.synchronize()
    began = time.perf_counter()
    session.forward(tokens, parents)
    target.synchronize()
    return time.perf_counter() - began


def key_of(target: Target) -> str:
    """A name for what is measured of this target with these libraries on this device."""
    about = environment.describe(target.device)
    parts = [
        _VERSION,
        target.name,
        target.shape,
        target.dtype_name,
        type(target).__name__,
        target.kernels,
    ]
    parts += [about["device_name"], about["threads"], about["torch"], os.cpu_count()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:24]


def write(path: Path, text: str) -> None:
    """Whole or not at all, also when two processes write at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).replace(path)
