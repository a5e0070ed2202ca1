"""Training a small Llama with the target's tokenizer, distilled from the target.

Its tied embeddings are the target's, reduced to the subspace that keeps the target's logits best; its
output is pulled towards the target's final state in that subspace (dense supervision) and its softmax
towards the target's. The softmax runs over candidates only: frequent tokens, those of the batch, and
some drawn at random, so that no row of the vocabulary is forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from ..drafters import shortlist
from .checkpoint import Averaged, Checkpoint
from .data import FeatureStore, Sample, draft_vocabulary
from .draft_init import warm_start
from .loop import Training, pad
from .optimiser import muon
from .precision import compute_dtype, mixed, soft_entropy


@dataclass(slots=True)
class Plan:
    hidden: int = 192
    layers: int = 2
    heads: int = 8
    head_dim: int = 64
    intermediate: int = 1024
    frequent: int = 4096
    negatives: int = 256
    tokens: int = 4_000_000
    minutes: float = 0.0
    batch_tokens: int = 1024
    rate: float = 5e-4
    warm_up: int = 100
    warm_start: int = 2_000
    average: float = 0.998
    regression: float = 0.5
    prompt_weight: float = 0.3
    evaluate_every: int = 100_000
    seed: int = 0


def subspace(states: Tensor, embedding: Tensor, weights: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """(embeddings ``[V, size]``, map ``[H, size]``) with ``(states @ map) @ embeddings.T`` the best
    approximation of rank ``size`` to the logits ``states @ embedding.T``, tokens weighted by
    ``weights`` ``[V]``."""
    covariance = states.T @ states / len(states)
    values, vectors = torch.linalg.eigh(covariance)
    root = values.clamp_min(1e-6).sqrt()
    whiten, colour = vectors / root, vectors * root  # states @ whiten is white
    inner = colour.T @ (embedding.T @ (embedding * weights[:, None])) @ colour
    chosen = torch.linalg.eigh(inner)[1][:, -size:]  # the directions with most of the logits
    return embedding @ colour @ chosen, whiten @ chosen


def make_model(plan: Plan, target: Any) -> Any:
    """A random Llama with the sizes of ``plan`` and the vocabulary of ``target`` (a LlamaConfig)."""
    config = LlamaConfig(
        vocab_size=target.vocab_size,
        hidden_size=plan.hidden,
        intermediate_size=plan.intermediate,
        num_hidden_layers=plan.layers,
        num_attention_heads=plan.heads,
        num_key_value_heads=plan.heads,
        head_dim=plan.head_dim,
        attention_bias=True,
        max_position_embeddings=target.max_position_embeddings,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500.0},
        tie_word_embeddings=True,
        bos_token_id=target.bos_token_id,
        eos_token_id=target.eos_token_id,
        pad_token_id=target.pad_token_id,
        initializer_range=0.05,
    )
    return LlamaForCausalLM(config).float()


@torch.no_grad()
def fold_biases(model: Any) -> None:
    """Move the bias of every attention's output projection into the bias of its values: attention
    weights sum to one, so W_o b_v is added anyway. The bias left is zero, and costs nothing to run."""
    for layer in model.model.layers:
        output, value = layer.self_attn.o_proj, layer.self_attn.v_proj
        inverse = torch.linalg.pinv(output.weight.double())
        value.bias += (inverse @ output.bias.double()).to(value.bias.dtype)
        output.bias.zero_()


class Trainer(Training):
    def __init__(
        self,
        store: FeatureStore,
        embedding: Tensor,
        config: Any,
        plan: Plan,
        folder: Path,
        device: torch.device,
        eos: Sequence[int] = (),
        start: Path | None = None,
    ) -> None:
        """``embedding`` ``[V, H]``: the target's (tied) embeddings; ``config``: its configuration.
        ``start``: the folder of a draft model to go on from, instead of the warm start; its output
        has left the target's subspace, so only the softmax is distilled then."""
        super().__init__()
        self.store, self.plan, self.device = store, plan, device
        self.embedding = embedding.to(device)
        self.final = len(store.info.layers) - 1
        self.random.seed(plan.seed)
        self.frequent = draft_vocabulary(store.corpus, store.info.vocab, plan.frequent, eos).to(device)
        torch.manual_seed(plan.seed)
        if start is None:
            self.model: Any = make_model(plan, config)
        else:
            plan.regression = 0.0
            self.model = LlamaForCausalLM.from_pretrained(start, dtype=torch.float32)
        self.model.to(device)
        self.reduce = torch.zeros(store.info.hidden, plan.hidden)
        self.checkpoint = Checkpoint(folder)
        if start is None and not self.checkpoint.file.exists():
            self._start()
        self.module = self.model
        self.optimiser = muon(self.model, plan.rate, others=[self.model.model.embed_tokens.weight])
        self.average = Averaged(self.model, plan.average)
        state = self.checkpoint.load(self.model, self.optimiser, self.average)
        if state is not None:
            self.seen, self.reduce = int(state["seen"]), state["reduce"]
            self.random.seed(plan.seed + self.seen)
        self.reduce = self.reduce.to(device)

    @torch.no_grad()
    def _start(self) -> None:
        states = torch.cat([self._final(s)[1:] for s in self.store.train[:200]])
        counts = torch.full((self.store.info.vocab,), 0.01)
        counts[self.frequent.cpu()] = 1.0
        table, self.reduce = subspace(states, self.embedding.cpu(), counts, self.plan.hidden)
        truth = (states[:2000] @ self.embedding.cpu().T).argmax(-1)
        kept = ((states[:2000] @ self.reduce) @ table.T).argmax(-1) == truth
        self.model.model.embed_tokens.weight.copy_(table)
        rows = []
        for sample in self.store.train[: self.plan.warm_start]:
            rows.append((sample.row.ids, self._final(sample) @ self.reduce))
        small = self.model.cpu()
        figures = warm_start(small, rows, torch.Generator().manual_seed(self.plan.seed))
        self.model = small.to(self.device)
        argmax = float(kept.float().mean())
        self.checkpoint.log(event="start", argmax_kept=argmax, **figures, plan=asdict(self.plan))

    def _final(self, sample: Sample) -> Tensor:
        return torch.from_numpy(np.asarray(sample.features[:, self.final], dtype=np.float32))

    def _batch(self, samples: Sequence[Sample]) -> tuple[Tensor, Tensor, Tensor]:
        """ids ``[B, T]``, final states ``[B, T, H]``, weights ``[B, T]``."""
        length = max(len(s.row.ids) for s in samples)
        weights = []
        for sample in samples:
            weight = torch.full((len(sample.row.ids),), self.plan.prompt_weight)
            weight[max(sample.row.response_start - 1, 0) :] = 1.0
            weight[0] = 0.0
            weights.append(weight)
        return (
            pad([s.row.ids for s in samples], length).to(self.device),
            pad([self._final(s) for s in samples], length).to(self.device),
            pad(weights, length).to(self.device),
        )

    def loss(self, group: Sequence[Sample]) -> Tensor:
        """Weighted mean over positions of the batch."""
        ids, final, weight = self._batch(group)
        with mixed(self.device):
            output = self.model.model(ids, use_cache=False).last_hidden_state
        used = weight > 0
        made, states, share = output[used].float(), final[used], weight[used]
        table = self.model.model.embed_tokens.weight
        drawn = torch.randint(len(table), (self.plan.negatives,), device=self.device)
        candidates = torch.cat([self.frequent, ids.flatten(), drawn]).unique()
        half = compute_dtype(self.device)
        with torch.no_grad():
            expected = F.linear(states.to(half), self.embedding[candidates].to(half)).softmax(-1)
        loss = soft_entropy(F.linear(made.to(half), table[candidates].to(half)), expected)
        if self.plan.regression:
            wanted = states @ self.reduce
            error = (made - wanted).square().mean(-1) / wanted.var(0).mean()
            loss = loss + self.plan.regression * error
        return (loss * share).sum() / share.sum()

    @torch.no_grad()
    def evaluate(self, rows: int = 40) -> dict[str, Any]:
        """On held-out answers: how often the draft's argmax over the whole vocabulary is the target's
        (``top1``), and the mean committed tokens of a greedy chain of 3 on greedy rows."""
        self.average.swap(self.model)
        hits, count, chain, chains = 0.0, 0, 0.0, 0
        for sample in self.store.held_out[:rows]:
            start = max(sample.row.response_start - 1, 0)
            ids, final, _ = self._batch([sample])
            made = self.model(ids, use_cache=False).logits[0, start:].argmax(-1)
            right = (made == F.linear(final[0, start:], self.embedding).argmax(-1)).double()
            hits += float(right.sum())
            count += len(right)
            if sample.row.greedy:
                two = right[:-2] * right[1:-1]
                chain += float((1 + right[:-2] + two + two * right[2:]).sum())
                chains += len(right) - 2
        self.average.swap(self.model)
        return {"top1": round(hits / max(count, 1), 4), "chain": round(chain / max(chains, 1), 4)}

    @staticmethod
    def short(figures: dict[str, Any]) -> str:
        return json.dumps(figures)

    def save(self) -> None:
        state = {"seen": self.seen, "reduce": self.reduce.cpu()}
        self.checkpoint.save(self.model, self.optimiser, self.average, state)

    def publish(self, folder: Path, tokenizer: Any) -> None:
        """The averaged weights as a Hugging Face folder in bf16, the tokenizer and the list of the
        frequent tokens beside them."""
        self.average.swap(self.model)
        copy: Any = LlamaForCausalLM(self.model.config)
        copy.load_state_dict(self.model.state_dict())
        self.average.swap(self.model)
        fold_biases(copy)
        copy.to(torch.bfloat16).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        words = folder / "tokenizer.json"  # indented, it is twice as long
        short = json.dumps(
            json.loads(words.read_text("utf-8")), ensure_ascii=False, separators=(",", ":")
        )
        words.write_text(short, encoding="utf-8")
        shortlist.write(folder, self.frequent.cpu())
