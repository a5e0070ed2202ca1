"""A loaded transformers model taken apart into the matrices of the lean forward.

The rotary embedding turns pairs (i, i + D/2) of a head. Here the rows of the query and key
projections are reordered so that a pair lies side by side: the rotation is then one complex product.
Scores do not change, because queries and keys are reordered alike; GGUF files of Llama models have
that order already.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from .kernels import DenseMatrix, Matrix
from .native import matrix_of
from .plan import Plan

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(slots=True)
class Layer:
    """``norm_*``: weights ``[H]`` fp32 times sqrt(H), see ``Pass``. ``q_norm``, ``k_norm``: ``[D]``
    in the pairs' order, or None."""

    qkv: Matrix
    output: Matrix
    gate_up: Matrix
    down: Matrix
    norm_in: Tensor
    norm_mid: Tensor
    q_norm: Tensor | None
    k_norm: Tensor | None


@dataclass(slots=True)
class Weights:
    """``table``: embeddings ``[V, H]`` in the checkpoint's dtype; ``frequencies``: ``[D/2]`` fp32
    angles per position; ``rope_scale``: factor on the rotation (1 but for some scaled ropes)."""

    plan: Plan
    layers: list[Layer]
    norm: Tensor
    head: Matrix
    table: Tensor
    frequencies: Tensor
    rope_scale: float

    @property
    def nbytes(self) -> int:
        """Bytes one pass reads: all matrices, the head included, the embedding table not."""
        return self.head.nbytes + sum(
            m.nbytes for x in self.layers for m in (x.qkv, x.output, x.gate_up, x.down)
        )

    @property
    def count(self) -> int:
        """Weights that every row of a pass is multiplied with."""
        return self.head.size + sum(
            m.size for x in self.layers for m in (x.qkv, x.output, x.gate_up, x.down)
        )

    def resident(self) -> int:
        """Bytes held in memory: the matrices and the embedding table (once, where it is shared)."""
        shared = isinstance(self.head, DenseMatrix) and self.head.weight is self.table
        return self.nbytes + (0 if shared else self.table.nbytes)


def paired(weight: Tensor, heads: int) -> Tensor:
    """Rows ``[heads * D, ...]`` reordered so that i and i + D/2 of a head are neighbours."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(weight.shape)


def take_apart(
    model: PreTrainedModel, plan: Plan, dtype_name: str, gguf: Path | None, keep_model: bool
) -> Weights:
    """The weights of ``model``; its own are freed on the way unless ``keep_model``.

    ``dtype_name``: "fp32", "bf16" or "q4" (then ``gguf`` is the file with the 4-bit blocks).
    Raises ``InputError("dtype")`` where q4 cannot be had."""
    base: Any = model.model
    device = base.embed_tokens.weight.device
    blocks = None
    if dtype_name == "q4":
        from ..q4 import packed_blocks

        if device.type != "cpu":
            raise InputError("dtype", dtype="q4", why="the 4-bit kernel runs on the CPU only")
        if gguf is None:
            raise InputError("dtype", dtype="q4", why="the model has no GGUF file of 4-bit blocks")
        blocks = packed_blocks(gguf, plan.layers)
    halves = dtype_name != "fp32" and device.type == "cpu"
    output: Any = model.get_output_embeddings()
    head_weight = output.weight.detach()
    table = base.embed_tokens.weight.detach()
    layers = []
    for index, source in enumerate(base.layers):
        made = _layer(source, plan, halves, blocks.layers[index] if blocks else None)
        layers.append(made)
        if not keep_model:
            _empty(source)
    norm = _norm(base.norm, plan)
    if not keep_model:
        if device.type == "cpu" and not getattr(model, "owns_memory", False):
            # Weights may be views of the mapped file: one kept view would keep all of it in memory.
            tied = head_weight.data_ptr() == table.data_ptr()
            table = table.clone()
            head_weight = table if tied else head_weight
        _empty(model)
    return Weights(
        plan=plan,
        layers=layers,
        norm=norm,
        head=(blocks and blocks.head) or matrix_of(head_weight, None, halves),
        table=table,
        frequencies=base.rotary_emb.inv_freq.detach().float().to(device),
        rope_scale=float(base.rotary_emb.attention_scaling),
    )


def _layer(source: Any, plan: Plan, halves: bool, blocks: dict[str, Matrix] | None) -> Layer:
    attention, mlp = source.self_attn, source.mlp
    qkv: Matrix
    output: Matrix
    gate_up: Matrix
    down: Matrix
    if blocks is not None:
        qkv, output = blocks["qkv"], blocks["output"]
        gate_up, down = blocks["gate_up"], blocks["down"]
    else:
        if hasattr(source, "fill"):  # a skeleton's layer is read when it is wanted
            source.fill()
        qkv = matrix_of(*_fused_qkv(attention, plan), halves)
        output = matrix_of(attention.o_proj.weight.detach(), None, halves)
        gate_up = matrix_of(
            torch.cat([mlp.gate_proj.weight.detach(), mlp.up_proj.weight.detach()]), None, halves
        )
        down = matrix_of(mlp.down_proj.weight.detach(), None, halves)
    head_norm = plan.head_norms
    return Layer(
        qkv=qkv,
        output=output,
        gate_up=gate_up,
        down=down,
        norm_in=_norm(source.input_layernorm, plan),
        norm_mid=_norm(source.post_attention_layernorm, plan),
        q_norm=paired(attention.q_norm.weight.detach().float(), 1) if head_norm else None,
        k_norm=paired(attention.k_norm.weight.detach().float(), 1) if head_norm else None,
    )


def _fused_qkv(attention: Any, plan: Plan) -> tuple[Tensor, Tensor | None]:
    parts = (
        (attention.q_proj, plan.heads),
        (attention.k_proj, plan.kv_heads),
        (attention.v_proj, 0),
    )
    weight = torch.cat([paired(p.weight.detach(), n) if n else p.weight.detach() for p, n in parts])
    if attention.q_proj.bias is None:
        return weight, None
    return weight, torch.cat([paired(p.bias.detach(), n) if n else p.bias.detach() for p, n in parts])


def _norm(module: Any, plan: Plan) -> Tensor:
    return module.weight.detach().float() * math.sqrt(plan.hidden)


def _empty(module: nn.Module) -> None:
    """Let go of a module's weights: the lean matrices have taken their place."""
    for parameter in module.parameters():
        parameter.data = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
