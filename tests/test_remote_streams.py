"""Recorded streams of real servers: text, ids and origins against the servers' own counts."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from servers import replay
from servers.replay import answer_of, load, replaying, stream_of

from specdemo import recording
from specdemo.events import Event, Finished, Started, Verified, to_json
from specdemo.remote import Server, generate
from specdemo.sampling import SamplingParams

ALL = replay.names()
VLLM, LLAMA = replay.names("vllm"), replay.names("llamacpp")


def play(recorded: dict[str, Any], how: replay.Play = replay.whole, **site: Any) -> list[Event]:
    with replaying(recorded, how, **site) as served:
        server = Server("room", recorded["kind"], served.url)
        params = SamplingParams(**recorded["settings"])
        return list(generate(server, recorded["prompt"], params, raw=recorded["raw"]))


def objects(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """The stream's JSON objects, read in the plainest way."""
    lines = answer_of(stream_of(recorded)).decode("utf-8").splitlines()
    data = [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]
    return [json.loads(item) for item in data if item != "[DONE]"]


def text_in(recorded: dict[str, Any]) -> str:
    text = ""
    for item in objects(recorded):
        if recorded["kind"] == "llamacpp":
            text += item["content"]
        for choice in item.get("choices", []):
            text += choice.get("text") or choice.get("delta", {}).get("content") or ""
    return text


def steps_of(events: list[Event]) -> list[Verified]:
    return [event for event in events if isinstance(event, Verified)]


def accepted_in(event: Verified) -> int:
    return sum(token.origin == "accepted" for token in event.tokens)


def end(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def test_recordings_are_there() -> None:
    assert len(VLLM) >= 7 and len(LLAMA) >= 14


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("how", [replay.whole, replay.bytewise])
def test_text_and_tokens_are_the_servers(name: str, how: replay.Play) -> None:
    recorded = load(name)
    events = play(recorded, how)
    finished = end(events)
    assert isinstance(events[0], Started) and events[0].prompt_tokens > 5
    assert finished.text == text_in(recorded)
    assert "\ufffd" not in finished.text
    tokens = [token for step in steps_of(events) for token in step.tokens]
    assert "".join(token.text for token in tokens) == finished.text
    assert tuple(token.id for token in tokens) == finished.token_ids
    wanted = recorded["settings"]["max_new_tokens"]
    assert (len(tokens) == wanted) if finished.reason == "length" else (len(tokens) < wanted)
    # No engine tells what it drafted, so there is no ``Drafted``.
    assert {event.type for event in events} == {"started", "verified", "finished"}
    lines = "".join(to_json(event) + "\n" for event in events)
    assert recording.parse(lines) == events  # a run on a server can be replayed like any other


@pytest.mark.parametrize("name", VLLM)
def test_vllm_ids_and_steps_equal_the_servers(name: str) -> None:
    recorded = load(name)
    events = play(recorded)
    told = [i for o in objects(recorded) for c in o["choices"] for i in c.get("token_ids") or []]
    assert list(end(events).token_ids) == told
    metrics = next((o["metrics"] for o in objects(recorded) if o.get("metrics")), None)
    verdict = end(events).summary["check"]
    if metrics is None:  # vLLM leaves them out when a stop text ended the answer
        assert recorded["case"] == "stop" and verdict["source"] == "/metrics"
    else:
        counts = metrics["speculative_decoding"]
        seen = [accepted_in(step) for step in steps_of(events)[1:]]
        seen[-1] += verdict["hidden"]
        told_steps = counts.get("per_step_accepted", [])  # missing when there was no draft at all
        assert [n for n in seen if n] == [n for n in told_steps if n]
        assert end(events).summary["accepted"] == counts["num_accepted_draft_tokens"]
        assert end(events).summary["drafted"] == counts["num_draft_tokens"]
    assert verdict["outcome"] == "confirmed"
    assert verdict["inferred_accepted"] + verdict["hidden"] == verdict["server_accepted"]


@pytest.mark.parametrize("name", VLLM)
def test_vllm_tells_the_probability_of_each_token(name: str) -> None:
    tokens = [token for step in steps_of(play(load(name))) for token in step.tokens]
    assert all(token.prob is not None and 0.0 < token.prob <= 1.0 for token in tokens)


@pytest.mark.parametrize("name", LLAMA)
def test_llamacpp_steps_equal_the_final_timings(name: str) -> None:
    recorded = load(name)
    events = play(recorded)
    timings = objects(recorded)[-1]["timings"]
    summary = end(events).summary
    assert summary["accepted"] == timings.get("draft_n_accepted", 0)
    assert summary["drafted"] == timings.get("draft_n", 0)
    assert summary["check"]["outcome"] == "confirmed"
    coloured = sum(accepted_in(step) for step in steps_of(events))
    assert coloured + summary["check"]["hidden"] == timings.get("draft_n_accepted", 0)
    known = [id_ for id_ in end(events).token_ids if id_ >= 0]
    assert known == [id_ for item in objects(recorded) for id_ in item["tokens"]]
    # One token at a time is certain; only a character of several tokens blurs a step.
    if recorded["case"] != "utf8":
        assert summary["check"]["uncertain_tokens"] == 0


@pytest.mark.parametrize("name", LLAMA)
def test_llamacpp_corrected_follows_a_refusal_and_bonus_follows_none(name: str) -> None:
    recorded = load(name)
    if recorded["case"] == "utf8":
        return  # steps are blurred there, see above
    counts = [(0, 0)]
    for item in objects(recorded):
        timings = item["timings"]
        pair = (timings.get("draft_n", 0), timings.get("draft_n_accepted", 0))
        if pair != counts[-1]:
            counts.append(pair)
    jumps = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(counts)]
    steps = [s for s in steps_of(play(recorded)) if s.tokens[-1].origin != "target"]
    assert len(steps) == len(jumps)
    for step, (drafted, accepted) in zip(steps[:-1], jumps[:-1], strict=True):  # the last may be cut
        origins = [token.origin for token in step.tokens]
        last = "bonus" if drafted == accepted else "corrected"
        assert origins == ["accepted"] * accepted + [last]


def test_stop_text_is_cut_but_its_tokens_are_kept() -> None:
    for name in ("vllm_ngram_stop", "llamacpp_ngram_stop", "llamacpp_draft_stop"):
        recorded = load(name)
        finished = end(play(recorded))
        (stop,) = recorded["settings"]["stop"]
        assert finished.reason == "stop" and stop not in finished.text
        assert finished.summary["tokens"] == len(finished.token_ids) > 3


def test_an_answer_that_ends_by_itself() -> None:
    for name in ("vllm_ngram_answer", "llamacpp_ngram_answer", "llamacpp_draft_answer"):
        finished = end(play(load(name)))
        assert finished.reason == "eos" and finished.token_ids[-1] == 2  # <|im_end|>
        assert "<|im_end|>" not in finished.text


def merge(answer: bytes, first: int) -> bytes:
    """Two of vLLM's chunks as one, as its server sends them when it lags."""
    events = answer.decode("utf-8").split("\n\n")
    one, two = (json.loads(event.removeprefix("data: ")) for event in events[first : first + 2])
    a, b = one["choices"][0], two["choices"][0]
    a["text"] += b["text"]
    a["token_ids"] += b["token_ids"]
    for key, values in a["logprobs"].items():
        values += b["logprobs"][key]
    a["finish_reason"] = b["finish_reason"]
    one["usage"] = two["usage"]
    events[first : first + 2] = ["data: " + json.dumps(one)]
    return "\n\n".join(events).encode("utf-8")


def chunk_sizes(recorded: dict[str, Any]) -> list[int]:
    return [len(c["token_ids"]) for o in objects(recorded) for c in o["choices"]]


@pytest.mark.parametrize("first", range(1, 6))
def test_merged_chunks_are_noticed_and_said(first: int) -> None:
    recorded = load("vllm_ngram_count")
    sizes = chunk_sizes(recorded)
    events = play(recorded, transform=lambda path, a: merge(a, first) if "completions" in path else a)
    verdict = end(events).summary["check"]
    assert end(events).text == text_in(recorded)
    assert verdict["outcome"] == "differs" and "merged" in verdict["note"]
    merged = steps_of(events)[first]
    if sizes[first] + sizes[first + 1] > 5:  # more than four drafted tokens and one more can be
        assert verdict["merged_chunks"] == 1
        assert not any(token.certain for token in merged.tokens)
    # The figures come from the server's counts, which merging does not touch.
    assert end(events).summary["accepted"] == verdict["server_accepted"]


def test_several_plain_steps_in_a_chunk_are_not_taken_for_a_draft() -> None:
    """A server that shows metrics but none of a drafter cannot have accepted anything."""
    recorded = load("vllm_ngram_count")

    def transform(path: str, answer: bytes) -> bytes:
        if path == "/metrics":
            return b"".join(x for x in answer.splitlines(keepends=True) if b"spec_decode" not in x)
        return answer

    events = play(recorded, transform=transform)
    tokens = [token for step in steps_of(events) for token in step.tokens]
    assert {token.origin for token in tokens} == {"target"}
