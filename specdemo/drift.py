"""How far a lossy acceptance rule strays from the target: the drift meter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(slots=True)
class Drift:
    """Counts, over committed tokens, those that are not the target's own first choice (greedy), and
    sums the surprise -ln p of what was taken instead of it, in nats."""

    tokens: int = 0
    different: int = 0
    surprise: float = 0.0

    def add(self, logits: Tensor, token: int) -> None:
        """``logits`` ``[V]``: the target's, at the position ``token`` was committed to."""
        logs = logits.float().log_softmax(-1)
        self.tokens += 1
        self.different += int(int(logits.argmax()) != token)
        self.surprise += -float(logs[token])

    def summary(self) -> dict[str, Any]:
        mean = self.surprise / self.tokens if self.tokens else None
        return {"tokens": self.tokens, "different": self.different, "mean_surprise": mean}
