"""Matrices for the kernels of ``fast/``: weights in panels of 32 outputs, read once for up to 8 rows.

``full``: fp32. ``half``: bf16 weights and activations, sums in fp32. ``int4``, ``int8``: GGUF's
Q4_0/Q4_1 and Q8_0 blocks, values and scales as they are; activations are rounded to 8 bits in groups
of 32, each with its own scale, as llama.cpp does. Each row gets the same bits whatever number of rows
is computed with it.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from .compiled import library, multiplies_bf16
from .kernels import GROUP, Matrix

PANEL = 32
HALF, INT4, INT8, FULL = range(4)


class MatrixStruct(ctypes.Structure):
    """``Matrix`` of products.h."""

    _fields_ = (
        ("values", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("n", ctypes.c_int64),
        ("k", ctypes.c_int64),
        ("kind", ctypes.c_int32),
    )


class PanelMatrix(Matrix):
    """``values``, ``scales``: as ``pack_half``, ``pack_int4`` or ``pack_int8`` give them. Activations go
    in and come out in fp32."""

    def __init__(
        self,
        kind: int,
        shape: tuple[int, int],
        values: Tensor,
        scales: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> None:
        self.kind, self.shape, self.dtype = kind, shape, torch.float32
        self.bias = None if bias is None else bias.detach().float().contiguous()
        self.values, self.scales = values, scales
        self.nbytes = values.nbytes + (0 if scales is None else scales.nbytes)
        self.struct = MatrixStruct(
            values.data_ptr(),
            None if scales is None else scales.data_ptr(),
            None if self.bias is None else self.bias.data_ptr(),
            *shape,
            kind,
        )
        self._address = ctypes.addressof(self.struct)
        found = library()
        assert found is not None
        self._run = found.run_product

    def apply(self, x: Tensor, out: Tensor) -> Tensor:
        rows, threads, x = x.shape[0], torch.get_num_threads(), x.contiguous()
        memory = torch.empty(threads * rows_bytes(rows, self.shape[1]), dtype=torch.uint8)
        self._run(self._address, x.data_ptr(), out.data_ptr(), rows, memory.data_ptr(), threads)
        return out


def rows_bytes(rows: int, columns: int) -> int:
    """Memory that a thread needs for the activations of ``rows`` rows (``rows_bytes`` of products.h)."""
    return rows * columns * 4 + rows * columns // GROUP * 12


def fits(rows: int, columns: int) -> bool:
    """Whether the kernels take a matrix of these sizes."""
    return rows % PANEL == 0 and columns % GROUP == 0


def half_matrix(weight: Tensor, bias: Tensor | None = None) -> PanelMatrix | None:
    """``weight [N, K]`` rounded to bf16, or None where the kernels or the sizes do not allow it."""
    if weight.device.type != "cpu" or not fits(*weight.shape) or not multiplies_bf16():
        return None
    return PanelMatrix(HALF, (weight.shape[0], weight.shape[1]), pack_half(weight), None, bias)


def full_matrix(weight: Tensor, bias: Tensor | None = None) -> PanelMatrix | None:
    """fp32 ``weight [N, K]``, or None where the kernels, the sizes or the dtype do not allow it."""
    wanted = weight.device.type == "cpu" and weight.dtype == torch.float32
    if not wanted or not fits(*weight.shape) or library() is None:
        return None
    panels = weight.detach().view(-1, PANEL, weight.shape[1]).transpose(1, 2).contiguous()
    return PanelMatrix(FULL, (weight.shape[0], weight.shape[1]), panels, None, bias)


def byte_matrix(weight: Tensor, bias: Tensor | None = None) -> PanelMatrix | None:
    """``weight [N, K]`` rounded to 8 bits in groups of 32 (as Q8_0 does), or None where the kernels or
    the sizes do not allow it. For drafts: half the bytes to read, and what they lose is theirs alone."""
    if weight.device.type != "cpu" or not fits(*weight.shape) or library() is None:
        return None
    groups = weight.detach().float().unflatten(1, (-1, GROUP))
    scale = (groups.abs().amax(-1) / 127.0).half().float()
    values = (groups / scale.clamp_min(1e-12)[..., None]).round().clamp_(-127, 127)
    made = pack_int8(values.flatten(1).to(torch.int8), scale)
    return PanelMatrix(INT8, (weight.shape[0], weight.shape[1]), *made, bias)


def stacked(above: PanelMatrix, below: PanelMatrix) -> PanelMatrix | None:
    """The outputs of both, those of ``above`` first; None where they are not of one kind or biased."""
    if above.kind != below.kind or above.bias is not None or below.bias is not None:
        return None
    values = torch.cat([above.values, below.values])
    scales = [m.scales for m in (above, below) if m.scales is not None]
    shape = (above.shape[0] + below.shape[0], above.shape[1])
    return PanelMatrix(above.kind, shape, values, torch.cat(scales) if scales else None)


def pack_half(weight: Tensor) -> Tensor:
    """``[N, K]`` to bf16 ``[N/32, K/2, 2, 16, 2]``."""
    rows, columns = weight.shape
    panels = weight.to(torch.bfloat16).view(rows // PANEL, 2, 16, columns // 2, 2)
    return panels.permute(0, 3, 1, 2, 4).contiguous()


def pack_int4(values: Tensor, scale: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """``values [N, K]`` uint8 0..15, a weight being ``scale * value + low`` with fp32
    ``[N, K/32]``: to bytes ``[N/32, K/32, 4, 2, 16, 4]`` and fp16 ``[N/32, K/32, 2, 32]``."""
    rows, columns = values.shape
    parts = values.view(rows // PANEL, 2, 16, columns // GROUP, 4, 2, 4)  # ..., line, half, byte
    bytes_ = parts[..., 0, :] | (parts[..., 1, :] << 4)
    pairs = torch.stack([scale, low]).half().view(2, rows // PANEL, PANEL, columns // GROUP)
    return bytes_.permute(0, 3, 4, 1, 2, 5).contiguous(), pairs.permute(1, 3, 0, 2).contiguous()


def pack_int8(values: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """``values [N, K]`` int8, a weight being ``scale * value`` with fp32 ``[N, K/32]``: to bytes
    (value + 128) ``[N/32, K/32, 8, 2, 16, 4]`` and fp16 ``[N/32, K/32, 32]``."""
    rows, columns = values.shape
    lifted = (values.to(torch.int16) + 128).to(torch.uint8)
    parts = lifted.view(rows // PANEL, 2, 16, columns // GROUP, 8, 4)
    scales = scale.half().view(rows // PANEL, PANEL, columns // GROUP)
    return parts.permute(0, 3, 4, 1, 2, 5).contiguous(), scales.transpose(1, 2).contiguous()
