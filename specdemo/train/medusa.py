"""Training Medusa heads on cached states (Cai et al. 2024, "Medusa-1": the target stays as it is).

One residual block and one output head over a reduced vocabulary each. The start is the best linear
head in closed form: the target's output rows times the ridge regression of the later state on the
present one, the block adding nothing yet. (A tied output head does not work: a residual block of this
form can hardly subtract, SiLU being above -0.28.) Each head learns from the target's whole softmax at
its offset.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from ..checkpoints import draft_ids
from .checkpoint import Averaged, Checkpoint
from .data import FeatureStore, Sample, batches, draft_vocabulary
from .eagle3_init import Ridge
from .loop import Training
from .precision import compute_dtype, mixed, soft_entropy

RANKS = 10  # accuracies are measured down to this rank


@dataclass(slots=True)
class Plan:
    heads: int = 3
    draft_vocab: int = 4096
    tokens: int = 1_000_000
    minutes: float = 0.0
    batch_tokens: int = 1024
    rate: float = 5e-4
    warm_up: int = 50
    warm_start: int = 150_000
    average: float = 0.998
    decay: float = 0.8
    evaluate_every: int = 50_000
    seed: int = 0


class Heads(nn.Module):
    """``weight`` ``[K, H, H]`` and ``bias`` ``[K, H]`` of the residual blocks, ``output``
    ``[K, V', H]`` of the output heads."""

    def __init__(self, count: int, hidden: int, vocab: int) -> None:
        super().__init__()
        self.output = nn.Parameter(torch.zeros(count, vocab, hidden))
        self.weight = nn.Parameter(torch.zeros(count, hidden, hidden))
        self.bias = nn.Parameter(torch.zeros(count, hidden))

    def forward(self, x: Tensor) -> Tensor:
        """``[N, H]`` to ``[K, N, H]``: x + SiLU(W x + b)."""
        return x + F.silu(torch.einsum("kij,nj->kni", self.weight, x) + self.bias[:, None])


class Trainer(Training):
    def __init__(
        self,
        store: FeatureStore,
        output: Tensor,
        plan: Plan,
        folder: Path,
        device: torch.device,
        eos: Sequence[int] = (),
        start: Path | None = None,
    ) -> None:
        """``output`` ``[V, H]``: the target's output head. ``start``: the folder of published heads
        of the same sizes to go on from, instead of the closed form."""
        super().__init__()
        self.store, self.plan, self.device = store, plan, device
        self.target_head = output.to(device)
        self.final = len(store.info.layers) - 1
        self.vocabulary = draft_vocabulary(store.corpus, store.info.vocab, plan.draft_vocab, eos)
        self.rows = self.target_head[self.vocabulary.to(device)]
        self.module = self.heads = Heads(plan.heads, store.info.hidden, plan.draft_vocab).to(device)
        self.checkpoint = Checkpoint(folder)
        self.random.seed(plan.seed)
        if not self.checkpoint.file.exists():
            if start is None:
                self._warm_start()
            else:
                self._go_on_from(start)
        self.optimiser = torch.optim.AdamW(
            self.heads.parameters(), lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0, fused=True
        )
        self.average = Averaged(self.heads, plan.average)
        state = self.checkpoint.load(self.heads, self.optimiser, self.average)
        if state is not None:
            self.seen, self.vocabulary = int(state["seen"]), state["vocabulary"]
            self.rows = self.target_head[self.vocabulary.to(device)]
            self.random.seed(plan.seed + self.seen)

    def _states(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor]:
        """(states ``[N, H]``, states at the next K offsets ``[K, N, H]``) within the answers."""
        inputs, labels = [], []
        count = self.plan.heads
        for sample in samples:
            states = np.asarray(sample.features[:, self.final], dtype=np.float32)
            rows = torch.from_numpy(states)
            start, end = max(sample.row.response_start - 2, 1), len(rows) - count
            if end > start:
                inputs.append(rows[start:end])
                labels.append(torch.stack([rows[start + 1 + i : end + 1 + i] for i in range(count)]))
        return torch.cat(inputs).to(self.device), torch.cat(labels, dim=1).to(self.device)

    @torch.no_grad()
    def _warm_start(self) -> None:
        """The output rows of the target, fed with the ridge regression of each later state."""
        hidden, fits = self.store.info.hidden, []
        fits = [Ridge(hidden, hidden) for _ in range(self.plan.heads)]
        seen = 0
        for group in batches(self.store.train, 8192, range(len(self.store.train))):
            x, later = self._states(group)
            for fit, y in zip(fits, later, strict=True):
                fit.add(x, y)
            seen += len(x)
            if seen > self.plan.warm_start:
                break
        for index, fit in enumerate(fits):
            self.heads.output[index] = self.rows @ fit.solve(0.02).to(self.device)
        self.checkpoint.log(event="warm start", rows=seen, plan=asdict(self.plan))

    @torch.no_grad()
    def _go_on_from(self, published: Path) -> None:
        """Raises ``FileNotFoundError``; ``RuntimeError`` or ``KeyError`` for heads of other sizes."""
        tensors = load_file(published / "medusa_lm_head.safetensors")
        self.vocabulary = draft_ids(tensors["d2t"])
        self.rows = self.target_head[self.vocabulary.to(self.device)]
        for index in range(self.plan.heads):
            self.heads.weight[index].copy_(tensors[f"{index}.0.linear.weight"])
            self.heads.bias[index].copy_(tensors[f"{index}.0.linear.bias"])
            self.heads.output[index].copy_(tensors[f"{index}.1.weight"])
        self.checkpoint.log(event="goes on from published heads", plan=asdict(self.plan))

    def loss(self, group: Sequence[Sample]) -> Tensor:
        x, later = self._states(group)
        half = compute_dtype(self.device)
        rows = self.rows.to(half)
        total, weights = torch.zeros((), device=self.device), 0.0
        with mixed(self.device):
            outputs = self.heads(x)  # [K, N, H]
            for index, (made, final) in enumerate(zip(outputs, later, strict=True)):
                with torch.no_grad():
                    expected = F.linear(final.to(half), rows).softmax(-1)
                logits = F.linear(made, self.heads.output[index])
                entropy = soft_entropy(logits, expected).mean()
                total = total + self.plan.decay**index * entropy
                weights += self.plan.decay**index
        return total / weights

    @torch.no_grad()
    def evaluate(self, rows: int = 40) -> dict[str, Any]:
        """Per head and rank: how often the head's choice is the target's argmax, on held-out answers."""
        self.average.swap(self.heads)
        hits = torch.zeros(self.plan.heads, RANKS, dtype=torch.float64)
        count = 0
        for sample in self.store.held_out[:rows]:
            if len(sample.row.ids) - self.plan.heads <= max(sample.row.response_start - 2, 1):
                continue
            x, later = self._states([sample])
            made = self.heads(x)
            for index in range(self.plan.heads):
                logits = F.linear(made[index], self.heads.output[index])
                top = logits.topk(min(RANKS, logits.shape[-1]), dim=-1).indices
                truth = F.linear(later[index], self.target_head).argmax(-1, keepdim=True)
                right = self.vocabulary.to(self.device)[top] == truth
                hits[index] += right.sum(0).cpu()
            count += len(x)
        self.average.swap(self.heads)
        rates = (hits / max(count, 1)).tolist()
        return {"accuracies": [[round(r, 4) for r in row] for row in rates], "rows": count}

    def save(self) -> None:
        state = {"seen": self.seen, "vocabulary": self.vocabulary}
        self.checkpoint.save(self.heads, self.optimiser, self.average, state)

    def published(self) -> dict[str, Tensor]:
        """The averaged weights under the published names, and the reduced vocabulary as ``d2t``."""
        weight, bias, output = (self.average.values[name].cpu() for name in ("weight", "bias", "output"))
        tensors = {"d2t": self.vocabulary - torch.arange(len(self.vocabulary))}
        for index in range(self.plan.heads):
            tensors[f"{index}.0.linear.weight"] = weight[index].clone()
            tensors[f"{index}.0.linear.bias"] = bias[index].clone()
            tensors[f"{index}.1.weight"] = output[index].clone()
        return tensors

    @staticmethod
    def short(figures: dict[str, Any]) -> str:
        return json.dumps({"top1": [row[0] for row in figures["accuracies"]]})
