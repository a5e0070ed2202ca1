"""From a name to a target: any Hugging Face causal LM by catalogue key, Hub id or local folder.

Code that comes with a checkpoint is never run (``trust_remote_code`` stays off). The heavy imports
are made here, when a model is wanted: replays and servers' pages start without them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import catalog, embedded, hub
from .catalog import DEFAULT
from .errors import InputError
from .token_match import check_tokenizers, same_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from .target import Target

DTYPES = ("auto", "bf16", "fp32", "q4")
DEVICES = ("auto", "cpu", "cuda")
__all__ = ["check_tokenizers", "load_target", "load_tokenizer", "same_tokenizer"]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model's files are: ``path`` is a folder, or a Hub id when ``local`` is false.
    ``embedded``: the model of the package, in our cache. ``cached``: from the Hub, files here."""

    name: str
    path: str
    local: bool
    embedded: bool = False
    cached: bool = False

    @property
    def offline(self) -> bool:
        return self.local or self.cached

    @property
    def four_bit(self) -> bool:
        return self.embedded and Path(self.path, embedded.BLOCKS).exists()


def load_target(
    model: str = DEFAULT,
    dtype: str = "auto",
    device: str = "auto",
    progress: embedded.Progress | None = None,
) -> Target:
    """A target ready to run. ``model``: catalogue key, Hub id or folder; ``dtype``: one of
    ``DTYPES``; ``device``: one of ``DEVICES``.

    Raises ``InputError``: ``no_device``, ``dtype``, ``model_not_found``, ``unsupported_model``,
    ``no_memory``, and what ``embedded.ensure`` raises."""
    if dtype not in DTYPES:
        raise InputError("dtype", dtype=repr(dtype)[:40], why=f"choose one of {', '.join(DTYPES)}")
    chosen = _device(device)
    place = _place(model, progress)
    kind = _dtype(dtype, chosen, place)
    try:
        return _load(place, kind, chosen)
    except InputError as error:
        if error.key != "unsupported_model" or not (place.embedded or place.cached):
            raise
        if place.embedded:  # perhaps damaged with its size and time unchanged
            embedded.ensure(progress, full=True)
        else:  # perhaps a download that was broken off
            hub.reach(place.name, place.path)
            place = replace(place, cached=False)
        return _load(place, kind, chosen)


def _load(place: Place, kind: str, device: torch.device) -> Target:
    from . import lean

    tokenizer = _tokenizer(place)
    with lean.own_mappings():
        return _target(place, tokenizer, kind, device)


def _target(place: Place, tokenizer: PreTrainedTokenizerBase, kind: str, device: torch.device) -> Target:
    from . import lean

    loaded = _skeleton(place, kind, device) or _model(place, kind, device)
    if lean.supports(loaded):
        gguf = Path(place.path, embedded.BLOCKS) if kind == "q4" else None
        return lean.LeanTarget(loaded, tokenizer, name=place.name, dtype_name=kind, gguf=gguf)
    if kind == "q4":
        raise InputError("dtype", dtype="q4", why=f"{place.name} has no 4-bit path here")
    from .hf import HFTarget

    return HFTarget(loaded, tokenizer, name=place.name, dtype_name=kind)


def load_tokenizer(model: str = DEFAULT) -> PreTrainedTokenizerBase:
    """The tokenizer alone. Raises ``InputError`` as ``load_target`` does."""
    return _tokenizer(_place(model, None))


def _place(name: str, progress: embedded.Progress | None) -> Place:
    entry = catalog.describe(name)
    if entry.embedded:
        return Place(entry.key, str(embedded.ensure(progress)), True, True)
    offered = {model.key: model for model in catalog.offered()}
    source = offered[entry.key].source if entry.key in offered else entry.source
    if Path(source).is_dir():
        return Place(entry.key, source, True)
    if not _HUB_ID.fullmatch(source):
        raise InputError("model_not_found", name=repr(name)[:80], why="that is no Hub id either")
    known = hub.cached(source)
    if not known:
        hub.reach(entry.key, source)
    return Place(entry.key, source, False, cached=known)


def _device(name: str) -> torch.device:
    import torch

    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in DEVICES or (name == "cuda" and not torch.cuda.is_available()):
        raise InputError("no_device", device=repr(name)[:40])
    return torch.device(name)


def _dtype(name: str, device: torch.device, place: Place) -> str:
    """The dtype's name with ``auto`` decided: 4-bit where it exists, bf16 where it is fast."""
    import torch

    four_bit = place.four_bit and device.type == "cpu"
    if name == "q4" and not four_bit:
        raise InputError("dtype", dtype="q4", why=f"only {DEFAULT} on the cpu has 4-bit weights")
    if name == "bf16" and device.type == "cuda" and not torch.cuda.is_bf16_supported():
        raise InputError("dtype", dtype="bf16", why="this GPU does not know it")
    if name != "auto":
        return name
    if four_bit:
        return "q4"
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported() else "fp32"
    return "fp32"


def _tokenizer(place: Place) -> PreTrainedTokenizerBase:
    with _sentences(place):
        if place.embedded:  # without the search for the right class and its imports
            from transformers import PreTrainedTokenizerFast

            return PreTrainedTokenizerFast.from_pretrained(place.path, local_files_only=True)
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(
            place.path, trust_remote_code=False, local_files_only=place.offline
        )


def _skeleton(place: Place, dtype: str, device: torch.device) -> Any:
    """The embedded model's weights without transformers' modelling code, if the lean path runs them."""
    if not place.embedded:
        return None
    import torch

    from . import lean, skeleton

    with _sentences(place):
        kind = torch.float32 if dtype == "fp32" else torch.bfloat16
        found = skeleton.read(Path(place.path), kind, device, projections=False)
    return found if found is not None and lean.supports(found) else None


def _model(place: Place, dtype: str, device: torch.device) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    if place.local:
        logging.disable_progress_bar()
    try:
        with _sentences(place):
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                place.path,
                dtype=torch.float32 if dtype == "fp32" else torch.bfloat16,
                trust_remote_code=False,
                local_files_only=place.offline,
                output_loading_info=True,
            )
            model, report = loaded
            if report["missing_keys"]:  # they would be filled with random numbers, silently
                missing = sorted(report["missing_keys"])
                why = f"its files lack {len(missing)} of its weights, such as {missing[0]}"
                raise InputError("unsupported_model", name=place.name, why=why)
            return model.eval().requires_grad_(False).to(device)
    finally:
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _sentences(place: Place) -> Iterator[None]:
    """Turn what a loader may raise into one sentence each."""
    try:
        yield
    except InputError:
        raise
    except MemoryError as error:
        raise InputError("no_memory") from error
    except Exception as error:
        import torch

        if isinstance(error, torch.OutOfMemoryError) or "not enough memory" in str(error):
            raise InputError("no_memory") from error
        if "trust_remote_code" in str(error):
            why = "it comes with code of its own, which is never run here"
            raise InputError("unsupported_model", name=place.name, why=why) from error
        if isinstance(error, OSError) and not place.offline:
            why = "it could not be fetched from the Hub"
            raise InputError("model_not_found", name=place.name, why=why) from error
        raise InputError("unsupported_model", name=place.name, why=_first_line(error)) from error


def _first_line(error: Any) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return (text if len(text) <= 200 else text[:197] + "...").rstrip(".:")


def load_model(
    model: str = DEFAULT, dtype: str = "fp32", device: str = "auto"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The plain transformers model and its tokenizer, for peers to be measured against.

    ``dtype``: fp32 or bf16. Raises ``InputError`` as ``load_target`` does."""
    place = _place(model, None)
    return _model(place, dtype, _device(device)), _tokenizer(place)
