"""A drafter that says what it is told: for tests that need a certain draft in a certain place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from helpers import REPEAT

from specdemo.drafters import Context, Drafter
from specdemo.drafters.none import NoDraft
from specdemo.engine import Engine
from specdemo.proposal import Proposal
from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.target import Target
from specdemo.verify import Verdict


@dataclass
class Scripted(Drafter):
    """``draft`` makes the proposal from the ids written so far; every one is kept in ``seen``."""

    name: ClassVar[str] = "scripted"
    draft: Callable[[Context], Proposal] = lambda context: Proposal()
    seen: list[Proposal] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    closed: int = 0

    def propose(self, context: Context) -> Proposal:
        proposal = self.draft(context)
        self.seen.append(proposal)
        return proposal

    def observe(self, context: Context, proposal: Proposal, verdict: Verdict) -> None:
        self.verdicts.append(verdict)

    def close(self) -> None:
        self.closed += 1


def oracle(future: list[int], gamma: int = 8, mind_room: bool = True) -> Scripted:
    """Knows the whole answer and drafts the next ``gamma`` tokens of it."""

    def draft(context: Context) -> Proposal:
        done = len(context.output)
        depth = min(gamma, context.room) if mind_room else gamma
        return Proposal.chain(future[done : done + depth])

    return Scripted(draft)


def play(target: Target, drafter: Drafter | None = None, prompt: Any = REPEAT, **options: Any) -> Run:
    """One raw run of the real engine. Sampling parameters are keywords; others go to ``generate``."""
    known = SamplingParams.__dataclass_fields__
    params = SamplingParams(**{k: v for k, v in options.items() if k in known})
    rest = {k: v for k, v in options.items() if k not in known}
    return Run.of(Engine(target).generate(prompt, drafter or NoDraft(), params, raw=True, **rest))


def ids_of(run: Run) -> list[int]:
    assert run.finished is not None
    return list(run.finished.token_ids)
