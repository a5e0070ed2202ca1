"""Medusa heads as they draft: one product per residual block, one per output head (Cai et al. 2024)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..heads import MedusaHeads
from ..lean.kernels import DenseMatrix, HalfMatrix, Matrix, half_available, representable
from ..target import Target


class MedusaLayer:
    """Weights of the heads of one target. A tied head uses the rows of the target's own output head."""

    def __init__(self, heads: MedusaHeads, target: Target) -> None:
        self.heads, self.device = heads, target.device
        halves = self.device.type == "cpu" and target.dtype_name != "fp32" and half_available()
        full = target.dtype_name == "fp32" or self.device.type == "cpu"
        self.dtype = torch.float32 if full else torch.bfloat16
        self.count = len(heads.blocks)

        def matrix(weight: Tensor, bias: Tensor | None = None) -> Matrix:
            weight = weight.to(self.device, self.dtype).contiguous()
            bias = None if bias is None else bias.to(self.device, self.dtype)
            if halves and representable(weight):
                return HalfMatrix(weight, bias)
            return DenseMatrix(weight, bias)

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
        tied = any(output is None for output in heads.outputs)
        self.shared = matrix(output_rows(target, heads.ids)) if tied else None
        self.outputs = [None if output is None else matrix(output) for output in heads.outputs]
        self.ids: list[int] | None = None if heads.ids is None else heads.ids.tolist()

    def _apply(self, matrix: Matrix, x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], matrix.shape[0], dtype=matrix.dtype, device=x.device)
        return matrix.apply(x, out)

    def logits(self, state: Tensor, count: int) -> Tensor:
        """Logits ``[count, V']`` of the first ``count`` heads after the final state ``[1, H]``."""
        x = state.to(self.dtype)
        if self.first is not None:
            rows = x + F.silu(self._apply(self.first, x).view(self.count, -1)[:count])
        else:
            rows = torch.cat([self._head(index, x) for index in range(count)])
        if self.shared is not None and not any(self.outputs[:count]):
            return self._apply(self.shared, rows)
        parts = []
        for index in range(count):
            output = self.outputs[index] or self.shared
            assert output is not None
            parts.append(self._apply(output, rows[index : index + 1]))
        width = max(p.shape[1] for p in parts)
        return torch.cat([F.pad(p, (0, width - p.shape[1]), value=-torch.inf) for p in parts])

    def _head(self, index: int, x: Tensor) -> Tensor:
        for block in self.blocks[index]:
            x = x + F.silu(self._apply(block, x))
        return x


def output_rows(target: Target, ids: Tensor | None) -> Tensor:
    """Rows ``[V', H]`` of the target's output head, through the head itself: the products with the
    unit vectors are its columns, whatever form the weights have."""
    size, step = target.shape.hidden, 64
    columns = []
    unit = torch.eye(size, device=target.device)
    for start in range(0, size, step):
        part = target.head(unit[start : start + step]).float()  # [step, V]
        columns.append(part if ids is None else part[:, ids.to(part.device)])
    return torch.cat(columns).t().contiguous()
