"""``auto``: takes the copy where text repeats, the head elsewhere, nothing where nothing pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import REPEAT, run, target_of
from test_eagle3 import write_head

from specdemo.drafters import create
from specdemo.drafters import trained as places
from specdemo.drafters.adaptive import RunningRate
from specdemo.drafters.auto import Auto, Yield
from specdemo.drafters.eagle3 import Eagle3
from specdemo.drafters.ngram import NGram
from specdemo.drafters.tree import Tree
from specdemo.engine import Engine
from specdemo.hf import HFTarget
from specdemo.proposal import ROOT
from specdemo.run import Run
from specdemo.sampling import SamplingParams

PARAMS = SamplingParams(max_new_tokens=40, ignore_eos=True)


@pytest.fixture(scope="module")
def target(tiny_llama: Any) -> HFTarget:
    return target_of(tiny_llama)


@pytest.fixture(scope="module")
def head(target: HFTarget, tmp_path_factory: pytest.TempPathFactory) -> str:
    ids = list(range(32, target.shape.vocab))
    return str(write_head(tmp_path_factory.mktemp("head"), target, ids, (1, 2, 3)))


def _run(target: HFTarget, made: Auto, prompt: str = REPEAT, params: SamplingParams = PARAMS) -> Run:
    return Run.of(Engine(target).generate(prompt, made, params, raw=True))


def _made(target: HFTarget, head: str = "", **settings: Any) -> Auto:
    made = create("auto", target, settings, head=head)
    assert isinstance(made, Auto)
    return made


def _cheap(made: Auto) -> Auto:
    """As on a device where a draft step costs next to nothing."""
    assert made.eagle3
    made.eagle3.step_cost = 0.01
    return made


@pytest.mark.parametrize("prompt", [REPEAT, "Nothing here comes twice: 你好"])
def test_greedy_output_is_that_of_plain_decoding(target: HFTarget, head: str, prompt: str) -> None:
    plain = run(target, "none", prompt, params=PARAMS, raw=True)
    for made in (_cheap(_made(target, head)), _made(target, head), _made(target)):
        assert _run(target, made, prompt).finished.token_ids == plain.finished.token_ids


def test_both_kinds_of_draft_are_used_and_named(target: HFTarget, head: str) -> None:
    got = _run(target, _cheap(_made(target, head)))
    sources = [one.drafted.source for one in got.rounds if one.drafted.nodes]
    assert "eagle3" in sources and {"ngram", "ngram+eagle3"} & set(sources)
    assert {one.drafted.source for one in got.rounds if not one.drafted.nodes} <= {""}


def test_a_head_that_costs_too_much_is_not_asked_for_long(target: HFTarget, head: str) -> None:
    made = _made(target, head)
    assert made.eagle3
    made.eagle3.step_cost = 30.0
    got = _run(target, made, "Nothing here comes twice: 你好")
    steps = sum(one.drafted.source == "eagle3" for one in got.rounds)
    assert steps < len(got.rounds) / 2


def test_rounds_drafted_by_copying_leave_the_head_in_step(target: HFTarget, head: str) -> None:
    """After rounds in which only the copy was asked, the head drafts what it would have drafted
    alone: its cache has taken up the states of every round."""
    made = _cheap(_made(target, head))
    drafts: dict[int, tuple[int, ...]] = {}
    alone: dict[int, tuple[int, ...]] = {}

    def watch(drafter: Eagle3, store: dict[int, tuple[int, ...]]) -> None:
        original = drafter.grow

        def grow(context: Any) -> Any:
            growth = drafter.growth
            growth.offered = growth.taken = 4.0  # trust depends on what each was asked for
            tree = original(context)
            store[context.length] = tuple(tree.tokens)
            return tree

        drafter.grow = grow  # type: ignore[method-assign]

    assert made.eagle3
    watch(made.eagle3, drafts)
    _run(target, made)
    other = create("eagle3", target, {"budget": 15, "depth": 5}, head=head)
    assert isinstance(other, Eagle3)
    other.step_cost = 0.01
    watch(other, alone)
    Run.of(Engine(target).generate(REPEAT, other, PARAMS, raw=True))
    common = sorted(set(drafts) & set(alone))
    late = [place for place in common if drafts[place]]
    assert late and all(drafts[place] == alone[place] for place in common)


def test_without_a_head_it_is_prompt_lookup(target: HFTarget) -> None:
    made = _made(target)
    assert made.eagle3 is None and made.hidden_layers == ()
    got = _run(target, made)
    assert {one.drafted.source for one in got.rounds} <= {"ngram", ""}


def test_the_embedded_model_gets_its_shipped_head() -> None:
    folder = Path(places.default_source("smollm2-135m", "eagle3"))
    assert (folder / "model.safetensors").is_file() and (folder / "README.md").is_file()


def test_a_yield_goes_back_to_what_was_expected() -> None:
    prior, seen = Yield(1.5, 1.2), Yield(1.5, 1.2)
    for _ in range(60):
        seen.update(1.0, 1.6)
    assert seen.speed < 0.65
    for _ in range(40):
        seen.forget(prior)
    assert seen.speed > 1.0  # and so the head is asked again


def test_a_copy_and_a_tree_are_verified_together() -> None:
    tree = Tree()
    tree.add(ROOT, [(5, 0.6), (7, 0.2)])
    tree.add(0, [(8, 0.5)])
    path = tree.add_path([7, 9, 9], [0.5, 0.25, 0.125])
    assert path == [1, 3, 4]  # the copy's first token was a node already
    assert tree.scores[1] == 0.5 and tree.tokens[3:] == [9, 9] and tree.depths[3:] == [2, 3]
    best = tree.best(4)
    assert best == [0, 1, 2, 3]
    proposal = tree.proposal(best)
    assert list(proposal.tokens) == [5, 7, 8, 9] and list(proposal.parents) == [-1, -1, 0, 1]


def test_a_copy_that_was_not_drafted_is_judged_all_the_same() -> None:
    drafter = NGram(adaptive=False)
    before = drafter.rate()
    drafter.compare([1, 2, 3], [1, 2])  # nothing contradicts it
    better = drafter.rate()
    drafter.compare([1, 2, 3], [9])
    assert better > before > 0.0 and drafter.rate() < better
    drafter.compare([], [4])


def test_rounds_name_both_sources_where_both_are_drafted(target: HFTarget, head: str) -> None:
    made = _cheap(_made(target, head))
    sizes = [(size, disputed) for size in range(1, 9) for disputed in (False, True)]
    made.ngram._rates = {size: RunningRate(0.4) for size in sizes}  # a copy that may be wrong
    got = _run(target, made)
    first = got.rounds[0].drafted
    assert first.source == "ngram+eagle3"
    assert sum(node.parent == ROOT for node in first.nodes) > 1  # the copy is not the only branch
    plain = run(target, "none", params=PARAMS, raw=True)
    assert got.finished.token_ids == plain.finished.token_ids
