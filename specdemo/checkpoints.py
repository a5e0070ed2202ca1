"""Files of a published draft head: a configuration and tensors, from a folder or from the Hub.

Pickled files (``.pt``, ``.bin``) are read with ``weights_only=True``: they cannot run code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from .errors import InputError

PATTERNS = ["*.json", "*.safetensors", "*.bin", "*.pt"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """``config`` is ``config.json``, ``tensors`` everything in the weight file."""

    name: str
    config: dict[str, Any]
    tensors: dict[str, Tensor]

    def refuse(self, why: str) -> InputError:
        """The error for a checkpoint that makes no sense: ``raise checkpoint.refuse(...)``."""
        return InputError("head_unreadable", head=self.name, why=why)


def read(source: str, files: tuple[str, ...]) -> Checkpoint:
    """The checkpoint in ``source``, a folder or a Hub id; the first of ``files`` that exists holds
    the tensors. Raises ``InputError("head_unreadable")``."""
    folder = _folder(source)
    name = Path(source).name if folder == Path(source) else source
    path = next((folder / f for f in files if (folder / f).is_file()), None)
    if path is None:
        raise InputError("head_unreadable", head=name, why=f"it has none of {', '.join(files)}")
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            "head_unreadable", head=name, why="its config.json is missing or no JSON"
        ) from error
    if not isinstance(config, dict):
        raise InputError("head_unreadable", head=name, why="its config.json is no object")
    return Checkpoint(name, config, _tensors(path, name))


def draft_ids(offsets: Tensor) -> Tensor:
    """The target's id of each token of a draft vocabulary, int64 ``[draft V]``, from the published
    ``d2t`` ``[draft V]``, which holds each id less its place."""
    return offsets.long() + torch.arange(len(offsets))


def _folder(source: str) -> Path:
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(source, allow_patterns=PATTERNS))
    except HFValidationError as error:
        why = "it is neither a folder nor a Hub id"
        raise InputError("head_unreadable", head=source, why=why) from error
    except Exception as error:
        # The Hub's client raises what its transport raises; all of it means the same to a reader.
        why = "it is no folder here and could not be fetched from the Hub"
        raise InputError("head_unreadable", head=source, why=why) from error


def _tensors(path: Path, name: str) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (SafetensorError, RuntimeError, OSError, ValueError, EOFError, KeyError) as error:
        raise InputError("head_unreadable", head=name, why=f"{path.name} is damaged") from error
    except Exception as error:  # pickle's own errors: code was refused, or it is no pickle
        raise InputError(
            "head_unreadable", head=name, why=f"{path.name} holds more than tensors"
        ) from error
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise InputError("head_unreadable", head=name, why=f"{path.name} holds more than tensors")
    return content
