"""A proposal: the tokens a drafter suggests for one round, as a tree (a chain is a tree)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

ROOT = -1


@dataclass(frozen=True, slots=True)
class Proposal:
    """Draft tokens of one round.

    ``tokens[i]`` hangs below node ``parents[i]`` (``ROOT`` = -1: below the last committed token);
    a parent comes before its children. Siblings are tested in index order.

    ``q``: ``[N, V]``, row i the distribution node i was *sampled* from (after temperature, filters
    and penalties, same device as the target's logits); ``None`` for a deterministic draft (one-hot).
    Lossless only if sampled children are never dropped afterwards because of what they are.
    ``source``: which sub-drafter made it, for the reader.

    Raises ``ValueError`` when lengths differ or a parent does not precede its child.
    """

    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()
    q: Tensor | None = None
    source: str = ""
    children: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        count = len(self.tokens)
        if len(self.parents) != count:
            raise ValueError(f"{count} tokens but {len(self.parents)} parents.")
        if self.q is not None and self.q.shape[0] != count:
            raise ValueError(f"{count} tokens but {self.q.shape[0]} rows of q.")
        below: list[list[int]] = [[] for _ in range(count + 1)]  # [0] is the root's
        for node, parent in enumerate(self.parents):
            if not ROOT <= parent < node:
                raise ValueError(f"Node {node} has parent {parent}: a parent must come first.")
            below[parent + 1].append(node)
        object.__setattr__(self, "children", tuple(map(tuple, below)))

    @classmethod
    def chain(cls, tokens: Sequence[int], q: Tensor | None = None, source: str = "") -> Proposal:
        """A chain: every token below the one before it."""
        return cls(tokens, range(-1, len(tokens) - 1), q, source)

    def __len__(self) -> int:
        return len(self.tokens)

    def ancestors(self, node: int) -> list[int]:
        """Nodes from the root's child down to ``node`` itself; empty for ``ROOT``."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return path[::-1]

    def prefixes(self) -> list[list[int]]:
        """Draft tokens before each target row: row 0 (root) none, row i+1 up to and with node i."""
        rows: list[list[int]] = [[]]
        for token, parent in zip(self.tokens, self.parents, strict=True):
            rows.append([*rows[parent + 1], token])
        return rows


def depths(parents: Sequence[int]) -> list[int]:
    """Depth of each row of a block; rows with parent -1 have depth 0. Used for positions."""
    result: list[int] = []
    for parent in parents:
        result.append(0 if parent < 0 else result[parent] + 1)
    return result


def is_chain(parents: Sequence[int]) -> bool:
    """True if every row hangs below the one before it, the first below the cached prefix."""
    return all(parent == row - 1 for row, parent in enumerate(parents))


def tree_mask(parents: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """``[T, T]`` bool: row i may attend to row j, that is j is i or an ancestor of i."""
    size = len(parents)
    if is_chain(parents):
        return torch.ones(size, size, dtype=torch.bool, device=device).tril_()
    mask = torch.eye(size, dtype=torch.bool)
    for row, parent in enumerate(parents):
        if parent >= 0:
            mask[row] |= mask[parent]
    return mask.to(device)
