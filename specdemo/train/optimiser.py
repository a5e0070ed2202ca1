"""Muon for the weight matrices, AdamW for the rest, behind one optimiser's interface.

Muon (Jordan et al. 2024) makes each matrix's momentum orthogonal before it is applied. On these small
data it reaches the same acceptance in about half the tokens and spoils later draft steps less."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class Muon:
    """``matrices`` and ``others``: parameters by kind; both take steps of the size AdamW would."""

    def __init__(
        self,
        matrices: Sequence[nn.Parameter],
        others: Sequence[nn.Parameter],
        rate: float,
        decay: float = 0.01,
    ) -> None:
        self.parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices, lr=rate, weight_decay=decay, momentum=0.95, adjust_lr_fn="match_rms_adamw"
            )
        ]
        if others:
            self.parts.append(
                torch.optim.AdamW(others, lr=rate, betas=(0.9, 0.95), weight_decay=decay, fused=True)
            )

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts for group in part.param_groups]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for part in self.parts:
            part.zero_grad(set_to_none)

    def step(self) -> None:
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for part, kept in zip(self.parts, state["parts"], strict=True):
            part.load_state_dict(kept)


def muon(
    module: nn.Module, rate: float, decay: float = 0.01, others: Sequence[nn.Parameter] = ()
) -> Muon:
    """For the trained parameters of ``module``: those of two dimensions are its matrices, except
    ``others`` (embedding tables, whose rows have nothing to do with each other)."""
    trained = [p for p in module.parameters() if p.requires_grad]
    matrices = [p for p in trained if p.ndim == 2 and all(p is not other for other in others)]
    rest = [p for p in trained if all(p is not matrix for matrix in matrices)]
    return Muon(matrices, rest, rate, decay)
