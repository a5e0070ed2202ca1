"""SGLang and TensorRT-LLM: no server of theirs runs on a CPU, so these streams are written after
their documented format and source. They show that the clients follow it, not that the engines do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from servers import replay
from servers.replay import replaying

from specdemo.events import Event, Finished, Started, Verified
from specdemo.remote import Limits, Server, ServerError, generate
from specdemo.sampling import SamplingParams

WORDS = [" one", " two", " three", " four", " five", " six", " seven", " eight"]


def exchange(method: str, path: str, kind: str, answer: str, status: int = 200) -> dict[str, Any]:
    piece = {"at": 0.0, "bytes": answer.encode("utf-8").decode("latin-1")}
    return {"method": method, "path": path, "status": status, "content_type": kind, "answer": [piece]}


def recorded(path: str, data: list[dict[str, Any]]) -> dict[str, Any]:
    stream = "".join(f"data: {json.dumps(item)}\n\n" for item in data) + "data: [DONE]\n\n"
    models = json.dumps({"data": [{"id": "m"}]})
    return {
        "exchanges": [
            exchange("GET", "/v1/models", "application/json", models),
            exchange("POST", path, "text/event-stream; charset=utf-8", stream),
        ]
    }


def run(
    kind: str, path: str, data: list[dict[str, Any]], raw: bool, **settings: Any
) -> tuple[list[Event], replay.Site]:
    params = SamplingParams(**{"max_new_tokens": 8, **settings})
    with replaying(recorded(path, data)) as site:
        server = Server("room", kind, site.url)
        return list(generate(server, "count", params, raw=raw, limits=Limits(lookup=60))), site


def origins(events: list[Event]) -> list[str]:
    """A letter a token, a word a step: a(ccepted), t(arget)."""
    return ["".join(t.origin[0] for t in e.tokens) for e in events if isinstance(e, Verified)]


def end(events: list[Event]) -> Finished:
    assert isinstance(events[-1], Finished)
    return events[-1]


def sglang(sizes: list[int], incremental: bool = False, logprobs: bool = True, **spec: Any) -> list[Any]:
    """The chunks of ``/generate``: cumulative text and counts, the counts of drafts at the end."""
    data, done = [], 0
    for index, size in enumerate(sizes):
        first, done = done, done + size
        seen = slice(first, done) if incremental else slice(0, done)
        meta: dict[str, Any] = {"id": "x", "prompt_tokens": 5, "completion_tokens": done}
        if logprobs:
            meta["output_token_logprobs"] = [[-0.5, 100 + i, WORDS[i]] for i in range(done)][seen]
        last = index == len(sizes) - 1
        meta["finish_reason"] = {"type": "length", "length": done} if last else None
        if last:
            meta |= spec
        data.append(
            {
                "text": "".join(WORDS[seen]),
                "output_ids": [100 + i for i in range(done)][seen],
                "meta_info": meta,
            }
        )
    return data


SPEC = {"spec_verify_ct": 3, "spec_num_correct_drafts": 4, "spec_num_proposed_drafts": 9}


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("logprobs", [False, True])
def test_sglang_generate(incremental: bool, logprobs: bool) -> None:
    data = sglang([1, 3, 1, 3], incremental, logprobs, **SPEC, spec_correct_drafts_histogram=[1, 0, 2])
    events, site = run("sglang", "/generate", data, raw=True)
    finished = end(events)
    assert origins(events) == ["t", "aat", "t", "aat"]
    assert finished.text == "".join(WORDS) and finished.token_ids == tuple(range(100, 108))
    assert finished.reason == "length" and finished.summary["check"]["outcome"] == "confirmed"
    assert finished.summary["accepted"] == 4 and finished.summary["drafted"] == 9
    if logprobs:
        tokens = [t for e in events if isinstance(e, Verified) for t in e.tokens]
        assert [t.text for t in tokens] == WORDS and all(t.prob for t in tokens)
    assert isinstance(events[0], Started) and "not run against a real server" in events[0].note
    body = next(body for _, path, body, _ in site.requests if path == "/generate")
    assert body["text"] == "count" and body["sampling_params"]["max_new_tokens"] == 8


def test_sglang_last_step_cut_by_the_length() -> None:
    """The server accepted two more than there was room for: all that is visible was drafted."""
    data = sglang([1, 3, 4], **SPEC | {"spec_num_correct_drafts": 8})
    events, _ = run("sglang", "/generate", data, raw=True)
    verdict = end(events).summary["check"]
    assert origins(events) == ["t", "aat", "aaaa"]
    assert verdict["outcome"] == "confirmed" and verdict["hidden"] == 2


@pytest.mark.parametrize("histogram", [[], [1, 1, 1]])
def test_sglang_counts_that_differ(histogram: list[int]) -> None:
    spec = SPEC | {"spec_num_correct_drafts": 3, "spec_correct_drafts_histogram": histogram}
    events, _ = run("sglang", "/generate", sglang([1, 3, 1, 3], **spec), raw=True)
    assert end(events).summary["check"]["outcome"] == "differs"


def test_sglang_without_speculation_reports_nothing() -> None:
    events, _ = run("sglang", "/generate", sglang([1] * 8), raw=True)
    assert origins(events) == ["t"] * 8
    assert end(events).summary["check"]["outcome"] == "not_reported"
    assert end(events).summary["acceptance_rate"] is None and end(events).summary["drafted"] is None


def test_sglang_abort_is_an_error() -> None:
    data = sglang([1, 3, 1])
    data[-1]["meta_info"]["finish_reason"] = {"type": "abort", "message": "out of memory"}
    events, _ = run("sglang", "/generate", data, raw=True)
    assert end(events).reason == "cut" and "out of memory" in end(events).message
    assert end(events).text == " one two three four"


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ({"type": "stop", "matched": 2}, "eos"),
        ({"type": "stop", "matched": " five"}, "stop"),
        ({"type": "length", "length": 5}, "context"),
    ],
)
def test_sglang_ends(finish: dict[str, Any], reason: str) -> None:
    data = sglang([1, 3, 1])
    data[-1]["meta_info"]["finish_reason"] = finish
    assert end(run("sglang", "/generate", data, raw=True)[0]).reason == reason


def chat(sizes: list[int], matched: str = "matched_stop", **last: Any) -> list[dict[str, Any]]:
    """OpenAI chat chunks with running counts in ``usage``; the end comes in a chunk of its own."""
    first = {
        "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    }
    data, done = [first | {"usage": {"prompt_tokens": 5, "completion_tokens": 0}}], 0
    for size in sizes:
        text, done = "".join(WORDS[done : done + size]), done + size
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": None, **last}
        data.append({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": done}})
    ending = {"index": 0, "delta": {}, "finish_reason": "stop", matched: 2}
    data.append({"choices": [ending], "usage": {"prompt_tokens": 5, "completion_tokens": done}})
    return data


def test_sglang_chat() -> None:
    events, site = run("sglang", "/v1/chat/completions", chat([1, 3, 2]), raw=False)
    assert origins(events) == ["t", "aat", "at"]
    assert end(events).reason == "eos" and end(events).text == "".join(WORDS[:6])
    assert end(events).token_ids == (-1,) * 6  # not reported there
    body = site.requests[-1][2]
    assert body["messages"] == [{"role": "user", "content": "count"}]
    assert body["stream_options"]["continuous_usage_stats"] is True


@pytest.mark.parametrize(("mean", "outcome"), [(2.5, "confirmed"), (2.0, "confirmed"), (1.2, "differs")])
def test_trtllm_is_always_marked_inferred(mean: float, outcome: str) -> None:
    data = chat([1, 3, 2], "stop_reason", avg_decoded_tokens_per_iter=mean)
    events, _ = run("trtllm", "/v1/chat/completions", data, raw=False)
    assert origins(events) == ["t", "aat", "at"]
    tokens = [t for e in events if isinstance(e, Verified) for t in e.tokens]
    assert not any(token.certain for token in tokens)
    assert isinstance(events[0], Started) and events[0].note.startswith("Inferred")
    assert end(events).summary["check"]["outcome"] == outcome
    assert end(events).summary["acceptance_rate"] is None


def test_trtllm_completions_with_ids() -> None:
    data = []
    for ids in ([100], [101, 102, 103], [104, 105]):
        text = "".join(WORDS[i - 100] for i in ids)
        data.append({"choices": [{"index": 0, "text": text, "token_ids": ids}], "model": "m"})
    data[-1]["choices"][0] |= {"finish_reason": "length"}
    events, site = run("trtllm", "/v1/completions", data, raw=True, max_new_tokens=6)
    assert end(events).token_ids == tuple(range(100, 106)) and end(events).reason == "length"
    # The engine refuses fields it does not know: only those of its protocol are sent.
    assert not {"return_token_ids", "text", "messages"} & set(site.requests[-1][2])


def test_a_server_that_does_not_count_is_not_believed() -> None:
    """No ids, no usage, no log-probabilities: a chunk is taken for one token, and marked."""
    data = [
        {"choices": [{"index": 0, "delta": {"content": w}, "finish_reason": None}]} for w in WORDS[:4]
    ]
    data.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    events, _ = run("vllm", "/v1/chat/completions", data, raw=False)
    tokens = [t for e in events if isinstance(e, Verified) for t in e.tokens]
    assert [t.text for t in tokens] == WORDS[:4] and not any(t.certain for t in tokens)


def test_lone_surrogates_become_replacement_characters() -> None:
    data = [{"choices": [{"index": 0, "text": "a\ud83d", "token_ids": [1], "finish_reason": "length"}]}]
    events, _ = run("vllm", "/v1/completions", data, raw=True, max_new_tokens=1)
    end(events).text.encode("utf-8")


def test_a_model_list_that_is_none() -> None:
    broken = recorded("/generate", sglang([1, 1]))
    broken["exchanges"][0] = exchange("GET", "/v1/models", "application/json", '{"data": 5}')
    with replaying(broken) as site, pytest.raises(ServerError) as caught:
        list(generate(Server("room", "sglang", site.url), "x", SamplingParams(), raw=True))
    assert caught.value.key == "server_garbage"
