"""The EAGLE-3 drafter: trees, chains, its cache, and the exact distribution of what comes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import REPEAT, run, target_of
from test_engine_exact import EXACT, WORDS, Runs, _model, _params, enumerate_runs

from specdemo.drafters import Context, create
from specdemo.drafters import trained as places
from specdemo.drafters.eagle3 import Eagle3
from specdemo.drafters.tree import Tree, best_size, sparse_tree
from specdemo.engine import Engine
from specdemo.errors import InputError
from specdemo.hf import HFTarget
from specdemo.proposal import ROOT
from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.train import publish
from specdemo.train.eagle3_model import Eagle3 as Module
from specdemo.train.eagle3_model import HeadSizes


def write_head(folder: Path, target: HFTarget, draft_ids: list[int], layers: tuple[int, ...]) -> Path:
    """A random head that fits ``target``, over the given ids."""
    size = target.shape.hidden
    sizes = HeadSizes(size, size, 2, 1, size // 2, 2 * size, target.shape.vocab, len(draft_ids), layers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = Module(sizes)
        for parameter in module.parameters():
            parameter.data.mul_(3.0)  # a confident head: its choices must not be all alike
    ids = torch.tensor(draft_ids)
    tensors = {name: value.detach() for name, value in module.state_dict().items()}
    tensors["d2t"] = ids - torch.arange(len(ids))
    publish.eagle3(folder, tensors, sizes, target.name, dtype=torch.float32)
    return folder


@pytest.fixture(scope="module")
def target(tiny_llama: Any) -> HFTarget:
    return target_of(tiny_llama)


@pytest.fixture(scope="module")
def head(target: HFTarget, tmp_path_factory: pytest.TempPathFactory) -> str:
    ids = [*range(32, 127), *range(260, target.shape.vocab)]
    return str(write_head(tmp_path_factory.mktemp("head"), target, ids, (1, 2, 3)))


def _run(
    target: HFTarget, head: str, params: SamplingParams, name: str = "eagle3", **settings: Any
) -> Run:
    made = create(name, target, settings, head=head)
    return Run.of(Engine(target).generate(REPEAT, made, params, raw=True))


SETTINGS: list[dict[str, Any]] = [
    {},
    {"adaptive": False},
    {"adaptive": False, "budget": 40, "top_k": 8, "depth": 5},
    {"adaptive": False, "budget": 1, "top_k": 1, "depth": 1},
    {"chain": True},
    {"chain": True, "depth": 1},
    {"adaptive": False, "confidence": 0.05},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("penalty", [{}, {"repetition_penalty": 1.2}], ids=["plain", "penalised"])
def test_greedy_output_is_that_of_plain_decoding(
    target: HFTarget, head: str, settings: dict[str, Any], penalty: dict[str, float]
) -> None:
    params = SamplingParams(max_new_tokens=30, ignore_eos=True, **penalty)
    plain = run(target, "none", REPEAT, params=params, raw=True)
    drafted = _run(target, head, params, **settings)
    assert drafted.finished.token_ids == plain.finished.token_ids


@pytest.mark.parametrize("settings", [{"adaptive": False, "budget": 30}, {"chain": True}], ids=str)
def test_same_seed_same_run(target: HFTarget, head: str, settings: dict[str, Any]) -> None:
    def ids(seed: int) -> tuple[int, ...]:
        params = SamplingParams(max_new_tokens=24, temperature=0.9, seed=seed, ignore_eos=True)
        return _run(target, head, params, **settings).finished.token_ids

    assert ids(3) == ids(3) != ids(4)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_exactly_as_many_tokens_as_wanted(target: HFTarget, head: str, count: int) -> None:
    params = SamplingParams(max_new_tokens=count, ignore_eos=True)
    got = _run(target, head, params, adaptive=False, budget=30)
    assert len(got.finished.token_ids) == count
    deepest = max((_depth(r.drafted.nodes, i) for r in got.rounds for i in range(len(r.drafted.nodes))),
                  default=0)  # fmt: skip
    assert deepest <= count - 1  # a draft deeper than what is still wanted is wasted


def _depth(nodes: Any, index: int) -> int:
    return 1 if nodes[index].parent == ROOT else 1 + _depth(nodes, nodes[index].parent)


class _Watch(Eagle3):
    """Remembers, before every draft, the rows of true states in the cache and the last output."""

    seen: list[tuple[list[int], torch.Tensor, torch.Tensor]]

    def _ready(self, context: Context) -> bool:
        ready = super()._ready(context)
        if ready:
            steps = self._steps
            assert steps is not None and steps.output is not None
            keys = steps.cache.keys[:, : steps.rows].clone()
            self.seen.append((context.ids, keys, steps.output.clone()))
        return ready


def test_rows_of_true_states_are_redone_after_every_round(target: HFTarget, head: str) -> None:
    """The cache holds, for every committed position, what the head computes from the target's own
    states there: as if the whole text had been its prompt. Draft rows leave no trace."""
    layer = places.eagle3(target, head)
    watch = _Watch(depth=4, budget=60, top_k=10, adaptive=False, layer=layer)
    watch.seen = []
    params = SamplingParams(max_new_tokens=40, ignore_eos=True)
    folded = Run.of(Engine(target).generate(REPEAT, watch, params, raw=True))
    accepted = [sum(t.origin == "accepted" for t in r.verified.tokens) for r in folded.rounds]
    assert sum(accepted) > 0  # otherwise nothing was there to be redone
    assert len(watch.seen) > 8
    for ids, keys, output in watch.seen[:: max(1, len(watch.seen) // 8)]:
        fresh = _Watch(adaptive=False, layer=layer)
        fresh.seen = []
        session = target.open(len(ids) + 100, fresh.hidden_layers)
        session.prefill(ids[:-1])
        context = Context(target, session, params, None, ids, room=4)  # type: ignore[arg-type]
        fresh.start(context)
        fresh.propose(context)
        torch.testing.assert_close(keys, fresh.seen[0][1], rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(output, fresh.seen[0][2], rtol=1e-3, atol=1e-3)


def test_a_tree_has_distinct_siblings_in_falling_order(target: HFTarget, head: str) -> None:
    params = SamplingParams(max_new_tokens=12, ignore_eos=True)
    got = _run(target, head, params, adaptive=False, budget=25, top_k=5)
    for one in got.rounds[:-4]:
        nodes = one.drafted.nodes
        assert len(nodes) == 25
        by_parent: dict[int, list[int]] = {}
        for node in nodes:
            by_parent.setdefault(node.parent, []).append(node.id)
        assert all(len(set(ids)) == len(ids) <= 5 for ids in by_parent.values())
        assert all(node.q is None for node in nodes)


def test_a_sampled_chain_carries_the_q_it_was_drawn_from(target: HFTarget, head: str) -> None:
    params = SamplingParams(max_new_tokens=12, temperature=1.0, ignore_eos=True)
    got = _run(target, head, params, chain=True, depth=3)
    drawn = [node for one in got.rounds for node in one.drafted.nodes]
    assert drawn and all(node.q is not None and 0.0 < node.q <= 1.0 for node in drawn)


# The whole engine, enumerated, on a model of five words in double precision.

CASES = [
    ({"adaptive": False, "budget": 5, "top_k": 3, "depth": 2}, False, 2),
    ({"adaptive": False, "budget": 6, "top_k": 3, "depth": 2}, True, 3),
    ({"adaptive": True, "budget": 4, "depth": 2}, True, 3),
    ({"chain": True, "depth": 2}, False, 2),
    ({"chain": True, "depth": 2}, True, 3),
    ({"chain": True, "depth": 2, "confidence": 0.4}, True, 3),
]


@pytest.fixture(scope="module")
def small() -> HFTarget:
    return _model(1, 2)


@pytest.mark.parametrize(("settings", "processed", "length"), CASES, ids=str)
def test_the_distribution_is_that_of_plain_decoding(
    small: HFTarget,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    processed: bool,
    length: int,
) -> None:
    """The draft vocabulary lacks a word: what it cannot propose must come from the residual."""
    folder = write_head(tmp_path, small, list(range(len(WORDS)))[1:], (0, 1, 2))
    monkeypatch.setattr(places, "default_source", lambda model, method: str(folder))
    params = _params(processed, length)
    want: Runs = enumerate_runs(small, "none", {}, small, params)
    got: Runs = enumerate_runs(small, "eagle3", settings, small, params)
    assert max(abs(got.get(ids, 0.0) - want.get(ids, 0.0)) for ids in {*got, *want}) < EXACT


def test_a_missing_shipped_head_is_one_sentence(
    target: HFTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "HEADS_FOLDER", tmp_path)
    with pytest.raises(InputError, match=r"missing from assets/heads") as raised:
        places.default_source("smollm2-135m", "eagle3")
    assert raised.value.key == "needs"


def test_a_head_for_another_target_is_refused(small: HFTarget, head: str) -> None:
    with pytest.raises(InputError, match="a hidden size of 64, not 8"):
        create("eagle3", small, head=head)


def test_growing_a_tree() -> None:
    tree = Tree()
    tree.add(ROOT, [(7, 0.6), (8, 0.3)])
    assert tree.frontier(budget=2, width=4, depth=3) == [0, 1]
    tree.add(0, [(9, 0.9), (5, 0.1)])
    assert tree.best(3) == [0, 2, 1]
    assert tree.frontier(budget=3, width=4, depth=2) == [1]  # node 2 is as deep as allowed
    assert tree.frontier(budget=2, width=4, depth=3) == [2]  # node 1 has left the best two
    proposal = tree.proposal(tree.best(3))
    assert list(proposal.tokens) == [7, 8, 9] and list(proposal.parents) == [ROOT, ROOT, 0]
    assert tree.ancestors(2) == [0, 2]


def test_the_size_of_a_tree_follows_the_cost_of_a_pass() -> None:
    scores = [0.6, 0.5, 0.2, 0.1]
    assert best_size(scores, lambda rows: 1.0) == 4  # free rows: all of them
    assert best_size(scores, lambda rows: 1.0 if rows <= 3 else 3.0) == 2
    assert best_size(scores, lambda rows: float(rows)) == 0  # every row at full price: none


def test_a_sparse_tree_takes_the_likeliest_paths() -> None:
    rates = [[0.5, 0.2, 0.1], [0.4, 0.1], [0.3]]
    paths = sparse_tree(rates, 6)
    scores = {
        (0,): 0.5, (1,): 0.2, (0, 0): 0.2, (2,): 0.1, (1, 0): 0.08, (0, 0, 0): 0.06,
        (0, 1): 0.05, (2, 0): 0.04,
    }  # fmt: skip
    assert len(set(paths)) == 6
    assert sum(scores[path] for path in paths) == pytest.approx(sum(sorted(scores.values())[-6:]))
    assert all(path[:-1] in paths or len(path) == 1 for path in paths)
    assert sparse_tree(rates, 50)[-1] and len(sparse_tree(rates, 50)) == 3 + 6 + 6
    assert sparse_tree([], 5) == []


def test_the_published_config_names_what_the_head_needs(head: str) -> None:
    config = json.loads((Path(head) / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert config["eagle_aux_hidden_state_layer_ids"] == [1, 2, 3]
