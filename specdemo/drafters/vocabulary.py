"""What a draft may name: the rows of its output head, and which token each is.

A reduced vocabulary holds the frequent tokens; the names and rare words of a prompt, which its answer
is likely to repeat, are seldom among them. Where the head's rows are the target's own, those of the
prompt's tokens are added for the run: the distribution a draft is judged by is that of what it names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..lean.kernels import Matrix
from ..lean.native import draft_matrix
from ..lean.panels import PANEL, PanelMatrix, byte_matrix, stacked

MOST_ADDED = 1024  # tokens: every one makes each draft step a little dearer


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """``matrix [V', H]``; ``ids``: the target's id of each row, None when they are the same."""

    matrix: Matrix
    ids: list[int] | None
    index: Tensor | None  # ``ids`` on the device

    def extended(self, table: Tensor, tokens: Iterable[int], dtype: torch.dtype) -> Vocabulary:
        """With the rows of ``tokens``, taken from ``table [V, H]``, whose rows those of ``matrix``
        are, too. ``dtype``: of the matrix where it is made anew."""
        if self.ids is None:
            return self
        known = set(self.ids)
        wanted = [token for token in dict.fromkeys(tokens) if token not in known][:MOST_ADDED]
        if not wanted:
            return self
        # Whole panels, filled up with other real tokens: an empty row would be a candidate as well.
        known.update(wanted)
        missing = -len(wanted) % PANEL
        others = (token for token in range(table.shape[0]) if token not in known)
        wanted += [token for token, _ in zip(others, range(missing), strict=False)]
        ids = [*self.ids, *wanted]
        index = torch.tensor(ids, device=table.device)
        matrix: Matrix | None = None
        if isinstance(self.matrix, PanelMatrix):
            rows = byte_matrix(table[index[len(self.ids) :]])
            matrix = None if rows is None else stacked(self.matrix, rows)
        return Vocabulary(matrix or draft_matrix(table[index].to(dtype)), ids, index)


def same_rows(weight: Tensor, table: Tensor, ids: Tensor | None) -> bool:
    """Whether a head ``weight [V', H]`` is made of rows of ``table [V, H]``."""
    if ids is None or weight.shape[1] != table.shape[1]:
        return False
    rows = table[ids.to(table.device)].to(weight.device, weight.dtype)
    return bool(torch.allclose(weight, rows, rtol=0.01, atol=1e-3))
