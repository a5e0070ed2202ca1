"""Weight matrices in the form their fastest kernel wants, all behind ``apply(x, out)``.

``HalfMatrix``: 16-bit weights, fp32 activations and sums (FBGEMM). A bf16 weight of ordinary size is
exact in fp16, so this is bf16 weights without bf16 rounding of activations. Its kernels work on
blocks of rows; blocks of 1 or 2 rows sum in another order than larger ones (seen on AVX2), so
``good_rows`` finds, on the machine itself, numbers of rows that all give the same bits.

``Int4Matrix``: 4-bit groups of 32 (the GGUF's own values), bf16 activations.
``DenseMatrix``: a plain torch product in the weights' own dtype.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from functools import cache

import torch
from torch import Tensor

GROUP = 32  # weights to a scale in GGUF's Q4_0 and Q4_1
MOST_ROWS = 64
FULL_BLOCK = 12  # rows: whole blocks of the kernels on AVX2
KEY_UNIT = 64
LONGEST_TRIED = 9216  # keys: a multiple of every step that is tried
ONES = 16  # columns of the product that sums the softmax's weights; one is read
DEFAULT_KEY_STEP = 192


class Matrix(ABC):
    """``[N, K]`` weights; ``dtype`` is that of activations in and out."""

    dtype: torch.dtype
    nbytes: int
    shape: tuple[int, int]

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def rows(self, count: int) -> int:
        """The number of rows to run ``count`` rows with, so that each gets the same bits always."""
        return count

    @abstractmethod
    def apply(self, x: Tensor, out: Tensor) -> Tensor:
        """``x [T, K]`` (contiguous) times the transposed weights into ``out [T, N]``; returns the
        result, which may be another tensor than ``out`` where the kernel cannot write into it."""


class DenseMatrix(Matrix):
    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self.dtype, self.nbytes = weight.dtype, weight.nbytes
        self.shape = (weight.shape[0], weight.shape[1])
        self._transposed = weight.t()

    def apply(self, x: Tensor, out: Tensor) -> Tensor:
        if self.bias is None:
            return torch.mm(x, self._transposed, out=out)
        return torch.addmm(self.bias, x, self._transposed, out=out)


class HalfMatrix(Matrix):
    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.dtype, self.nbytes = torch.float32, weight.numel() * 2
        self.shape = (weight.shape[0], weight.shape[1])
        self.bias = None if bias is None else bias.float()
        self._packed = _pack_half(weight.float())

    def rows(self, count: int) -> int:
        return good_rows()[count] if count <= MOST_ROWS else -(-count // FULL_BLOCK) * FULL_BLOCK

    def apply(self, x: Tensor, out: Tensor) -> Tensor:
        return torch.fbgemm_linear_fp16_weight_fp32_activation(x, self._packed, self.bias, out)


class Int4Matrix(Matrix):
    """``values [N, K]`` uint8 0..15; a weight is ``scale * value + low`` with ``scale`` and ``low``
    ``[N, K/32]`` fp32. The values stay exact; scales are rounded to bf16 as the kernel demands."""

    def __init__(self, values: Tensor, scale: Tensor, low: Tensor) -> None:
        self._init(*pack_int4(values, scale, low))

    @classmethod
    def packed(cls, weight: Tensor, scales: Tensor) -> Int4Matrix:
        """From what ``pack_int4`` gave."""
        self = cls.__new__(cls)
        self._init(weight, scales)
        return self

    def _init(self, weight: Tensor, scales: Tensor) -> None:
        self._weight, self._scales = weight, scales
        self.dtype, self.nbytes = torch.bfloat16, weight.nbytes + scales.nbytes
        self.shape = (scales.shape[1], scales.shape[0] * GROUP)
        self._kernel = torch.ops.aten._weight_int4pack_mm_for_cpu.default

    def apply(self, x: Tensor, out: Tensor) -> Tensor:
        return self._kernel(x, self._weight, GROUP, self._scales)


def pack_int4(values: Tensor, scale: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """The layout of ``torch.ops.aten._weight_int4pack_mm_for_cpu``: packed values, and
    ``[K/32, N, 2]`` bf16 scales and centres (the kernel computes ``(value - 8) * scale + centre``)."""
    weight = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values.int(), 1)
    pairs = torch.stack([scale.t(), (low + 8.0 * scale).t()], dim=-1)
    return weight, pairs.to(torch.bfloat16).contiguous()


def _pack_half(weight: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # marked as deprecated; ``half_available`` watches for it
        return torch.fbgemm_pack_gemm_matrix_fp16(weight.contiguous())


@cache
def half_available() -> bool:
    """Whether FBGEMM's fp16 kernels are in this build and run on this CPU."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            x, out = torch.ones(3, 64), torch.empty(3, 32)
            made = HalfMatrix(torch.ones(32, 64)).apply(x, out)
        return made.data_ptr() == out.data_ptr() and bool((out == 64.0).all())
    except (RuntimeError, AttributeError, TypeError):
        return False


def representable(weight: Tensor) -> bool:
    """Whether fp16 holds these weights as well as bf16 does: no overflow, and what underflows is
    below 2^-25 (absolute), far under the rounding of any sum it enters."""
    return bool(weight.abs().amax() < 65504.0)


@cache
def good_rows() -> tuple[int, ...]:
    """For every number of rows up to ``MOST_ROWS`` (index) the next one at which ``HalfMatrix``
    gives each row the same bits as in a full block. The order of sums depends on the number of
    rows only, so a small matrix shows it; measured once per process, a few milliseconds."""
    generator = torch.Generator().manual_seed(0)
    matrix = HalfMatrix(torch.randn(64, 96, generator=generator))
    x = torch.randn(MOST_ROWS, 96, generator=generator)
    results = {n: matrix.apply(x[:n], torch.empty(n, 64)) for n in range(1, MOST_ROWS + 1)}
    good: list[int] = []
    for reference in (FULL_BLOCK, MOST_ROWS):
        first = torch.cat(
            [
                matrix.apply(x[i : i + 1].repeat(reference, 1), torch.empty(reference, 64))[:1]
                for i in range(MOST_ROWS)
            ]
        )
        same = [n for n, result in results.items() if torch.equal(result, first[:n])]
        good = max(good, same, key=len)
    following = [0] * (MOST_ROWS + 1)
    for n in range(MOST_ROWS, -1, -1):
        following[n] = n if n in good or n == MOST_ROWS else following[n + 1]
    return tuple(following)


@cache
def key_step(kv_heads: int, rows: int, head_dim: int) -> int:
    """The smallest of a few numbers of keys such that attention over any multiple of it, or fewer
    keys than it in units of ``KEY_UNIT``, sums values in the same order (the keys behind a row's own
    weigh 0, so only the order matters).

    A matrix product cuts long sums into blocks, and where it cuts may depend on the whole length
    (MKL on AVX2: blocks of 192, but 256 as 128 + 128; with AVX-512: one block up to 512, halves up to
    768, then blocks of 384). So lengths up to ``LONGEST_TRIED`` are compared, once per process and
    shape, for the product with the values and for that with the ones that sums the weights."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(kv_heads, LONGEST_TRIED, head_dim, generator=generator)
    ones = torch.ones(1, LONGEST_TRIED, ONES).expand(kv_heads, -1, -1)
    shares = torch.rand(kv_heads, rows, LONGEST_TRIED, generator=generator)

    def mixed(keys: int, used: int) -> Tensor:
        part = shares[..., :keys].clone()
        part[..., used:] = 0.0
        return torch.cat([torch.bmm(part, values[:, :keys]), torch.bmm(part, ones[:, :keys])], -1)

    for step in (64, 128, 192, 256, 384, 512, 768):
        lengths = [*range(KEY_UNIT, step, KEY_UNIT), *range(step, LONGEST_TRIED, step)]
        pairs = zip(lengths, [*lengths[1:], LONGEST_TRIED], strict=True)
        if all(
            torch.equal(mixed(keys, keys - 2), mixed(longer, keys - 2))
            for keys, following in pairs
            for longer in (following, LONGEST_TRIED)
        ):
            return step
    return DEFAULT_KEY_STEP
