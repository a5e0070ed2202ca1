"""Verification: one walk down the proposal, for chains and trees, greedy and sampling.

Leviathan et al. 2022 (algorithm 1) for chains; the walk over siblings with a residual after each
refusal is that of SpecInfer (Miao et al. 2023, algorithm 2). The committed tokens follow exactly
the target's distribution p, whatever the draft (tests enumerate it).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from .events import NodeVerdict, Origin
from .proposal import ROOT, Proposal
from .rows import Chooser, Dense, DenseRows, Peak, Row, Rows
from .sampling import SamplingParams

NOT_JUDGED = NodeVerdict("not_judged")


class AcceptanceRule(Protocol):
    """When a proposed token is taken, and what is left of p when it is not."""

    name: ClassVar[str]
    lossless: ClassVar[bool]

    def threshold(self, p: Row, token: int, q: float) -> float:
        """Probability of accepting ``token``; ``q`` is 1.0 for a deterministic draft."""

    def refuse(self, p: Row, token: int, q: Tensor | None) -> Row:
        """The distribution for the next sibling, or for the corrected token."""


@dataclass(frozen=True, slots=True)
class Exact:
    """Accept with min(1, p/q), then the residual: the output distribution is p."""

    name: ClassVar[str] = "exact"
    lossless: ClassVar[bool] = True

    def threshold(self, p: Row, token: int, q: float) -> float:
        probability = p.prob(token)
        # q is 0 only if a drafter broke its promise; nothing it says then can be trusted.
        return min(1.0, probability / q) if q > 0.0 else 0.0

    def refuse(self, p: Row, token: int, q: Tensor | None) -> Row:
        return p.residual(token, q)


@dataclass(frozen=True, slots=True)
class Typical:
    """Medusa's rule (Cai et al. 2024, section 2.3.1): accept x if p(x) > min(eps, delta exp(-H(p))).

    Not lossless: it takes what the target finds plausible, not what it would have drawn."""

    name: ClassVar[str] = "typical"
    lossless: ClassVar[bool] = False
    epsilon: float = 0.09
    delta: float = 0.3

    def threshold(self, p: Row, token: int, q: float) -> float:
        if isinstance(p, Peak):
            return p.prob(token)
        assert isinstance(p, (Dense, GreedyDense))
        entropy = float(torch.special.entr(p.probs).sum())
        bound = min(self.epsilon, self.delta * math.exp(-entropy))
        return 1.0 if p.prob(token) > bound else 0.0

    def refuse(self, p: Row, token: int, q: Tensor | None) -> Row:
        return p


@dataclass(frozen=True, slots=True)
class GreedyDense:
    """Greedy decoding judged by a rule that needs the whole distribution: draws take the argmax."""

    probs: Tensor  # [V]

    def prob(self, token: int) -> float:
        return float(self.probs[token])

    def residual(self, token: int, q: Tensor | None) -> GreedyDense:
        return self

    def draw(self, chooser: Chooser) -> int:
        return int(self.probs.argmax())


@dataclass(frozen=True, slots=True)
class GreedyDenseRows:
    probs: Tensor  # [T, V]

    def row(self, index: int) -> GreedyDense:
        return GreedyDense(self.probs[index])


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the walk decided. ``path``: accepted nodes in order; ``final``: the token from the target
    after them, of ``origin`` corrected, bonus or target. ``final_row`` is the row of p it belongs
    to and ``residual`` what it was drawn from (p itself unless something was refused there).
    ``judgements``: one per node of the proposal."""

    path: tuple[int, ...]
    final: int
    origin: Origin
    judgements: tuple[NodeVerdict, ...]
    residual: Row

    @property
    def final_row(self) -> int:
        return self.path[-1] + 1 if self.path else 0


def verify(proposal: Proposal, p: Rows, rule: AcceptanceRule, chooser: Chooser) -> Verdict:
    """Walk from the root: test children in order, descend into the first accepted one, and where
    none is left take the final token from what remains of p.

    ``p`` has ``len(proposal) + 1`` rows (row 0 after the root, row i+1 after node i)."""
    judgements = [NOT_JUDGED] * len(proposal)
    path: list[int] = []
    node, descend = ROOT, True
    while descend:
        row, descend = p.row(node + 1), False
        children = proposal.children[node + 1]
        for child in children:
            token = proposal.tokens[child]
            q = None if proposal.q is None else proposal.q[child]
            threshold = rule.threshold(row, token, 1.0 if q is None else float(q[token]))
            accepted, draw = chooser.accept(threshold)
            judgements[child] = NodeVerdict(
                "accepted" if accepted else "rejected", row.prob(token), threshold, draw
            )
            if accepted:
                path.append(child)
                node, descend = child, True
                break
            row = rule.refuse(row, token, q)
    final = row.draw(chooser)
    origin: Origin = "corrected" if children else "bonus" if path else "target"
    return Verdict(tuple(path), final, origin, tuple(judgements), row)


def rule_rows(rule: AcceptanceRule, rows: Rows, logits: Tensor, params: SamplingParams) -> Rows:
    """The rows a rule judges by. ``typical`` at temperature 0 looks at the plain softmax: on a
    one-hot p it could never relax anything."""
    if isinstance(rule, Typical) and params.greedy:
        return GreedyDenseRows(logits.float().softmax(-1))
    return rows


__all__ = ["DenseRows", "Exact", "Typical", "Verdict", "rule_rows", "verify"]
