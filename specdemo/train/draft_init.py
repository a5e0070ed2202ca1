"""A warm start for the small draft model, in closed form: a linear n-gram model inside a Llama layer.

The heads of the first layer look at fixed distances (biases of queries and keys, turned by the rotary
embedding, peak there). Their value and output projections are the ridge regression of the target's
final state on the last few embeddings; the first MLP fits what is missing. Later layers add nothing
at first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from .eagle3_init import Ridge, inverse_spread

DISTANCES = (0, 0, 0, 1, 1, 2, 3, 4)  # one a head: near tokens need more dimensions
SHARPNESS = 40.0  # of the peak, in score at the distance itself


def distances(heads: int) -> tuple[int, ...]:
    """The distance each head looks at."""
    return tuple(DISTANCES[i * len(DISTANCES) // heads] for i in range(heads))


@torch.no_grad()
def warm_start(
    model: LlamaForCausalLM, rows: Iterable[tuple[Tensor, Tensor]], generator: torch.Generator
) -> dict[str, float]:
    """Set the weights. ``rows``: (ids ``[T]``, wanted outputs ``[T, H]`` of the last norm, in the
    model's own space). Returns the explained shares of variance."""
    rows = list(rows)
    first = model.model.layers[0]
    table = model.model.embed_tokens.weight
    everything = torch.cat([ids for ids, _ in rows])
    first.input_layernorm.weight.copy_(inverse_spread(table[everything]))
    looked = distances(model.config.num_attention_heads)
    reach = max(looked) + 1
    fit = Ridge(reach * table.shape[1], table.shape[1])
    for ids, wanted in rows:
        x = first.input_layernorm(table[ids])
        stacked = torch.cat([F.pad(x, (0, 0, k, 0))[: len(x)] for k in range(reach)], dim=-1)
        fit.add(stacked[reach:], (wanted - table[ids])[reach:])
    linear = fit.solve(0.02)
    _place_attention(model, linear.view(table.shape[1], reach, -1), looked)
    for layer in model.model.layers:
        width = layer.mlp.gate_proj.weight.shape
        for weight in (layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight):
            weight.copy_(torch.randn(width, generator=generator) / width[1] ** 0.5)
        layer.mlp.down_proj.weight.zero_()
        if layer is not first:
            layer.self_attn.o_proj.weight.zero_()
    model.model.norm.weight.fill_(1.0)
    rest = _fit_mlp(model, rows)
    wanted = torch.cat([w for _, w in rows[:50]])
    model.model.norm.weight.fill_(float(wanted.square().mean().sqrt()))
    return {"linear": fit.explained(linear), "mlp": rest}


def _place_attention(model: LlamaForCausalLM, linear: Tensor, looked: tuple[int, ...]) -> None:
    """``linear`` ``[H, distances, H]``: split over the heads that look at each distance."""
    attention: Any = model.model.layers[0].self_attn
    dim = int(attention.head_dim)
    frequencies = model.model.rotary_emb.inv_freq.float()
    size = (SHARPNESS * dim**0.5 / len(frequencies)) ** 0.5
    for weight in (attention.q_proj, attention.k_proj):
        torch.nn.init.normal_(weight.weight, std=0.01)
    for head, distance in enumerate(looked):
        rows = slice(head * dim, (head + 1) * dim)
        angle = -distance * frequencies
        attention.q_proj.bias[rows] = size * torch.cat([angle.cos(), angle.sin()])
        attention.k_proj.bias[rows] = size * torch.cat([torch.ones_like(angle), torch.zeros_like(angle)])
        left, singular, right = torch.linalg.svd(linear[:, distance])
        part = sum(1 for other in looked[:head] if other == distance) * dim
        kept = slice(part, part + dim)
        root = singular[kept].sqrt()
        attention.v_proj.weight[rows].zero_()
        attention.v_proj.weight[rows][: len(root)] = root[:, None] * right[kept]
        attention.o_proj.weight[:, rows].zero_()
        attention.o_proj.weight[:, rows][:, : len(root)] = left[:, kept] * root
    for bias in (attention.v_proj.bias, attention.o_proj.bias):
        bias.zero_()


def _fit_mlp(model: LlamaForCausalLM, rows: list[tuple[Tensor, Tensor]]) -> float:
    """Ridge regression of the rest on the first MLP's random features."""
    mlp, norm = model.model.layers[0].mlp, model.model.layers[0].post_attention_layernorm
    fit = Ridge(mlp.down_proj.weight.shape[1], mlp.down_proj.weight.shape[0])
    caught: list[Tensor] = []
    handle = norm.register_forward_pre_hook(lambda _, inputs: caught.append(inputs[0]))
    for index, (ids, wanted) in enumerate(rows):
        caught.clear()
        model.model(ids[None], use_cache=False)
        states = caught[0][0]
        if index == 0:
            norm.weight.copy_(inverse_spread(states))
        x = norm.forward(states)
        inner = F.silu(mlp.gate_proj(x)) * mlp.up_proj(x)
        fit.add(inner[1:], (wanted - states)[1:])
    handle.remove()
    mlp.down_proj.weight.copy_(fit.solve(0.02))
    return fit.explained(mlp.down_proj.weight)
