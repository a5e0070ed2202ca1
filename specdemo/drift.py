"""How far a lossy acceptance rule strays from the target: the drift meter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(slots=True)
class Drift:
    """Counts, over committed tokens, those that are not the target's own first choice (greedy), and
    sums the surprise -ln p of what was taken instead of it, in nats.

    ``divergence`` sums KL(what the rule emits there, given the draft || what the target alone would
    emit). A relaxed rule that takes a draft token emits it for certain, so that is -ln p(token);
    where the token was drawn from the target it is 0, and so it is where a greedy target would have
    taken the same token. For drafts that were sampled this is an upper bound: which token the rule
    emits then depends on the draft's luck, too."""

    greedy: bool = False
    tokens: int = 0
    different: int = 0
    surprise: float = 0.0
    divergence: float = 0.0

    def add(self, logits: Tensor, token: int, accepted: float | None = None) -> None:
        """``logits`` ``[V]``: the target's, at the position ``token`` was committed to. ``accepted``:
        its probability there if it was a draft that the rule took (a greedy run looks at the plain
        softmax instead); None if it was drawn from the target."""
        logs = logits.float().log_softmax(-1)
        other = int(logits.argmax()) != token
        self.tokens += 1
        self.different += int(other)
        self.surprise += -float(logs[token])
        if accepted is not None and self.greedy:
            self.divergence += -float(logs[token]) if other else 0.0
        elif accepted is not None:
            self.divergence += -math.log(max(accepted, 1e-30))

    def summary(self) -> dict[str, Any]:
        def mean(total: float) -> float | None:
            return total / self.tokens if self.tokens else None

        return {
            "tokens": self.tokens,
            "different": self.different,
            "mean_surprise": mean(self.surprise),
            "mean_kl": mean(self.divergence),
        }
