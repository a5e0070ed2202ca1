"""A draft's vocabulary with a prompt's tokens added."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specdemo.drafters.vocabulary import MOST_ADDED, Vocabulary, same_rows
from specdemo.lean import compiled
from specdemo.lean.kernels import Matrix
from specdemo.lean.native import draft_matrix
from specdemo.lean.panels import PANEL, PanelMatrix

TABLE = torch.randn(400, 64, generator=torch.Generator().manual_seed(4))


def base(halves: bool) -> Vocabulary:
    index = torch.arange(0, 128) * 3
    return Vocabulary(draft_matrix(TABLE[index], halves=halves), index.tolist(), index)


def product(matrix: Matrix, x: Tensor) -> Tensor:
    out = torch.empty(x.shape[0], matrix.shape[0], dtype=matrix.dtype)
    return matrix.apply(x.to(matrix.dtype), out).float()


@pytest.mark.parametrize("halves", [False, True])
def test_logits_of_added_tokens_are_those_of_the_table(halves: bool) -> None:
    before = base(halves)
    assert before.ids is not None
    if halves and compiled.library() is not None:
        assert isinstance(before.matrix, PanelMatrix)
    after = before.extended(TABLE, [1, 3, 5, 1, 398], torch.float32)
    assert after.ids is not None and after.index is not None
    assert after.ids[:128] == before.ids and after.ids[128:131] == [1, 5, 398]
    assert len(after.ids) == len(set(after.ids)) == after.matrix.shape[0] == 128 + PANEL
    assert after.index.tolist() == after.ids
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(5))
    found, expected = product(after.matrix, x), x @ TABLE[after.index].T
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.3 if halves else 1e-3)
    if halves:  # what was there before is as it was, to the bit
        torch.testing.assert_close(found[:, :128], product(before.matrix, x), rtol=0, atol=0)


def test_nothing_new_changes_nothing() -> None:
    before = base(False)
    assert before.extended(TABLE, [0, 3, 3, 6], torch.float32) is before
    whole = Vocabulary(before.matrix, None, None)
    assert whole.extended(TABLE, [1, 2], torch.float32) is whole


def test_a_prompt_of_all_kinds_adds_no_more_than_so_many() -> None:
    table = torch.randn(3 * MOST_ADDED, 32)
    index = torch.arange(32)
    before = Vocabulary(draft_matrix(table[index]), index.tolist(), index)
    after = before.extended(table, range(3 * MOST_ADDED), torch.float32)
    assert after.ids is not None and len(after.ids) == 32 + MOST_ADDED


def test_only_the_targets_own_rows_are_added_to() -> None:
    ids = torch.tensor([2, 5, 9])
    assert same_rows(TABLE[ids], TABLE, ids)
    assert same_rows(TABLE[ids].bfloat16(), TABLE, ids)
    assert not same_rows(TABLE[ids] * 1.1, TABLE, ids)
    assert not same_rows(TABLE[ids], TABLE, None)
    assert not same_rows(TABLE[ids][:, :32], TABLE, ids)
