"""The EAGLE-3 head as it is trained: all positions of a row at once, several draft steps unrolled.

Li et al. 2025, "EAGLE-3" (section 3, training-time test). Parameter names are those of the published
checkpoints. Row t holds the fused target states of position t and the embedding of token t + 1; its
logits are for token t + 2.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class HeadSizes:
    """Sizes of an EAGLE-3 head; ``layers``: the target's ``hidden_states`` it reads."""

    hidden: int
    target_hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    draft_vocab: int
    layers: tuple[int, ...]
    eps: float = 1e-5
    rope_theta: float = 10000.0


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Attention whose input is twice as wide as its output: embedding and state side by side."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.sizes = sizes
        wide, q, kv = 2 * sizes.hidden, sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.q_proj = nn.Linear(wide, q, bias=False)
        self.k_proj = nn.Linear(wide, kv, bias=False)
        self.v_proj = nn.Linear(wide, kv, bias=False)
        self.o_proj = nn.Linear(q, sizes.hidden, bias=False)

    def project(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys, values ``[B, heads, T, D]``, rotated; key heads repeated for their group."""
        batch, length, _ = x.shape
        s = self.sizes

        def split(y: Tensor, heads: int) -> Tensor:
            return y.view(batch, length, heads, s.head_dim).transpose(1, 2)

        q = rotate(split(self.q_proj(x), s.heads), cos, sin)
        k = rotate(split(self.k_proj(x), s.kv_heads), cos, sin)
        v = split(self.v_proj(x), s.kv_heads)
        group = s.heads // s.kv_heads
        return q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)

    def merge(self, mixed: Tensor) -> Tensor:
        batch, _, length, _ = mixed.shape
        return self.o_proj(mixed.transpose(1, 2).reshape(batch, length, -1))


class MLP(nn.Module):
    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.up_proj = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.down_proj = nn.Linear(sizes.intermediate, sizes.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class MidLayer(nn.Module):
    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.self_attn = Attention(sizes)
        self.mlp = MLP(sizes)
        self.hidden_norm = RMSNorm(sizes.hidden, sizes.eps)
        self.input_layernorm = RMSNorm(sizes.hidden, sizes.eps)
        self.post_attention_layernorm = RMSNorm(sizes.hidden, sizes.eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding, halves convention (as Llama in transformers)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


class Eagle3(nn.Module):
    """``fc`` (fusing the states), one decoder layer, norm and a head over the draft vocabulary."""

    def __init__(self, sizes: HeadSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.fc = nn.Linear(len(sizes.layers) * sizes.target_hidden, sizes.hidden, bias=False)
        self.midlayer = MidLayer(sizes)
        self.norm = RMSNorm(sizes.hidden, sizes.eps)
        self.lm_head = nn.Linear(sizes.hidden, sizes.draft_vocab, bias=False)

    def rope(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        """cos and sin ``[length, D]``."""
        size = self.sizes.head_dim
        steps = torch.arange(0, size, 2, device=device, dtype=torch.float32) / size
        frequencies = self.sizes.rope_theta**-steps
        angles = torch.arange(length, device=device, dtype=torch.float32)[:, None] * frequencies
        angles = torch.cat([angles, angles], dim=-1)
        return angles.cos(), angles.sin()

    def unroll(self, features: Tensor, embedded: list[Tensor]) -> list[Tensor]:
        """Pre-norm outputs ``[B, T, H]`` of as many draft steps as there are entries in
        ``embedded``: step i takes the embeddings of token t + 1 + i, ``[B, T, H]``.

        Step i of row t attends to the step-0 keys up to t and to its own chain, steps 1 to i, which
        is what drafting does after t true rows."""
        layer, attention = self.midlayer, self.midlayer.self_attn
        hidden = self.fc(features).to(features.dtype)  # the residual stays wide in mixed precision
        length = hidden.shape[1]
        cos, sin = self.rope(length + len(embedded), hidden.device)
        keys: list[Tensor] = []
        values: list[Tensor] = []
        outputs: list[Tensor] = []
        for step, embedding in enumerate(embedded):
            x = torch.cat([layer.input_layernorm(embedding), layer.hidden_norm(hidden)], dim=-1)
            at = slice(step, step + length)
            q, k, v = attention.project(x, cos[at], sin[at])
            keys.append(k)
            values.append(v)
            mixed = chain_attention(q, keys, values)
            hidden = hidden + attention.merge(mixed)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            outputs.append(hidden)
        return outputs

    def logits(self, hidden: Tensor) -> Tensor:
        return self.lm_head(self.norm(hidden))


def chain_attention(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Causal over ``keys[0]``, and the same row of every later entry. ``[B, heads, T, D]``."""
    length, scale = q.shape[2], q.shape[3] ** -0.5
    scores = (q @ keys[0].transpose(-1, -2)) * scale
    future = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    scores = scores.masked_fill(future, -torch.inf)
    if len(keys) == 1:
        return scores.softmax(-1) @ values[0]
    own = torch.stack([(q * k).sum(-1) for k in keys[1:]], dim=-1) * scale  # [B, heads, T, steps]
    weights = torch.cat([scores, own], dim=-1).softmax(-1)
    mixed = weights[..., :length] @ values[0]
    for index, v in enumerate(values[1:]):
        mixed = mixed + weights[..., length + index, None] * v
    return mixed
