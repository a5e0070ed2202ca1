"""``Pass`` on the kernels of ``fast/``: all layers in one call.

The same inputs and results as ``passes.Pass``, which it takes the place of where every matrix is a
``PanelMatrix``. Shapes: T rows, L keys, H hidden, M key heads, D head size."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .compiled import library
from .kernels import KEY_UNIT
from .panels import FULL, GROUP, PANEL, MatrixStruct, PanelMatrix, rows_bytes
from .passes import LOG2_E
from .weights import Layer, Weights

MOST_AT_ONCE = 6  # rows times heads of one call of ``attend``


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


def possible(weights: Weights) -> bool:
    """Whether the kernels take these weights."""
    plan = weights.plan
    matrices = [m for x in weights.layers for m in (x.qkv, x.output, x.gate_up, x.down)]
    return (
        all(isinstance(m, PanelMatrix) for m in [*matrices, weights.head])
        # Full precision is kept in the cache as well: the general pass does that.
        and not any(m.kind == FULL for m in matrices if isinstance(m, PanelMatrix))
        and plan.head_dim % GROUP == 0
        and plan.hidden % PANEL == 0
        and plan.inner % PANEL == 0
        and all(x.output.bias is None for x in weights.layers if isinstance(x.output, PanelMatrix))
        and weights.table.dtype in (torch.bfloat16, torch.float32)
        and weights.table.is_contiguous()
    )


class Layers:
    """The layers as the kernels want them, and the tensors that they point to."""

    def __init__(self, layers: Sequence[Layer], norm_beside: Tensor | None = None) -> None:
        """``norm_beside [H]``: of what stands beside the state in an EAGLE-3 layer, times sqrt(H)."""
        self.structs = (LayerStruct * len(layers))()
        self._kept: list[Any] = [*layers, norm_beside]
        for struct, layer in zip(self.structs, layers, strict=True):
            for name in ("qkv", "output", "gate_up", "down"):
                setattr(struct, name, getattr(layer, name).struct)
            struct.norm_beside = None if norm_beside is None else norm_beside.data_ptr()
            struct.norm_in, struct.norm_mid = layer.norm_in.data_ptr(), layer.norm_mid.data_ptr()
            for name in ("q_norm", "k_norm"):
                if (weight := getattr(layer, name)) is not None:
                    scaled = (weight * weight.shape[0] ** 0.5).contiguous()  # as the other norms are
                    self._kept.append(scaled)
                    setattr(struct, name, scaled.data_ptr())


def keys_shape(layers: int, kv_heads: int, rows: int, head_dim: int) -> tuple[int, ...]:
    """Of the cache of keys: blocks of 64 rows, a dimension of all of them side by side."""
    return (layers, kv_heads, rows // KEY_UNIT, head_dim, KEY_UNIT)


class FastPass:
    """One shape of the forward; see ``passes.Pass``."""

    def __init__(
        self,
        weights: Weights,
        layers: Layers,
        keys_cache: Tensor,
        values_cache: Tensor,
        rows: int,
        keys: int,
    ) -> None:
        plan = weights.plan
        self.weights, self.rows, self.keys = weights, rows, keys
        self.slots = torch.zeros(rows, dtype=torch.int64)
        self.mask = torch.zeros(rows, keys)
        self.x = torch.zeros(rows, plan.hidden)
        pairs, width = plan.head_dim // 2, (plan.heads + 2 * plan.kv_heads) * plan.head_dim
        self._turn_q = torch.zeros(rows, pairs, dtype=torch.complex64)
        self._turn_k = torch.zeros(rows, pairs, dtype=torch.complex64)
        columns = max(layer.qkv.shape[1] for layer in weights.layers)
        widest = max(columns, plan.inner, plan.heads * plan.head_dim)
        scores = 4 * MOST_AT_ONCE * (keys + KEY_UNIT)
        self._each = -(-max(rows_bytes(rows, widest) + 4 * rows * columns, scores) // 64) * 64
        self._buffers = {
            "qkv": torch.zeros(rows, width),
            "attended": torch.zeros(rows, plan.heads * plan.head_dim),
            "wide": torch.zeros(rows, 2 * plan.inner),
            "inner": torch.zeros(rows, plan.inner),
        }
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._caches = keys_cache, values_cache  # whose memory the structure points into
        self._layers = layers
        found = library()
        assert found is not None
        self._run, self._move = found.run_block, found.move_rows
        self._ends: tuple[Tensor, EndsStruct] | None = None
        tensors = {
            **self._buffers,
            **{"x": self.x, "turn_q": self._turn_q, "turn_k": self._turn_k, "slots": self.slots},
            **{"mask": self.mask, "keys": keys_cache, "values": values_cache},
        }
        self._struct = PassStruct(
            layers=ctypes.addressof(layers.structs),
            **{name: tensor.data_ptr() for name, tensor in tensors.items()},
            each=self._each,
            rows=rows,
            hidden=plan.hidden,
            heads=plan.heads,
            kv_heads=plan.kv_heads,
            head_dim=plan.head_dim,
            inner_size=plan.inner,
            mask_stride=keys,
            cache_rows=values_cache.shape[2],
            epsilon=plan.epsilon,
        )

    def run(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        parents: Sequence[int],
        length: int,
        turns: Tensor,
        layers: int,
        want: Sequence[int],
        logits: bool,
    ) -> tuple[Tensor | None, dict[int, Tensor]]:
        """The rows ``tokens`` behind ``length`` cached ones; ``parents``: earlier rows, -1 for the last
        cached one. ``turns``: rotations ``[positions, D/2]``. Otherwise as ``Pass.run``."""
        weights, count = self.weights, self.rows
        plan, head = weights.plan, weights.head
        last, threads = plan.layers, torch.get_num_threads()
        if self._ends is None or self._ends[0] is not turns or self._ends[1].threads != threads:
            self._ends = turns, ends_of(weights, turns)
        numbers = (ctypes.c_int64 * (3 * count))(*tokens, *positions, *parents)
        start = ctypes.addressof(numbers)
        states = {layer: torch.empty(count, plan.hidden) for layer in want if layer < layers}
        places = (ctypes.c_void_p * layers)()
        for layer, state in states.items():
            places[layer] = state.data_ptr()
        final = torch.empty(count, plan.hidden) if logits or last in want else None
        out = torch.empty(count, head.shape[0]) if logits else None
        memory = torch.empty(threads * rows_bytes(count, plan.hidden), dtype=torch.uint8)
        block = BlockStruct(
            tokens=start,
            positions=start + 8 * count,
            parents=start + 16 * count,
            captured=ctypes.addressof(places),
            length=length,
            layers=layers,
            final=None if final is None else final.data_ptr(),
            logits=None if out is None else out.data_ptr(),
            memory=memory.data_ptr(),
        )
        self._run(ctypes.addressof(self._ends[1]), self.address(threads), ctypes.addressof(block))
        if final is not None and last in want:
            states[last] = final
        return out, states

    def move(self, rows: Sequence[int], to: int) -> None:
        """Copy cached rows, ascending and behind ``to``, to those from ``to`` on, in all layers."""
        numbers = (ctypes.c_int64 * len(rows))(*rows)
        layers = self.weights.plan.layers
        self._move(self.address(1), layers, ctypes.addressof(numbers), len(rows), to)

    def address(self, threads: int) -> int:
        """Of the structure, with memory for so many threads."""
        if self._memory.numel() < threads * self._each:
            self._memory = torch.empty(threads * self._each, dtype=torch.uint8)
            self._struct.memory = self._memory.data_ptr()
        return ctypes.addressof(self._struct)


__all__ = ["FastPass", "Layers", "possible"]
