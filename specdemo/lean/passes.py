"""The lean forward for a fixed number of rows and keys: buffers and views made once, few operations.

What takes time in a small model on a CPU is, besides reading weights, the number of operations:
every torch call costs a microsecond or two, every small copy as much. So everything that can be is
written into place, views are made once per shape, and

* the RMS norm is three operations: the residual row carries one more column, sqrt(H eps), so that
  its plain Euclidean norm is sqrt(H) times the root mean square with epsilon; the sqrt(H) is folded
  into the norm's weight;
* the rotary embedding is one complex product for queries (the scores' scale folded in), one for keys;
* keys lie in the cache as the product with queries reads them, one dimension of all rows side by side,
  and values row by row;
* the softmax's powers are of two, the logarithm's base folded into the scale of the queries: torch's
  ``exp`` takes ten times as long for the many keys that are hidden;
* no operation mixes dtypes: torch would make a copy of a tensor for it;
* the query heads of a group are rows of one product per key head;
* the softmax divides at the end by a sum that is itself a product (with ones): a product adds keys up
  one after the other, so keys that a row does not see (weight 0) change nothing, wherever they lie
  between those it sees. A row of a tree then has the bits that it has in a chain, which torch's own
  softmax, adding in lanes, would not give.

Shapes: T rows, L keys, H hidden, N query heads, M key heads, G = N / M, D head size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from .kernels import ONES
from .weights import Layer, Weights

LOG2_E = math.log2(math.e)


class Pass:
    """One shape of the forward. ``keys_cache`` ``[layers, M, D, rows]`` and ``values_cache``
    ``[layers, M, rows, D]`` are written at ``slots``.

    ``score_rows``: rows that the attention's products are run with, at least ``rows``; the others
    are there for the order of sums alone and their results are not used."""

    def __init__(
        self,
        weights: Weights,
        keys_cache: Tensor,
        values_cache: Tensor,
        rows: int,
        keys: int,
        score_rows: int = 0,
    ) -> None:
        plan, device, kept = weights.plan, keys_cache.device, keys_cache.dtype
        self.weights, self.rows, self.keys = weights, rows, keys
        self.group = plan.group
        first = weights.layers[0]
        queries, pairs = plan.heads * plan.head_dim, plan.head_dim // 2

        def buffer(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        score_rows = max(rows, score_rows)
        self.ids = buffer(rows, dtype=torch.int64)  # inputs of ``run``
        self.slots = buffer(rows, dtype=torch.int64)
        self._offsets = torch.arange(rows, device=device)
        every_mask = buffer(score_rows, self.group, keys, dtype=kept)
        self.mask = every_mask[:rows]  # [T, G, L]
        self._mask = every_mask.view(1, score_rows * self.group, keys).expand(plan.kv_heads, -1, -1)

        self.stream = buffer(rows, plan.hidden + 1)  # the residual stream and the epsilon column
        self.stream[:, -1] = math.sqrt(plan.hidden * plan.epsilon)
        self.x = self.stream[:, :-1]
        self._size = buffer(rows, 1)
        self._scaled = buffer(rows, plan.hidden)
        self._normed = {
            m.dtype: buffer(rows, plan.hidden, dtype=m.dtype) for m in (first.qkv, first.gate_up)
        }
        self._fp32 = buffer(rows, plan.hidden)
        self._final = buffer(weights.head.rows(rows), plan.hidden, dtype=weights.head.dtype)
        self._turn_k = buffer(rows, 1, pairs, dtype=torch.complex64)
        self._turn_q = buffer(rows, 1, 1, pairs, dtype=torch.complex64)

        width = (plan.heads + 2 * plan.kv_heads) * plan.head_dim
        self._qkv_out = buffer(rows, width, dtype=first.qkv.dtype)
        self._qkv = self._qkv_out if first.qkv.dtype == torch.float32 else buffer(rows, width)
        self._q_heads = self._qkv[:, :queries].view(rows, plan.heads, plan.head_dim)
        k_heads = self._qkv[:, queries : queries + plan.kv_heads * plan.head_dim]
        self._k_heads = k_heads.view(rows, plan.kv_heads, plan.head_dim)
        by_group = self._q_heads.view(rows, plan.kv_heads, self.group, pairs, 2)
        self._q_in = torch.view_as_complex(by_group)  # [T, M, G, D/2]
        self._k = torch.view_as_complex(self._k_heads.view(rows, plan.kv_heads, pairs, 2))
        kv = self._qkv[:, queries:].view(rows, 2, plan.kv_heads, plan.head_dim)
        self._kv_cast = kv if kept == torch.float32 else kv.to(kept)
        self._kv = kv
        self._new_keys = self._kv_cast[:, 0].permute(1, 2, 0)  # [M, D, T]
        self._new_values = self._kv_cast[:, 1].transpose(0, 1)  # [M, T, D]
        self._q = buffer(plan.kv_heads, score_rows * self.group, plan.head_dim)
        spread = self._q.view(plan.kv_heads, score_rows, self.group, pairs, 2)[:, :rows]
        self._q_out = torch.view_as_complex(spread.transpose(0, 1))
        self._scores = buffer(plan.kv_heads, score_rows * self.group, keys, dtype=kept)
        self._mixed = buffer(plan.kv_heads, score_rows * self.group, plan.head_dim, dtype=kept)
        by_row = self._mixed.view(plan.kv_heads, score_rows, self.group, plan.head_dim)[:, :rows]
        self._mixed_by_row = by_row.transpose(0, 1)
        self._peak = buffer(plan.kv_heads, score_rows * self.group, 1)
        self._ones = torch.ones(1, keys, ONES, device=device).expand(plan.kv_heads, -1, -1)
        self._sums = buffer(plan.kv_heads, score_rows * self.group, ONES)
        sums_by_row = self._sums[..., :1].unflatten(1, (score_rows, self.group))[:, :rows]
        self._sums_by_row = sums_by_row.transpose(0, 1)
        self._attended = buffer(rows, queries, dtype=first.output.dtype)
        self._attended_by_head = self._attended.view(rows, plan.kv_heads, self.group, plan.head_dim)
        self._added = buffer(rows, plan.hidden, dtype=first.output.dtype)
        self._wide = buffer(rows, 2 * plan.inner, dtype=first.gate_up.dtype)
        self._down_out = buffer(rows, plan.hidden, dtype=first.down.dtype)

        self._all_keys, self._all_values = keys_cache.unbind(0), values_cache.unbind(0)
        self._keys = keys_cache[..., :keys].unbind(0)  # [M, D, L] each
        self._values = values_cache[:, :, :keys].unbind(0)  # [M, L, D] each
        self._fused = device.type != "cpu"

    def place(self, inputs: Tensor, length: int, block: Tensor, table: Tensor) -> None:
        """Set the inputs. ``inputs``: ids and positions ``[2, T]``; the rows go behind ``length``
        cached ones; ``block`` ``[T, T]`` additive (0 or -inf); ``table``: rotations
        ``[positions, D/2]``."""
        self.ids.copy_(inputs[0])
        torch.add(self._offsets, length, out=self.slots)
        self._turn_k.copy_(table.index_select(0, inputs[1])[:, None])
        torch.mul(self._turn_k[:, None], self.weights.plan.scale * LOG2_E, out=self._turn_q)
        self.mask[:, :, length:] = -torch.inf
        self.mask[:, :, :length] = 0.0
        self.mask[:, :, length : length + self.rows] = block[:, None]

    def run(
        self, layers: int, want: Sequence[int], logits: bool
    ) -> tuple[Tensor | None, dict[int, Tensor]]:
        """Run the first ``layers`` layers. ``want``: hidden states to return (numbered as Hugging
        Face's). Returns logits ``[T, V]`` (None unless ``logits``) and the states ``[T, H]`` fp32."""
        weights, states = self.weights, {}
        last = weights.plan.layers
        self.x.copy_(F.embedding(self.ids, weights.table))
        for index in range(layers):
            if index in want:
                states[index] = self.x.clone()
            self._layer(index, weights.layers[index])
        if logits or last in want:
            self._norm(weights.norm, self._final[: self.rows])
        if last in want:
            states[last] = self._final[: self.rows].to(torch.float32, copy=True)
        if not logits:
            return None, states
        head, count = weights.head, self._final.shape[0]
        out = torch.empty(count, head.shape[0], dtype=head.dtype, device=self._final.device)
        return head.apply(self._final, out)[: self.rows], states

    def _norm(self, weight: Tensor, out: Tensor) -> Tensor:
        torch.linalg.vector_norm(self.stream, dim=-1, keepdim=True, out=self._size)
        torch.mul(self.x, weight, out=self._scaled)
        if out.dtype == torch.float32:
            return torch.div(self._scaled, self._size, out=out)
        return out.copy_(self._scaled.div_(self._size))

    def _layer(self, index: int, layer: Layer) -> None:
        x = self._norm(layer.norm_in, self._normed[layer.qkv.dtype])
        qkv = layer.qkv.apply(x, self._qkv_out)
        if qkv is not self._qkv:
            self._qkv.copy_(qkv)
        if layer.q_norm is not None and layer.k_norm is not None:
            size, epsilon = (layer.q_norm.shape[0],), self.weights.plan.epsilon
            self._q_heads.copy_(F.rms_norm(self._q_heads, size, layer.q_norm, epsilon))
            self._k_heads.copy_(F.rms_norm(self._k_heads, size, layer.k_norm, epsilon))
        torch.mul(self._q_in, self._turn_q, out=self._q_out)
        torch.mul(self._k, self._turn_k, out=self._k)
        if self._kv_cast is not self._kv:
            self._kv_cast.copy_(self._kv)
        self._all_keys[index].index_copy_(2, self.slots, self._new_keys)
        self._all_values[index].index_copy_(1, self.slots, self._new_values)
        self._attend(self._keys[index], self._values[index])
        self._add(layer.output.apply(self._attended, self._added))

        x = self._norm(layer.norm_mid, self._normed[layer.gate_up.dtype])
        wide = layer.gate_up.apply(x, self._wide)
        inner = self.weights.plan.inner
        gated = F.silu(wide[:, :inner]).mul_(wide[:, inner:])
        self._add(layer.down.apply(gated, self._down_out))

    def _add(self, update: Tensor) -> None:
        self.x.add_(update if update.dtype == torch.float32 else self._fp32.copy_(update))

    def _attend(self, keys: Tensor, values: Tensor) -> None:
        if self._fused:
            mixed = F.scaled_dot_product_attention(
                self._q.to(keys.dtype)[None],
                keys.transpose(1, 2)[None],
                values[None],
                attn_mask=self._mask[None],
                scale=1.0 / LOG2_E,
            )
            by_row = mixed[0].unflatten(1, (-1, self.group))[:, : self.rows]
            self._attended_by_head.copy_(by_row.transpose(0, 1))
            return
        torch.baddbmm(self._mask, self._q, keys, out=self._scores)
        torch.amax(self._scores, -1, keepdim=True, out=self._peak)
        self._scores.sub_(self._peak).exp2_()
        torch.bmm(self._scores, self._ones, out=self._sums)
        torch.bmm(self._scores, values, out=self._mixed)
        if self._attended.dtype == torch.float32:
            torch.div(self._mixed_by_row, self._sums_by_row, out=self._attended_by_head)
        else:
            self._attended_by_head.copy_(self._mixed_by_row.div_(self._sums_by_row))
