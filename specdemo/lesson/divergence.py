"""Where two greedy texts part: how close the target's two choices were at that place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..target import Target

# Two logits closer than this may change places by rounding alone. bf16 keeps 8 bits, so values near
# 16 to 32 are 0.125 apart and a sum of layers rounds several times; fp32 differs in the last places.
TIES = {"fp32": 1e-3, "bf16": 0.5, "q4": 0.5}


@dataclass(frozen=True, slots=True)
class Divergence:
    """``gap``: logit of the plain text's token less that of the other's; ``tie``: small enough to be
    rounding; ``ranks``: places of both tokens among all, 1 the likeliest."""

    gap: float
    tolerance: float
    ranks: tuple[int, int]

    @property
    def tie(self) -> bool:
        return abs(self.gap) <= self.tolerance


def divergence(target: Target, ids: Sequence[int], plain: int, other: int) -> Divergence:
    """Score ``plain`` and ``other`` after ``ids`` (prompt and common text) in one pass of one row."""
    session = target.open(len(ids) + 1)
    try:
        session.prefill(ids[:-1])
        logits = session.forward([ids[-1]], [-1])[0].float()
    finally:
        session.close()
    ranks = tuple(int((logits > logits[token]).sum()) + 1 for token in (plain, other))
    gap = float(logits[plain] - logits[other])
    return Divergence(gap, TIES.get(target.dtype_name, 0.5), (ranks[0], ranks[1]))
