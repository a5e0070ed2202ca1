"""The draft steps of one run: rows of true states behind each other in the head's cache, and behind
them the rows of the tree that is being grown."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..proposal import ROOT
from .eagle3_layer import Eagle3Layer
from .eagle3_quick import QuickCache
from .tree import Candidates

CHUNK = 256  # rows of the prompt at once


class Steps:
    """``rows`` true rows are in ``cache``; ``output [1, H]`` is the last one's, None before any.

    ``prompt``: its tokens are among what the drafts may name. ``warmth``: temperature of the
    candidates' probabilities; ``top``: candidates a row."""

    def __init__(
        self, layer: Eagle3Layer, capacity: int, prompt: Sequence[int], warmth: float, top: int
    ) -> None:
        self.layer, self.warmth, self.top = layer, warmth, top
        self.vocabulary = layer.vocabulary_with(prompt)
        self.cache = layer.cache(capacity, self.vocabulary, warmth, top)
        self.rows = 0
        self.output: Tensor | None = None
        self._quick = self.cache.other if isinstance(self.cache.other, QuickCache) else None
        self._outputs: list[Tensor] = []  # of the tree's rows
        self._slots = 0  # rows of the tree so far
        self._root: Candidates = []

    def take(self, states: Tensor, tokens: Sequence[int]) -> None:
        """True rows: fused states ``[T, H]`` of positions t with tokens t + 1."""
        for start in range(0, len(states), CHUNK):
            part, base = states[start : start + CHUNK], self.rows
            count = len(part)
            ids = list(tokens[start : start + count])
            self.cache.used = base
            if self._quick is not None:
                last = count - 1
                rows = [(ids[i], base + i, i, -1 if i < last else 0, base + i + 1) for i in range(count)]
                self._root = self._named(self._quick.step(part.contiguous(), rows, first=last))[0]
                self.output = self._quick.outputs[:1]
            else:
                mask = torch.ones(count, base + count, dtype=torch.bool, device=part.device).tril_(base)
                made = self.layer.forward(part, ids, range(base, base + count), self.cache, mask)
                self.output, self._root = made[-1:], []
            self.rows += count

    def root(self) -> Candidates:
        """What may come after the last true row, likeliest first: (token of the target, probability).
        Begins a new tree."""
        assert self.output is not None
        self._slots, self._outputs = 0, []
        if not self._root:
            self._root = self._candidates(self.layer.logits(self.output, self.vocabulary))[0]
        return self._root

    def branch(
        self, parents: Sequence[int], tokens: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> list[Candidates]:
        """Rows of the tree: for each the row of its parent (``ROOT`` for the last true row), its token,
        and the rows from the root's child down to the parent. They get the next numbers, from 0 on."""
        assert self.output is not None
        first, count = self._slots, len(tokens)
        self._slots += count
        self.cache.used = self.rows + first
        positions = [self.rows + len(path) for path in paths]
        seen = [[*path, first + at] for at, path in enumerate(paths)]
        if self._quick is not None:
            self._quick.room(self._slots)
            rows = [
                (tokens[i], positions[i], parents[i] + 1, first + i + 1, self.rows) for i in range(count)
            ]
            more = [n for at, own in enumerate(seen) for slot in own for n in (at, self.rows + slot)]
            return self._named(self._quick.step(self._quick.outputs, rows, more))
        hidden = torch.cat([self.output if p == ROOT else self._outputs[p] for p in parents])
        mask = torch.zeros(count, self.rows + self._slots, dtype=torch.bool)
        mask[:, : self.rows] = True
        pairs = [(at, self.rows + slot) for at, own in enumerate(seen) for slot in own]
        mask[tuple(torch.tensor(pairs).T)] = True
        made = self.layer.forward(hidden, tokens, positions, self.cache, mask.to(self.layer.device))
        self._outputs += made.split(1)
        return self._candidates(self.layer.logits(made, self.vocabulary))

    def _candidates(self, logits: Tensor) -> list[Candidates]:
        """Of logits ``[T, draft V]``."""
        chances = (logits.float() / self.warmth).softmax(-1)
        found = chances.topk(min(self.top, logits.shape[-1]), dim=-1)
        rows = zip(found.indices.tolist(), found.values.tolist(), strict=True)
        return self._named([list(zip(*row, strict=True)) for row in rows])

    def _named(self, rows: list[Candidates]) -> list[Candidates]:
        """Candidates by the target's ids."""
        ids = self.vocabulary.ids
        return rows if ids is None else [[(ids[i], chance) for i, chance in row] for row in rows]

    def close(self) -> None:
        self.layer.release(self.cache)
