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
from .panels import FULL, GROUP, PANEL, PanelMatrix, rows_bytes
from .structs import BlockStruct, EndsStruct, LayerStruct, PassStruct, ends_of
from .weights import Layer, Weights

MOST_AT_ONCE = 6  # rows times heads of one call of ``attend``


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
        self._run, self._chain, self._move = found.run_block, found.run_chain, found.move_rows
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
        count, plan = self.rows, self.weights.plan
        last = plan.layers
        states = {layer: torch.empty(count, plan.hidden) for layer in want if layer < layers}
        places = (ctypes.c_void_p * layers)()
        for layer, state in states.items():
            places[layer] = state.data_ptr()
        final = torch.empty(count, plan.hidden) if logits or last in want else None
        out = torch.empty(count, self.weights.head.shape[0]) if logits else None
        ends, block, _kept = self._block(tokens, positions, parents, length, turns)
        block.captured, block.layers = ctypes.addressof(places), layers
        block.final = None if final is None else final.data_ptr()
        block.logits = None if out is None else out.data_ptr()
        self._run(ctypes.addressof(ends), self.address(ends.threads), ctypes.addressof(block))
        if final is not None and last in want:
            states[last] = final
        return out, states

    def chain(
        self,
        one: FastPass,
        tokens: Sequence[int],
        length: int,
        turns: Tensor,
        names: Tensor | None,
        columns: int,
        count: int,
        least: float,
    ) -> list[int]:
        """A greedy chain of at most ``count`` tokens behind ``tokens``, which stand behind ``length``
        cached rows; it ends behind a token whose probability is below ``least``. ``one``: a pass of one
        row with keys for all of them. Row i of the head is token ``names[i]`` (int64), i without
        ``names``; the first ``columns`` rows count."""
        rows, head, layers = self.rows, self.weights.head, self.weights.plan.layers
        places = range(length, length + rows)
        ends, block, _kept = self._block(tokens, places, range(-1, rows - 1), length, turns)
        final, out = torch.empty(rows, self.weights.plan.hidden), torch.empty(rows, head.shape[0])
        block.layers, block.final, block.logits = layers, final.data_ptr(), out.data_ptr()
        found = (ctypes.c_int64 * count)()
        named = self._chain(
            *(ctypes.addressof(ends), self.address(ends.threads), one.address(ends.threads)),
            *(ctypes.addressof(block), None if names is None else names.data_ptr(), columns),
            *(count, least, ctypes.addressof(found)),
        )
        return found[:named]

    def _block(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        parents: Sequence[int],
        length: int,
        turns: Tensor,
    ) -> tuple[EndsStruct, BlockStruct, list[Any]]:
        """The rows without what they give, and what the structure points to."""
        count, threads = self.rows, torch.get_num_threads()
        if self._ends is None or self._ends[0] is not turns or self._ends[1].threads != threads:
            self._ends = turns, ends_of(self.weights, turns)
        numbers = (ctypes.c_int64 * (3 * count))(*tokens, *positions, *parents)
        start = ctypes.addressof(numbers)
        memory = torch.empty(threads * rows_bytes(count, self.weights.plan.hidden), dtype=torch.uint8)
        block = BlockStruct(
            tokens=start,
            positions=start + 8 * count,
            parents=start + 16 * count,
            length=length,
            memory=memory.data_ptr(),
        )
        return self._ends[1], block, [numbers, memory]

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
