"""How far a draft tree is grown, and how much of it is verified: expected speed from the head's own
probabilities, corrected by how often they held in this run, and from measured costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .tree import Tree, best_size, expected_speed

TRUST = 4.0  # accepted tokens that the head's own probabilities are worth before anything is seen


@dataclass(slots=True)
class Growth:
    """``budget``: most nodes; ``step_cost``: of a draft step, ``costs``: of a pass by its rows, both
    in one-row passes."""

    budget: int
    step_cost: float
    costs: Sequence[float]
    offered: float = field(default=TRUST)  # expected accepted tokens so far
    taken: float = field(default=TRUST)  # accepted tokens so far

    def trusted(self, scores: Sequence[float]) -> list[float]:
        """The head's probabilities times how often they held in this run: a greedy target agrees more
        often with the head's first choice than the head's softmax says."""
        factor = self.taken / self.offered
        return [min(1.0, score * factor) for score in scores]

    def learn(self, hoped: float, taken: int) -> None:
        """A round's tree promised ``hoped`` accepted tokens and got ``taken``."""
        if hoped > 0.0:
            self.offered += hoped
            self.taken += taken

    def goes_on(self, tree: Tree, frontier: Sequence[int], steps: int) -> bool:
        """Whether one more draft step is likely to pay: whether the expected speed would rise if the
        best candidate below every frontier node were as sure as the best one at the root."""
        scores = [tree.scores[i] for i in tree.best(self.budget)]
        hope = max(score for score, depth in zip(tree.scores, tree.depths, strict=True) if depth == 1)
        more = sorted([*scores, *(tree.scores[i] * hope for i in frontier)], reverse=True)
        return self._speed(more[: self.budget], steps + 1) > self._speed(scores, steps)

    def _speed(self, scores: Sequence[float], steps: int) -> float:
        trusted, spent = self.trusted(scores), steps * self.step_cost
        size = best_size(trusted, self.costs.__getitem__, spent)
        return expected_speed(trusted, size, self.costs.__getitem__, spent)
