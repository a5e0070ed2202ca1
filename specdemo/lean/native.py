"""bf16 matrices for processors that multiply bf16 themselves (AVX-512 bf16, AMX): oneDNN's products.

A pass of many rows costs little more than one of a single row there. oneDNN chooses its kernel by the
number of rows, and kernels sum in different orders; weights laid out for one row (``ONE_ROW``) were
seen to give every row the same bits in a pass of any width, other layouts not. That is checked with
each shape of matrix before it is used; sums over many columns may have to be cut in two.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from .kernels import MOST_ROWS, DenseMatrix, HalfMatrix, Matrix, half_available, representable
from .panels import byte_matrix, full_matrix, half_matrix

WIDTHS = (*range(1, 10), 12, 16, 24, 32, 48, MOST_ROWS)  # rows that passes are run with
PIECES = (1, 2, 4)
ONE_ROW = 1

_pieces: dict[tuple[int, int, int], int | None] = {}  # by shape and threads; None: not to be used


class NativeMatrix(Matrix):
    """``weight [N, K]`` rounded to bf16; products of ``pieces`` parts of K, added."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, pieces: int = 1) -> None:
        self.dtype, self.nbytes = torch.bfloat16, weight.numel() * 2
        self.shape = (weight.shape[0], weight.shape[1])
        self._bias = None if bias is None else bias.to(torch.bfloat16)
        parts = weight.to(torch.bfloat16).chunk(pieces, 1)
        self._packed = [torch.ops.mkldnn._reorder_linear_weight(p.contiguous(), ONE_ROW) for p in parts]
        self._product: Callable[..., Any] = torch.ops.mkldnn._linear_pointwise.default

    def rows(self, count: int) -> int:
        return next((w for w in WIDTHS if w >= count), -(-count // MOST_ROWS) * MOST_ROWS)

    def apply(self, x: Tensor, out: Tensor) -> Tensor:
        if len(self._packed) == 1:
            return self._times(x, self._packed[0], self._bias)
        parts = x.chunk(len(self._packed), 1)
        total = self._times(parts[0].contiguous(), self._packed[0], self._bias)
        for part, packed in zip(parts[1:], self._packed[1:], strict=True):
            total.add_(self._times(part.contiguous(), packed, None))
        return total

    def _times(self, x: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
        result: Tensor = self._product(x, packed, bias, "none", [], "")
        return result


def matrix_of(weight: Tensor, bias: Tensor | None = None, halves: bool = False) -> Matrix:
    """``weight [N, K]`` in the form of the fastest kernel here. ``halves``: 16-bit weights are wanted
    and the device is a CPU; else the product is torch's own in the weight's dtype."""
    if halves:
        made = half_matrix(weight, bias) or native_matrix(weight, bias)
        if made is not None:
            return made
    if halves and half_available() and representable(weight):
        return HalfMatrix(weight, bias)
    if not halves and (full := full_matrix(weight, bias)) is not None:
        return full
    return DenseMatrix(weight, bias)


def draft_matrix(weight: Tensor, bias: Tensor | None = None, halves: bool = False) -> Matrix:
    """``weight`` for a draft, where reading less counts more than the last digits: 8-bit where the
    kernels run and 16-bit weights are wanted, else as ``matrix_of``."""
    return (byte_matrix(weight, bias) if halves else None) or matrix_of(weight, bias, halves)


def native_matrix(weight: Tensor, bias: Tensor | None = None) -> NativeMatrix | None:
    """The matrix with the fewest pieces whose rows get the same bits at every width, or None where
    this processor has no bf16 products or no way of cutting helps."""
    if not native_available():
        return None
    key = (weight.shape[0], weight.shape[1], torch.get_num_threads())
    if key in _pieces:
        known = _pieces[key]
        return None if known is None else NativeMatrix(weight, bias, known)
    for pieces in PIECES:
        made = NativeMatrix(weight, bias, pieces) if weight.shape[1] % pieces == 0 else None
        if made is not None and rows_agree(made):
            _pieces[key] = pieces
            return made
    _pieces[key] = None
    return None


@cache
def native_available() -> bool:
    """Whether the processor multiplies bf16 (by what it says, not by a stopwatch: a seed must give
    the same text in the next process) and this build of torch has the products."""
    try:
        has = torch.backends.mkldnn.is_available() and (
            torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        )
        if not has:
            return False
        made = NativeMatrix(torch.ones(32, 64))
        return bool((made.apply(torch.ones(3, 64, dtype=torch.bfloat16), torch.empty(0)) == 64.0).all())
    except (RuntimeError, AttributeError, TypeError):
        return False


def rows_agree(matrix: Matrix) -> bool:
    """Whether every row has the same bits in passes of all ``WIDTHS``, at their ends and beginnings."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(MOST_ROWS, matrix.shape[1], generator=generator).to(matrix.dtype)
    outs = torch.empty(MOST_ROWS, matrix.shape[0], dtype=matrix.dtype)
    whole = matrix.apply(x, outs).clone()
    for width in WIDTHS:
        for start in {0, MOST_ROWS // 2 - width // 2, MOST_ROWS - width}:
            part = x[start : start + width]
            if not torch.equal(matrix.apply(part, outs[:width]), whole[start : start + width]):
                return False
    return True
