"""Medusa: heads on the target's last state guess the tokens after the next, all at once (Cai et al.
2024). They do not see each other's tokens, so acceptance falls quickly with depth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from ..proposal import ROOT, Proposal
from ..target import Target
from ..verify import Verdict
from . import trained
from .base import Context, Drafter, check_settings, control
from .growth import Growth
from .medusa_layer import MedusaLayer
from .none import EMPTY
from .tree import best_size, sparse_tree

SLIGHT = 0.1  # chance that a path is right, below which deeper heads are not asked
SELDOM = 1e-3  # accuracy of a rank that was never right where it was measured: not never
LONGEST_PAUSE = 7  # rounds without asking the heads, when what they said was not worth a draft

#: Used for heads without measured accuracies: a typical fall with depth and rank.
TYPICAL = tuple(tuple(0.5 * 0.7**d * 0.35**r for r in range(10)) for d in range(8))


@dataclass
class Medusa(Drafter):
    """Drafts ``depth`` tokens deep with one head a depth, a sparse tree of at most ``budget`` nodes.

    Head i knows the target's state of the last pass and predicts the token i + 2 places on; the next
    token itself is the one the target committed, so the first head's guess is the first draft token.

    The tree is chosen from the heads' measured accuracies, the same one in every round (Cai et al.
    2024, section 2.3.2); ``adaptive``: from the heads' probabilities in this round, as far as they
    held in this run, with the size of the best expected speed-up on this machine, no draft when none
    is worth it."""

    name: ClassVar[str] = "medusa"
    deterministic: ClassVar[bool] = True
    depth: int = control(4, 1, 8)
    budget: int = control(15, 1, 63)
    top_k: int = control(8, 1, 10)
    adaptive: bool = control(True)

    layer: MedusaLayer | None = field(default=None, repr=False)
    depth_tested: list[int] = field(default_factory=list, init=False, repr=False)
    depth_accepted: list[int] = field(default_factory=list, init=False, repr=False)
    _ready: bool = field(default=False, init=False, repr=False)
    _growth: Growth = field(init=False, repr=False)
    _hoped: float = field(default=0.0, init=False, repr=False)
    _pause: int = field(default=0, init=False, repr=False)  # rounds that a fruitless one is followed by
    _waiting: int = field(default=0, init=False, repr=False)

    @classmethod
    def build(cls, target: Target, settings: dict[str, Any], head: str = "", **resources: Any) -> Medusa:
        """``head``: folder or Hub id of published heads; empty: those of the target.
        Raises ``InputError``: ``needs``, ``head_unreadable``, ``head_misfit``."""
        checked = check_settings(cls, settings)
        return cls(**checked, layer=trained.medusa(target, head), final=target.shape.layers)

    final: int = field(default=0, repr=False)  # index of the final state in ``hidden_states``

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        return (self.final,)

    def start(self, context: Context) -> None:
        self._ready = len(context.prompt) > 1
        self.depth_tested, self.depth_accepted = [0] * self.depth, [0] * self.depth
        costs = [0.0, *(context.pass_cost(rows) for rows in range(1, self.budget + 2))]
        self._growth = Growth(self.budget, 0.0, costs)
        self._pause = self._waiting = 0

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        assert self.layer is not None
        depth = min(self.depth, context.room, self.layer.count)
        self._hoped = 0.0
        if depth < 1 or not self._ready:
            return EMPTY
        if self._waiting:
            self._waiting -= 1
            return EMPTY
        states = context.session.hidden[self.final]
        # After prefill the last row is the last state; after a pass it is the last kept row's.
        at = context.kept[-1] if context.kept else len(states) - 1
        warmth = context.params.temperature or 1.0
        least = SLIGHT / self._growth.trusted([1.0])[0] if self.adaptive else 0.0
        found, chances = self.layer.candidates(states[at : at + 1], depth, self.top_k, warmth, least)
        paths = self.paths(chances if self.adaptive else self.rates(depth))
        if not paths:
            self._pause = self._waiting = min(2 * self._pause + 1, LONGEST_PAUSE)
            return EMPTY
        self._pause = 0
        return self._tree(paths, found)

    def paths(self, rates: Sequence[Sequence[float]]) -> list[tuple[int, ...]]:
        """The tree's paths (ranks per depth), likeliest first, from how likely the choices of each
        depth and rank are; ``adaptive``: cut to what this machine's pass costs make worth it."""
        found = sparse_tree(rates, self.budget)
        if self.adaptive:
            scores = [path_score(rates, path) for path in found]
            found = found[: best_size(self._growth.trusted(scores), self._growth.costs.__getitem__)]
            self._hoped = sum(scores[: len(found)])
        return found

    def _tree(self, paths: Sequence[tuple[int, ...]], found: Sequence[Sequence[int]]) -> Proposal:
        """``found``: the heads' choices by depth and rank."""
        assert self.layer is not None
        ids = self.layer.ids
        tokens: list[int] = []
        parents: list[int] = []
        places: dict[tuple[int, ...], int] = {(): ROOT}
        for path in sorted(paths, key=lambda p: (len(p), p)):
            choice = found[len(path) - 1][path[-1]]
            places[path] = len(tokens)
            tokens.append(ids[choice] if ids else choice)
            parents.append(places[path[:-1]])
        return Proposal(tokens, parents)

    def rates(self, depth: int) -> list[list[float]]:
        """Accuracy per depth and rank, as measured when the heads were trained."""
        assert self.layer is not None
        known: Sequence[Sequence[float]] = self.layer.heads.accuracies or TYPICAL
        return [[max(rate, SELDOM) for rate in row[: self.top_k]] for row in known[:depth]]

    def observe(self, context: Context, proposal: Proposal, verdict: Verdict) -> None:
        """Count accepted and tested drafts per depth: what the page shows of the heads' weakness."""
        self._ready = True
        self._growth.learn(self._hoped, len(verdict.path))
        accepted = len(verdict.path)
        node = verdict.path[-1] if verdict.path else ROOT
        for depth in range(min(accepted, self.depth)):
            self.depth_tested[depth] += 1
            self.depth_accepted[depth] += 1
        if proposal.children[node + 1] and accepted < self.depth:
            self.depth_tested[accepted] += 1


def path_score(rates: Sequence[Sequence[float]], path: Sequence[int]) -> float:
    """Chance that all choices of a path are right, the depths taken as independent."""
    score = 1.0
    for depth, rank in enumerate(path):
        score *= rates[depth][rank]
    return score
