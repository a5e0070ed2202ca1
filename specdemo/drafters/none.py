"""Plain decoding: the empty proposal. The baseline runs through the same loop as every method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..proposal import Proposal
from .base import Context, Drafter

EMPTY = Proposal()


@dataclass
class NoDraft(Drafter):
    name: ClassVar[str] = "none"

    def propose(self, context: Context) -> Proposal:
        return EMPTY
