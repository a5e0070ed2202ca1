"""Self-speculation by early exit: the target's own first layers and its head draft a chain.

After Draft & Verify (Zhang et al. 2023) and LayerSkip (Elhoushi et al. 2024), without their training:
the layers share the target's cache, so the draft needs no memory and no prefill of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import InputError
from ..proposal import Proposal
from ..rows import Dense
from ..target import Target
from .base import Context, Drafter, check_settings, control
from .none import EMPTY


@dataclass
class EarlyExit(Drafter):
    """Drafts ``gamma`` tokens through the first ``layers`` layers (0: two thirds of all)."""

    name: ClassVar[str] = "early_exit"
    gamma: int = control(3, 1, 16)
    layers: int = control(0, 0, 200)

    @classmethod
    def build(cls, target: Target, settings: dict[str, Any], **resources: Any) -> EarlyExit:
        """Raises ``InputError`` when the target has too few layers."""
        drafter = cls(**check_settings(cls, settings))
        most = target.shape.layers - 1
        drafter.layers = drafter.layers or max(1, round(target.shape.layers * 2 / 3))
        if not 1 <= drafter.layers <= most:
            raise InputError("layers", most=most, value=drafter.layers)
        return drafter

    def propose(self, context: Context) -> Proposal:
        depth = min(self.gamma, context.room)
        if depth < 1:
            return EMPTY
        tokens: list[int] = []
        rows: list[Tensor] = []
        for _ in range(depth):
            block = [context.last, *tokens]
            # The whole block anew each time: the scratch rows belong to the draft alone.
            logits = context.session.early(block, range(-1, len(block) - 1), self.layers)
            q = context.distributions(logits[-1:], [tokens]).row(0)
            tokens.append(q.draw(context.chooser))
            if isinstance(q, Dense):
                rows.append(q.probs)
        return Proposal.chain(tokens, torch.stack(rows) if rows else None)
