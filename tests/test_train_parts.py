"""The pieces of the training loop: loss, optimiser, learning rate, order of the batches."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

from specdemo.lean import supports
from specdemo.train import corpus, draft_model, loop, precision
from specdemo.train.checkpoint import Averaged, Checkpoint
from specdemo.train.data import Row, Sample, batches, read_shard, write_shard
from specdemo.train.eagle3_init import Ridge
from specdemo.train.optimiser import muon


def test_the_soft_entropy_and_its_gradient_are_those_written_down() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 40, generator=generator, dtype=torch.float64).requires_grad_()
    expected = torch.randn(6, 40, generator=generator, dtype=torch.float64).softmax(-1)
    share = torch.rand(6, generator=generator)
    (precision.soft_entropy(logits, expected) * share).sum().backward()
    again = logits.detach().clone().requires_grad_()
    plain = -(expected * F.log_softmax(again, -1)).sum(-1)
    (plain * share).sum().backward()
    torch.testing.assert_close(logits.grad, again.grad, rtol=1e-6, atol=1e-8)
    found = precision.soft_entropy(logits.detach(), expected)
    torch.testing.assert_close(found, plain.detach().float(), rtol=1e-5, atol=1e-5)


def test_half_precision_is_used_where_it_was_found_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, dtype in (
        ({"full": 2.0, "half": 1.0}, torch.bfloat16),
        ({"full": 1.0, "half": 0.9}, None),
    ):
        precision.half_pays.cache_clear()

        def timed(square: torch.Tensor, known: dict[str, float] = seconds) -> float:
            return known["full" if square.dtype == torch.float32 else "half"]

        monkeypatch.setattr(precision, "_seconds", timed)
        device = torch.device("cpu")
        assert precision.compute_dtype(device) == (dtype or torch.float32)
        with precision.mixed(device):
            product = F.linear(torch.ones(2, 4), torch.ones(3, 4))
        assert product.dtype == (dtype or torch.float32)
    precision.half_pays.cache_clear()


def test_muon_turns_matrices_and_leaves_the_rest_to_adamw() -> None:
    torch.manual_seed(0)
    table, middle, last = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 4, bias=False)
    module = nn.Sequential(table, middle, last)
    optimiser = muon(module, 0.01, decay=0.0, others=[table.weight])
    first, second = (sum(len(g["params"]) for g in part.param_groups) for part in optimiser.parts)
    assert (first, second) == (2, 2)  # two matrices; the table and a bias
    before = last.weight.detach().clone()
    optimiser.zero_grad()
    module(torch.arange(12)).square().sum().backward()
    optimiser.step()
    singular = torch.linalg.svdvals(last.weight.detach() - before)
    assert float(singular.min()) > 0.3 * float(singular.max()) > 0.0  # nearly orthogonal


def test_a_muon_training_is_resumed(tmp_path: Path) -> None:
    def made() -> tuple[nn.Module, Any, Averaged]:
        torch.manual_seed(3)
        module = nn.Linear(6, 6)
        return module, muon(module, 0.05), Averaged(module, 0.9)

    def step(module: nn.Module, optimiser: Any, average: Averaged) -> None:
        optimiser.zero_grad()
        (module(torch.eye(6)) - 1.0).square().sum().backward()
        optimiser.step()
        average.update(module)

    kept = made()
    step(*kept)
    Checkpoint(tmp_path).save(*kept, {"seen": 7})
    step(*kept)
    again = made()
    assert Checkpoint(tmp_path).load(*again) == {"seen": 7}
    step(*again)
    for one, other in zip(kept[0].parameters(), again[0].parameters(), strict=True):
        assert torch.equal(one, other)
    assert all(torch.equal(kept[2].values[name], again[2].values[name]) for name in kept[2].values)


def test_the_learning_rate_falls_at_the_end() -> None:
    heights = [loop.fall(done) for done in (0.0, 0.25, loop.FALL, 0.75, 1.0, 1.5)]
    assert heights[:3] == [1.0, 1.0, 1.0]
    assert heights[2] > heights[3] > heights[4] == heights[5] == pytest.approx(loop.LEAST)


def test_a_training_ends_by_tokens_or_by_the_clock() -> None:
    plan: Any = SimpleNamespace(tokens=1000, minutes=0.0)
    assert loop.share_done(plan, 600, 200, 1e9) == pytest.approx(0.5)
    assert loop.share_done(plan, 1000, 1000, 0.0) == 1.0
    plan.minutes = 2.0
    assert loop.share_done(plan, 300, 200, 90.0) == pytest.approx(0.75)


def test_a_round_takes_every_row_once_and_pads_little() -> None:
    draw = random.Random(1)
    lengths = [draw.randrange(20, 400) for _ in range(200)]
    samples = [Sample(Row(torch.arange(n), 1, True), None) for n in lengths]  # type: ignore[arg-type]
    trainer: Any = SimpleNamespace(
        store=SimpleNamespace(train=samples, tokens=sum(lengths)),
        plan=SimpleNamespace(batch_tokens=1000),
        random=random.Random(0),
    )
    groups = list(loop.Training._groups(trainer))
    assert sorted(len(s.row.ids) for g in groups for s in g) == sorted(lengths)
    padded = sum(len(g) * max(len(s.row.ids) for s in g) for g in groups)
    assert padded < 1.15 * sum(lengths)
    other = list(loop.Training._groups(trainer))
    assert [len(s.row.ids) for g in groups for s in g] != [len(s.row.ids) for g in other for s in g]


@pytest.mark.parametrize(
    ("ids", "start"),
    [
        ([1, 2, 3, 4, 5, 6], None),
        ([9, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4], 5),
        ([9, 1, 2, 3, 4, 1, 2, 3, 4], None),
        ([9, 7, 7, 7, 7, 7, 7], 2),
        ([9, 7, 7, 7], None),
    ],
)
def test_loops_are_cut_after_their_first_round(ids: list[int], start: int | None) -> None:
    assert corpus.loop_start(ids) == start


def test_ridge_finds_a_linear_map() -> None:
    generator = torch.Generator().manual_seed(0)
    x, w = torch.randn(500, 8, generator=generator), torch.randn(3, 8, generator=generator)
    fit = Ridge(8, 3)
    for part in x.split(100):
        fit.add(part, part @ w.T)
    torch.testing.assert_close(fit.solve(1e-7), w, rtol=1e-3, atol=1e-3)
    assert fit.explained(w) == pytest.approx(1.0, abs=1e-4)
    assert fit.explained(torch.zeros_like(w)) == pytest.approx(0.0, abs=0.05)


def test_batches_take_every_row_once() -> None:
    rows = [Row(torch.arange(n), 1, True) for n in (5, 9, 3, 7, 2)]
    samples = [Sample(row, None) for row in rows]  # type: ignore[arg-type]
    groups = list(batches(samples, 8, [3, 1, 4, 0, 2]))
    assert [len(s.row.ids) for group in groups for s in group] == [7, 9, 2, 5, 3]
    assert all(sum(len(s.row.ids) for s in group) >= 8 for group in groups[:-1])


def test_shards_come_back_as_written(tmp_path: Path) -> None:
    rows = [Row(torch.tensor([1, 49151, 3]), 2, False), Row(torch.tensor([4, 5]), 1, False)]
    write_shard(tmp_path / "a.npz", rows, False)
    back = read_shard(tmp_path / "a.npz")
    assert [r.ids.tolist() for r in back.rows] == [[1, 49151, 3], [4, 5]]
    assert [r.response_start for r in back.rows] == [2, 1] and not back.rows[0].greedy


def test_folded_biases_change_no_logit() -> None:
    torch.manual_seed(2)
    config = LlamaConfig(
        vocab_size=50, hidden_size=24, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, head_dim=16, attention_bias=True,
        tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for layer in model.model.layers:
        for name in "qkvo":
            torch.nn.init.normal_(getattr(layer.self_attn, f"{name}_proj").bias)
    ids = torch.arange(12)[None]
    with torch.no_grad():
        before = model(ids).logits
        assert not supports(model)
        draft_model.fold_biases(model)
        torch.testing.assert_close(model(ids).logits, before, rtol=1e-4, atol=1e-4)
    assert supports(model)  # a bias of zeros adds nothing: the fast path takes it
