"""Limits, health, metrics and logs of a hosted page, over a real server and a tiny model."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from helpers import target_of
from hosted import Hosted, hosted, slow, until

from specdemo.config import Config
from specdemo.engine import Engine
from specdemo.errors import InputError
from specdemo.hosting import logs
from specdemo.hosting.backend import HostedBackend
from specdemo.hosting.visitors import Buckets, Limiter, Visitor, address_of
from specdemo.sampling import SamplingParams
from specdemo.ui.backend import Order

SECRET_WORDS = "the submarine is painted turquoise"


@pytest.fixture(scope="module")
def served(tiny_llama: Any) -> Iterator[Hosted]:
    with hosted(tiny_llama) as page:
        yield page


def order(prompt: str = "The quick brown fox", length: int = 8, drafter: str = "ngram") -> Order:
    return Order(prompt, drafter, params=SamplingParams(max_new_tokens=length, ignore_eos=True))


def backend_of(pair: Any, **settings: Any) -> HostedBackend:
    backend = HostedBackend(lambda p: Engine(target_of(pair)), (), Config(log="off", **settings))
    backend.start()
    assert backend.ready.wait(60)
    return backend


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_visitor_is_slowed_down_and_let_in_again() -> None:
    clock = Clock()
    limiter = Limiter(3, 100, clock)
    visitor = Visitor("page", "1.2.3.4")
    for _ in range(3):
        limiter.admit(visitor)
    with pytest.raises(InputError) as caught:
        limiter.admit(visitor)
    assert caught.value.key == "too_fast" and caught.value.values["seconds"] >= 20
    limiter.admit(Visitor("other page", "1.2.3.4"))
    clock.now += caught.value.values["seconds"]
    limiter.admit(visitor)


def test_new_sessions_do_not_get_around_the_limit_of_an_address() -> None:
    limiter = Limiter(3, 10, Clock())
    for number in range(10):
        limiter.admit(Visitor(f"page {number}", "1.2.3.4"))
    with pytest.raises(InputError):
        limiter.admit(Visitor("page 10", "1.2.3.4"))
    limiter.admit(Visitor("page 11", "5.6.7.8"))


def test_a_user_with_many_pages_counts_once() -> None:
    limiter = Limiter(2, 100, Clock())
    limiter.admit(Visitor("a", "1.2.3.4", "ada"))
    limiter.admit(Visitor("b", "1.2.3.4", "ada"))
    with pytest.raises(InputError):
        limiter.admit(Visitor("c", "1.2.3.4", "ada"))


def test_remembered_visitors_are_bounded() -> None:
    buckets = Buckets(1, Clock())
    for number in range(10_500):
        buckets.take(str(number))
    assert len(buckets) == 10_000


@pytest.mark.parametrize(
    ("forwarded", "proxy", "address"),
    [
        ("8.8.8.8", False, "9.9.9.9"),  # made up by the visitor: no proxy of ours wrote it
        ("8.8.8.8", True, "8.8.8.8"),
        ("1.1.1.1, 8.8.8.8", True, "8.8.8.8"),  # the first came with the request
        ("8.8.8.8, 10.0.0.1", True, "8.8.8.8"),  # inner proxies have private addresses
        ("", True, "9.9.9.9"),
        ("nonsense", True, "nonsense"),
        ("x" * 500, True, "x" * 64),
    ],
)
def test_whose_address_it_is(forwarded: str, proxy: bool, address: str) -> None:
    assert address_of("9.9.9.9", {"x-forwarded-for": forwarded}, proxy) == address


def test_prompt_and_answer_have_limits(tiny_llama: Any) -> None:
    backend = backend_of(tiny_llama, max_prompt=100, max_output=16)
    backend.check(order("x" * 100, 16))
    for bad, key in ((order("x" * 101), "prompt_too_large"), (order(length=17), "range")):
        with pytest.raises(InputError) as caught:
            backend.check(bad)
        assert caught.value.key == key


def test_a_run_ends_at_its_deadline_and_the_next_works(tiny_llama: Any) -> None:
    backend = backend_of(tiny_llama)
    backend.config = replace(backend.config, deadline=0.0)
    job = backend.worker.submit(lambda: backend.generate(order(length=400)))
    assert job.wait(60)
    assert isinstance(job.error, InputError) and job.error.key == "deadline"
    backend.config = replace(backend.config, deadline=600.0)
    job = backend.worker.submit(lambda: backend.generate(order()))
    assert job.wait(60) and job.error is None
    assert job.drain()[-1].type == "finished"


def test_health_while_loading_ready_broken_and_hanging(tiny_llama: Any) -> None:
    with hosted(tiny_llama, load=False) as page:
        answer = page.http.get("/healthz")
        assert (answer.status_code, answer.json()) == (503, {"state": "loading"})
        assert page.http.get("/").status_code == 200  # the page is there before the model
        page.backend.start()
        assert page.backend.ready.wait(60)
        assert page.http.get("/healthz").json() == {"state": "ready"}
        page.backend.config = replace(page.backend.config, deadline=-1e6)  # any run hangs by that
        job = page.backend.worker.submit(iter_slowly)
        until(lambda: page.http.get("/healthz").status_code == 500)
        job.cancel()
        page.backend.state = "failed"
        assert page.http.get("/healthz").json() == {"state": "broken"}


def iter_slowly() -> Iterator[int]:
    import time

    for number in range(10_000):
        time.sleep(0.01)
        yield number


def test_metrics_count_what_happened(tiny_llama: Any) -> None:
    with hosted(tiny_llama) as page:
        client = page.client()
        final = client.predict(
            "The fox. The fox. The fox.", "ngram", 12, 0.0, 0, {}, api_name="/generate"
        )
        assert final["state"] == "done" and len(final["token_ids"]) <= 12
        refused = client.predict("", "ngram", 12, 0.0, 0, {}, api_name="/generate")
        assert refused["state"] == "error" and refused["message"].startswith("The prompt is empty")
        lines = page.http.get("/metrics").text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        reason = "length" if len(final["token_ids"]) == 12 else "eos"
        assert values[f'specdemo_runs_total{{drafter="ngram",reason="{reason}"}}'] == "1.0"
        tokens = sum(float(v) for n, v in values.items() if n.startswith("specdemo_tokens_total"))
        assert tokens == len(final["token_ids"])
        assert values['specdemo_errors_total{kind="empty_prompt"}'] == "1.0"
        assert values["specdemo_wait_seconds_count"] == "2.0"  # loading was a turn as well
        assert values['specdemo_state{state="ready"}'] == "1.0"
        assert float(values["process_resident_memory_bytes"]) > 1e7


def test_metrics_can_be_switched_off(tiny_llama: Any) -> None:
    with hosted(tiny_llama, Config(log="off", metrics=False), load=False) as page:
        assert page.http.get("/metrics").status_code == 404


@pytest.mark.parametrize("kind", ["json", "text"])
def test_logs_tell_of_runs_but_not_what_was_typed(tiny_llama: Any, kind: str) -> None:
    stream = io.StringIO()
    logs.set_up(kind, stream)
    try:
        backend = backend_of(tiny_llama)
        for text in (SECRET_WORDS, SECRET_WORDS + "\ud800"):
            one = order(text)
            job = backend.worker.submit(lambda one=one: backend.generate(one))
            assert job.wait(60)
        lines = stream.getvalue().splitlines()
        assert len(lines) >= 3 and not any(SECRET_WORDS in line for line in lines)
        if kind == "json":
            runs = [json.loads(line) for line in lines]
            run = next(line for line in runs if line["event"] == "run")
            assert run["drafter"] == "ngram" and run["tokens"] == 8 and run["reason"] == "length"
            assert any(line["event"] == "refused" and line["why"] == "bad_character" for line in runs)
    finally:
        logs.set_up("off")


def test_a_failure_inside_is_logged_by_place_not_by_message(tiny_llama: Any) -> None:
    stream = io.StringIO()
    logs.set_up("json", stream)
    try:
        backend = backend_of(tiny_llama)
        engine = backend.loaded()

        def breaks(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError(f"cannot read {SECRET_WORDS}")

        engine.target.open = breaks  # type: ignore[method-assign]
        job = backend.worker.submit(lambda: backend.generate(order()))
        assert job.wait(60) and isinstance(job.error, RuntimeError)
        written = [json.loads(line) for line in stream.getvalue().splitlines()]
        failed = next(line for line in written if line["event"] == "run failed")
        assert failed["kind"] == "RuntimeError" and "breaks" in failed["where"][-1]
        assert SECRET_WORDS not in stream.getvalue()
        assert (
            backend.metrics.registry.get_sample_value("specdemo_errors_total", {"kind": "internal"}) == 1
        )
    finally:
        logs.set_up("off")


def test_no_value_forges_a_line_of_the_log() -> None:
    stream = io.StringIO()
    logs.set_up("text", stream)
    try:
        logs.write("run", drafter="x\n2026-01-01T00:00:00Z info forged")
        assert len(stream.getvalue().splitlines()) == 1
    finally:
        logs.set_up("off")


def test_a_second_run_of_a_page_ends_its_first(served: Hosted) -> None:
    client = served.client()
    with slow(served):
        first = client.submit("The quick brown fox", "none", 400, 0.0, 0, {}, api_name="/generate")
        until(lambda: any(state["state"] == "running" for state in first.outputs()))
        second = client.submit("The lazy dog", "none", 4, 0.0, 0, {}, api_name="/generate")
        assert second.result(timeout=60)["state"] == "done"
        assert first.result(timeout=60)["state"] == "stopped"
    until(lambda: not served.backend.worker.busy)


def test_the_place_and_the_wait_are_told(served: Hosted) -> None:
    blocker = served.backend.worker.submit(iter_slowly)
    client = served.client()
    job = client.submit("The quick brown fox", "none", 4, 0.0, 0, {}, api_name="/generate")
    until(lambda: any(state["state"] == "waiting" for state in job.outputs()))
    waiting = next(state for state in job.outputs() if state["state"] == "waiting")
    assert waiting["ahead"] == 1 and waiting["expected_wait"] > 0
    blocker.cancel()
    final = job.result(timeout=60)
    assert final["state"] == "done" and final["waited"] > 0


@pytest.mark.parametrize("running", [True, False])
def test_who_leaves_frees_the_device(served: Hosted, running: bool) -> None:
    """Cancelled in mid-run or while it waits: the device is free and nothing is left behind."""
    blocker = None if running else served.backend.worker.submit(iter_slowly)
    client = served.client()
    wanted = "running" if running else "waiting"
    with slow(served):
        job = client.submit("The quick brown fox", "none", 450, 0.0, 0, {}, api_name="/generate")
        until(lambda: any(state["state"] == wanted for state in job.outputs()))
        job.cancel()
        if blocker is not None:
            until(lambda: served.backend.worker.waiting == 0)
            blocker.cancel()
        until(lambda: not served.backend.worker.busy)
    assert client_tokens(job) < 400


def client_tokens(job: Any) -> int:
    return max((len(state["token_ids"]) for state in job.outputs()), default=0)
