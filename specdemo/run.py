"""A run, folded from its events: what every view, table and export looks at. No torch here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from .events import Drafted, Event, Finished, Started, Token, Verified


@dataclass(slots=True)
class Round:
    """One draft and its verification."""

    drafted: Drafted
    verified: Verified | None = None


@dataclass(slots=True)
class Run:
    """Feed it events with ``add``; read ``started``, ``rounds``, ``tokens``, ``finished``."""

    started: Started | None = None
    rounds: list[Round] = field(default_factory=list)
    finished: Finished | None = None

    def add(self, event: Event) -> None:
        if isinstance(event, Started):
            self.started = event
        elif isinstance(event, Drafted):
            self.rounds.append(Round(event))
        elif isinstance(event, Verified):
            if self.rounds and self.rounds[-1].verified is None:
                self.rounds[-1].verified = event
            else:  # a server that reports no draft
                self.rounds.append(Round(Drafted(event.round, (), 0.0), event))
        else:
            self.finished = event

    @classmethod
    def of(cls, events: Iterable[Event]) -> Run:
        run = cls()
        for event in events:
            run.add(event)
        return run

    @property
    def verified(self) -> list[Verified]:
        return [r.verified for r in self.rounds if r.verified is not None]

    @property
    def tokens(self) -> list[Token]:
        return [token for v in self.verified for token in v.tokens]

    @property
    def text(self) -> str:
        return "".join(token.text for token in self.tokens)
