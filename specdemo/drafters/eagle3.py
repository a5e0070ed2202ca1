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
from .eagle3_layer import Cache, Eagle3Layer
from .growth import Growth
from .none import EMPTY
from .tree import Tree, best_size

CHUNK = 256  # rows of the prompt at once


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
    _cache: Cache | None = field(default=None, init=False, repr=False)
    _rows: int = field(default=0, init=False, repr=False)  # rows of true states in the cache
    _states: list[Tensor] = field(default_factory=list, init=False, repr=False)
    _output: Tensor | None = field(default=None, init=False, repr=False)

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
        self._cache = self.layer.cache(context.session.capacity + scratch)
        self._rows, self._states, self._output = 0, [], None
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
        known = self._rows + sum(len(s) for s in self._states)
        if known == context.length - 1:
            return
        assert self.layer is not None
        kept = list(context.kept)
        hidden = [context.session.hidden[layer] for layer in self.hidden_layers]
        if kept != list(range(len(hidden[0]))):
            index = torch.tensor(kept, device=self.layer.device)
            hidden = [states[index] for states in hidden]
        self._states.append(self.layer.features(hidden))

    def _catch_up(self, context: Context) -> None:
        """Rows of true states: position t's states with token t + 1."""
        assert self.layer is not None and self._cache is not None
        if not self._states:
            return
        states = torch.cat(self._states)
        self._states = []
        ids = _span(context, self._rows + 1, self._rows + 1 + len(states))
        for start in range(0, len(states), CHUNK):
            part = states[start : start + CHUNK]
            count, base = len(part), self._rows
            self._cache.used = base
            mask = torch.ones(count, base + count, dtype=torch.bool, device=part.device).tril_(base)
            tokens, positions = ids[start : start + count], range(base, base + count)
            output = self.layer.forward(part, tokens, positions, self._cache, mask)
            self._output = output[-1:]
            self._rows += count

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
        return self._output is not None  # a prompt of one token has no states yet

    @torch.inference_mode()
    def grow(self, context: Context) -> Tree:
        """The tree of this round, grown as far as it is likely to pay; empty where none is possible."""
        tree = Tree()
        if not self._ready(context):
            return tree
        assert self.layer is not None and self._output is not None
        depth = min(self.depth, context.room)
        warmth = context.params.temperature or 1.0
        logits = self.layer.logits(self._output)
        self.steps = 1
        tree.add(ROOT, self._candidates(logits, warmth)[0])
        outputs: dict[int, Tensor] = {}
        slots: dict[int, int] = {}
        while True:
            frontier = tree.frontier(self.budget, self.top_k, depth)
            frontier = [i for i in frontier if tree.scores[i] >= self.confidence]
            if not frontier or (self.adaptive and not self.growth.goes_on(tree, frontier, self.steps)):
                return tree
            parents = [tree.parents[i] for i in frontier]
            hidden = torch.cat([self._output if p == ROOT else outputs[p] for p in parents])
            mask = self._mask(tree, frontier, slots)
            positions = [self._rows - 1 + tree.depths[i] for i in frontier]
            tokens = [tree.tokens[i] for i in frontier]
            assert self._cache is not None
            self._cache.used = self._rows + len(slots) - len(frontier)
            made = self.layer.forward(hidden, tokens, positions, self._cache, mask)
            self.steps += 1
            for at, node in enumerate(frontier):
                outputs[node] = made[at : at + 1]
            for node, found in zip(
                frontier, self._candidates(self.layer.logits(made), warmth), strict=True
            ):
                tree.add(node, found)

    def observe(self, context: Context, proposal: Proposal, verdict: Verdict) -> None:
        """Learn how far the head's probabilities can be trusted."""
        self.growth.learn(self._hoped, len(verdict.path))
        self._hoped = 0.0

    def _mask(self, tree: Tree, frontier: list[int], slots: dict[int, int]) -> Tensor:
        """``[T, rows + slots]``: all true rows, the ancestors' scratch rows and the own one."""
        assert self.layer is not None
        for node in frontier:
            slots[node] = len(slots)
        mask = torch.zeros(len(frontier), self._rows + len(slots), dtype=torch.bool)
        mask[:, : self._rows] = True
        seen = [
            (at, self._rows + slots[i]) for at, node in enumerate(frontier) for i in tree.ancestors(node)
        ]
        mask[tuple(torch.tensor(seen).T)] = True
        return mask.to(self.layer.device)

    def _candidates(self, logits: Tensor, warmth: float) -> list[list[tuple[int, float]]]:
        """Per row the ``top_k`` likeliest (token of the target, probability)."""
        assert self.layer is not None
        found = (logits.float() / warmth).softmax(-1).topk(min(self.top_k, logits.shape[-1]), dim=-1)
        ids = self.layer.ids
        rows = zip(found.indices.tolist(), found.values.tolist(), strict=True)
        return [
            [(ids[i] if ids else i, p) for i, p in zip(row, values, strict=True)] for row, values in rows
        ]

    def _chain(self, context: Context) -> Proposal:
        """One token a depth, drawn from q as the target draws from p."""
        depth = min(self.depth, context.room)
        assert self.layer is not None and self._cache is not None and self._output is not None
        tokens: list[int] = []
        rows: list[Tensor] = []
        output, path = self._output, 1.0
        while len(tokens) < depth:
            logits = self.layer.scatter(self.layer.logits(output), context.target.shape.vocab)
            q = context.distributions(logits, [tokens]).row(0)
            token = q.draw(context.chooser)
            if isinstance(q, Dense):
                rows.append(q.probs)
            tokens.append(token)
            # A sampled token stays whatever it is: only whether to go on may depend on it.
            path *= float(logits[0].float().softmax(-1)[token])
            if path < self.confidence or len(tokens) == depth:
                break
            used = self._rows + len(tokens) - 1
            self._cache.used = used
            mask = torch.ones(1, used + 1, dtype=torch.bool, device=logits.device)
            output = self.layer.forward(output, [token], [used], self._cache, mask)
        return Proposal.chain(tokens, torch.stack(rows) if rows else None)

    def close(self) -> None:
        if self.layer is not None and self._cache is not None:
            self.layer.release(self._cache)
        self._cache, self._output, self._states = None, None, []


def _span(context: Context, start: int, end: int) -> list[int]:
    """Committed ids ``start`` to ``end``, without building the whole list."""
    border = len(context.prompt)
    if start >= border:
        return context.output[start - border : end - border]
    return (context.prompt + context.output)[start:end]
