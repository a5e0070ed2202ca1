"""A warm start for the EAGLE-3 head, computed in closed form from features.

The head's hidden space is made that of the target's final (normed) state, so that its own output can
stand in for the fused states at the next draft step. Three ridge regressions, none of which needs a
gradient step:

1. ``fc``: the final state from the fused layers;
2. value and output projections: the *next* final state from (embedding, state), as a change of the
   state. Queries equal keys, a random projection scaled so that attention starts on the own row;
3. ``down_proj``: what is still missing, from random gate and up projections.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from .eagle3_batch import Batch
from .eagle3_model import Eagle3

SELF_SCORE = 14.0  # attention score of the own row at the start; the others are scattered around 0


class Ridge:
    """Ridge regression from running sums: minimises |y - x W^T|^2 + strength * N * E[x^2] * |W|^2."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.gram = torch.zeros(inputs, inputs)
        self.cross = torch.zeros(inputs, outputs)
        self.total, self.mean, self.count = 0.0, torch.zeros(outputs), 0

    def add(self, x: Tensor, y: Tensor) -> None:
        """Rows ``x [N, in]`` and ``y [N, out]``."""
        x, y = x.cpu(), y.cpu()
        self.gram.addmm_(x.T, x)
        self.cross.addmm_(x.T, y)
        self.total += float(y.square().sum())
        self.mean += y.sum(0)
        self.count += len(x)

    def solve(self, strength: float) -> Tensor:
        """``W [out, in]``."""
        gram = self.gram.clone()
        gram.diagonal().add_(strength * float(gram.diagonal().mean()))
        return torch.linalg.solve(gram, self.cross).T.contiguous()

    def explained(self, weight: Tensor) -> float:
        """Share of the variance of y that ``weight`` explains on the rows added."""
        fitted = 2 * (weight.T * self.cross).sum() - ((weight @ self.gram) * weight).sum()
        spread = self.total - float((self.mean**2).sum()) / self.count
        return 1.0 - (self.total - float(fitted)) / spread


def inverse_spread(rows: Tensor) -> Tensor:
    """A norm weight after which every column has about unit variance."""
    normed = rows / rows.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-6)
    return 1.0 / normed.std(0).clamp_min(0.05)


def low_rank(linear: Tensor, value: Tensor, output: Tensor) -> None:
    """Split ``linear [H, 2H]`` into value and output projections, best in rank. Exact when the heads
    together are as wide as H. Raises ``ValueError`` when key heads are shared by query heads."""
    rank = value.shape[0]
    if output.shape[1] != rank:
        raise ValueError("The warm start wants as many key heads as query heads.")
    parts = torch.linalg.svd(linear, full_matrices=False)
    left, singular, right = (part.to(value.device) for part in parts)
    size = min(rank, len(singular))
    root = singular[:size].sqrt()
    value.zero_()
    output.zero_()
    value[:size] = root[:, None] * right[:size]
    output[:, :size] = left[:, :size] * root


class WarmStart:
    """Sets the weights of ``head``. ``scale`` ``[L*H]`` multiplies the fused features."""

    def __init__(self, head: Eagle3, embedding: Tensor, scale: Tensor, strength: float = 0.02) -> None:
        self.head, self.embedding, self.scale, self.strength = head, embedding, scale, strength

    @torch.no_grad()
    def run(self, data: Sequence[Batch], generator: torch.Generator) -> dict[str, float]:
        """Returns the explained shares of variance on the training rows, for the log."""
        head, layer, h = self.head, self.head.midlayer, self.head.sizes.hidden
        fuse = Ridge(len(self.scale), h)
        for fused, _, final, used in self._rows(data):
            # ``final`` belongs to the next position: shifted by one it is the state of this one.
            fuse.add(fused[:, 1:].flatten(0, 1)[used[:, 1:].flatten()], final[:, :-1][used[:, 1:]])
        head.fc.weight.copy_(fuse.solve(1e-3))
        fused, embedded, final, used = next(self._rows(data))
        layer.input_layernorm.weight.copy_(inverse_spread(embedded[used]))
        layer.hidden_norm.weight.copy_(inverse_spread(head.fc(fused)[used]))
        change = Ridge(2 * h, h)
        for fused, embedded, final, used in self._rows(data):
            hidden = head.fc(fused)
            x = torch.cat([layer.input_layernorm(embedded), layer.hidden_norm(hidden)], dim=-1)
            change.add(x[used], (final - hidden)[used])
        linear = change.solve(self.strength)
        attention = layer.self_attn
        low_rank(linear, attention.v_proj.weight, attention.o_proj.weight)
        self._attend_to_self(x[used], generator)
        rest = self._fit_mlp(data, generator)
        head.norm.weight.fill_(float(final[used].square().mean().sqrt()))
        return {
            "fc": fuse.explained(head.fc.weight),
            "linear": change.explained(linear),
            "mlp": rest,
            "rows": float(change.count),
        }

    def _rows(self, data: Sequence[Batch]) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """(features, embeddings of the next token, next final states, used) per batch; the first
        position of a row, an attention sink and like nothing else, is left out."""
        for batch in data:
            final, weight = batch.labels(0)
            used = weight > 0
            used[:, 0] = False
            yield batch.features * self.scale, F.embedding(batch.tokens(0), self.embedding), final, used

    def _attend_to_self(self, x: Tensor, generator: torch.Generator) -> None:
        """Queries = keys = a random projection without the mean direction."""
        attention, sizes = self.head.midlayer.self_attn, self.head.sizes
        mean = F.normalize(x.mean(0), dim=0)
        random = torch.randn(attention.k_proj.weight.shape, generator=generator).to(x.device)
        random -= (random @ mean)[:, None] * mean
        own = (x @ random.T).view(-1, sizes.kv_heads, sizes.head_dim).square().sum(-1).mean()
        random *= (SELF_SCORE * sizes.head_dim**0.5 / own).sqrt()
        attention.k_proj.weight.copy_(random)
        attention.q_proj.weight.copy_(random)

    def _fit_mlp(self, data: Sequence[Batch], generator: torch.Generator) -> float:
        layer, sizes = self.head.midlayer, self.head.sizes
        layer.mlp.down_proj.weight.zero_()
        for weight in (layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight):
            weight.copy_(torch.randn(weight.shape, generator=generator) / sizes.hidden**0.5)
        rest = Ridge(sizes.intermediate, sizes.hidden)
        first = True
        for fused, embedded, final, used in self._rows(data):
            hidden = self.head.unroll(fused, [embedded])[0]  # the MLP adds nothing yet
            if first:
                layer.post_attention_layernorm.weight.copy_(inverse_spread(hidden[used]))
                first = False
            x = layer.post_attention_layernorm(hidden[used])
            inner = F.silu(layer.mlp.gate_proj(x)) * layer.mlp.up_proj(x)
            rest.add(inner, final[used] - hidden[used])
        layer.mlp.down_proj.weight.copy_(rest.solve(self.strength))
        return rest.explained(layer.mlp.down_proj.weight)
