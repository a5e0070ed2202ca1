"""The GGUF's own 4-bit blocks, packed for torch's int4 kernel, and cached beside the file.

GGUF Q4_1: groups of 32 weights, each ``d * value + m`` with value 0..15 and fp16 ``d``, ``m``; Q4_0:
``d * (value - 8)``. Byte j of a group holds value j in its low half and value j + 16 in its high half
(ggml-quants, ``block_q4_1``). The values are kept exactly; ``d`` and ``m`` are rounded to bf16, which
is what the kernel reads. GGUF files of Llama models have the rows of the query and key projections
in the order that the lean rotary embedding wants.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from . import tensor_file
from .errors import InputError
from .lean.kernels import GROUP, Int4Matrix, pack_int4

_VERSION = "1"
_FUSED = {
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "output": ("attn_output",),
    "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}


@dataclass(frozen=True, slots=True)
class Blocks:
    """Packed matrices of each layer, by the names of ``_FUSED``."""

    layers: list[dict[str, Int4Matrix]]


def packed_blocks(gguf: Path, layers: int) -> Blocks:
    """The packed matrices of ``layers`` layers, from the cache file beside ``gguf`` where that is
    whole and newer, else packed now and cached if the folder can be written.

    Raises ``InputError("dtype")`` if a matrix is not in 4-bit groups of 32 with the kernel's sizes."""
    place = gguf.with_name(f"{gguf.stem}.int4.safetensors")
    stamp = {"version": _VERSION, "source": f"{gguf.stat().st_size}", "torch": torch.__version__}
    found = _read(place, stamp, layers)
    if found is None:
        found = _pack(gguf, layers)
        _write(place, stamp, found)
    return Blocks(
        [
            {
                part: Int4Matrix.packed(found[f"{n}.{part}.values"], found[f"{n}.{part}.scales"])
                for part in _FUSED
            }
            for n in range(layers)
        ]
    )


def unpack_group(data: np.ndarray, kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """Raw rows ``[N, bytes]`` of type Q4_0 or Q4_1 to values ``[N, K]`` uint8 and ``scale``, ``low``
    ``[N, K/32]`` fp32: a weight is ``scale * value + low``."""
    size, head = {"Q4_0": (18, 2), "Q4_1": (20, 4)}[kind]
    groups = np.ascontiguousarray(data).reshape(data.shape[0], -1, size)  # [N, K/32, bytes]
    scales = np.ascontiguousarray(groups[..., :head]).view(np.float16).astype(np.float32)
    halves = groups[..., head:]  # [N, K/32, 16]
    values = np.concatenate([halves & 15, halves >> 4], axis=-1).reshape(data.shape[0], -1)
    scale = torch.from_numpy(scales[..., 0].copy())
    low = torch.from_numpy(scales[..., 1].copy()) if kind == "Q4_1" else -8.0 * scale
    return torch.from_numpy(values), scale, low


def _pack(gguf: Path, layers: int) -> dict[str, Tensor]:
    from gguf import GGUFReader

    tensors: dict[str, Any] = {t.name: t for t in GGUFReader(gguf).tensors}
    made: dict[str, Tensor] = {}
    for layer in range(layers):
        for part, names in _FUSED.items():
            pieces = [_groups(tensors, f"blk.{layer}.{name}.weight") for name in names]
            values, scale, low = (torch.cat(x) for x in zip(*pieces, strict=True))
            if values.shape[0] % 16 or values.shape[1] % GROUP:
                raise InputError(
                    "dtype", dtype="q4", why="the model's sizes do not fit the 4-bit kernel"
                )
            made[f"{layer}.{part}.values"], made[f"{layer}.{part}.scales"] = pack_int4(
                values, scale, low
            )
    return made


def _groups(tensors: dict[str, Any], name: str) -> tuple[Tensor, Tensor, Tensor]:
    tensor = tensors.get(name)
    kind = tensor.tensor_type.name if tensor is not None else "missing"
    if tensor is None or kind not in ("Q4_0", "Q4_1"):
        raise InputError("dtype", dtype="q4", why=f"{name} of the GGUF file is {kind}, not Q4_0 or Q4_1")
    return unpack_group(tensor.data, kind)


def _read(place: Path, stamp: dict[str, str], layers: int) -> dict[str, Tensor] | None:
    try:
        names = {f"{n}.{p}.{x}" for n in range(layers) for p in _FUSED for x in ("values", "scales")}
        known = tensor_file.header(place)
        if known.pop("__metadata__", None) != stamp or set(known) != names:
            return None
        return dict(tensor_file.read(place))
    except (OSError, ValueError):
        return None


def _write(place: Path, stamp: dict[str, str], tensors: dict[str, Tensor]) -> None:
    """Whole or not at all; a folder that cannot be written only costs the packing next time."""
    try:
        handle, name = tempfile.mkstemp(prefix=place.name, dir=place.parent)
        os.close(handle)
        try:
            save_file(tensors, name, metadata=stamp)
            os.replace(name, place)
        finally:
            Path(name).unlink(missing_ok=True)
    except (OSError, SafetensorError):
        return
