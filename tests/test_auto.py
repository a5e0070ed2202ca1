"""``auto``: takes the copy where text repeats, the head elsewhere, nothing where nothing pays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers import REPEAT, run, target_of
from test_eagle3 import write_head

from specdemo.drafters import create
from specdemo.drafters import trained as places
from specdemo.drafters.auto import Auto, Yield
from specdemo.drafters.eagle3 import Eagle3
from specdemo.engine import Engine
from specdemo.hf import HFTarget
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
    assert set(sources) == {"ngram", "eagle3"}
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
        original = drafter._tree

        def tree(context: Any, depth: int) -> Any:
            drafter._offered = drafter._taken = 4.0  # trust depends on what each was asked for
            proposal = original(context, depth)
            store[context.length] = tuple(proposal.tokens)
            return proposal

        drafter._tree = tree  # type: ignore[method-assign]

    assert made.eagle3
    watch(made.eagle3, drafts)
    _run(target, made)
    other = create("eagle3", target, {"budget": 15, "depth": 4}, head=head)
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
