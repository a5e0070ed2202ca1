"""Prompt lookup: which match, how long, as a tree; adaptive; cheap at any length of context."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import target_of
from hypothesis import given, settings
from hypothesis import strategies as st

from specdemo.drafters import Context, create
from specdemo.drafters.ngram import LOOK_BACK, NGram
from specdemo.drafters.none import EMPTY
from specdemo.errors import InputError
from specdemo.hf import HFTarget
from specdemo.proposal import Proposal
from specdemo.rows import TorchChooser
from specdemo.sampling import SamplingParams
from specdemo.verify import Verdict


@pytest.fixture(scope="module")
def target(tiny_llama: Any) -> HFTarget:
    return target_of(tiny_llama)


def context_of(prompt: list[int], output: list[int] | None = None, room: int = 16) -> Context:
    """Prompt lookup looks at ids alone: no model is needed."""
    nothing: Any = None
    chooser = TorchChooser(0)
    return Context(nothing, nothing, SamplingParams(), chooser, prompt, output or [], room=room)


def draft(ids: list[int], room: int = 16, **settings: Any) -> Proposal:
    return NGram(**{"adaptive": False, **settings}).propose(context_of(ids, room=room))


def test_the_longest_match_wins_over_a_more_recent_one() -> None:
    # 1 2 3 stood before 50; only 2 3 stood before 60, though more recently.
    ids = [1, 2, 3, 50, 51, 52, 9, 2, 3, 60, 61, 1, 2, 3]
    assert list(draft(ids, gamma=2).tokens) == [50, 51]


def test_the_most_recent_of_equal_matches_wins() -> None:
    assert list(draft([2, 3, 50, 7, 2, 3, 60, 7, 2, 3], gamma=1).tokens) == [60]


def test_matches_run_over_prompt_and_output() -> None:
    drafter = NGram(gamma=3, adaptive=False)
    context = context_of([5, 6, 7])
    assert len(drafter.propose(context)) == 0
    context.output += [8, 9, 6, 7]  # 6, 7 stood in the prompt, 8 and 9 were written
    assert list(drafter.propose(context).tokens) == [8, 9, 6]


def test_nothing_to_propose() -> None:
    assert len(draft([1, 2, 3, 4])) == 0
    assert len(draft([1])) == 0
    assert len(draft([1, 2, 9, 1], min_match=2)) == 0
    assert list(draft([1, 2, 9, 1], min_match=1, gamma=2).tokens) == [2, 9]
    assert len(draft([1, 2, 1, 2, 1, 2], room=0)) == 0


def test_a_match_that_runs_into_the_end_goes_on_periodically() -> None:
    assert list(draft([7, 1, 2, 1, 2], gamma=5).tokens) == [1, 2, 1, 2, 1]
    assert list(draft([4, 4, 4], gamma=4).tokens) == [4, 4, 4, 4]


def test_branches_share_their_beginnings() -> None:
    ids = [1, 2, 30, 40, 1, 2, 30, 41, 1, 2, 31, 42, 1, 2]
    tree = draft(ids, gamma=2, branches=3)
    paths = {tuple(tree.tokens[i] for i in tree.ancestors(n)) for n in range(len(tree))}
    assert paths == {(31,), (31, 42), (30,), (30, 41), (30, 40)}
    assert len(tree) == 5  # 30 once
    assert tree.tokens[0] == 31  # the most recent one is tested first


@settings(max_examples=80, deadline=None)
@given(
    ids=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    split=st.integers(0, 30),
    gamma=st.integers(1, 6),
    branches=st.integers(1, 4),
    min_match=st.integers(1, 3),
)
def test_against_a_naive_search(
    ids: list[int], split: int, gamma: int, branches: int, min_match: int
) -> None:
    """Fed step by step or at once, the first branch is what a plain search over all ids finds."""
    values = {"gamma": gamma, "branches": branches, "min_match": min_match, "adaptive": False}
    split = max(1, min(split, len(ids)))
    drafter, context = NGram(**values), context_of(ids[:split])
    drafter.propose(context)
    for token in ids[split:]:
        context.output.append(token)
        drafter.propose(context)
    stepwise, at_once = drafter.propose(context), draft(ids, **values)
    assert (list(stepwise.tokens), list(stepwise.parents)) == (
        list(at_once.tokens),
        list(at_once.parents),
    )
    want: list[int] = []
    for size in range(min(4, len(ids) - 1), min_match - 1, -1):
        starts = [e for e in range(size, len(ids)) if ids[e - size : e] == ids[-size:]]
        if starts:
            text = ids[starts[-1] :]
            want = [text[i % len(text)] for i in range(gamma)]
            break
    first = [n for n in range(len(at_once)) if n < gamma and at_once.parents[n] == n - 1]
    assert [at_once.tokens[n] for n in first[: len(want)]] == want
    assert len(at_once) <= gamma * branches


def verdict(path: tuple[int, ...], origin: Any, final: int = 0) -> Verdict:
    nothing: Any = None
    return Verdict(path, final, origin, (), nothing)


def test_adaptive_stops_after_failures_tries_again_and_recovers() -> None:
    """Where a row costs a third of a pass, drafts that fail are given up; the copy that is held back
    is compared with what comes, and proposed again when it would have been right."""
    drafter, context = NGram(gamma=8), context_of([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2])
    context.pass_cost = lambda rows: 1.0 + 0.3 * (rows - 1)

    def depth() -> int:
        return len(drafter.propose(context))

    assert depth() > 0
    for _ in range(10):
        drafter.observe(context, Proposal.chain([3]), verdict((), "corrected"))
    assert depth() == 0
    for _ in range(20):  # wrong all the same: nothing is proposed
        drafter.observe(context, EMPTY, verdict((), "target", 77))
        assert depth() == 0
    for _ in range(6):
        drafter.observe(context, EMPTY, verdict((), "target", 3))
        depth()
    assert depth() > 0
    for _ in range(10):
        drafter.observe(context, Proposal.chain([3, 4]), verdict((0, 1), "bonus"))
    assert depth() > 1  # and what succeeds is drafted deeper


def test_adaptive_on_free_rows_drafts_as_far_as_allowed() -> None:
    assert len(draft([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2], adaptive=True, gamma=6)) == 6


@pytest.mark.parametrize(
    "setting", [{"gamma": 0}, {"gamma": "x"}, {"gamma": 2.5}, {"branches": 9}, {"x": 1}], ids=str
)
def test_settings_are_checked(target: HFTarget, setting: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        create("ngram", target, setting)
    assert str(caught.value).endswith(".")


class Counting(dict[Any, Any]):
    """A dictionary that counts look-ups."""

    looked = 0

    def get(self, *arguments: Any) -> Any:
        self.looked += 1
        return super().get(*arguments)

    def setdefault(self, *arguments: Any) -> Any:
        self.looked += 1
        return super().setdefault(*arguments)


@pytest.mark.parametrize("branches", [1, 4])
@pytest.mark.parametrize("text", ["loop", "varied"])
def test_prompt_lookup_is_cheap_at_8k_tokens(target: HFTarget, branches: int, text: str) -> None:
    """A round costs a few look-ups and copies, whatever the length of the context, loops included."""
    generator = torch.Generator().manual_seed(0)
    varied = torch.randint(300, (8192,), generator=generator).tolist()
    prompt = [5, 6] * 4096 if text == "loop" else varied
    drafter = NGram(branches=branches, adaptive=False)
    drafter._places = Counting()
    copies = 0
    copy = drafter._copy

    def counted(*arguments: int) -> list[int]:
        nonlocal copies
        copies += 1
        return copy(*arguments)

    drafter._copy = counted  # type: ignore[method-assign]
    context = Context(target, target.open(1), SamplingParams(), TorchChooser(0), prompt, room=16)
    drafter.propose(context)
    drafter._places.looked = copies = 0
    for token in prompt[:6]:
        context.output.append(token)
        drafter.propose(context)
    assert drafter._places.looked <= 6 * 8  # per round: four sizes entered, four looked up
    assert copies <= 6 * 4 * LOOK_BACK  # of thousands of matches in the loop
