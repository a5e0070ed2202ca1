"""The EAGLE-3 layer on the compiled kernels: one call a draft step.

What a step costs decides how deep a draft may go, and in a small model a third of it are the many
little operations around its products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from ..lean import compiled, panels
from ..lean.fast_pass import FastPass, Layers, keys_shape
from ..lean.plan import Plan
from ..lean.session import rotations
from ..lean.weights import Layer, Weights, paired

if TYPE_CHECKING:
    from .eagle3_layer import Eagle3Layer

UNIT = 256  # keys: a pass serves that many steps


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
            vocab=layer.vocabulary.shape[0],
            context=0,
            epsilon=head.eps,
            scale=head.head_dim**-0.5,
            head_norms=False,
        )
        self.weights = Weights(
            plan, [made], norm("norm"), layer.vocabulary, layer.table, head.inv_freq, head.rope_scale
        )
        self.layers = Layers([made], norm(inner + "input_layernorm"))


class QuickCache:
    """Keys and values of a run (fp16): ``used`` rows count; what lies behind is scratch."""

    def __init__(self, quick: QuickLayer, capacity: int) -> None:
        self.quick, self.used = quick, 0
        plan, rows = quick.weights.plan, -(-capacity // UNIT) * UNIT
        self.keys = torch.zeros(keys_shape(1, plan.kv_heads, rows, plan.head_dim), dtype=torch.float16)
        self.values = torch.zeros(1, plan.kv_heads, rows, plan.head_dim, dtype=torch.float16)
        self.turns = rotations(quick.weights.frequencies.float().cpu(), rows, quick.weights.rope_scale)
        self._passes: dict[tuple[int, int], FastPass] = {}

    def forward(
        self, hidden: Tensor, tokens: Sequence[int], positions: Sequence[int], mask: Tensor
    ) -> Tensor:
        """As ``Eagle3Layer.forward``."""
        count, weights = len(tokens), self.quick.weights
        keys = -(-(self.used + count) // UNIT) * UNIT
        found = self._passes.get((count, keys))
        if found is None:
            found = FastPass(weights, self.quick.layers, self.keys, self.values, count, keys)
            self._passes[count, keys] = found
        index = torch.tensor([*tokens, *positions]).view(2, count)
        beside = F.embedding(index[0], weights.table).float()
        made = found.draft(hidden, beside, index[1], self.used, mask, self.turns)
        self.used += count
        return made
