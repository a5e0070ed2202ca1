"""What a drafter needs besides its settings: the draft model of a pair, loaded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from . import catalog
from .drafters import shortlist
from .loading import load_target
from .target import Target

HEADS_FOLDER = Path(__file__).resolve().parent.parent / "assets" / "heads"
_SAME = "target"


def resources(target: Target, drafter: str, draft: str = "") -> dict[str, Any]:
    """Keyword arguments for ``drafters.create``.

    ``draft``: a model's name or folder for ``draft_model``, "target" for the target itself, empty
    for the pair of the catalogue (the embedded model's is the small model shipped in ``assets``).
    Raises ``InputError`` as ``load_target`` does."""
    if drafter != "draft_model":
        return {"head": draft} if draft else {}
    if draft == _SAME:
        return {"draft": target}
    name = draft or _pair(target)
    if not name:
        return {}
    loaded, ids = _load(name, target)
    return {"draft": loaded, "ids": ids}


def _pair(target: Target) -> str:
    """The usual draft of a target, empty if there is none."""
    if target.name == catalog.DEFAULT:
        folder = HEADS_FOLDER / "draft_model"
        return str(folder) if (folder / "config.json").exists() else ""
    entry = catalog.MODELS.get(target.name)
    return entry.drafts[0] if entry and entry.drafts else ""


_loaded: dict[tuple[str, str, str], tuple[Target, Tensor | None]] = {}


def _load(name: str, target: Target) -> tuple[Target, Tensor | None]:
    """The model, and the token ids that its logits are for (None: all). Weights are shared by all
    runs: a target holds no state of a run."""
    # 4-bit blocks exist for the embedded model alone; a small draft beside it runs in bf16.
    dtype = "bf16" if target.dtype_name == "q4" else target.dtype_name
    key = (name, dtype, target.device.type)
    if key not in _loaded:
        draft = load_target(name, dtype=dtype, device=target.device.type)
        ids = shortlist.read(Path(name), draft.shape.vocab)
        _loaded[key] = shortlist.restricted(draft, ids)
    return _loaded[key]
