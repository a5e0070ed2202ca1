"""``auto``: in every round the proposal with the best expected speed-up.

Prompt lookup is almost free and very good where text repeats; the EAGLE-3 head costs a little and
helps everywhere; sometimes neither pays. What each brings is estimated from this run, what a round
costs from the measured cost of verify passes and of the head's draft step."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ..errors import InputError
from ..metrics import expected_length
from ..proposal import Proposal
from ..target import Target
from ..verify import Verdict
from .adaptive import WORTH
from .base import Context, Drafter, check_settings, control
from .eagle3 import Eagle3
from .ngram import NGram
from .none import EMPTY

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
    """Chooses between ``ngram`` (up to ``gamma`` tokens) and ``eagle3`` (up to ``budget`` nodes,
    ``depth`` deep). Without a head for the target it is an adaptive ``ngram``."""

    name: ClassVar[str] = "auto"
    deterministic: ClassVar[bool] = True
    gamma: int = control(8, 1, 32)
    depth: int = control(4, 1, 10)
    budget: int = control(15, 1, 63)

    ngram: NGram = field(default_factory=NGram, repr=False)
    eagle3: Eagle3 | None = field(default=None, repr=False)
    _prior: Yield = field(default_factory=lambda: Yield(1.0, 1.0), init=False, repr=False)
    _head: Yield = field(default_factory=lambda: Yield(1.0, 1.0), init=False, repr=False)
    _asked: bool = field(default=False, init=False, repr=False)

    @classmethod
    def build(cls, target: Target, settings: dict[str, Any], head: str = "", **resources: Any) -> Auto:
        """``head``: the EAGLE-3 head, as for ``eagle3``; a missing one is done without, one that is
        named and does not fit is refused. Raises ``InputError``."""
        made = cls(**check_settings(cls, settings))
        made.ngram = NGram(gamma=made.gamma)
        try:
            wanted = {"depth": made.depth, "budget": made.budget}
            made.eagle3 = Eagle3.build(target, wanted, head=head)
        except InputError as error:
            if error.key != "needs":
                raise
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
        self._asked = False
        copied = self.ngram.propose(context)
        if not self.eagle3:
            return _named(copied, "ngram")
        self.eagle3.absorb(context)  # its states come with every pass, whoever drafted it
        if len(copied) and self._copy_speed(context, copied) >= self._head.speed:
            return _named(copied, "ngram")
        if self._head.speed < WORTH:
            self._head.forget(self._prior)
            return _named(copied, "ngram")
        self._asked = True
        drafted = self.eagle3.propose(context)
        return _named(drafted, "eagle3") if len(drafted) else _named(copied, "ngram")

    def _copy_speed(self, context: Context, copied: Proposal) -> float:
        rate = self.ngram.rate()
        return expected_length(rate, len(copied)) / context.pass_cost(len(copied) + 1)

    def observe(self, context: Context, proposal: Proposal, verdict: Verdict) -> None:
        if proposal.source == "ngram":
            self.ngram.observe(context, proposal, verdict)
        if not self.eagle3 or not self._asked:
            return
        mine = proposal.source != "ngram"
        if mine:
            self.eagle3.observe(context, proposal, verdict)
        tokens = 1.0 + (len(verdict.path) if mine else 0.0)
        cost = context.pass_cost(len(proposal) + 1 if mine else 1)
        self._head.update(tokens, cost + self.eagle3.steps * self.eagle3.step_cost)

    def close(self) -> None:
        self.ngram.close()
        if self.eagle3:
            self.eagle3.close()


def _named(proposal: Proposal, source: str) -> Proposal:
    if not len(proposal):
        return EMPTY
    return Proposal(proposal.tokens, proposal.parents, proposal.q, source)
