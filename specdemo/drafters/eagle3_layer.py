"""The EAGLE-3 head as it drafts: a few rows at a time, on a KV cache of its own.

Li et al. 2025 (section 3.1); names and order of the published checkpoints. Weights are kept in the
form that is fastest for few rows on this device, activations in fp32 on the CPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ..graphs import Capture
from ..heads import Eagle3Head
from ..lean.kernels import Matrix
from ..lean.native import draft_matrix
from ..lean.panels import PanelMatrix
from ..target import Target
from .eagle3_graph import LARGEST, GraphCache
from .eagle3_quick import QuickCache, QuickLayer, fuse, possible
from .vocabulary import Vocabulary, same_rows

Append = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
STEPS = 2  # draft steps timed behind one pass


class Eagle3Layer:
    """Weights of one head on one target; holds no state of a run.

    ``vocabulary``: what the head itself names. ``step_cost``: time of one draft step of one row, in
    one-row passes of this target."""

    def __init__(self, head: Eagle3Head, target: Target) -> None:
        self.head, self.device = head, target.device
        self.halves = halves = self.device.type == "cpu" and target.dtype_name in ("bf16", "q4")
        full = target.dtype_name == "fp32" or self.device.type == "cpu"
        table = head.embedding if head.embedding is not None else target.embedding()
        wide = torch.float64 if table.dtype == torch.float64 else torch.float32
        self.dtype = wide if full else torch.bfloat16
        parts = {name: t.to(self.device, self.dtype) for name, t in head.tensors.items()}

        def matrix(*names: str) -> Matrix:
            weight = torch.cat([parts[name] for name in names]).contiguous()
            return draft_matrix(weight, halves=halves)

        self.table = table.detach().to(self.device)
        ids = None if head.ids is None else head.ids.to(self.device)
        listed = None if ids is None else ids.tolist()
        self.vocabulary = Vocabulary(matrix("lm_head"), listed, ids)
        # Whether tokens of a prompt are added: the rows must be the target's own.
        self.open = same_rows(parts["lm_head"], self.table, ids)
        self.fuse = matrix("fc")
        self.quick = QuickLayer(self) if possible(self) else None
        self.capture: Capture | None = getattr(target, "capture", None)
        self._free: GraphCache | None = None
        inner = "midlayer."
        if self.quick is None:
            self.qkv = matrix(*(f"{inner}self_attn.{p}_proj" for p in "qkv"))
            self.output = matrix(inner + "self_attn.o_proj")
            self.gate_up = matrix(inner + "mlp.gate_proj", inner + "mlp.up_proj")
            self.down = matrix(inner + "mlp.down_proj")
        self.norms = {
            name: parts[key]
            for name, key in (
                ("embedding", inner + "input_layernorm"),
                ("hidden", inner + "hidden_norm"),
                ("mlp", inner + "post_attention_layernorm"),
                ("final", "norm"),
            )
        }
        self.frequencies = head.inv_freq.to(self.device)
        self._step_cost: float | None = None

    def _apply(self, matrix: Matrix, x: Tensor) -> Tensor:
        out = torch.empty(x.shape[0], matrix.shape[0], dtype=matrix.dtype, device=x.device)
        return matrix.apply(x.to(matrix.dtype), out).to(self.dtype)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        weight = self.norms[name]
        return F.rms_norm(x, weight.shape, weight, self.head.eps)

    def features(self, states: Sequence[Tensor], rows: Sequence[int] | None = None) -> Tensor:
        """Fused states ``[T, H]`` of captured target states, each ``[S, target H]``; ``rows``: the T
        rows that are wanted, all by default."""
        wanted = rows is not None and list(rows) != list(range(len(states[0])))
        if self.quick is not None and isinstance(self.fuse, PanelMatrix):
            chosen = rows if rows is not None and wanted else range(len(states[0]))
            return fuse(self.fuse, [s.float().contiguous() for s in states], chosen)
        if rows is not None and wanted:
            index = torch.tensor(list(rows), device=self.device)
            states = [s[index] for s in states]
        return self._apply(self.fuse, torch.cat([s.to(self.dtype) for s in states], dim=-1))

    def forward(
        self, hidden: Tensor, tokens: Sequence[int], positions: Sequence[int], cache: Cache, mask: Tensor
    ) -> Tensor:
        """Pre-norm outputs ``[T, H]``. ``hidden`` ``[T, H]``: fused states or earlier outputs. The
        rows' keys go to ``cache`` behind ``cache.used``; ``mask`` ``[T, used + T]`` bool."""
        if cache.other is not None:
            return cache.other.forward(hidden, tokens, positions, mask)
        index, places = (torch.tensor(list(x), device=self.device) for x in (tokens, positions))
        return self.compute(hidden, index, places, cache.append, mask)

    def compute(
        self, hidden: Tensor, index: Tensor, positions: Tensor, append: Append, mask: Tensor
    ) -> Tensor:
        """``forward`` on tensors of the device: ``index`` ids and ``positions`` ``[T]``; ``append`` puts
        keys and values ``[T, kv heads, D]`` away and gives all that ``mask`` is about."""
        head, count = self.head, hidden.shape[0]
        embedded = F.embedding(index, self.table).to(self.dtype)
        states = self._norm(hidden, "hidden")
        residual = states if head.norm_before_residual else hidden
        wide = torch.cat([self._norm(embedded, "embedding"), states], dim=-1)
        qkv = self._apply(self.qkv, wide).view(count, -1, head.head_dim)
        turned, values = qkv.split([head.heads + head.kv_heads, head.kv_heads], dim=1)
        turned = self._rotate(turned, positions)
        q, k = turned.split([head.heads, head.kv_heads], dim=1)
        keys, values = append(k, values)  # [kv heads, used + T, D]
        mixed = F.scaled_dot_product_attention(
            q.transpose(0, 1)[None],
            keys[None],
            values[None],
            attn_mask=mask[None, None],
            enable_gqa=head.heads != head.kv_heads,
        )[0]
        rows = mixed.transpose(0, 1).reshape(count, -1)
        states = residual + self._apply(self.output, rows)
        gate, up = self._apply(self.gate_up, self._norm(states, "mlp")).chunk(2, dim=-1)
        return states + self._apply(self.down, F.silu(gate) * up)

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        angles = positions.float()[:, None] * self.frequencies
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]  # [T, 1, D/2]
        scale = self.head.rope_scale
        first, second = x.float().chunk(2, dim=-1)
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return (turned * scale if scale != 1.0 else turned).to(self.dtype)

    def vocabulary_with(self, tokens: Sequence[int]) -> Vocabulary:
        """What a draft may name in a run on a prompt of these tokens."""
        return self.vocabulary.extended(self.table, tokens, self.dtype) if self.open else self.vocabulary

    def cache(
        self, capacity: int, vocabulary: Vocabulary | None = None, warmth: float = 1.0, top: int = 1
    ) -> Cache:
        """A cache for a run; where graphs are recorded the last one given back, if it is large.
        ``vocabulary``, ``warmth``, ``top``: see ``QuickCache``."""
        free, self._free = self._free, None
        if isinstance(free, GraphCache) and free.rows >= capacity + LARGEST:
            free.used = 0
            return Cache(self, capacity, free)
        head = (vocabulary or self.vocabulary).matrix
        quick = None if self.quick is None else QuickCache(self.quick, capacity, head, warmth, top)
        return Cache(self, capacity, quick)

    def release(self, cache: Cache) -> None:
        """Take back a cache that a run is done with."""
        self._free = cache.other if isinstance(cache.other, GraphCache) else None

    def logits(self, output: Tensor, vocabulary: Vocabulary | None = None) -> Tensor:
        """Logits ``[T, V']`` of pre-norm outputs, over the head's own vocabulary or a wider one."""
        return self._apply((vocabulary or self.vocabulary).matrix, self._norm(output, "final"))

    def scatter(self, logits: Tensor, width: int, vocabulary: Vocabulary | None = None) -> Tensor:
        """Logits over the target's vocabulary ``[T, width]``; tokens the draft does not know: -inf."""
        full = logits.new_full((logits.shape[0], width), -torch.inf)
        index = (vocabulary or self.vocabulary).index
        if index is None:
            full[:, : logits.shape[1]] = logits[:, :width]
        else:
            full[:, index] = logits
        return full

    def step_cost(self, target: Target) -> float:
        """Measured once (a tenth of a second), then fixed: a tree must not depend on today's load,
        or the same seed would not give the same run."""
        if self._step_cost is None:
            self._step_cost = self._measure(target)
        return self._step_cost

    @torch.inference_mode()
    def _measure(self, target: Target) -> float:
        from .eagle3_steps import Steps

        session = target.open(64)
        session.prefill([0] * 16)
        steps = Steps(self, 64, [], 1.0, 8)
        state = torch.zeros(1, self.head.hidden, dtype=self.dtype, device=self.device)
        steps.take(state, [0])

        def draft() -> None:
            steps.root()
            for at in range(STEPS):
                steps.branch([at - 1], [0], [range(at)])

        def verify() -> None:
            session.forward([0], [-1]).argmax(-1).tolist()

        # In turns, as in a round: a pass of the target drives the head's weights out of the caches.
        times = [(_time(verify), _time(draft)) for _ in range(8)]
        session.close()
        passes, drafts = (min(column) for column in zip(*times, strict=True))
        return drafts / STEPS / passes


def _time(work: object) -> float:
    start = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - start


class Cache:
    """Keys and values of a run: ``used`` rows count; what lies behind is scratch. ``other``: the cache
    of the compiled kernels or of recorded graphs, where one of them does the work."""

    def __init__(
        self, layer: Eagle3Layer, capacity: int, other: QuickCache | GraphCache | None = None
    ) -> None:
        if other is None and layer.quick is not None:
            other = QuickCache(layer.quick, capacity, layer.vocabulary.matrix)
        elif other is None and layer.capture is not None:
            other = GraphCache(layer, capacity, layer.capture)
        self.other, self._used = other, 0
        if other is None:
            shape = (layer.head.kv_heads, capacity, layer.head.head_dim)
            self.keys = torch.zeros(shape, dtype=layer.dtype, device=layer.device)
            self.values = torch.zeros_like(self.keys)

    @property
    def used(self) -> int:
        return self._used if self.other is None else self.other.used

    @used.setter
    def used(self, rows: int) -> None:
        if self.other is None:
            self._used = rows
        else:
            self.other.used = rows

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write ``[T, kv heads, D]`` behind the used rows; all rows up to there."""
        end = self.used + keys.shape[0]
        self.keys[:, self.used : end] = keys.transpose(0, 1)
        self.values[:, self.used : end] = values.transpose(0, 1)
        self.used = end
        return self.keys[:, :end], self.values[:, :end]
