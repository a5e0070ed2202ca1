"""Is what was drawn what should have been drawn? Distance and a goodness-of-fit test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

SURE = 0.001  # a p-value below this is called a difference


@dataclass(frozen=True, slots=True)
class Fit:
    """How draws compare with a distribution.

    ``distance``: total variation between observed shares and p, 0 to 1; ``expected_distance``: what
    chance alone gives with so many draws of p (about); ``g``: the G statistic of the likelihood-ratio
    test with ``degrees`` of freedom; ``p_value``: how often true draws of p would look at least so
    different."""

    draws: int
    distance: float
    expected_distance: float
    g: float
    degrees: int
    p_value: float

    @property
    def differs(self) -> bool:
        return self.p_value < SURE


def fit(counts: Sequence[int], probs: Sequence[float]) -> Fit:
    """Compare ``counts`` with ``probs`` (same order, probs sum to 1).

    G = 2 sum O ln(O/E) (Sokal and Rohlf); cells with fewer than 5 expected draws are taken together,
    as the chi-square limit asks. A draw where p is 0 makes the p-value 0."""
    total = sum(counts)
    p = torch.tensor(list(probs), dtype=torch.float64)
    seen = torch.tensor(list(counts), dtype=torch.float64)
    if total == 0:
        return Fit(0, 0.0, 0.0, 0.0, 0, 1.0)
    distance = float((seen / total - p).abs().sum() / 2)
    # E|share - p| of a binomial share is close to sqrt(2 p (1-p) / (pi n)).
    chance = float((2 * p * (1 - p) / (torch.pi * total)).sqrt().sum() / 2)
    expected = p * total
    large = expected >= 5
    impossible = bool((seen[p <= 0] > 0).any())
    cells = list(zip(seen[large].tolist(), expected[large].tolist(), strict=True))
    rest = (float(seen[~large].sum()), float(expected[~large].sum()))
    if rest[1] > 0:
        cells.append(rest)
    g = 2 * sum(o * float(torch.log(torch.tensor(o / e))) for o, e in cells if o > 0 and e > 0)
    degrees = max(0, len(cells) - 1)
    half = torch.tensor([degrees / 2, max(0.0, g) / 2], dtype=torch.float64)
    tail = float(torch.special.gammaincc(half[0], half[1])) if degrees else 1.0
    return Fit(total, distance, chance, g, degrees, 0.0 if impossible else tail)
