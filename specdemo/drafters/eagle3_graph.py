"""The EAGLE-3 layer where graphs are recorded: fixed widths, a static cache, one replay a draft step.

A graph is bound to the memory it was recorded with, so inputs are copied into place and a cache that
a run is done with serves the next one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..graphs import Capture
from ..lean.target import CUDA_WIDTHS

if TYPE_CHECKING:
    from .eagle3_layer import Eagle3Layer

UNIT = 256  # keys: a recording serves that many steps
LARGEST = CUDA_WIDTHS[-1]


class Step:
    """One shape of a draft step: its inputs, and the replay that fills ``output [T, H]``."""

    def __init__(self, cache: GraphCache, width: int, keys: int) -> None:
        layer, device = cache.layer, cache.layer.device
        self.hidden = torch.zeros(width, layer.head.hidden, dtype=layer.dtype, device=device)
        self.places = torch.zeros(3, width, dtype=torch.int64, device=device)  # ids, positions, slots
        self.mask = torch.ones(width, keys, dtype=torch.bool, device=device)

        def run() -> tuple[Tensor, dict[int, Tensor]]:
            ids, positions, slots = self.places
            made = layer.compute(
                self.hidden, ids, positions, lambda k, v: cache.write(k, v, slots, keys), self.mask
            )
            return made, {}

        self._run, self._capture = run, cache.capture
        self._replay: Callable[[], Any] | None = None

    def replay(self) -> Tensor:
        """Recorded when it is first wanted, with its inputs in place: recording runs it."""
        if self._replay is None:
            self._replay = self._capture(self._run)
        output: Tensor = self._replay()[0]
        return output


class GraphCache:
    """Keys and values ``[kv heads, rows, D]``: ``used`` rows count; what lies behind is scratch."""

    def __init__(self, layer: Eagle3Layer, capacity: int, capture: Capture) -> None:
        self.layer, self.capture, self.used = layer, capture, 0
        self.rows = -(-(capacity + LARGEST) // UNIT) * UNIT
        shape = (layer.head.kv_heads, self.rows, layer.head.head_dim)
        self.keys = torch.zeros(shape, dtype=layer.dtype, device=layer.device)
        self.values = torch.zeros_like(self.keys)
        self._steps: dict[tuple[int, int], Step] = {}

    def write(self, keys: Tensor, values: Tensor, slots: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """``[T, kv heads, D]`` into the rows ``slots``; the first ``count`` rows of the cache."""
        self.keys.index_copy_(1, slots, keys.transpose(0, 1))
        self.values.index_copy_(1, slots, values.transpose(0, 1))
        return self.keys[:, :count], self.values[:, :count]

    def forward(
        self, hidden: Tensor, tokens: Sequence[int], positions: Sequence[int], mask: Tensor
    ) -> Tensor:
        """As ``Eagle3Layer.forward``; more rows than ``LARGEST`` in several steps."""
        parts = []
        for start in range(0, len(tokens), LARGEST):
            at = slice(start, start + LARGEST)
            seen = mask[at, : self.used + len(tokens[at])]
            parts.append(self._step(hidden[at], list(tokens[at]), list(positions[at]), seen))
        return torch.cat(parts)

    def _step(self, hidden: Tensor, tokens: list[int], positions: list[int], mask: Tensor) -> Tensor:
        count = len(tokens)
        width = next(w for w in CUDA_WIDTHS if w >= count)
        keys = -(-(self.used + width) // UNIT) * UNIT
        step = self._steps.get((width, keys))
        if step is None:
            step = self._steps[width, keys] = Step(self, width, keys)
        fill, slots = [0] * (width - count), range(self.used, self.used + width)
        places = torch.tensor([[*tokens, *fill], [*positions, *fill], [*slots]])
        step.places.copy_(places, non_blocking=True)
        step.hidden[:count] = hidden
        step.mask.zero_()
        step.mask[:count, : mask.shape[1]] = mask
        step.mask[count:, self.used] = True  # rows that only fill up: something must be seen
        self.used += count
        return step.replay()[:count].clone()
