"""oneDNN's bf16 products: right numbers, and refused where rows depend on their number."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specdemo.lean import native
from specdemo.lean.kernels import MOST_ROWS, Matrix

needs_bf16 = pytest.mark.skipif(not native.native_available(), reason="no bf16 products here")


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@needs_bf16
@pytest.mark.parametrize("pieces", native.PIECES)
@pytest.mark.parametrize("biased", [False, True])
def test_products_are_those_of_the_rounded_weights(pieces: int, biased: bool) -> None:
    weight, bias = draws(96, 128), draws(96, seed=2) if biased else None
    x = draws(7, 128, seed=1).to(torch.bfloat16)
    matrix = native.NativeMatrix(weight, bias, pieces)
    assert matrix.shape == (96, 128) and matrix.nbytes == 96 * 128 * 2
    found = matrix.apply(x, torch.empty(0)).float()
    wanted = x.float() @ weight.to(torch.bfloat16).float().T
    if bias is not None:
        wanted += bias.to(torch.bfloat16).float()
    torch.testing.assert_close(found, wanted, atol=0.2, rtol=0.02)


@needs_bf16
@pytest.mark.parametrize("shape", [(960, 576), (576, 1536), (64, 96)])
def test_rows_have_the_same_bits_at_every_width(shape: tuple[int, int]) -> None:
    """Also at numbers of rows that the check at the start does not try."""
    matrix = native.native_matrix(draws(*shape) * 0.05)
    assert matrix is not None
    x = draws(MOST_ROWS, shape[1], seed=3).to(torch.bfloat16)
    alone = torch.cat([matrix.apply(x[i : i + 1], torch.empty(0)) for i in range(MOST_ROWS)])
    for count in range(1, MOST_ROWS + 1):
        width = matrix.rows(count)
        padded = torch.cat([x[:count], x[:1].expand(width - count, -1)])
        assert torch.equal(matrix.apply(padded, torch.empty(0))[:count], alone[:count]), count


class Shaky(Matrix):
    """Sums in another order when it has more than four rows, as a library's kernels may."""

    def __init__(self, weight: Tensor) -> None:
        self.weight, self.dtype = weight, torch.float32
        self.shape, self.nbytes = (weight.shape[0], weight.shape[1]), weight.nbytes

    def apply(self, x: Tensor, out: Tensor) -> Tensor:
        order = torch.arange(x.shape[1])
        order = order.flip(0) if x.shape[0] > 4 else order
        result = torch.zeros(x.shape[0], self.shape[0])
        for k in order.tolist():
            result += x[:, k : k + 1] * self.weight[:, k]
        return result


def test_kernels_that_change_their_order_are_noticed() -> None:
    assert not native.rows_agree(Shaky(draws(8, 40)))


def test_without_such_rows_there_is_no_native_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "native_available", lambda: True)
    monkeypatch.setattr(native, "rows_agree", lambda matrix: False)
    monkeypatch.setattr(native, "_pieces", {})
    monkeypatch.setattr(native, "NativeMatrix", lambda weight, bias, pieces: Shaky(weight))
    assert native.native_matrix(draws(8, 40)) is None
    assert native.native_matrix(draws(8, 40)) is None  # remembered


def test_widths_reach_every_number_of_rows() -> None:
    matrix = native.NativeMatrix.__new__(native.NativeMatrix)
    for count in range(1, 3 * MOST_ROWS):
        assert matrix.rows(count) >= count and matrix.rows(matrix.rows(count)) == matrix.rows(count)
