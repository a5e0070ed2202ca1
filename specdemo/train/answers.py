"""Answers written by our own engine: one conversation at a time, speculated.

On a CPU this is faster than decoding many side by side with a cache that grows by copying, above all
where answers repeat what a long text says. The words are the target's own all the same: verification
is exact."""

from __future__ import annotations

from collections.abc import Sequence

from .. import events
from ..drafters import create
from ..engine import Engine
from ..errors import InputError
from ..sampling import SamplingParams
from ..target import Target


class EngineAnswers:
    """Answers of ``target`` to user turns, as token ids that end with the end token where it came."""

    def __init__(self, target: Target) -> None:
        self.engine = Engine.measured(target)
        self.drafter = "auto"
        try:
            create(self.drafter, target).close()
        except InputError:  # no head is shipped for this target
            self.drafter = "ngram"

    def __call__(self, turns: Sequence[str], longest: int, greedy: bool, seed: int) -> list[list[int]]:
        """``seed``: of the first turn's draws; the others' follow it."""
        made: list[list[int]] = []
        for number, turn in enumerate(turns):
            how = {} if greedy else {"temperature": 0.8, "top_k": 50, "seed": seed + number}
            params = SamplingParams(max_new_tokens=longest, **how)  # type: ignore[arg-type]
            try:
                made.append(self._answer(turn, params))
            except InputError:  # a turn that no prompt may be, one with control characters say
                made.append([])
        return made

    def _answer(self, turn: str, params: SamplingParams) -> list[int]:
        drafter = create(self.drafter, self.engine.target)
        for event in self.engine.generate(turn, drafter, params):
            if isinstance(event, events.Finished):
                return list(event.token_ids)
        return []
