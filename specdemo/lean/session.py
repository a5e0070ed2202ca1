"""``LeanSession``: one generation's static cache and the passes over it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..proposal import depths, is_chain, tree_mask
from ..target import Session
from .passes import Pass

if TYPE_CHECKING:
    from .target import LeanTarget

PREFILL_CHUNK = 128
SLACK = 64  # rows behind the capacity, for the rows that only fill a pass up
MOST_PASSES = 24


class LeanSession(Session):
    """``cache``: ``[layers, capacity + SLACK, 2, M, D]``; rows behind ``length`` are scratch."""

    def __init__(self, target: LeanTarget, capacity: int, hidden_layers: Sequence[int]) -> None:
        plan = target.plan
        self.target, self.capacity, self.length = target, capacity, 0
        self.hidden: dict[int, Tensor] = {}
        self._want = tuple(sorted(set(hidden_layers)))
        self._step = target.key_step
        rows = -(-(capacity + SLACK) // self._step) * self._step
        dtype = torch.float32 if target.device.type == "cpu" else target.weights.head.dtype
        with torch.inference_mode():
            self._cache = torch.zeros(
                plan.layers, rows, 2, plan.kv_heads, plan.head_dim, dtype=dtype, device=target.device
            )
            self._turns = rotations(target.weights.frequencies, rows, target.weights.rope_scale)
        self._passes: OrderedDict[tuple[int, int], Pass] = OrderedDict()
        self._chains: dict[tuple[int, int], Tensor] = {}

    @torch.inference_mode()
    def prefill(self, ids: Sequence[int]) -> None:
        self._check(len(ids))
        parts: dict[int, list[Tensor]] = {layer: [] for layer in self._want}
        for start in range(0, len(ids), PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            width = min(-(-len(chunk) // 16) * 16, PREFILL_CHUNK)
            self._run(
                chunk, range(-1, len(chunk) - 1), width, self.target.plan.layers, self._want, False
            )
            self.length += len(chunk)
            for layer, part in parts.items():
                part.append(self.hidden[layer])
        self.hidden = {layer: torch.cat(part) for layer, part in parts.items() if part}

    @torch.inference_mode()
    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        self._check(len(tokens))
        width = self.target.width(len(tokens))
        logits = self._run(tokens, parents, width, self.target.plan.layers, self._want, True)
        assert logits is not None
        return logits

    @torch.inference_mode()
    def early(self, tokens: Sequence[int], parents: Sequence[int], layers: int) -> Tensor:
        self._check(len(tokens))
        held = self.hidden
        logits = self._run(tokens, parents, self.target.width(len(tokens)), layers, (), True)
        self.hidden = held
        assert logits is not None
        return logits

    @torch.inference_mode()
    def keep(self, rows: Sequence[int]) -> None:
        start, count = self.length, len(rows)
        moved = next((i for i, row in enumerate(rows) if i != row), count)
        if moved < count:  # rows in front of ``moved`` are in place already
            index = torch.tensor(rows[moved:], device=self._cache.device) + start
            self._cache[:, start + moved : start + count] = self._cache.index_select(1, index)
        self.length = start + count

    def crop(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"Cannot roll back to {length} rows of {self.length}.")
        self.length = length

    def close(self) -> None:
        self._passes.clear()
        self._chains.clear()
        self._cache = self._cache.new_empty(0)
        self.hidden = {}

    def _check(self, rows: int) -> None:
        if self.length + rows > self.capacity:
            raise ValueError(f"{self.length} + {rows} rows do not fit a cache of {self.capacity}.")

    def _run(
        self,
        tokens: Sequence[int],
        parents: Sequence[int],
        width: int,
        layers: int,
        want: tuple[int, ...],
        logits: bool,
    ) -> Tensor | None:
        count, device = len(tokens), self._cache.device
        fill = width - count
        current = self._pass(width)
        ids = torch.tensor([*tokens, *[tokens[-1]] * fill], device=device)
        depth = [*depths(parents), *[0] * fill]
        positions = torch.tensor([self.length + d for d in depth])
        current.place(ids, positions, self.length, self._block(parents, width), self._turns)
        out, states = current.run(layers, want, logits)
        self.hidden = {layer: state[:count] for layer, state in states.items()}
        return None if out is None else out[:count]

    def _pass(self, width: int) -> Pass:
        keys = min(-(-(self.length + width) // self._step) * self._step, self._cache.shape[1])
        found = self._passes.get((width, keys))
        if found is None:
            found = Pass(self.target.weights, self._cache, width, keys)
            self._passes[width, keys] = found
            if len(self._passes) > MOST_PASSES:
                self._passes.popitem(last=False)
        return found

    def _block(self, parents: Sequence[int], width: int) -> Tensor:
        """``[T, T]``: 0 where a row sees another row of the block, -inf elsewhere."""
        chain = is_chain(parents)
        known = self._chains.get((len(parents), width)) if chain else None
        if known is not None:
            return known
        seen = torch.eye(width, dtype=torch.bool)
        seen[: len(parents), : len(parents)] = tree_mask(parents)
        block = torch.zeros(width, width).masked_fill_(~seen, -torch.inf).to(self._cache)
        if chain:
            self._chains[len(parents), width] = block
        return block


def rotations(frequencies: Tensor, count: int, scale: float) -> Tensor:
    """``[count, D/2]`` complex64: the rotation of each pair at each position."""
    positions = torch.arange(count, dtype=torch.float32, device=frequencies.device)
    angles = torch.outer(positions, frequencies)
    return torch.polar(torch.full_like(angles, scale), angles)
