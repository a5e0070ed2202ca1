"""The EAGLE-3 layer on the compiled kernels: one call a draft step.

What a step costs decides how deep a draft may go, and in a small model a third of it are the many
little operations around its products."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..lean import compiled, panels
from ..lean.fast_pass import FastPass, Layers, keys_shape
from ..lean.kernels import Matrix
from ..lean.plan import Plan
from ..lean.session import rotations
from ..lean.structs import ends_of
from ..lean.weights import Layer, Weights, paired
from .tree import Candidates

if TYPE_CHECKING:
    from .eagle3_layer import Eagle3Layer

UNIT = 256  # keys: a pass serves that many steps
WIDEST = 64  # rows of one step of a tree


def possible(layer: Eagle3Layer) -> bool:
    """Whether the kernels take this head."""
    head, tensors = layer.head, layer.head.tensors
    sizes = [tensors["fc"].shape[0], tensors["midlayer.mlp.gate_proj"].shape[0], head.head_dim]
    return (
        layer.halves
        and compiled.library() is not None
        and layer.dtype == torch.float32
        and not head.norm_before_residual
        and all(size % panels.GROUP == 0 for size in sizes)
        and layer.table.shape[1] == tensors["fc"].shape[0]
        and layer.table.dtype in (torch.bfloat16, torch.float32)
        and layer.table.is_contiguous()
        and isinstance(layer.vocabulary.matrix, panels.PanelMatrix)
        and isinstance(layer.fuse, panels.PanelMatrix)
    )


class QuickLayer:
    """Weights of a head in the form that the kernels want."""

    def __init__(self, layer: Eagle3Layer) -> None:
        head, tensors, inner = layer.head, layer.head.tensors, "midlayer."

        def matrix(*parts: Tensor) -> panels.PanelMatrix:
            made = panels.byte_matrix(torch.cat(parts))
            assert made is not None
            return made

        def norm(name: str) -> Tensor:
            return tensors[name].float() * math.sqrt(head.hidden)

        q, k, v = (tensors[f"{inner}self_attn.{name}_proj"] for name in "qkv")
        made = Layer(
            qkv=matrix(paired(q, head.heads), paired(k, head.kv_heads), v),
            output=matrix(tensors[inner + "self_attn.o_proj"]),
            gate_up=matrix(tensors[inner + "mlp.gate_proj"], tensors[inner + "mlp.up_proj"]),
            down=matrix(tensors[inner + "mlp.down_proj"]),
            norm_in=norm(inner + "hidden_norm"),
            norm_mid=norm(inner + "post_attention_layernorm"),
            q_norm=None,
            k_norm=None,
        )
        plan = Plan(
            hidden=head.hidden,
            inner=tensors[inner + "mlp.gate_proj"].shape[0],
            layers=1,
            heads=head.heads,
            kv_heads=head.kv_heads,
            head_dim=head.head_dim,
            vocab=layer.vocabulary.matrix.shape[0],
            context=0,
            epsilon=head.eps,
            scale=head.head_dim**-0.5,
            head_norms=False,
        )
        self.weights = Weights(
            plan,
            [made],
            norm("norm"),
            layer.vocabulary.matrix,
            layer.table,
            head.inv_freq,
            head.rope_scale,
        )
        self.layers = Layers([made], norm(inner + "input_layernorm"))


class StepStruct(ctypes.Structure):
    """``Step`` of steps.h."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("tokens", "positions", "from_", "to", "reach", "more")),
        *((name, ctypes.c_void_p) for name in ("states", "outputs")),
        *((name, ctypes.c_int64) for name in ("used", "pairs", "first")),
        ("warmth", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("beside", "logits", "memory", "ids", "probabilities")),
    )


class Shape:
    """A pass of so many rows, and what a step of that shape needs beside it."""

    def __init__(self, cache: QuickCache, rows: int, keys: int) -> None:
        weights, threads = cache.weights, cache.threads
        head, hidden = weights.head, weights.plan.hidden
        self.passed = FastPass(weights, cache.quick.layers, cache.keys, cache.values, rows, keys)
        self.address = self.passed.address(threads)
        scored = 1 if rows > WIDEST else rows  # rows of a prompt: the last one's candidates are wanted
        self.ids = torch.zeros(scored, cache.top, dtype=torch.int64)
        self.probabilities = torch.zeros(scored, cache.top)
        self._kept = [
            torch.zeros(rows, hidden),
            torch.zeros(scored, head.shape[0]),
            torch.empty(threads * panels.rows_bytes(scored, hidden), dtype=torch.uint8),
            self.ids,
            self.probabilities,
        ]
        names = ("beside", "logits", "memory", "ids", "probabilities")
        pointers = {name: t.data_ptr() for name, t in zip(names, self._kept, strict=True)}
        self.step = StepStruct(warmth=cache.warmth, outputs=cache.outputs.data_ptr(), **pointers)


class QuickCache:
    """Keys and values of a run (fp16): ``used`` rows count; what lies behind is scratch.

    ``outputs [S, H]``: row 0 the output of the last true row, row 1 + i that of scratch row i."""

    def __init__(
        self, quick: QuickLayer, capacity: int, head: Matrix, warmth: float = 1.0, top: int = 1
    ) -> None:
        """``head``: of the run's vocabulary; ``warmth``: temperature of the candidates' probabilities;
        ``top``: candidates a row."""
        self.quick, self.used, self.warmth = quick, 0, warmth
        self.weights = weights = replace(quick.weights, head=head)
        rows = -(-capacity // UNIT) * UNIT
        plan = weights.plan
        self.top = min(top, weights.head.shape[0])
        self.keys = torch.zeros(keys_shape(1, plan.kv_heads, rows, plan.head_dim), dtype=torch.float16)
        self.values = torch.zeros(1, plan.kv_heads, rows, plan.head_dim, dtype=torch.float16)
        self.turns = rotations(weights.frequencies.float().cpu(), rows, weights.rope_scale)
        self.outputs = torch.zeros(1 + WIDEST, plan.hidden)
        self._shapes: dict[tuple[int, int], Shape] = {}
        self._ends = ends_of(weights, self.turns, self.top)
        self.threads: int = self._ends.threads  # memory is made for so many
        found = compiled.library()
        assert found is not None
        self._run = found.run_draft

    def room(self, rows: int) -> None:
        """Make room for the outputs of so many scratch rows."""
        held = self.outputs
        if len(held) <= rows:
            self.outputs = torch.zeros(2 * rows + 1, held.shape[1])
            self.outputs[: len(held)] = held
            self._shapes.clear()

    def step(
        self,
        states: Tensor,
        rows: Sequence[tuple[int, int, int, int, int]],
        more: Sequence[int] = (),
        first: int = 0,
    ) -> list[Candidates]:
        """One draft step. ``states [S, H]`` fp32; ``rows``: (token, position, state that it starts
        from, row of ``outputs`` that it fills or -1, cached rows that it sees); ``more``: pairs (row,
        cached row) seen as well. Returns the candidates of the rows from ``first`` on, in the draft's
        numbering."""
        count = len(rows)
        keys = -(-(self.used + count) // UNIT) * UNIT
        shape = self._shapes.get((count, keys))
        if shape is None:
            shape = self._shapes[count, keys] = Shape(self, count, keys)
        numbers = (ctypes.c_int64 * (5 * count + len(more)))(*chain(*zip(*rows, strict=True)), *more)
        start, step = ctypes.addressof(numbers), shape.step
        step.tokens, step.positions, step.from_, step.to, step.reach, step.more = (
            start + 8 * count * at for at in range(6)
        )
        step.states, step.used, step.pairs, step.first = (
            states.data_ptr(),
            self.used,
            len(more) // 2,
            first,
        )
        self._run(ctypes.addressof(self._ends), shape.address, ctypes.addressof(step))
        self.used += count
        scored = count - first
        if not scored:
            return []
        ids, chances = shape.ids[:scored].tolist(), shape.probabilities[:scored].tolist()
        return [list(zip(a, b, strict=True)) for a, b in zip(ids, chances, strict=True)]

    def forward(
        self, hidden: Tensor, tokens: Sequence[int], positions: Sequence[int], mask: Tensor
    ) -> Tensor:
        """As ``Eagle3Layer.forward``."""
        count = len(tokens)
        self.room(count)
        reach = [int(row.to(torch.int8).argmin()) if not row.all() else len(row) for row in mask]
        seen = [torch.nonzero(row[start:])[:, 0] + start for row, start in zip(mask, reach, strict=True)]
        more = [
            number for at, found in enumerate(seen) for key in found.tolist() for number in (at, key)
        ]
        rows = [(tokens[i], positions[i], i, i, reach[i]) for i in range(count)]
        self.step(hidden.contiguous(), rows, more, count)
        return self.outputs[:count].clone()


def fuse(matrix: panels.PanelMatrix, states: Sequence[Tensor], rows: Sequence[int]) -> Tensor:
    """``Eagle3Layer.features`` of the chosen ``rows`` of fp32 states ``[., H]``."""
    count, hidden, threads = len(rows), states[0].shape[1], torch.get_num_threads()
    made = torch.empty(count, matrix.shape[0])
    wide = torch.empty(count, matrix.shape[1])
    memory = torch.empty(threads * panels.rows_bytes(count, matrix.shape[1]), dtype=torch.uint8)
    places = (ctypes.c_void_p * len(states))(*(s.data_ptr() for s in states))
    chosen = (ctypes.c_int64 * count)(*rows)
    found = compiled.library()
    assert found is not None
    found.run_fuse(
        ctypes.addressof(matrix.struct),
        ctypes.addressof(places),
        len(states),
        hidden,
        ctypes.addressof(chosen),
        count,
        wide.data_ptr(),
        made.data_ptr(),
        memory.data_ptr(),
        threads,
    )
    return made
