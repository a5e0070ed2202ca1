"""EAGLE-3: a one-layer head on the target's own states drafts a dynamic tree (Li et al. 2025; the
tree after Li et al. 2024, "EAGLE-2", section 4).

Only rows computed from true target states stay in the head's cache; what a draft step computed from
the head's own output is scratch and is redone from true states after the round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..proposal import ROOT, Proposal
from ..rows import Dense
from ..target import Target
from ..verify import Verdict
from . import trained
from .base import Context, Drafter, check_settings, control
from .eagle3_layer import Eagle3Layer
from .eagle3_steps import Steps
from .growth import Growth
from .none import EMPTY
from .tree import Tree, best_size


@dataclass
class Eagle3(Drafter):
    """Drafts a tree of at most ``budget`` nodes, ``depth`` deep, ``top_k`` candidates a node.

    ``chain``: one token a depth, sampled from the head's own q at a temperature. ``confidence``: end
    the draft where the head's probability of the whole path falls below it. ``adaptive``: draft and
    verify only as much as the measured costs make worth it; an empty draft when nothing is."""

    name: ClassVar[str] = "eagle3"
    depth: int = control(5, 1, 10)
    budget: int = control(8, 1, 63)
    top_k: int = control(8, 1, 10)
    chain: bool = control(False)
    confidence: float = control(0.0, 0.0, 1.0, 0.01)
    adaptive: bool = control(True)

    layer: Eagle3Layer | None = field(default=None, repr=False)
    step_cost: float = field(default=0.0, repr=False)
    steps: int = field(default=0, init=False, repr=False)  # draft steps of the last proposal
    growth: Growth = field(init=False, repr=False)
    _hoped: float = field(default=0.0, init=False, repr=False)
    _steps: Steps | None = field(default=None, init=False, repr=False)
    _states: list[Tensor] = field(default_factory=list, init=False, repr=False)  # not yet in the cache

    @classmethod
    def build(cls, target: Target, settings: dict[str, Any], head: str = "", **resources: Any) -> Eagle3:
        """``head``: folder or Hub id of a published head; empty: the one that belongs to the target.
        Raises ``InputError``: ``needs``, ``head_unreadable``, ``head_misfit``."""
        checked = check_settings(cls, settings)
        layer = trained.eagle3(target, head)
        made = cls(**checked, layer=layer)
        made.step_cost = layer.step_cost(target)
        return made

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        return () if self.layer is None else self.layer.head.layers

    @torch.inference_mode()
    def start(self, context: Context) -> None:
        assert self.layer is not None
        scratch = max(64, self.depth * self.top_k) + self.depth * self.top_k
        warmth = context.params.temperature or 1.0
        capacity = context.session.capacity + scratch
        self._steps = Steps(self.layer, capacity, context.prompt, warmth, self.top_k)
        self._states = []
        costs = [0.0, *(context.pass_cost(rows) for rows in range(1, self.budget + 2))]
        self.growth = Growth(self.budget, self.step_cost, costs)
        count = len(context.prompt) - 1
        if count:
            states = [context.session.hidden[layer] for layer in self.hidden_layers]
            self._states.append(self.layer.features(states))
            self._catch_up(context)

    def absorb(self, context: Context) -> None:
        """Take the last pass's states of the kept rows. Needed once after every round; ``propose``
        does it itself when nobody else has."""
        assert self.layer is not None and self._steps is not None
        known = self._steps.rows + sum(len(s) for s in self._states)
        if known == context.length - 1:
            return
        hidden = [context.session.hidden[layer] for layer in self.hidden_layers]
        self._states.append(self.layer.features(hidden, context.kept))

    def _catch_up(self, context: Context) -> None:
        """Rows of true states: position t's states with token t + 1."""
        assert self._steps is not None
        if self._states:
            states = torch.cat(self._states) if len(self._states) > 1 else self._states[0]
            self._states, at = [], self._steps.rows + 1
            self._steps.take(states, _span(context, at, at + len(states)))

    @torch.inference_mode()
    def propose(self, context: Context) -> Proposal:
        if self.chain:
            return self._chain(context) if self._ready(context) else EMPTY
        tree = self.grow(context)
        chosen = [i for i in tree.best(self.budget) if tree.scores[i] >= self.confidence]
        scores = self.growth.trusted([tree.scores[i] for i in chosen])
        if self.adaptive:  # what drafting cost is spent: only the pass is still to be paid
            chosen = chosen[: best_size(scores, self.growth.costs.__getitem__)]
        self._hoped = sum(tree.scores[i] for i in chosen)
        return tree.proposal(chosen)

    def _ready(self, context: Context) -> bool:
        """Bring the cache up to date; whether a draft is possible."""
        self.steps, self._hoped = 0, 0.0
        if context.room < 1:
            return False
        self.absorb(context)
        self._catch_up(context)
        # A prompt of one token has no states yet.
        return self._steps is not None and self._steps.output is not None

    @torch.inference_mode()
    def grow(self, context: Context) -> Tree:
        """The tree of this round, grown as far as it is likely to pay; empty where none is possible."""
        tree = Tree()
        if not self._ready(context):
            return tree
        assert self._steps is not None
        depth = min(self.depth, context.room)
        self.steps = 1
        tree.add(ROOT, self._steps.root())
        rows: dict[int, int] = {ROOT: ROOT}  # of the expanded nodes
        while True:
            frontier = tree.frontier(self.budget, self.top_k, depth)
            frontier = [i for i in frontier if tree.scores[i] >= self.confidence]
            if not frontier or (self.adaptive and not self.growth.goes_on(tree, frontier, self.steps)):
                return tree
            parents = [rows[tree.parents[i]] for i in frontier]
            paths = [[rows[node] for node in tree.ancestors(i)[:-1]] for i in frontier]
            found = self._steps.branch(parents, [tree.tokens[i] for i in frontier], paths)
            self.steps += 1
            for node, candidates in zip(frontier, found, strict=True):
                rows[node] = len(rows) - 1
                tree.add(node, candidates)

    def observe(self, context: Context, proposal: Proposal, verdict: Verdict) -> None:
        """Learn how far the head's probabilities can be trusted."""
        self.growth.learn(self._hoped, len(verdict.path))
        self._hoped = 0.0

    def _chain(self, context: Context) -> Proposal:
        """One token a depth, drawn from q as the target draws from p."""
        depth = min(self.depth, context.room)
        assert self.layer is not None and self._steps is not None and self._steps.output is not None
        tokens: list[int] = []
        rows: list[Tensor] = []
        cache, output, path = self._steps.cache, self._steps.output, 1.0
        vocabulary, width = self._steps.vocabulary, context.target.shape.vocab
        while len(tokens) < depth:
            logits = self.layer.logits(output, vocabulary)
            logits = self.layer.scatter(logits, width, vocabulary)
            q = context.distributions(logits, [tokens]).row(0)
            token = q.draw(context.chooser)
            if isinstance(q, Dense):
                rows.append(q.probs)
            tokens.append(token)
            # A sampled token stays whatever it is: only whether to go on may depend on it.
            path *= float(logits[0].float().softmax(-1)[token])
            if path < self.confidence or len(tokens) == depth:
                break
            cache.used = used = self._steps.rows + len(tokens) - 1
            mask = torch.ones(1, used + 1, dtype=torch.bool, device=logits.device)
            output = self.layer.forward(output, [token], [used], cache, mask)
        return Proposal.chain(tokens, torch.stack(rows) if rows else None)

    def close(self) -> None:
        if self._steps is not None:
            self._steps.close()
        self._steps, self._states = None, []


def _span(context: Context, start: int, end: int) -> list[int]:
    """Committed ids ``start`` to ``end``, without building the whole list."""
    border = len(context.prompt)
    if start >= border:
        return context.output[start - border : end - border]
    return (context.prompt + context.output)[start:end]
