"""Training an EAGLE-3 head on cached target states.

Two losses a draft step: cross-entropy against the target's softmax over the draft vocabulary, and the
squared error of the normed output against the target's next final state (dense supervision, which
helps most early on; the published recipe has none). Later draft steps weigh ``decay`` each.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from ..checkpoints import draft_ids
from .checkpoint import Averaged, Checkpoint
from .data import FeatureStore, Sample, batches, draft_vocabulary
from .eagle3_batch import Batch, make_batch
from .eagle3_init import WarmStart
from .eagle3_model import Eagle3, HeadSizes
from .loop import Training
from .optimiser import muon
from .precision import compute_dtype, mixed, soft_entropy


@dataclass(slots=True)
class Plan:
    """What is trained and how. ``layers``: fused ``hidden_states``; ``tokens``: rows to see in all,
    draft steps not counted; ``first_steps``: (rows seen, draft steps) from which on."""

    layers: tuple[int, ...] = (8, 15, 29)
    draft_vocab: int = 4096
    intermediate: int = 1536
    tokens: int = 2_000_000
    minutes: float = 0.0
    batch_tokens: int = 1024
    rate: float = 6e-4
    warm_up: int = 50
    warm_start: int = 150_000
    decay: float = 0.8
    regression: float = 0.5
    prompt_weight: float = 0.3
    average: float = 0.998
    schedule: tuple[tuple[int, int], ...] = ((0, 1), (300_000, 2), (600_000, 3))
    evaluate_every: int = 50_000
    seed: int = 0

    def steps(self, seen: int) -> int:
        return [steps for start, steps in self.schedule if seen >= start][-1]


class Trainer(Training):
    """One training: data, head, optimiser, checkpoint."""

    def __init__(
        self,
        store: FeatureStore,
        weights: dict[str, Tensor],
        plan: Plan,
        folder: Path,
        sizes: HeadSizes,
        device: torch.device,
        eos: Sequence[int] = (),
        start: Path | None = None,
    ) -> None:
        """``weights``: ``embedding`` and ``head`` ``[V, H]`` of the target. ``start``: the folder of
        a published head of the same sizes to go on from, instead of the warm start."""
        super().__init__()
        self.store, self.plan, self.device = store, plan, device
        self.columns = [store.info.layers.index(layer) for layer in plan.layers]
        self.final_column = len(store.info.layers) - 1
        self.embedding = weights["embedding"].to(device)
        self.target_head = weights["head"].to(device)
        self.checkpoint = Checkpoint(folder)
        self.module = self.head = Eagle3(sizes).to(device)
        self.scale = torch.ones(len(plan.layers) * sizes.target_hidden)
        self.vocabulary = draft_vocabulary(store.corpus, sizes.vocab, sizes.draft_vocab, eos)
        self.random.seed(plan.seed)
        self._prepare(start)
        self.optimiser = muon(self.head, plan.rate)
        self.average = Averaged(self.head, plan.average)
        state = self.checkpoint.load(self.head, self.optimiser, self.average)
        if state is not None:
            self.seen = int(state["seen"])
            self.vocabulary, self.scale = state["vocabulary"], state["scale"]
            self.random.seed(plan.seed + self.seen)
        self.scale = self.scale.to(device)
        self.rows = self.head.lm_head.weight.detach().to(compute_dtype(device))  # frozen

    def _prepare(self, published: Path | None) -> None:
        """Frozen head and warm start, unless a checkpoint is resumed, which holds them."""
        self.head.lm_head.weight.requires_grad_(False)
        if self.checkpoint.file.exists():
            return
        sample = [torch.from_numpy(s.features[1:].copy()).float() for s in self.store.train[:40]]
        states = torch.cat(sample)[:, self.columns].flatten(1)
        self.scale = 1.0 / states.square().mean(0).sqrt().clamp_min(1e-3)
        if published is not None:
            self._go_on_from(published)
            return
        with torch.no_grad():
            self.head.lm_head.weight.copy_(self.target_head[self.vocabulary])
        generator = torch.Generator().manual_seed(self.plan.seed)
        order = range(len(self.store.train))
        data, rows = [], 0
        for group in batches(self.store.train, 8192, order):
            data.append(self._batch(group, 1, self.plan.prompt_weight))
            rows += data[-1].features.shape[0] * data[-1].features.shape[1]
            if rows > self.plan.warm_start:
                break
        start = WarmStart(self.head, self.embedding, self.scale.to(self.device))
        figures = start.run(data, generator)
        self.checkpoint.log(event="warm start", **figures, plan=asdict(self.plan))

    @torch.no_grad()
    def _go_on_from(self, published: Path) -> None:
        """Its draft vocabulary is kept if it has the size that is asked for; another size is the
        corpus's own, for the output rows are the target's. Raises ``FileNotFoundError``;
        ``RuntimeError`` or ``KeyError`` for a head of other sizes."""
        tensors = load_file(published / "model.safetensors")
        if len(tensors["d2t"]) == len(self.vocabulary):
            self.vocabulary = draft_ids(tensors["d2t"])
        kept = {n: t.float() for n, t in tensors.items() if n not in ("d2t", "t2d")}
        kept["fc.weight"] /= self.scale
        self.head.load_state_dict({**kept, "lm_head.weight": self.target_head[self.vocabulary]})
        self.checkpoint.log(event="goes on from a published head", plan=asdict(self.plan))

    def _batch(self, group: Sequence[Sample], steps: int, prompt_weight: float) -> Batch:
        return make_batch(group, self.columns, self.final_column, steps, prompt_weight, self.device)

    def loss(self, group: Sequence[Sample]) -> Tensor:
        """Weighted mean over positions and draft steps."""
        plan = self.plan
        batch = self._batch(group, plan.steps(self.seen), plan.prompt_weight)
        used = batch.weight > 0
        spots = torch.zeros(batch.weight.shape, dtype=torch.int64, device=self.device)
        spots[used] = torch.arange(int(used.sum()), device=self.device)
        with torch.no_grad():  # labels once for all steps
            states = batch.final[used]
            expected = F.linear(states.to(self.rows.dtype), self.rows).softmax(-1)  # [P, draft V]
            spread = states.var(0).mean()
        with mixed(self.device):
            outputs = self.head.unroll(
                batch.features * self.scale,
                [F.embedding(batch.tokens(i), self.embedding) for i in range(batch.steps)],
            )
        total, weights = torch.zeros((), device=self.device), 0.0
        for step, output in enumerate(outputs):
            final, weight = batch.labels(step)
            here = weight > 0
            normed = self.head.norm(output[here])  # [P', H]
            logits = F.linear(normed.to(self.rows.dtype), self.rows)
            entropy = soft_entropy(logits, expected[spots[:, step : step + final.shape[1]][here]])
            error = (normed - final[here]).square().mean(-1) / spread
            share = weight[here] * plan.decay**step
            total = total + ((entropy + plan.regression * error) * share).sum()
            weights += float(share.sum())
        return total / weights

    @torch.no_grad()
    def evaluate(self, rows: int = 40, steps: int = 3) -> dict[str, Any]:
        """Held-out acceptance of the averaged weights, on answers: per draft step how often the
        target's own argmax is among the head's first 1 and 3; ``chain``: mean committed tokens of a
        greedy chain of ``steps`` on the rows the target wrote greedily."""
        self.average.swap(self.head)
        try:
            return self._evaluate(self.store.held_out[:rows], steps)
        finally:
            self.average.swap(self.head)

    def _evaluate(self, samples: Sequence[Sample], steps: int) -> dict[str, Any]:
        offsets = self.vocabulary.to(self.device)
        hits = torch.zeros(steps, 2, dtype=torch.float64)
        count, chain, chains = torch.zeros(steps, dtype=torch.float64), 0.0, 0
        for sample in samples:
            batch = self._batch([sample], steps, 0.0)
            outputs = self.head.unroll(
                batch.features * self.scale,
                [F.embedding(batch.tokens(i), self.embedding) for i in range(steps)],
            )
            truth = F.linear(batch.final[0], self.target_head).argmax(-1)
            alive = torch.ones(batch.features.shape[1], dtype=torch.bool, device=self.device)
            length = torch.ones_like(alive, dtype=torch.float64)
            for step, output in enumerate(outputs):
                used = batch.labels(step)[1][0] > 0
                top = offsets[self.head.logits(output[0]).topk(3, dim=-1).indices]  # [T, 3]
                right = top == truth[step : step + len(top), None]
                hits[step, 0] += right[used, 0].sum().cpu()
                hits[step, 1] += right[used].any(-1).sum().cpu()
                count[step] += used.sum().cpu()
                alive &= right[:, 0] & used
                length += alive
            if sample.row.greedy:
                first = batch.labels(0)[1][0] > 0
                chain += float(length[first].sum())
                chains += int(first.sum())
        rates = (hits / count[:, None].clamp_min(1)).tolist()
        return {
            "top1": [round(r[0], 4) for r in rates],
            "top3": [round(r[1], 4) for r in rates],
            "chain": round(chain / max(chains, 1), 4),
            "rows": len(samples),
        }

    def save(self) -> None:
        state = {"seen": self.seen, "vocabulary": self.vocabulary, "scale": self.scale.cpu()}
        self.checkpoint.save(self.head, self.optimiser, self.average, state)

    def published(self) -> dict[str, Tensor]:
        """The averaged weights under the published names, the feature scale folded into ``fc``."""
        self.average.swap(self.head)
        try:
            tensors = {n: t.detach().cpu().clone() for n, t in self.head.state_dict().items()}
        finally:
            self.average.swap(self.head)
        tensors["fc.weight"] *= self.scale.cpu()
        index = torch.arange(len(self.vocabulary))
        known = torch.zeros(self.head.sizes.vocab, dtype=torch.bool)
        known[self.vocabulary] = True
        return {**tensors, "d2t": self.vocabulary - index, "t2d": known}

    @staticmethod
    def short(figures: dict[str, Any]) -> str:
        return json.dumps({k: figures[k] for k in ("top1", "top3", "chain")})
