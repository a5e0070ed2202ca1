"""An example of a new drafter, whole in one file: propose what followed the last token in the past.

    python examples/successor_drafter.py "one two three one two three one two"

Every drafter answers one question, ``propose(context) -> Proposal``; checking and sampling are the
engine's. This one remembers, for each token, the token that came after it most recently, and walks
that chain. It is a cheaper and poorer ``ngram``, good enough to see all that a drafter needs:

1. a dataclass whose ``control(...)`` fields are its settings (page and command line read them),
2. a name, and whether its proposals are deterministic (then q is None: one-hot),
3. ``propose``, never deeper than ``context.room``; the empty proposal where nothing is worth it,
4. a line in the registry. A drafter of the project is added to the tuple in ``drafters/__init__.py``,
   and the contract tests run over it at once; a drafter of your own registers itself as below.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import ClassVar

from specdemo.drafters import REGISTRY, Context, Drafter, control
from specdemo.proposal import Proposal


@dataclass
class Successor(Drafter):
    """Drafts up to ``gamma`` tokens, each the latest successor of the one before."""

    name: ClassVar[str] = "successor"
    deterministic: ClassVar[bool] = True
    gamma: int = control(4, 1, 16)

    _after: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _seen: int = field(default=0, init=False, repr=False)

    def propose(self, context: Context) -> Proposal:
        ids = context.ids
        for place in range(max(1, self._seen), len(ids)):  # only what was committed since
            self._after[ids[place - 1]] = ids[place]
        self._seen = len(ids)
        tokens: list[int] = []
        last = context.last
        while len(tokens) < min(self.gamma, context.room) and last in self._after:
            last = self._after[last]
            tokens.append(last)
        # A chain: each token hangs below the one before it, the first below the root (-1).
        return Proposal(tokens, list(range(-1, len(tokens) - 1)))


def register() -> None:
    """Make it known to this process: to the engine, the page and the command line."""
    REGISTRY[Successor.name] = Successor


if __name__ == "__main__":
    from specdemo.__main__ import main

    register()
    sys.exit(main(["generate", *sys.argv[1:], "--drafter", Successor.name]))
