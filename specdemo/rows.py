"""Distributions as the verification walk needs them, and the one source of chance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Row(Protocol):
    """One distribution over the vocabulary, as the verification walk needs it."""

    def prob(self, token: int) -> float: ...
    def residual(self, token: int, q: Tensor | None) -> Row: ...
    def draw(self, chooser: Chooser) -> int: ...


class Rows(Protocol):
    """Distributions of several positions: row 0 after the root, row i+1 after draft node i."""

    def row(self, index: int) -> Row: ...


class Chooser(Protocol):
    """The only source of chance. The tests replace it to enumerate every outcome exactly."""

    def accept(self, probability: float) -> tuple[bool, float | None]: ...
    def sample(self, probs: Tensor) -> int: ...


class TorchChooser:
    """Chance from one explicit ``torch.Generator`` on the CPU; same draws on every device."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def uniform(self) -> float:
        return float(torch.rand((), generator=self._generator, dtype=torch.float64))

    def accept(self, probability: float) -> tuple[bool, float | None]:
        """True with ``probability``; the uniform number used, None where none was needed."""
        if probability >= 1.0:
            return True, None
        if probability <= 0.0:
            return False, None
        draw = self.uniform()
        return draw < probability, draw

    def sample(self, probs: Tensor) -> int:
        """Draw from ``probs`` ``[V]`` (need not sum to exactly 1) by inverting its running sum in
        fp64. A token of probability 0 cannot be drawn."""
        # On the CPU: a GPU sums in blocks, whose borders could lend weight to a token that has none.
        running = probs.cpu().to(torch.float64).cumsum(-1)
        # `right=True` finds the first sum strictly above the target: never a token of weight 0.
        point = running[-1] * self.uniform()
        return int(torch.searchsorted(running, point, right=True).clamp_max(probs.numel() - 1))


@dataclass(frozen=True, slots=True)
class Peak:
    """A one-hot distribution (greedy decoding)."""

    token: int

    def prob(self, token: int) -> float:
        return 1.0 if token == self.token else 0.0

    def residual(self, token: int, q: Tensor | None) -> Peak:
        return self  # max(0, one-hot - q) is one-hot again

    def draw(self, chooser: Chooser) -> int:
        return self.token


@dataclass(frozen=True, slots=True)
class Dense:
    """A distribution given by its probabilities ``[V]``."""

    probs: Tensor

    def prob(self, token: int) -> float:
        return float(self.probs[token])

    def residual(self, token: int, q: Tensor | None) -> Dense:
        """normalise(max(0, p - q)); with ``q`` None (one-hot): p without ``token``.
        Leviathan et al. 2022, section 2.3."""
        if q is None:
            rest = self.probs.clone()
            rest[token] = 0.0
        else:
            rest = (self.probs - q).clamp_min_(0.0)
        total = rest.sum()
        if float(total) <= 0.0:
            return self  # p equals q up to rounding: nothing is left to correct
        return Dense(rest / total)

    def draw(self, chooser: Chooser) -> int:
        return chooser.sample(self.probs)


@dataclass(frozen=True, slots=True)
class PeakRows:
    tokens: list[int]

    def row(self, index: int) -> Peak:
        return Peak(self.tokens[index])


@dataclass(frozen=True, slots=True)
class DenseRows:
    probs: Tensor  # [T, V]

    def row(self, index: int) -> Dense:
        return Dense(self.probs[index])
