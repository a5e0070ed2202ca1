"""The structures of ``fast/``, as ctypes wants them."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from .panels import MatrixStruct, PanelMatrix
from .passes import LOG2_E
from .weights import Weights


class LayerStruct(ctypes.Structure):
    """``Layer`` of layers.cpp."""

    _fields_ = (
        *((name, MatrixStruct) for name in ("qkv", "output", "gate_up", "down")),
        *(
            (name, ctypes.c_void_p)
            for name in ("norm_in", "norm_mid", "q_norm", "k_norm", "norm_beside")
        ),
    )


_POINTERS = (
    *("layers", "x", "turn_q", "turn_k", "slots", "mask", "keys", "values"),
    *("qkv", "attended", "wide", "inner", "beside", "captured", "memory"),
)
_SIZES = (
    *("each", "rows", "hidden", "heads", "kv_heads", "head_dim", "inner_size"),
    *("mask_stride", "cache_rows", "length"),
)


class PassStruct(ctypes.Structure):
    """``Pass`` of layers.cpp."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _SIZES),
        ("epsilon", ctypes.c_float),
    )


class EndsStruct(ctypes.Structure):
    """``Ends`` of steps.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("table", "turns", "norm", "head")),
        ("query_scale", ctypes.c_float),
        *((name, ctypes.c_int32) for name in ("wide_table", "top", "threads")),
    )


class BlockStruct(ctypes.Structure):
    """``Block`` of steps.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("tokens", "positions", "parents", "captured")),
        *((name, ctypes.c_int64) for name in ("length", "layers")),
        *((name, ctypes.c_void_p) for name in ("final", "logits", "memory")),
    )


def ends_of(weights: Weights, turns: Tensor, top: int = 0) -> EndsStruct:
    """``turns``: complex64 ``[positions, D/2]``, which must outlive the structure, as the weights must.
    ``top``: candidates of a draft step."""
    assert isinstance(weights.head, PanelMatrix)
    return EndsStruct(
        table=weights.table.data_ptr(),
        turns=turns.data_ptr(),
        norm=weights.norm.data_ptr(),
        head=ctypes.addressof(weights.head.struct),
        query_scale=weights.plan.scale * LOG2_E,
        wide_table=weights.table.dtype == torch.float32,
        top=top,
        threads=torch.get_num_threads(),
    )
