"""Silence, cancelling, slow readers; and where keys and prompts may go."""

from __future__ import annotations

import json
import threading
import time

import pytest
from servers import replay
from servers.asking import BOTH, KEY, SHORT, cut, refused, run
from servers.replay import answer_of, load, replaying, silent_after, stream_of

from specdemo.errors import InputError
from specdemo.events import Finished, Started, Verified, to_json
from specdemo.remote import Server, generate
from specdemo.sampling import SamplingParams


@pytest.mark.parametrize("name", BOTH)
def test_silence(name: str) -> None:
    recorded = load(name)
    with replaying(recorded, silent_after(0.5)) as site:
        assert "1.5 seconds" in cut(run(recorded, site, limits=SHORT), recorded).message
        assert site.hung_up.wait(15) and site.hangups == [True]
    with replaying(recorded, silent_after(0.0)) as site:
        assert refused(recorded, site, SHORT).key == "server_silent"
        assert site.hung_up.wait(15) and site.hangups == [True]


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_cancelling_reaches_the_server(name: str, share: float) -> None:
    recorded, cancel = load(name), threading.Event()
    with replaying(recorded, silent_after(share)) as site:
        if share == 0.0:  # while the server is busy with the prompt
            waiting = threading.Thread(target=lambda: site.streaming_began.wait(20) and cancel.set())
            waiting.start()
        events = []
        server = Server("room", recorded["kind"], site.url)
        params = SamplingParams(**recorded["settings"])
        for event in generate(server, recorded["prompt"], params, raw=True, cancel=cancel):
            events.append(event)
            if isinstance(event, Verified):
                cancel.set()
        assert site.hung_up.wait(15) and site.hangups == [True]
    finished = events[-1]
    assert isinstance(events[0], Started) and isinstance(finished, Finished)
    assert finished.reason == "cancelled" and bool(finished.text) == bool(share)


def test_cancelled_before_the_start() -> None:
    cancel = threading.Event()
    cancel.set()
    with replaying(load("vllm_ngram_count")) as site:
        started, finished = run(load("vllm_ngram_count"), site, cancel)
        assert not any(site.asked(path) for path in site.streaming)
    assert isinstance(started, Started) and isinstance(finished, Finished)
    assert finished.reason == "cancelled" and finished.token_ids == ()


@pytest.mark.parametrize("name", BOTH)
def test_closing_the_iterator_reaches_the_server(name: str) -> None:
    recorded = load(name)
    with replaying(recorded, silent_after(0.5)) as site:
        server = Server("room", recorded["kind"], site.url)
        events = generate(server, recorded["prompt"], SamplingParams(), raw=True)
        assert isinstance(next(events), Started)
        events.close()  # type: ignore[attr-defined]
        assert site.hung_up.wait(15) and site.hangups == [True]


def test_a_slow_reader_changes_neither_attribution_nor_times() -> None:
    recorded = load("llamacpp_ngram_count")

    def paced(handler: replay.Handler, answer: bytes) -> None:
        for event in answer.split(b"\n\n"):
            handler.wfile.write(event + b"\n\n")
            handler.wfile.flush()
            time.sleep(0.01)

    with replaying(recorded, paced) as site:
        server = Server("room", recorded["kind"], site.url)
        events = []
        for event in generate(server, recorded["prompt"], SamplingParams(max_new_tokens=24), raw=True):
            events.append(event)
            time.sleep(0.2)
    finished = events[-1]
    assert isinstance(finished, Finished) and finished.summary["check"]["outcome"] == "confirmed"
    # 200 ms a round went by here, but the stream's own times are those of its arrival.
    assert finished.summary["decode_ms"] < 200 * finished.summary["rounds"]


@pytest.mark.parametrize("name", BOTH)
def test_the_key_goes_to_the_server_and_nowhere_else(name: str) -> None:
    with replaying(load(name)) as site:
        events = run(load(name), site)
        assert all(headers["authorization"] == f"Bearer {KEY}" for *_, headers in site.requests)
        assert KEY not in json.dumps([body for _, _, body, _ in site.requests])
    everything = "".join(to_json(event) for event in events)
    assert KEY not in everything and site.url not in everything and "127.0.0.1" not in everything


@pytest.mark.parametrize("prompt", ["", "  \n", "null \x00 byte", "x" * 300_000])
def test_bad_prompts_never_reach_a_server(prompt: str) -> None:
    with replaying(load("vllm_ngram_count")) as site:
        with pytest.raises(InputError):
            list(generate(Server("room", "vllm", site.url), prompt, SamplingParams()))
        assert site.requests == []


def test_recordings_hold_no_headers() -> None:
    for name in replay.names():
        text = json.dumps(load(name)).lower()
        assert "bearer" not in text and "authorization" not in text
        assert answer_of(stream_of(load(name)))
