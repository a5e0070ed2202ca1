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
from .lean import panels
from .lean.compiled import library
from .lean.kernels import GROUP, Int4Matrix, Matrix, pack_int4

_VERSION = "2"
_FUSED = {
    "qkv": ("attn_q", "attn_k", "attn_v"),
    "output": ("attn_output",),
    "gate_up": ("ffn_gate", "ffn_up"),
    "down": ("ffn_down",),
}


@dataclass(frozen=True, slots=True)
class Blocks:
    """Packed matrices of each layer, by the names of ``_FUSED``; the output head in the file's own
    8-bit blocks where our kernels run and the file has it so."""

    layers: list[dict[str, Matrix]]
    head: Matrix | None = None


def packed_blocks(gguf: Path, layers: int) -> Blocks:
    """The packed matrices of ``layers`` layers, from the cache file beside ``gguf`` where that is
    whole and newer, else packed now and cached if the folder can be written.

    Raises ``InputError("dtype")`` if a matrix is not in 4-bit groups of 32 with the kernel's sizes."""
    panels_run = library() is not None
    kind = "panels" if panels_run else "int4"
    place = gguf.with_name(f"{gguf.stem}.{kind}.safetensors")
    stamp = {"version": _VERSION, "source": f"{gguf.stat().st_size}", "torch": torch.__version__}
    found = _read(place, stamp, layers)
    if found is None:
        found = _pack(gguf, layers, panels_run)
        _write(place, stamp, found)

    def matrix(name: str) -> Matrix:
        values, scales = found[f"{name}.values"], found[f"{name}.scales"]
        if not panels_run:
            return Int4Matrix.packed(values, scales)
        kind = panels.INT8 if name == "head" else panels.INT4
        shape = (values.shape[0] * panels.PANEL, values.shape[1] * GROUP)
        return panels.PanelMatrix(kind, shape, values, scales)

    head = matrix("head") if "head.values" in found else None
    return Blocks([{part: matrix(f"{n}.{part}") for part in _FUSED} for n in range(layers)], head)


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


def _pack(gguf: Path, layers: int, panels_run: bool) -> dict[str, Tensor]:
    from gguf import GGUFReader

    tensors: dict[str, Any] = {t.name: t for t in GGUFReader(gguf).tensors}
    made: dict[str, Tensor] = {}
    for layer in range(layers):
        for part, names in _FUSED.items():
            pieces = [_groups(tensors, f"blk.{layer}.{name}.weight") for name in names]
            values, scale, low = (torch.cat(x) for x in zip(*pieces, strict=True))
            if values.shape[0] % (panels.PANEL if panels_run else 16) or values.shape[1] % GROUP:
                raise InputError(
                    "dtype", dtype="q4", why="the model's sizes do not fit the 4-bit kernel"
                )
            pack = panels.pack_int4 if panels_run else pack_int4
            made[f"{layer}.{part}.values"], made[f"{layer}.{part}.scales"] = pack(values, scale, low)
    output = tensors.get("output.weight", tensors.get("token_embd.weight"))
    if panels_run and output is not None and output.tensor_type.name == "Q8_0":
        values, scale = unpack_bytes(output.data)
        if panels.fits(*values.shape):
            made["head.values"], made["head.scales"] = panels.pack_int8(values, scale)
    return made


def unpack_bytes(data: np.ndarray) -> tuple[Tensor, Tensor]:
    """Raw rows ``[N, bytes]`` of type Q8_0 to values ``[N, K]`` int8 and scales ``[N, K/32]`` fp32: a
    weight is ``scale * value``."""
    groups = np.ascontiguousarray(data).reshape(data.shape[0], -1, 34)  # fp16 scale, 32 bytes
    scales = np.ascontiguousarray(groups[..., :2]).view(np.float16).astype(np.float32)[..., 0]
    values = np.ascontiguousarray(groups[..., 2:]).view(np.int8).reshape(data.shape[0], -1)
    return torch.from_numpy(values.copy()), torch.from_numpy(scales.copy())


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
        known_names = set(known) - {"__metadata__", "head.values", "head.scales"}
        if known.get("__metadata__") != stamp or known_names != names:
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
