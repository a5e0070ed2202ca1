"""Batches for the EAGLE-3 training: which state, token and label belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .data import Sample
from .loop import pad


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows ``t = 0 .. T-1`` of B conversations.

    ``features`` ``[B, T, L*H]`` (states of position t), ``final`` ``[B, T + steps, H]`` (the final
    state of position t + 1: what the head's output should be like), ``ids`` ``[B, T + steps]``
    (token t + 1), ``weight`` ``[B, T + steps]``: 1 where the state at t + 1 predicts a token of the
    answer, ``prompt_weight`` within the user's turn, 0 beyond the end."""

    features: Tensor
    final: Tensor
    ids: Tensor
    weight: Tensor
    steps: int

    def labels(self, step: int) -> tuple[Tensor, Tensor]:
        """(final states ``[B, T, H]``, weights ``[B, T]``) that draft step ``step`` is judged by."""
        length = self.features.shape[1]
        at = slice(step, step + length)
        return self.final[:, at], self.weight[:, at]

    def tokens(self, step: int) -> Tensor:
        """Ids ``[B, T]`` fed at draft step ``step``."""
        length = self.features.shape[1]
        return self.ids[:, step : step + length]


def make_batch(
    samples: Sequence[Sample],
    columns: Sequence[int],
    final_column: int,
    steps: int,
    prompt_weight: float,
    device: torch.device,
) -> Batch:
    """``columns``: which captured layers are fused; ``final_column``: which one is the final state."""
    features, final, ids, weights = [], [], [], []
    for sample in samples:
        states = torch.from_numpy(np.array(sample.features, dtype=np.float32))  # [T, L, H]
        features.append(states[:-2, columns].flatten(1))
        final.append(states[1:-1, final_column])
        ids.append(sample.row.ids[1:-1])
        weight = torch.full((len(states) - 2,), prompt_weight)
        # Row t is judged on token t + 2, which is part of the answer from response_start on.
        weight[max(sample.row.response_start - 2, 0) :] = 1.0
        weights.append(weight)
    length = max(len(f) for f in features)
    return Batch(
        pad(features, length).to(device),
        pad(final, length + steps).to(device),
        pad(ids, length + steps).to(device),
        pad(weights, length + steps).to(device),
        steps,
    )
