"""Adaptive draft length: how deep a draft is worth it, from measured acceptance and measured cost.

The decision is the expected speed-up of Leviathan et al. 2022 (theorem 3.8) with the device's own
cost of a wider verify pass in place of the assumption that it is free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

PassCost = Callable[[int], float]
WORTH = 1.03  # least expected speed-up that is worth a draft: estimates are noisy


def free_pass(rows: int) -> float:
    """Cost of a verify pass of ``rows`` rows in one-row passes where nothing was measured: memory-bound,
    every row rides along."""
    return 1.0


def best_depth(alpha: float, limit: int, pass_cost: PassCost, step_cost: float = 0.0) -> int:
    """Depth of the chain draft with the best expected speed-up, 0 when none is worth it.

    ``alpha``: probability that a draft token is accepted; ``limit``: deepest allowed; ``pass_cost(n)``:
    a verify pass of n rows, ``step_cost``: one draft step, both in one-row target passes."""
    best, found = WORTH, 0
    chance = length = 1.0  # ``expected_length``, term by term
    for depth in range(1, limit + 1):
        chance *= alpha
        length += chance
        gain = length / (pass_cost(depth + 1) + step_cost * depth)
        if gain > best:
            best, found = gain, depth
    return found


@dataclass(slots=True)
class RunningRate:
    """A running estimate of an acceptance rate: the last ``memory`` tested tokens weigh most.

    Starts from ``prior``; ``forget`` moves it back there, so that what failed is tried again."""

    prior: float
    memory: float = 8.0
    value: float = -1.0

    def __post_init__(self) -> None:
        self.value = self.prior

    def update(self, accepted: int, rejected: int) -> None:
        """Count tested tokens, the accepted ones first (as in a chain)."""
        for outcome in (1.0,) * accepted + (0.0,) * rejected:
            self.value += (outcome - self.value) / self.memory

    def forget(self, share: float = 0.02) -> None:
        self.value += (self.prior - self.value) * share
