"""The client against a real llama.cpp server on loopback, one thread, the embedded model."""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers import llama

from specdemo import embedded
from specdemo.__main__ import main
from specdemo.events import Event, Finished, Verified
from specdemo.remote import Limits, Server, ServerError, generate, parse_server
from specdemo.remote.client import metrics_of
from specdemo.remote.load import PROMPTS, by_concurrency, measure
from specdemo.sampling import SamplingParams

PATIENT = Limits(lookup=60, first=300, between=300)  # a test machine may be busy


@pytest.fixture(scope="module")
def model() -> Path:
    return embedded.gguf_path()


@pytest.fixture(scope="module")
def ngram(model: Path) -> Iterator[Server]:
    with llama.running(model, spec="ngram", slots="2") as url:
        yield parse_server(f"llamacpp={url}/v1", {})


@pytest.fixture(scope="module")
def draft(model: Path) -> Iterator[Server]:
    """The model drafts for itself; ``synth`` makes the server refuse some of it all the same."""
    with llama.running(model, spec="draft", synth="2.5", key="sesame") as url:
        yield parse_server(f"room={url},kind=llamacpp", {"SPECDEMO_KEY_ROOM": "sesame"})


def run(server: Server, prompt: str, raw: bool = False, **settings: object) -> list[Event]:
    params = SamplingParams(**{"max_new_tokens": 20, **settings})  # type: ignore[arg-type]
    return list(generate(server, prompt, params, raw=raw, limits=PATIENT))


def end(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def accepted(events: list[Event]) -> int:
    return sum(t.origin == "accepted" for e in events if isinstance(e, Verified) for t in e.tokens)


def counted(server: Server) -> float:
    return metrics_of(server, "llamacpp:", PATIENT)["spec_decode_num_accepted_tokens_total"]


def test_twenty_prompts_equal_the_servers_counters(ngram: Server) -> None:
    total, before = 0, counted(ngram)
    for prompt in PROMPTS:
        events = run(ngram, prompt, max_new_tokens=20)
        verdict = end(events).summary["check"]
        assert verdict["outcome"] == "confirmed", prompt
        total += accepted(events) + verdict["hidden"]
    assert total == counted(ngram) - before > 0


def test_a_draft_model_with_refusals(draft: Server) -> None:
    before, total, origins = counted(draft), 0, set[str]()
    for prompt in PROMPTS[:3]:
        events = run(draft, prompt, max_new_tokens=12)
        verdict = end(events).summary["check"]
        assert verdict["outcome"] == "confirmed" and verdict["uncertain_tokens"] == 0
        total += accepted(events) + verdict["hidden"]
        origins |= {t.origin for e in events if isinstance(e, Verified) for t in e.tokens}
    assert total == counted(draft) - before > 0
    assert {"accepted", "corrected"} <= origins
    assert 0.0 < end(events).summary["acceptance_rate"] < 1.0


def test_two_at_once_are_still_exact(ngram: Server) -> None:
    row = measure(ngram, PROMPTS[:4], SamplingParams(max_new_tokens=12), 2, limits=PATIENT)
    assert row["failed"] == 0 and row["checks"] == {"confirmed": 4}
    assert row["tokens"] > 20 and row["tokens_per_second"] > 0


def test_stop_text_and_unicode_and_end(ngram: Server) -> None:
    count = "one two three four five six one two three four five six one two three four"
    stopped = end(run(ngram, count, raw=True, max_new_tokens=24, stop=(" six",)))
    assert stopped.reason == "stop" and " six" not in stopped.text
    text = end(run(ngram, "Say hi to 你好 😀. Repeat it: 你好 😀", max_new_tokens=12)).text
    assert "\ufffd" not in text and text
    greeting = end(run(ngram, "Say hi.", max_new_tokens=64))
    assert greeting.reason == "eos"


def test_the_same_seed_draws_the_same(ngram: Server) -> None:
    one, two, other = (
        end(run(ngram, "Tell me something.", temperature=1.0, seed=seed)).text for seed in (3, 3, 4)
    )
    assert one == two != other


def test_wrong_key_and_wrong_model(draft: Server) -> None:
    intruder = Server("room", "llamacpp", draft.base_url, api_key="open")
    with pytest.raises(ServerError) as caught:
        run(intruder, "hello")
    assert caught.value.key == "server_key"
    other = Server("room", "llamacpp", draft.base_url, "other-model", "sesame")
    with pytest.raises(ServerError, match="does not offer the model other-model"):
        run(other, "hello")


def test_a_prompt_that_is_too_long(ngram: Server) -> None:
    with pytest.raises(ServerError) as caught:
        run(ngram, "word " * 3000, raw=True)
    assert caught.value.key == "server_refused" and "context size" in str(caught.value)


def test_cancelling_stops_the_server(ngram: Server) -> None:
    cancel, seen = threading.Event(), 0
    params = SamplingParams(max_new_tokens=900, ignore_eos=True)
    events = []
    for event in generate(ngram, "Tell me a story.", params, cancel=cancel, limits=PATIENT):
        events.append(event)
        seen += isinstance(event, Verified)
        if seen == 5:
            cancel.set()
    assert end(events).reason == "cancelled" and 5 <= len(end(events).token_ids) < 800
    deadline = time.monotonic() + 30
    while metrics_of(ngram, "llamacpp:", PATIENT)["requests_processing"] > 0:
        assert time.monotonic() < deadline, "the server goes on"
        time.sleep(0.1)


def test_speedup_by_concurrency_needs_a_baseline(ngram: Server, draft: Server) -> None:
    params = SamplingParams(max_new_tokens=6)
    (alone,) = by_concurrency(ngram, PROMPTS[:1], params, [1], limits=PATIENT)
    assert alone["speedup"] is None and alone["baseline"] is None
    both = Server("ngram", "llamacpp", ngram.base_url, "", "", draft.base_url, "sesame")
    rows = list(by_concurrency(both, PROMPTS[:2], params, [1, 2], limits=PATIENT))
    assert [row["concurrency"] for row in rows] == [1, 2]
    for row in rows:
        ratio = row["tokens_per_second"] / row["baseline"]["tokens_per_second"]
        assert row["speedup"] == pytest.approx(ratio) and row["failed"] == 0


def test_from_the_terminal(ngram: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry, out = f"llamacpp={ngram.base_url}", tmp_path / "bench.json"
    assert main(["generate", "Say hi.", "--server", entry, "--max-new-tokens", "8"]) == 0
    shown = capsys.readouterr().out
    assert "8 tokens" in shown and "speed-up n/a" in shown and "agree" in shown
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"question_id": 1, "category": "qa", "turns": ["Say hi."]}\n')
    arguments = ["--server", entry, "--questions", str(questions), "--json", str(out)]
    assert main(["bench", *arguments, "--max-new-tokens", "4", "--concurrency", "2"]) == 0
    shown = capsys.readouterr().out
    assert "at once" in shown and "speed-up n/a" in shown
    result = json.loads(out.read_text())
    assert [row["concurrency"] for row in result["rows"]] == [1, 2]
    assert ngram.base_url not in out.read_text()
    assert main(["generate", "Say hi.", "--server", "http://127.0.0.1:1"]) == 2
    assert "no server" in capsys.readouterr().err
    assert main(["bench", "--server", entry, "--concurrency", "0"]) == 2


def test_every_server_argument_is_documented() -> None:
    from specdemo.remote.cli import add_server_arguments

    parser = argparse.ArgumentParser()
    add_server_arguments(parser, concurrency=True)
    assert all(action.help for action in parser._actions)
