"""``auto``: in every round the proposal with the best expected speed-up.

Prompt lookup is almost free and very good where text repeats; the EAGLE-3 head costs a little and
helps everywhere; sometimes neither pays. Both at once are one tree: the copy is a path of it. What
each brings is estimated from this run, what a round costs from the measured cost of verify passes and
of the head's draft step. A copy is judged by the committed tokens whether it was proposed or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..errors import InputError
from ..proposal import Proposal
from ..target import Target
from ..verify import Verdict
from .adaptive import WORTH
from .base import Context, Drafter, check_settings, control
from .eagle3 import Eagle3
from .ngram import NGram
from .none import EMPTY
from .tree import Tree, best_size, expected_speed

MEMORY = 12.0  # rounds that an estimate remembers
RETRY = 0.04  # share of the way back to the prior in a round in which the head was not asked


@dataclass(slots=True)
class Yield:
    """Running means of the tokens a kind of round commits and of what it costs, in one-row passes."""

    tokens: float
    cost: float

    @property
    def speed(self) -> float:
        return self.tokens / self.cost

    def update(self, tokens: float, cost: float, memory: float = MEMORY) -> None:
        self.tokens += (tokens - self.tokens) / memory
        self.cost += (cost - self.cost) / memory

    def forget(self, prior: Yield) -> None:
        self.update(prior.tokens, prior.cost, 1.0 / RETRY)


@dataclass
class Auto(Drafter):
    """Chooses among ``ngram`` (up to ``gamma`` tokens), ``eagle3`` (up to ``budget`` nodes, ``depth``
    deep) and a tree of both. Without a head for the target it is an adaptive ``ngram``."""

    name: ClassVar[str] = "auto"
    deterministic: ClassVar[bool] = True
    gamma: int = control(8, 1, 32)
    depth: int = control(5, 1, 10)
    budget: int = control(15, 1, 63)

    ngram: NGram = field(default_factory=NGram, repr=False)
    eagle3: Eagle3 | None = field(default=None, repr=False)
    _prior: Yield = field(default_factory=lambda: Yield(1.0, 1.0), init=False, repr=False)
    _head: Yield = field(default_factory=lambda: Yield(1.0, 1.0), init=False, repr=False)
    _asked: bool = field(default=False, init=False, repr=False)
    _copied: Sequence[int] = field(default=(), init=False, repr=False)
    _mine: dict[int, float] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def build(cls, target: Target, settings: dict[str, Any], head: str = "", **resources: Any) -> Auto:
        """``head``: the EAGLE-3 head, as for ``eagle3``; a missing one is done without, one that is
        named and does not fit is refused. Raises ``InputError``."""
        made = cls(**check_settings(cls, settings))
        try:
            wanted = {"depth": made.depth, "budget": made.budget}
            made.eagle3 = Eagle3.build(target, wanted, head=head)
        except InputError as error:
            if error.key != "needs":
                raise
        # With a head, how much of a copy is worth it is decided here.
        made.ngram = NGram(gamma=made.gamma, adaptive=made.eagle3 is None)
        return made

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        return self.eagle3.hidden_layers if self.eagle3 else ()

    def start(self, context: Context) -> None:
        self.ngram.start(context)
        if self.eagle3:
            self.eagle3.start(context)
            # Optimistic: a small tree that pays, so that the head is asked in the first rounds.
            cost = context.pass_cost(3) + self.eagle3.step_cost
            self._prior = Yield(1.2 * cost, cost)
            self._head = replace(self._prior)

    def propose(self, context: Context) -> Proposal:
        self._asked, self._mine = False, {}
        copied = self.ngram.propose(context)
        if not self.eagle3:
            return _named(copied, "ngram")
        self.eagle3.absorb(context)  # its states come with every pass, whoever drafted it
        self._copied = copied.tokens
        rate = self.ngram.rate() if copied.tokens else 0.0
        scores = [rate ** (at + 1) for at in range(len(copied))]
        tree = Tree()
        if self._worth_asking(context, scores):
            self._asked = True
            tree = self.eagle3.grow(context)
            raw = list(tree.scores)
            tree.scores = self.eagle3.growth.trusted(raw)
            self._mine = dict(enumerate(raw))
        else:
            self._head.forget(self._prior)
        return self._chosen(context, tree, tree.add_path(copied.tokens, scores))

    def _worth_asking(self, context: Context, scores: Sequence[float]) -> bool:
        """Whether the head is likely to bring more than it costs beside a copy with these chances:
        it helps where the copy is wrong at once."""
        size = best_size(scores, context.pass_cost)
        alone = expected_speed(scores, size, context.pass_cost, 0.0)
        missed = 1.0 - (scores[0] if scores else 0.0)
        tokens = 1.0 + sum(scores[:size]) + missed * (self._head.tokens - 1.0)
        cost = max(self._head.cost, context.pass_cost(size + 1))
        return tokens / cost > max(alone, WORTH)

    def _chosen(self, context: Context, tree: Tree, copy: Sequence[int]) -> Proposal:
        """As much of the tree as is worth a pass. What drafting cost is spent."""
        order = tree.best(max(self.budget, len(copy)))
        order = order[: best_size([tree.scores[i] for i in order], context.pass_cost)]
        order.sort(key=lambda i: (tree.depths[i], -tree.scores[i], i))  # as ``Tree.proposal`` has it
        self._mine = {at: self._mine[i] for at, i in enumerate(order) if i in self._mine}
        copies = any(i in set(copy) for i in order)
        both = copies and len(self._mine) > 0
        return _named(tree.proposal(order), "ngram+eagle3" if both else "ngram" if copies else "eagle3")

    def observe(self, context: Context, proposal: Proposal, verdict: Verdict) -> None:
        if not self.eagle3:
            if proposal.source == "ngram":
                self.ngram.observe(context, proposal, verdict)
            return
        committed = [*(proposal.tokens[node] for node in verdict.path), verdict.final]
        self.ngram.compare(self._copied, committed)
        if not self._asked:
            return
        mine = 0
        while mine < len(verdict.path) and verdict.path[mine] in self._mine:
            mine += 1
        self.eagle3.growth.learn(sum(self._mine.values()), mine)
        cost = context.pass_cost(len(self._mine) + 1) + self.eagle3.steps * self.eagle3.step_cost
        self._head.update(1.0 + mine, cost)

    def close(self) -> None:
        self.ngram.close()
        if self.eagle3:
            self.eagle3.close()


def _named(proposal: Proposal, source: str) -> Proposal:
    if not len(proposal):
        return EMPTY
    return Proposal(proposal.tokens, proposal.parents, proposal.q, source)
