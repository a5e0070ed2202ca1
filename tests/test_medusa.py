"""The Medusa drafter: which state it reads, which tree it proposes, what it shows per depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import REPEAT, run, target_of
from test_eagle3_quick import tiny_model
from test_engine_exact import EXACT, WORDS, _model, _params, enumerate_runs
from torch import Tensor

from specdemo.drafters import Context, create
from specdemo.drafters import trained as places
from specdemo.drafters.medusa import Medusa, path_score
from specdemo.engine import Engine
from specdemo.hf import HFTarget
from specdemo.lean import LeanTarget, compiled
from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.train import publish

RATES = [[0.5, 0.2, 0.1], [0.3, 0.1], [0.2]]


def write_heads(folder: Path, target: HFTarget, ids: list[int], rates: Any = RATES) -> str:
    """Random heads that fit ``target``, over the given ids."""
    generator, size = torch.Generator().manual_seed(9), target.shape.hidden
    tensors: dict[str, Tensor] = {"d2t": torch.tensor(ids) - torch.arange(len(ids))}
    for i in range(3):
        tensors[f"{i}.0.linear.weight"] = torch.randn(size, size, generator=generator) * 0.2
        tensors[f"{i}.0.linear.bias"] = torch.randn(size, generator=generator) * 0.2
        tensors[f"{i}.1.weight"] = torch.randn(len(ids), size, generator=generator)
    publish.medusa(folder, tensors, 3, target.name, rates, dtype=torch.float32)
    return str(folder)


@pytest.fixture(scope="module")
def target(tiny_llama: Any) -> HFTarget:
    return target_of(tiny_llama)


@pytest.fixture(scope="module")
def heads(target: HFTarget, tmp_path_factory: pytest.TempPathFactory) -> str:
    ids = list(range(32, target.shape.vocab))
    return write_heads(tmp_path_factory.mktemp("medusa"), target, ids)


def _run(target: HFTarget, heads: str, params: SamplingParams, **settings: Any) -> tuple[Medusa, Run]:
    made = create("medusa", target, settings, head=heads)
    assert isinstance(made, Medusa)
    return made, Run.of(Engine(target).generate(REPEAT, made, params, raw=True))


def test_a_setting_named_like_one_of_sampling_does_not_hide_it(target: HFTarget, heads: str) -> None:
    _, found = _run(target, heads, SamplingParams(top_k=3, max_new_tokens=4), top_k=7)
    assert found.started is not None
    settings = found.started.settings
    assert settings["top_k"] == 3 and settings["draft_top_k"] == 7


@pytest.mark.parametrize(
    "settings", [{}, {"adaptive": False}, {"budget": 63, "adaptive": False}], ids=str
)
def test_greedy_output_is_that_of_plain_decoding(
    target: HFTarget, heads: str, settings: dict[str, Any]
) -> None:
    params = SamplingParams(max_new_tokens=30, ignore_eos=True)
    plain = run(target, "none", REPEAT, params=params, raw=True)
    assert _run(target, heads, params, **settings)[1].finished.token_ids == plain.finished.token_ids


def test_every_draft_comes_from_the_last_committed_state(target: HFTarget, heads: str) -> None:
    """Head i, given the target's final state before the last committed token, guesses draft token i:
    re-computed from the bare model for every round."""
    params = SamplingParams(max_new_tokens=24, ignore_eos=True)
    _, got = _run(target, heads, params, adaptive=False, budget=3, top_k=1)
    layer = places.medusa(target, heads)
    ids = target.tokenizer.encode(REPEAT)
    for one in got.rounds:
        hidden = target.model.model(torch.tensor([ids[:-1]])).last_hidden_state[0, -1:]
        best = layer.logits(hidden.detach(), 3).argmax(-1).tolist()
        assert layer.ids is not None
        expected = [layer.ids[i] for i in best][: len(one.drafted.nodes)]
        assert [node.id for node in one.drafted.nodes] == expected
        assert [node.parent for node in one.drafted.nodes] == list(range(-1, len(expected) - 1))
        ids += [token.id for token in one.verified.tokens]


def test_the_tree_is_chosen_by_the_measured_accuracies(target: HFTarget, heads: str) -> None:
    params = SamplingParams(max_new_tokens=12, ignore_eos=True)
    _, got = _run(target, heads, params, adaptive=False, budget=4)
    # Likeliest paths: (0) 0.5, (1) 0.2, (0,0) 0.15, (2) 0.1; (1,0) has 0.06.
    assert [node.parent for node in got.rounds[0].drafted.nodes] == [-1, -1, -1, 0]
    assert path_score(RATES, (0, 0, 0)) == pytest.approx(0.03)


def test_heads_that_were_never_right_where_they_were_measured_are_drafted_from(
    target: HFTarget, tmp_path: Path
) -> None:
    ids = list(range(32, target.shape.vocab))
    heads = write_heads(tmp_path, target, ids, [[0.0, 0.1], [0.0, 0.0], [0.2]])
    made = create("medusa", target, {"adaptive": False, "budget": 4}, head=heads)
    assert isinstance(made, Medusa)
    paths = made.paths(made.rates(3))
    assert len(paths) == 4 and {(0,), (1,)} <= set(paths)


def test_an_adaptive_tree_follows_the_cost_of_a_pass(target: HFTarget, heads: str) -> None:
    made = create("medusa", target, {"budget": 10}, head=heads)
    assert isinstance(made, Medusa)

    def paths(cost: Any, learned: tuple[float, int] = (0.0, 0)) -> int:
        context = Context(target, None, None, None, [1], pass_cost=cost)  # type: ignore[arg-type]
        made.start(context)
        made._growth.learn(*learned)
        return len(made.paths(RATES))

    assert paths(lambda rows: 1.0) == 10
    # Expected tokens per cost with 0 to 4 nodes: 1, 1.364, 1.417, 1.423, 1.393.
    assert paths(lambda rows: 1.0 + 0.1 * (rows - 1)) == 3
    assert paths(lambda rows: float(rows)) == 0
    # 36 promised and none kept: a tenth of what is promised is believed.
    assert paths(lambda rows: 1.0 + 0.1 * (rows - 1), (36.0, 0)) == 0


def test_an_adaptive_tree_is_that_of_the_round(target: HFTarget, heads: str) -> None:
    """The same size, other shapes: where a head is sure, deep; where it is not, wide."""
    params = SamplingParams(max_new_tokens=40, ignore_eos=True)
    shapes = []
    for adaptive in (True, False):
        _, got = _run(target, heads, params, adaptive=adaptive, budget=6)
        trees = [r.drafted.nodes for r in got.rounds if len(r.drafted.nodes) == 6]
        assert len(trees) > 10
        shapes.append({tuple(node.parent for node in tree) for tree in trees})
    assert len(shapes[0]) > 1 == len(shapes[1])


def test_heads_that_are_never_worth_it_are_asked_less_and_less(target: HFTarget, heads: str) -> None:
    made = create("medusa", target, {}, head=heads)
    assert isinstance(made, Medusa) and made.layer is not None
    asked: list[int] = []
    engine = Engine(target, pass_cost=lambda rows: float(rows))
    rounds = 0
    real = made.layer.candidates

    def candidates(*args: Any) -> Any:
        asked.append(rounds)
        return real(*args)

    made.layer.candidates = candidates  # type: ignore[method-assign]
    try:
        params = SamplingParams(max_new_tokens=40, ignore_eos=True)
        for event in engine.generate(REPEAT, made, params, raw=True):
            rounds += event.type == "verified"
    finally:
        made.layer.candidates = real  # type: ignore[method-assign]
    assert rounds == 40 and asked[:4] == [0, 2, 6, 14]


@pytest.mark.skipif(compiled.library() is None, reason="no AVX-512 VNNI or no compiler")
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_the_kernels_give_the_same_candidates(
    dtype: str, tiny_tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_model().bfloat16() if dtype == "bf16" else tiny_model()
    target = LeanTarget(model, tiny_tokenizer, name="tiny", dtype_name=dtype)
    folder = write_heads(tmp_path, target, list(range(32, 320)))  # type: ignore[arg-type]
    layer = places.medusa(target, folder)
    state = torch.randn(1, 64, generator=torch.Generator().manual_seed(7))
    quick = [layer.candidates(state, 3, 5, 0.7, least) for least in (0.0, 1.1)]
    assert layer._quick(state, 3, 5, 0.7, 0.0) is not None
    monkeypatch.setattr(layer, "_quick", lambda *args: None)
    plain = [layer.candidates(state, 3, 5, 0.7, least) for least in (0.0, 1.1)]
    for (ids, chances), (others, expected), heads in zip(quick, plain, (3, 1), strict=True):
        assert ids == others and len(ids) == heads
        torch.testing.assert_close(torch.tensor(chances), torch.tensor(expected), rtol=0.01, atol=1e-4)


def test_acceptance_is_counted_per_depth(target: HFTarget, heads: str) -> None:
    params = SamplingParams(max_new_tokens=40, ignore_eos=True)
    made, got = _run(target, heads, params, adaptive=False, budget=63, top_k=10)
    accepted = [sum(t.origin == "accepted" for t in r.verified.tokens) for r in got.rounds[:-1]]
    tested = made.depth_tested
    assert tested[0] >= len(got.rounds) - 2
    assert made.depth_accepted[0] >= sum(count >= 1 for count in accepted)
    assert all(a <= t for a, t in zip(made.depth_accepted, tested, strict=True))
    assert all(tested[d + 1] <= made.depth_accepted[d] for d in range(len(tested) - 1))


@pytest.mark.parametrize("processed", [False, True])
def test_the_distribution_is_that_of_plain_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processed: bool
) -> None:
    small = _model(1, 2)
    folder = write_heads(tmp_path, small, list(range(len(WORDS)))[1:])
    monkeypatch.setattr(places, "default_source", lambda model, method: folder)
    length = 3 if processed else 2
    params = _params(processed, length)
    want = enumerate_runs(small, "none", {}, small, params)
    got = enumerate_runs(small, "medusa", {"adaptive": False, "budget": 5}, small, params)
    assert max(abs(got.get(ids, 0.0) - want.get(ids, 0.0)) for ids in {*got, *want}) < EXACT
