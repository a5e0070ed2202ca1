"""Where a target's trained heads come from, each loaded once a process and target."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import catalog, heads
from ..errors import InputError
from ..target import Target

if TYPE_CHECKING:
    from .eagle3_layer import Eagle3Layer
    from .medusa_layer import MedusaLayer

HEADS_FOLDER = Path(__file__).resolve().parents[2] / "assets" / "heads"
_loaded: weakref.WeakKeyDictionary[Target, dict[tuple[str, str], Any]] = weakref.WeakKeyDictionary()


def eagle3(target: Target, source: str) -> Eagle3Layer:
    """The EAGLE-3 head of ``target``; ``source`` empty: the usual one. Raises ``InputError``."""
    from .eagle3_layer import Eagle3Layer

    def load(place: str) -> Eagle3Layer:
        return Eagle3Layer(heads.load_eagle3(place, target.name, target.shape), target)

    return _once(target, "eagle3", source, load)


def medusa(target: Target, source: str) -> MedusaLayer:
    """The Medusa heads of ``target``; ``source`` empty: the usual ones. Raises ``InputError``."""
    from .medusa_layer import MedusaLayer

    def load(place: str) -> MedusaLayer:
        return MedusaLayer(heads.load_medusa(place, target.name, target.shape), target)

    return _once(target, "medusa", source, load)


def _once(target: Target, method: str, source: str, load: Callable[[str], Any]) -> Any:
    place = source or default_source(target.name, method)
    known = _loaded.setdefault(target, {})
    if (method, place) not in known:
        known[method, place] = load(place)
    return known[method, place]


def default_source(model: str, method: str) -> str:
    """Folder or Hub id of the head that belongs to a model. Raises ``InputError("needs")``."""
    if model == catalog.DEFAULT:
        folder = HEADS_FOLDER / method
        if not (folder / "config.json").exists():
            why = "its trained head is missing from assets/heads in this copy"
            raise InputError("needs", drafter=method, model=model, why=why)
        return str(folder)
    for known in catalog.heads_for(model):
        if known.method == method:
            return known.source
    raise InputError("needs", drafter=method, model=model, why="no published head is known for it")
