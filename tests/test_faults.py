"""Twenty faults that other speculative decoders had, first half: ends of a run, and which q and p.

Each docstring names the fault and the handling without which the test fails. A scripted drafter that
knows the answer makes long accepted runs, so that an end lies in the middle of one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import REPEAT, run, target_of
from scripted import Scripted, ids_of, oracle, play
from transformers import LlamaConfig, LlamaForCausalLM

from specdemo.drafters import create
from specdemo.hf import HFTarget
from specdemo.proposal import Proposal
from specdemo.rows import TorchChooser
from specdemo.sampling import SamplingParams, probabilities
from specdemo.verify import Typical

LENGTH = 14


@pytest.fixture(scope="module")
def target(tiny_llama: Any) -> HFTarget:
    return target_of(tiny_llama)


@pytest.fixture(scope="module")
def draft(tiny_tokenizer: Any) -> HFTarget:
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer) + 20,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=256,
        initializer_range=0.25,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(12)
        return target_of((LlamaForCausalLM(config).eval(), tiny_tokenizer), "draft")


@pytest.fixture(scope="module")
def future(target: HFTarget) -> list[int]:
    """Greedy continuation of ``REPEAT``, run past the model's own end token."""
    return ids_of(play(target, max_new_tokens=LENGTH + 12, ignore_eos=True))


@pytest.fixture
def ending(tiny_llama: Any, future: list[int]) -> tuple[HFTarget, int]:
    """The target with an end token that lies in the middle of the answer, and the place of it."""
    place = next(i for i in range(4, 12) if future.index(future[i]) == i)
    other = target_of(tiny_llama)
    other.eos_ids = frozenset({future[place]})
    return other, place


def test_01_output_past_eos_accepted_mid_run(ending: tuple[HFTarget, int], future: list[int]) -> None:
    """``Output`` looks at every token of a run, not at its last one only."""
    target, place = ending
    got = play(target, oracle(future, 16), max_new_tokens=24)
    assert ids_of(got) == future[: place + 1]
    assert got.finished.reason == "eos"
    assert len(got.rounds) == 1  # it did lie inside one accepted run


def test_02_eos_in_a_run_over_counts_accepted(ending: tuple[HFTarget, int], future: list[int]) -> None:
    """Verdicts behind the end become "not judged", so that alpha and tau do not count them; a draft
    refused behind the end does not count either."""
    target, place = ending
    for script in (future[:12], [*future[: place + 1], *[future[place + 1] ^ 1] * 3]):
        got = play(target, Scripted(lambda context, s=script: Proposal.chain(s)), max_new_tokens=24)
        summary = got.finished.summary
        assert (summary["accepted"], summary["rejected"]) == (place + 1, 0)
        assert summary["mean_accepted_length"] == place + 1
        judged = [v.judgement for v in got.rounds[0].verified.verdicts]
        assert judged == ["accepted"] * (place + 1) + ["not_judged"] * (len(script) - place - 1)


def _stop_inside(target: HFTarget, future: list[int]) -> tuple[str, str]:
    """A stop text that begins inside one token of the answer and ends in the next, and the text in
    front of it."""
    tokens = play(target, max_new_tokens=LENGTH, ignore_eos=True).tokens
    text = "".join(token.text for token in tokens)
    for index in range(2, len(tokens) - 3):
        stop = tokens[index].text[1:] + tokens[index + 1].text[:1]
        before = "".join(token.text for token in tokens[:index]) + tokens[index].text[:1]
        if len(tokens[index].text) > 1 and tokens[index + 1].text and text.index(stop) == len(before):
            return stop, before
    raise AssertionError("no unique text to stop at")


def test_03_stop_text_early_in_a_run_missed(target: HFTarget, future: list[int]) -> None:
    """The stop text is looked for token by token; text behind it in the same run never appears."""
    stop, before = _stop_inside(target, future)
    for drafter in (None, oracle(future, 12)):
        got = play(target, drafter, max_new_tokens=LENGTH, ignore_eos=True, stop=(stop,))
        assert got.finished.text == before
        assert got.finished.reason == "stop"


def test_04_text_trimmed_but_ids_not(target: HFTarget, future: list[int]) -> None:
    """``Output`` cuts ids with the text, and events held back are cut before they leave: tokens, ids
    and text of a run say the same, whatever was drafted and in how many rounds it came."""
    stop, before = _stop_inside(target, future)
    for drafter in (None, oracle(future, 12), oracle(future, 1), oracle(future, 2)):
        got = play(target, drafter, max_new_tokens=LENGTH, ignore_eos=True, stop=(stop,))
        assert [token.id for token in got.tokens] == ids_of(got)
        assert got.text == got.finished.text == before
        assert ids_of(got) == future[: len(ids_of(got))]
        for count, reaches in ((0, True), (1, False)):  # all its ids reach the end, one less does not
            ids = ids_of(got)[: len(got.tokens) - count]
            whole = target.tokenizer.decode(ids).replace("\ufffd", "")
            assert whole.startswith(before) == reaches
        assert got.finished.summary["tokens"] == len(ids_of(got))


def test_05_length_cap_masks_an_earlier_stop(
    ending: tuple[HFTarget, int], target: HFTarget, future: list[int]
) -> None:
    """The earliest end wins: an end in a run that also reaches ``max_new_tokens`` is named."""
    other, place = ending
    for drafter in (None, oracle(future, 16, mind_room=False)):
        got = play(other, drafter, max_new_tokens=place + 1)
        assert got.finished.reason == "eos"
    stop, before = _stop_inside(target, future)
    whole = ids_of(play(target, stop=(stop,), max_new_tokens=LENGTH, ignore_eos=True))
    got = play(target, oracle(future, 16), stop=(stop,), max_new_tokens=len(whole) + 2, ignore_eos=True)
    assert (got.finished.reason, got.finished.text) == ("stop", before)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 10])
@pytest.mark.parametrize("mind_room", [True, False])
def test_06_max_tokens_over_or_under_delivered(
    target: HFTarget, future: list[int], count: int, mind_room: bool
) -> None:
    """A run is cut at the limit even when a drafter proposes past it; nothing is held back."""
    got = play(target, oracle(future, 8, mind_room), max_new_tokens=count, ignore_eos=True)
    assert ids_of(got) == future[:count]
    assert [token.id for token in got.tokens] == future[:count]
    assert got.finished.reason == "length"


def _watched(
    name: str, target: HFTarget, draft: HFTarget, **settings: Any
) -> tuple[Any, list[Proposal]]:
    made, seen = create(name, target, settings, draft=draft), list[Proposal]()
    propose = made.propose

    def watch(context: Any) -> Proposal:
        seen.append(propose(context))
        return seen[-1]

    made.propose = watch  # type: ignore[method-assign]
    return made, seen


@pytest.mark.parametrize("name", ["draft_model", "early_exit"])
def test_07_q_is_not_what_the_draft_was_sampled_from(
    target: HFTarget, draft: HFTarget, name: str
) -> None:
    """Drafters sample from ``context.distributions`` and hand over those very rows: q after
    temperature, top-k and penalties, not the raw softmax."""
    params = {"temperature": 1.5, "top_k": 3, "presence_penalty": 0.5, "seed": 2}
    made, seen = _watched(name, target, draft)
    play(target, made, max_new_tokens=8, ignore_eos=True, **params)
    rows = torch.cat([proposal.q for proposal in seen if proposal.q is not None])
    assert len(rows) >= 4
    assert int((rows > 0).sum(-1).max()) <= 3
    torch.testing.assert_close(rows.sum(-1), torch.ones(len(rows)))
    assert all(float(p.q[i][t]) > 0 for p in seen if p.q is not None for i, t in enumerate(p.tokens))
    # Recomputed from the bare draft model for the first token of the first round.
    model = draft.model if name == "draft_model" else target.shallow(made.layers)
    ids = torch.tensor([target.tokenizer.encode(REPEAT)])
    with torch.no_grad():
        logits = model(ids).logits[0, -1:, : len(target.tokenizer)]
    want = probabilities(logits, SamplingParams(temperature=1.5, top_k=3))
    torch.testing.assert_close(seen[0].q[:1, : len(target.tokenizer)], want, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["draft_model", "early_exit", "ngram"])
def test_08_greedy_draft_judged_with_a_softmax_q(target: HFTarget, draft: HFTarget, name: str) -> None:
    """A deterministic draft has q None (one-hot): greedy drafts, and prompt lookup always."""
    temperatures = (0.0, 0.8) if name == "ngram" else (0.0,)
    for temperature in temperatures:
        made, seen = _watched(name, target, draft)
        got = play(target, made, max_new_tokens=8, ignore_eos=True, temperature=temperature)
        assert any(len(proposal) for proposal in seen)
        assert all(proposal.q is None for proposal in seen)
        assert all(node.q is None for one in got.rounds for node in one.drafted.nodes)


class Logging(TorchChooser):
    """The real chooser; remembers its uniform numbers."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.log: list[float] = []

    def uniform(self) -> float:
        self.log.append(super().uniform())
        return self.log[-1]


def test_09_draft_and_recovery_share_random_noise(target: HFTarget, draft: HFTarget) -> None:
    """One generator a run, drawn from in turn: no number serves twice."""
    chooser = Logging(7)
    made, seen = _watched("draft_model", target, draft)
    got = play(target, made, max_new_tokens=12, ignore_eos=True, temperature=1.0, chooser=chooser)
    fresh = TorchChooser(7)
    assert chooser.log == [fresh.uniform() for _ in chooser.log]
    assert len(set(chooser.log)) == len(chooser.log)
    drafted = sum(len(proposal) for proposal in seen)
    draws = [v.draw for one in got.rounds for v in one.verified.verdicts if v.draw is not None]
    assert set(draws) <= set(chooser.log)
    assert len(chooser.log) == drafted + len(draws) + len(got.rounds)


def test_10_penalties_ignored_in_verification(target: HFTarget, future: list[int]) -> None:
    """Verification judges by penalised rows: a draft of the unpenalised answer does not get through.
    The lossy rule sees the penalties too."""
    penalty = {"repetition_penalty": 1.6, "presence_penalty": 1.0}
    options: dict[str, Any] = {"max_new_tokens": LENGTH, "ignore_eos": True, **penalty}
    want = ids_of(play(target, **options))
    assert want != future[:LENGTH]
    assert ids_of(play(target, oracle(future), **options)) == want
    assert ids_of(play(target, rule=Typical(), **options)) == want


def test_the_general_drafters_share_these_ends(ending: tuple[HFTarget, int], draft: HFTarget) -> None:
    """Faults 1, 2 and 6 through the drafters of the registry."""
    target, place = ending
    for name in ("none", "ngram", "draft_model", "early_exit"):
        got = run(target, name, draft=draft, params=SamplingParams(max_new_tokens=24), raw=True)
        assert len(got.tokens) == place + 1
        assert got.finished.reason == "eos"
        taken = sum(token.origin == "accepted" for token in got.tokens)
        assert got.finished.summary["accepted"] == taken
