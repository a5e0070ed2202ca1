"""Draft trees: growing one best first, choosing how much of it to verify, and sparse static trees.

A node's score is the draft's probability of its whole path. A child never scores above its parent, so
the best n nodes always form a tree, and a node outside the best n cannot have a child inside.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..proposal import ROOT, Proposal
from .adaptive import WORTH, PassCost

Candidates = list[tuple[int, float]]  # (token, probability after its parent), likeliest first


@dataclass(slots=True)
class Tree:
    """A growing tree. ``scores[i]``: probability of the path to node i. A node is ``expanded`` when
    its children are known."""

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    expanded: set[int] = field(default_factory=set)

    def add(self, parent: int, candidates: Candidates) -> None:
        """The children of ``parent`` (``ROOT`` for the root)."""
        above = 1.0 if parent == ROOT else self.scores[parent]
        depth = 1 if parent == ROOT else self.depths[parent] + 1
        for token, probability in candidates:
            self.tokens.append(token)
            self.parents.append(parent)
            self.scores.append(above * probability)
            self.depths.append(depth)
        if parent != ROOT:
            self.expanded.add(parent)

    def add_path(self, tokens: Sequence[int], scores: Sequence[float]) -> list[int]:
        """A path from the root with falling ``scores``, its beginning shared with what is there (the
        better score counts). Returns its nodes."""
        nodes: list[int] = []
        parent = ROOT
        for token, score in zip(tokens, scores, strict=True):
            known = [i for i, above in enumerate(self.parents) if above == parent]
            node = next((i for i in known if self.tokens[i] == token), len(self.tokens))
            if node == len(self.tokens):
                self.tokens.append(token)
                self.parents.append(parent)
                self.scores.append(score)
                self.depths.append(len(nodes) + 1)
            self.scores[node] = max(self.scores[node], score)
            nodes.append(node)
            parent = node
        return nodes

    def best(self, count: int) -> list[int]:
        """The best ``count`` nodes, likeliest first; of equal ones the earlier, so that ancestors are
        always among them."""
        return sorted(range(len(self.tokens)), key=lambda i: (-self.scores[i], i))[:count]

    def frontier(self, budget: int, width: int, depth: int) -> list[int]:
        """The nodes worth expanding: at most ``width`` of those above ``depth`` that are among the
        best ``budget`` and have no children yet, in index order."""
        open_nodes = [i for i in self.best(budget) if i not in self.expanded and self.depths[i] < depth]
        return sorted(open_nodes[:width])

    def ancestors(self, node: int) -> list[int]:
        """From the root's child down to ``node`` itself."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def proposal(self, chosen: Sequence[int], source: str = "") -> Proposal:
        """The chosen nodes with their parents among them; siblings stay likeliest first."""
        order = sorted(chosen, key=lambda i: (self.depths[i], -self.scores[i], i))
        place = {node: at for at, node in enumerate(order)} | {ROOT: ROOT}
        return Proposal(
            [self.tokens[i] for i in order], [place[self.parents[i]] for i in order], source=source
        )


def best_size(scores: Sequence[float], pass_cost: PassCost, spent: float = 0.0) -> int:
    """How many nodes, likeliest first, give the best expected speed-up; 0 when none is worth it.

    ``scores``: falling path probabilities; each is the chance that one more token is committed.
    ``spent``: cost of drafting so far, in one-row target passes like ``pass_cost``."""
    best, found, gain = WORTH, 0, 1.0
    for size, score in enumerate(scores, start=1):
        gain += score
        speed = gain / (pass_cost(size + 1) + spent)
        if speed > best:
            best, found = speed, size
    return found


def expected_speed(scores: Sequence[float], size: int, pass_cost: PassCost, spent: float) -> float:
    """Expected committed tokens per cost of a round that verifies the best ``size`` nodes (0: of a
    plain round after a draft that was not worth verifying)."""
    return (1.0 + sum(scores[:size])) / (pass_cost(size + 1) + spent)


def sparse_tree(
    accuracies: Sequence[Sequence[float]],
    budget: int,
    worth: Callable[[float], bool] = lambda score: True,
) -> list[tuple[int, ...]]:
    """The paths (ranks per depth) of the ``budget`` nodes most likely to be right, best first.

    ``accuracies[d][r]``: how often the choice of rank r at depth d is right, the depths taken as
    independent (Cai et al. 2024, section 2.3.2). ``worth(score)`` may end the tree earlier."""
    if not accuracies or not accuracies[0]:
        return []
    heap: list[tuple[float, tuple[int, ...]]] = [(-accuracies[0][0], (0,))]
    paths: list[tuple[int, ...]] = []
    while heap and len(paths) < budget:
        negative, path = heapq.heappop(heap)
        score = -negative
        if score <= 0.0 or not worth(score):
            break
        paths.append(path)
        depth, rank = len(path), path[-1]
        here = accuracies[depth - 1]
        if rank + 1 < len(here) and here[rank] > 0.0:  # the next sibling
            heapq.heappush(heap, (-(score / here[rank] * here[rank + 1]), (*path[:-1], rank + 1)))
        if depth < len(accuracies) and accuracies[depth]:  # the first child
            heapq.heappush(heap, (-(score * accuracies[depth][0]), (*path, 0)))
    return paths
