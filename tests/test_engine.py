"""The round loop: how a run ends from outside, what it frees, what it says of itself."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from helpers import REPEAT, target_of
from scripted import Scripted, ids_of, oracle, play

from specdemo.drafters.none import NoDraft
from specdemo.engine import Engine, out_of_memory
from specdemo.errors import InputError
from specdemo.events import Drafted, Event, Finished, Started, Verified
from specdemo.hf import HFTarget
from specdemo.proposal import Proposal
from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.verify import Typical


@pytest.fixture
def target(tiny_llama: Any) -> HFTarget:
    return target_of(tiny_llama)


@pytest.fixture
def sessions(target: HFTarget) -> list[Any]:
    """Every session the target opens, watched."""
    opened: list[Any] = []
    open_ = target.open

    def watched(*arguments: Any) -> Any:
        opened.append(open_(*arguments))
        return opened[-1]

    target.open = watched  # type: ignore[method-assign]
    return opened


def generate(target: HFTarget, drafter: Any, prompt: str = REPEAT, **options: Any) -> Iterator[Event]:
    params = SamplingParams(max_new_tokens=12, ignore_eos=True)
    return Engine(target).generate(prompt, drafter, params, raw=True, **options)


def test_order_of_events(target: HFTarget) -> None:
    events = list(generate(target, NoDraft()))
    assert isinstance(events[0], Started)
    assert isinstance(events[-1], Finished)
    for drafted, verified in zip(events[1:-1:2], events[2:-1:2], strict=True):
        assert isinstance(drafted, Drafted)
        assert isinstance(verified, Verified)
        assert drafted.round == verified.round
    started = events[0]
    assert (started.model, started.drafter, started.prompt) == ("tiny", "none", REPEAT)
    assert started.prompt_tokens == len(target.tokenizer.encode(REPEAT))
    assert (started.device, started.dtype, started.lossless) == ("cpu", "fp32", True)
    assert [v.round for v in events[2:-1:2]] == list(range(12))  # type: ignore[union-attr]


def test_cancel_ends_the_run_between_rounds(target: HFTarget, sessions: list[Any]) -> None:
    cancel, drafter = threading.Event(), Scripted()
    events: list[Event] = []
    for event in generate(target, drafter, cancel=cancel):
        events.append(event)
        if isinstance(event, Verified) and event.round == 2:
            cancel.set()
    run = Run.of(events)
    assert run.finished is not None
    assert run.finished.reason == "cancelled"
    assert len(run.tokens) == len(run.finished.token_ids) == 3
    assert run.text == run.finished.text
    assert drafter.closed == 1
    assert sessions[0].cache.layers == []


def test_cancel_before_the_first_round(target: HFTarget) -> None:
    cancel = threading.Event()
    cancel.set()
    run = Run.of(generate(target, NoDraft(), cancel=cancel))
    assert run.finished is not None
    assert (run.finished.reason, run.finished.token_ids, run.finished.text) == ("cancelled", (), "")
    assert run.finished.summary["mean_accepted_length"] is None


def test_cancel_shows_what_was_held_back(target: HFTarget) -> None:
    """Tokens that might have become a stop text leave once it is certain that they will not."""
    first = play(target, max_new_tokens=1, ignore_eos=True).text
    cancel, events = threading.Event(), list[Event]()
    params = SamplingParams(max_new_tokens=5, ignore_eos=True, stop=(first + "\u0007never",))
    drafter = Scripted(lambda context: cancel.set() or Proposal())  # type: ignore[func-returns-value]
    events = list(Engine(target).generate(REPEAT, drafter, params, raw=True, cancel=cancel))
    run = Run.of(events)
    assert run.finished is not None
    assert run.text == run.finished.text == first
    assert len(run.tokens) == 1


def test_a_closed_generator_frees_cache_and_drafter(target: HFTarget, sessions: list[Any]) -> None:
    drafter = Scripted()
    running = generate(target, drafter)
    for _ in range(4):
        next(running)
    rows = weakref.ref(sessions[0].cache.layers[0].keys)
    assert rows() is not None
    running.close()  # type: ignore[attr-defined]
    gc.collect()
    assert drafter.closed == 1
    assert rows() is None


def test_a_failing_drafter_is_closed_and_its_error_seen(target: HFTarget, sessions: list[Any]) -> None:
    def fail(context: Any) -> Proposal:
        raise RuntimeError("a bug")

    drafter = Scripted(fail)
    with pytest.raises(RuntimeError, match="a bug"):
        list(generate(target, drafter))
    assert drafter.closed == 1
    assert sessions[0].cache.layers == []


def test_no_memory_is_one_sentence_and_the_engine_goes_on(target: HFTarget, sessions: list[Any]) -> None:
    """The allocator's own error: more memory is asked for than any machine has."""
    engine, greedy = Engine(target), SamplingParams(max_new_tokens=4, ignore_eos=True)

    def huge(context: Any) -> Proposal:
        torch.empty(2**58, dtype=torch.uint8)
        return Proposal()

    drafter = Scripted(huge)
    with pytest.raises(InputError) as caught:
        list(engine.generate(REPEAT, drafter, greedy, raw=True))
    assert caught.value.key == "no_memory"
    assert "\n" not in str(caught.value)
    assert drafter.closed == 1
    assert sessions[0].cache.layers == []
    assert len(Run.of(engine.generate(REPEAT, NoDraft(), greedy, raw=True)).tokens) == 4


def test_what_counts_as_no_memory() -> None:
    assert out_of_memory(MemoryError())
    assert out_of_memory(torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert not out_of_memory(RuntimeError("shapes cannot be multiplied"))


def test_bad_prompts_are_refused_before_anything_is_opened(
    target: HFTarget, sessions: list[Any]
) -> None:
    for prompt in ("", "a\x00", "~" * 600):
        with pytest.raises(InputError):
            list(generate(target, NoDraft(), prompt))
    assert sessions == []


def test_a_lossy_rule_says_so(target: HFTarget) -> None:
    started, *_, finished = generate(target, NoDraft(), rule=Typical(epsilon=0.2))
    assert isinstance(started, Started)
    assert isinstance(finished, Finished)
    assert not started.lossless
    assert started.settings["acceptance"] == "typical"
    assert started.settings["epsilon"] == 0.2
    drift = finished.summary["drift"]
    assert drift["tokens"] == 12
    assert drift["different"] == 0 and drift["mean_kl"] == 0.0  # nothing was drafted, nothing strayed
    started, *_, finished = generate(target, NoDraft())
    assert started.settings["acceptance"] == "exact"  # type: ignore[union-attr]
    assert "drift" not in finished.summary  # type: ignore[union-attr]


def test_the_drift_meter_counts_what_strayed(target: HFTarget) -> None:
    """A rule that takes everything: drift counts the tokens that are not the target's first choice."""
    junk = Scripted(lambda context: Proposal.chain([7] * context.room))
    run = play(target, junk, max_new_tokens=5, ignore_eos=True, rule=Typical(epsilon=0.0))
    ids = target.tokenizer.encode(REPEAT)
    with torch.no_grad():
        logits = target.model(torch.tensor([ids + ids_of(run)])).logits[0, len(ids) - 1 : -1]
    strayed = int((logits.argmax(-1) != torch.tensor(ids_of(run))).sum())
    assert strayed > 0
    assert run.finished.summary["drift"]["different"] == strayed
    surprise = -logits.log_softmax(-1)[range(5), ids_of(run)].mean()
    drift = run.finished.summary["drift"]
    assert drift["mean_surprise"] == pytest.approx(float(surprise), rel=1e-3)
    logs, best = logits.log_softmax(-1), logits.argmax(-1)
    forced = [  # accepted drafts that the target alone would not have taken
        -float(logs[at, token.id])
        for at, token in enumerate(run.tokens)
        if token.origin == "accepted" and token.id != int(best[at])
    ]
    assert forced and drift["mean_kl"] == pytest.approx(sum(forced) / 5, rel=1e-3)


def test_a_stop_text_across_rounds_cuts_tokens_that_were_held_back(target: HFTarget) -> None:
    """The last held-back token of an earlier round keeps its first part, in its event too."""
    tokens = play(target, max_new_tokens=12, ignore_eos=True).tokens
    text = "".join(token.text for token in tokens)
    for index in range(2, 10):
        stop = tokens[index].text[1:] + tokens[index + 1].text
        before = "".join(token.text for token in tokens[:index]) + tokens[index].text[:1]
        if len(tokens[index].text) > 1 and tokens[index + 1].text and text.index(stop) == len(before):
            break
    else:
        raise AssertionError("no such place")
    run = play(target, max_new_tokens=12, ignore_eos=True, stop=(stop,))
    assert run.finished.text == before
    assert run.text == run.finished.text
    assert [token.id for token in run.tokens] == ids_of(run)


def test_traced_runs_carry_probabilities_and_the_deciding_token(target: HFTarget) -> None:
    wide = Scripted(lambda context: Proposal([3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15], [-1] * 12))
    options = {"max_new_tokens": 4, "ignore_eos": True, "temperature": 5.0, "seed": 1}
    run = play(target, wide, trace=True, **options)
    for token in run.tokens:
        alternatives = {a.id: a for a in token.alternatives}
        assert token.id in alternatives  # among a dozen siblings too
        assert [a.p for a in token.alternatives] == sorted(
            (a.p for a in token.alternatives), reverse=True
        )
        assert token.prob is not None
        assert 0.0 < token.prob <= 1.0
        if token.origin == "corrected":
            assert alternatives[token.id].residual is not None
    bare = play(target, wide, **options)
    assert [t.id for t in bare.tokens] == [t.id for t in run.tokens]  # looking changes nothing
    assert all(t.prob is None and not t.alternatives for t in bare.tokens)


def test_times_add_up_and_leave_the_consumer_out(target: HFTarget) -> None:
    """A consumer that dawdles is not charged to the run."""
    import time

    begin, idle = time.perf_counter(), 0.0
    run = Run()
    for event in generate(target, oracle(ids_of(play(target, max_new_tokens=12, ignore_eos=True)), 3)):
        run.add(event)
        before = time.perf_counter()
        time.sleep(0.02)
        idle += time.perf_counter() - before
    worked = (time.perf_counter() - begin - idle) * 1000
    summary = run.finished.summary  # type: ignore[union-attr]
    parts = ("prefill_ms", "draft_ms", "verify_ms", "overhead_ms")
    assert all(summary[part] >= 0.0 for part in parts)
    assert sum(summary[part] for part in parts) <= worked
    for verified in run.verified:
        assert verified.target_ms is not None
        assert verified.target_ms <= verified.ms


def test_warm_up_runs_and_leaves_nothing(target: HFTarget, sessions: list[Any]) -> None:
    Engine(target).warm_up()
    assert sessions
    assert all(session.cache.layers == [] for session in sessions)
