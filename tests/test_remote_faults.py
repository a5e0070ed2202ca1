"""Everything a server can do wrong: a clear sentence, what has arrived kept, no key in any of it."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from servers import replay
from servers.asking import BOTH, KEY, cut, refused, run
from servers.replay import broken_after, ended_after, load, replaying, stream_of, then

from specdemo.events import Finished


def test_server_down() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    site = replay.Site({}, url=f"http://127.0.0.1:{port}")
    assert refused(load("vllm_ngram_count"), site).key == "server_down"


def test_unknown_host() -> None:
    site = replay.Site({}, url="http://no-such-host.invalid")
    assert refused(load("vllm_ngram_count"), site).key == "server_down"


@pytest.mark.parametrize("name", BOTH)
def test_model_that_is_not_offered(name: str) -> None:
    with replaying(load(name)) as site:
        error = refused(load(name), site, model="another-model")
        assert error.key == "server_model" and "another-model" in str(error)
        assert not any(site.asked(path) for path in site.streaming)


def test_model_that_the_server_refuses() -> None:
    body = json.dumps({"error": {"message": "The model `x` does not exist.", "code": 404}}).encode()
    with replaying(load("vllm_ngram_count"), statuses=[404], error_body=body) as site:
        assert refused(load("vllm_ngram_count"), site).key == "server_model"


@pytest.mark.parametrize(
    ("status", "key", "tries"),
    [
        (401, "server_key", 1),
        (403, "server_key", 1),
        (404, "server_refused", 1),
        (301, "server_refused", 1),
        (307, "server_refused", 1),
        (413, "server_refused", 1),
        (429, "server_busy", 3),
        (500, "server_failed", 1),
        (502, "server_failed", 3),
        (503, "server_failed", 3),
    ],
)
@pytest.mark.parametrize("name", BOTH)
def test_statuses(name: str, status: int, key: str, tries: int) -> None:
    with replaying(load(name), statuses=[status] * 9) as site:
        assert refused(load(name), site).key == key
        assert sum(site.asked(path) for path in site.streaming) == tries


@pytest.mark.parametrize("name", BOTH)
def test_busy_at_first_is_tried_again_before_the_first_token(name: str) -> None:
    with replaying(load(name), statuses=[429, 503]) as site:
        finished = run(load(name), site)[-1]
        assert isinstance(finished, Finished) and finished.reason == "length"
        assert sum(site.asked(path) for path in site.streaming) == 3


def test_what_is_only_nice_to_have_is_left_out_when_refused() -> None:
    with replaying(load("vllm_ngram_count"), statuses=[400]) as site:
        finished = run(load("vllm_ngram_count"), site)[-1]
        assert isinstance(finished, Finished) and finished.reason == "length"
        bodies = [body for _, path, body, _ in site.requests if path in site.streaming]
        assert "logprobs" in bodies[0] and "logprobs" not in bodies[1]


def test_the_servers_words_are_shown_but_not_the_key_in_them() -> None:
    words = {"error": {"message": f"Invalid\nheader: Bearer {KEY}\x1b[31m is wrong. " + "x" * 5000}}
    with replaying(
        load("vllm_ngram_count"), statuses=[500], error_body=json.dumps(words).encode()
    ) as site:
        sentence = str(refused(load("vllm_ngram_count"), site))
    assert "Bearer [key]" in sentence and len(sentence) < 400 and "\x1b" not in sentence


@pytest.mark.parametrize(
    "body", [b"", b"<html>nginx</html>", b"\xff\xfe", b"[]", b"{}", b"null", b"[" * 9999]
)
def test_error_bodies_of_any_form(body: bytes) -> None:
    with replaying(load("vllm_ngram_count"), statuses=[500], error_body=body) as site:
        assert "no reason given" in str(refused(load("vllm_ngram_count"), site)) or body == b"\xff\xfe"


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("how", [broken_after, ended_after])
def test_cut_in_the_middle(name: str, how: Any) -> None:
    recorded = load(name)
    with replaying(recorded, how(0.7)) as site:
        assert "broke off" in cut(run(recorded, site), recorded).message
        # Once a token has come, the request is never sent again.
        assert sum(site.asked(path) for path in site.streaming) == 1


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("how", [broken_after, ended_after])
def test_cut_before_the_first_token(name: str, how: Any) -> None:
    with replaying(load(name), how(0.0)) as site:
        assert refused(load(name), site).key == "server_cut"


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize(
    "tail",
    [
        b"data: {not json\n\n",
        b"data: [1, 2]\n\n",
        b"data: 17\n\n",
        b'data: {"content": "x", "stop": false, "tokens_predicted": 13, "timings": {"draft_n": 1}}\n\n',
        b'data: {"choices": [{"text": "x", "token_ids": [1, 2], "logprobs": {"tokens": ["x", "y"],'
        b' "token_logprobs": [0]}}]}\n\n',
        b'data: {"choices": "none", "content": 3, "stop": false}\n\n',
        b'data: {"choices": [{"index": 0}], "tokens_predicted": -5}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
        b"<html>proxy error</html>\n\n",
        b"data: \xff\xfe\xfa\n\n",
        b"\x00\x01\x02\x03\n\n",
    ],
)
def test_garbage_in_the_middle(name: str, tail: bytes) -> None:
    recorded = load(name)
    with replaying(recorded, then(0.5, tail)) as site:
        message = cut(run(recorded, site), recorded).message
        assert "stream" in message or "broke off" in message


@pytest.mark.parametrize("name", BOTH)
def test_garbage_from_the_start(name: str) -> None:
    with replaying(load(name), then(0.0, b"data: \xff\n\n")) as site:
        assert refused(load(name), site).key == "server_garbage"


def test_a_page_instead_of_a_stream() -> None:
    recorded = load("vllm_ngram_count")
    stream_of(recorded)["content_type"] = "text/html"
    with replaying(recorded) as site:
        assert refused(recorded, site).key == "server_garbage"


@pytest.mark.parametrize("name", BOTH)
def test_an_error_in_the_stream(name: str) -> None:
    recorded = load(name)
    tail = b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
    with replaying(recorded, then(0.5, tail)) as site:
        assert "out of memory" in cut(run(recorded, site), recorded).message


@pytest.mark.parametrize("name", BOTH)
def test_too_long_a_line_and_too_many_tokens(name: str) -> None:
    recorded = load(name)
    with replaying(recorded, then(0.5, b"data: " + b"x" * 5_000_000)) as site:
        assert "MiB" in cut(run(recorded, site), recorded).message
    recorded["settings"]["max_new_tokens"] = 8
    with replaying(recorded) as site:
        events = run(recorded, site)
    finished = events[-1]
    assert isinstance(finished, Finished) and finished.reason == "cut" and "8 tokens" in finished.message
    assert len(finished.token_ids) <= 8
