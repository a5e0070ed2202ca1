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

from specdemo.train import loop, precision
from specdemo.train.checkpoint import Averaged, Checkpoint
from specdemo.train.data import Row, Sample
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
    module = nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 4, bias=False))
    optimiser = muon(module, 0.01, decay=0.0, others=[module[0].weight])
    first, second = (sum(len(g["params"]) for g in part.param_groups) for part in optimiser.parts)
    assert (first, second) == (2, 2)  # two matrices; the table and a bias
    before = module[2].weight.detach().clone()
    optimiser.zero_grad()
    module(torch.arange(12)).square().sum().backward()
    optimiser.step()
    singular = torch.linalg.svdvals(module[2].weight.detach() - before)
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
