"""The registry: one line a drafter. Page, command line and contract tests read it."""

from __future__ import annotations

from typing import Any

from ..errors import InputError
from ..target import Target
from .auto import Auto
from .base import Context, Drafter, check_settings, control, controls
from .draft_model import DraftModel
from .eagle3 import Eagle3
from .early_exit import EarlyExit
from .medusa import Medusa
from .ngram import NGram
from .none import NoDraft

REGISTRY: dict[str, type[Drafter]] = {
    kind.name: kind for kind in (NoDraft, NGram, DraftModel, EarlyExit, Eagle3, Medusa, Auto)
}


def create(
    name: str, target: Target, settings: dict[str, Any] | None = None, **resources: Any
) -> Drafter:
    """A drafter for one run. Raises ``InputError`` for an unknown name or bad settings."""
    if name not in REGISTRY:
        raise InputError("unknown_drafter", name=repr(name)[:40], known=", ".join(REGISTRY))
    return REGISTRY[name].build(target, settings or {}, **resources)


__all__ = ["REGISTRY", "Context", "Drafter", "check_settings", "control", "controls", "create"]
