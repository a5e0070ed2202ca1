"""Tensors of a safetensors file, each read into memory of its own.

The usual reader maps the file: what is read stays in memory beside its packed form as long as one
tensor lives, in small pages. Format: eight bytes of size, JSON of names, types and places, the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_TYPES = {
    "BF16": torch.bfloat16,
    "F16": torch.float16,
    "F32": torch.float32,
    "U8": torch.uint8,
    "I32": torch.int32,
    "I64": torch.int64,
}
_LARGEST_HEADER = 100 * 2**20


def header(path: Path) -> dict[str, Any]:
    """Names to entries, ``__metadata__`` among them. Raises ``OSError``, ``ValueError``."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= _LARGEST_HEADER:
            raise ValueError(f"{path.name} is not a safetensors file")
        found = json.loads(file.read(size))
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} is not a safetensors file")
    return found


def read(path: Path, wanted: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, Tensor]]:
    """The tensors that are ``wanted``, in the order of the file. Raises ``OSError``, and
    ``ValueError`` for a file that is cut off or no safetensors file."""
    entries = header(path)
    entries.pop("__metadata__", None)
    try:
        placed = sorted(entries.items(), key=lambda entry: entry[1]["data_offsets"][0])
        with path.open("rb", buffering=0) as file:
            begin = 8 + int.from_bytes(file.read(8), "little")
            for name, entry in placed:
                if wanted(name):
                    start, end = entry["data_offsets"]
                    file.seek(begin + start)
                    yield name, _tensor(file, entry, end - start)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path.name} is not a whole safetensors file") from error


def _tensor(file: Any, entry: dict[str, Any], size: int) -> Tensor:
    made = torch.empty(entry["shape"], dtype=_TYPES[entry["dtype"]])
    if made.nbytes != size:
        raise ValueError("a tensor's size does not fit its shape")
    if size:
        into: Any = memoryview(made.view(-1).view(torch.uint8).numpy().data)
        done = 0
        while done < size:
            count = file.readinto(into[done:])
            if not count:
                raise ValueError("the file is cut off")
            done += count
    return made
