"""Medusa heads as they draft: one product per residual block, one per output head (Cai et al. 2024)."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.nn import functional as F

from ..heads import MedusaHeads
from ..lean import compiled
from ..lean.kernels import Matrix
from ..lean.native import draft_matrix
from ..lean.panels import PanelMatrix, rows_bytes
from ..target import Target


class MedusaLayer:
    """Weights of the heads of one target; holds no state of a run."""

    def __init__(self, heads: MedusaHeads, target: Target) -> None:
        self.heads, self.device = heads, target.device
        halves = self.device.type == "cpu" and target.dtype_name in ("bf16", "q4")
        full = target.dtype_name == "fp32" or self.device.type == "cpu"
        self.dtype = torch.float32 if full else torch.bfloat16
        self.count = len(heads.blocks)

        def matrix(weight: Tensor, bias: Tensor | None = None) -> Matrix:
            weight = weight.to(self.device, self.dtype).contiguous()
            bias = None if bias is None else bias.to(self.device, self.dtype)
            return draft_matrix(weight, bias, halves)

        # First blocks read the same state: one product for all of them.
        self.depth = max(len(blocks) for blocks in heads.blocks)
        self.uniform = all(len(blocks) == 1 for blocks in heads.blocks)
        self.first = (
            matrix(
                torch.cat([blocks[0][0] for blocks in heads.blocks]),
                torch.cat([blocks[0][1] for blocks in heads.blocks]),
            )
            if self.uniform
            else None
        )
        self.blocks = [[matrix(w, b) for w, b in blocks] for blocks in heads.blocks]
        self.outputs = [matrix(output) for output in heads.outputs]
        self.ids: list[int] | None = None if heads.ids is None else heads.ids.tolist()

    def _apply(self, matrix: Matrix, x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], matrix.shape[0], dtype=matrix.dtype, device=x.device)
        return matrix.apply(x.to(matrix.dtype), out).to(self.dtype)

    def logits(self, state: Tensor, count: int) -> Tensor:
        """Logits ``[count, V']`` of the first ``count`` heads after the final state ``[1, H]``."""
        x = state.to(self.dtype)
        if self.first is not None:
            rows = x + F.silu(self._apply(self.first, x).view(self.count, -1)[:count])
        else:
            rows = torch.cat([self._head(index, x) for index in range(count)])
        parts = [self._apply(output, rows[i : i + 1]) for i, output in enumerate(self.outputs[:count])]
        width = max(p.shape[1] for p in parts)
        return torch.cat([F.pad(p, (0, width - p.shape[1]), value=-torch.inf) for p in parts])

    def candidates(
        self, state: Tensor, count: int, top: int, warmth: float = 1.0, least: float = 0.0
    ) -> tuple[list[list[int]], list[list[float]]]:
        """Of the first ``count`` heads after the final state ``[1, H]``: the ``top`` likeliest rows of
        the output, and their softmax at the temperature ``warmth``. Ends after the head with which the
        chance that all first choices are right falls below ``least``."""
        found = self._quick(state, count, top, warmth, least)
        if found is not None:
            return found
        chances = (self.logits(state, count).float() / warmth).softmax(-1)
        best = chances.topk(min(top, chances.shape[-1]), dim=-1)
        values, asked, chance = best.values.tolist(), 0, 1.0
        while asked < count and (asked == 0 or chance >= least):
            chance *= values[asked][0]
            asked += 1
        return best.indices.tolist()[:asked], values[:asked]

    def _quick(
        self, state: Tensor, count: int, top: int, warmth: float, least: float
    ) -> tuple[list[list[int]], list[list[float]]] | None:
        """The same in one call, where the kernels have all matrices."""
        library, first, outputs = compiled.library(), self.first, self.outputs[:count]
        heads = [m for m in outputs if isinstance(m, PanelMatrix)]
        if library is None or not isinstance(first, PanelMatrix) or len(heads) < count:
            return None
        hidden, threads = state.shape[1], torch.get_num_threads()
        state = state.float().contiguous()
        top = min(top, *(m.shape[0] for m in heads))
        ids, chances = torch.empty(count, top, dtype=torch.int64), torch.empty(count, top)
        buffers = [
            torch.empty(first.shape[0]),
            torch.empty(hidden),
            torch.empty(max(m.shape[0] for m in heads)),
        ]
        buffers.append(torch.empty(threads * rows_bytes(1, hidden), dtype=torch.uint8))
        places = (ctypes.c_void_p * count)(*(ctypes.addressof(m.struct) for m in heads))
        asked = library.run_heads(
            *(ctypes.addressof(first.struct), ctypes.addressof(places), count, hidden),
            *(state.data_ptr(), *(buffer.data_ptr() for buffer in buffers)),
            *(warmth, least, top, ids.data_ptr(), chances.data_ptr(), threads),
        )
        return ids[:asked].tolist(), chances[:asked].tolist()

    def _head(self, index: int, x: Tensor) -> Tensor:
        for block in self.blocks[index]:
            x = x + F.silu(self._apply(block, x))
        return x
