"""``Pass`` on the kernels of ``fast/``: all layers in one call.

The same inputs and results as ``passes.Pass``, which it takes the place of where every matrix is a
``PanelMatrix``. Shapes: T rows, L keys, H hidden, M key heads, D head size."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
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
    *("qkv", "attended", "wide", "inner", "beside", "memory"),
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


def move_keys(keys: Tensor, rows: Tensor, start: int) -> None:
    """Copy the cached keys of ``rows`` (int64) to the rows from ``start`` on."""
    blocks = keys.transpose(2, 3)  # [layers, M, D, rows / 64, 64]
    to = torch.arange(start, start + len(rows))
    blocks[..., to // KEY_UNIT, to % KEY_UNIT] = blocks[..., rows // KEY_UNIT, rows % KEY_UNIT]


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
        self.ids = torch.zeros(rows, dtype=torch.int64)
        self.slots = torch.zeros(rows, dtype=torch.int64)
        self._offsets = torch.arange(rows)
        self.mask = torch.zeros(rows, keys)
        self.x = torch.zeros(rows, plan.hidden)
        self._final = torch.zeros(rows, plan.hidden)
        self._size = torch.zeros(rows, 1)
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
        self._run = found.run_layers
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

    def place(self, inputs: Tensor, length: int, block: Tensor, table: Tensor) -> None:
        """As ``Pass.place``."""
        self.ids.copy_(inputs[0])
        self._put(length, inputs[1], table)
        self.mask[:, length:] = -torch.inf
        self.mask[:, :length] = 0.0
        self.mask[:, length : length + self.rows] = block

    def _put(self, length: int, positions: Tensor, table: Tensor) -> None:
        """The rows go behind ``length`` cached ones and are turned as ``positions`` say."""
        torch.add(self._offsets, length, out=self.slots)
        torch.index_select(table, 0, positions, out=self._turn_k)
        torch.mul(self._turn_k, self.weights.plan.scale * LOG2_E, out=self._turn_q)
        self._struct.length = length + self.rows

    def run(
        self, layers: int, want: Sequence[int], logits: bool
    ) -> tuple[Tensor | None, dict[int, Tensor]]:
        """As ``Pass.run``."""
        weights, states = self.weights, {}
        self.x.copy_(F.embedding(self.ids, weights.table))
        done = 0
        for end in sorted({*(layer for layer in want if layer < layers), layers}):
            self._layers_through(done, end)
            done = end
            if end in want and end < weights.plan.layers:
                states[end] = self.x.clone()
        last = weights.plan.layers
        if logits or last in want:
            self._norm()
        if last in want:
            states[last] = self._final.clone()
        if not logits:
            return None, states
        head = weights.head
        out = torch.empty(self.rows, head.shape[0], dtype=head.dtype)
        return head.apply(self._final, out), states

    def address(self, threads: int) -> int:
        """Of the structure, with memory for so many threads."""
        if self._memory.numel() < threads * self._each:
            self._memory = torch.empty(threads * self._each, dtype=torch.uint8)
            self._struct.memory = self._memory.data_ptr()
        return ctypes.addressof(self._struct)

    def _layers_through(self, first: int, last: int) -> None:
        threads = torch.get_num_threads()
        self._run(self.address(threads), first, last, threads)

    def _norm(self) -> None:
        """The last norm: x * weight / sqrt(sum(x^2) + H * epsilon)."""
        plan = self.weights.plan
        torch.linalg.vector_norm(self.x, dim=-1, keepdim=True, out=self._size)
        self._size.square_().add_(plan.hidden * plan.epsilon).sqrt_()
        torch.mul(self.x, self.weights.norm, out=self._final).div_(self._size)


__all__ = ["FastPass", "Layers", "possible"]
