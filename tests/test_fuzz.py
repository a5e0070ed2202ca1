"""Made-up inputs: prompts, the endpoint by HTTP, recordings, and the page's own events.

``FUZZ=10000 pytest tests/test_fuzz.py --timeout 7200`` makes up that many instead of a few.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pytest
from helpers import run, target_of
from hosted import Hosted, hosted, until
from hostile import CORPUS, numbers, texts, values
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from visiting import events, join, states

from specdemo.config import Config
from specdemo.events import to_json
from specdemo.hosting import api
from specdemo.ui.views import files

INPUTS = int(os.environ.get("FUZZ", "200"))


def fuzzed(share: float) -> Any:
    """Settings for a test that makes up this share of the inputs."""
    checks = list(HealthCheck)
    examples = round(INPUTS * share)
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, database=None)


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Thousands of short runs: look at them more often than for a reader."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "PAUSE", 0.002)
        yield


@pytest.fixture(scope="module")
def served(tiny_llama: Any) -> Iterator[Hosted]:
    config = Config(log="off", rate=10_000, address_rate=100_000, max_output=8)
    with hosted(tiny_llama, config) as page:
        yield page


@fuzzed(0.5)
@given(prompt=texts, drafter=st.one_of(st.sampled_from(["none", "ngram", "early_exit"]), values))
@example(prompt="hi", drafter="draft_model")
def test_fuzz_prompts(served: Hosted, prompt: str, drafter: Any) -> None:
    asked = {
        "prompt": prompt,
        "drafter": drafter,
        "length": 1,
        "temperature": 0.0,
        "top_p": 1.0,
        "seed": 0,
    }
    answers = states(served, asked, {})
    last = answers[-1]
    assert last["state"] in ("done", "error")
    assert "went wrong inside" not in last["message"], last
    json.dumps(answers)
    if last["state"] == "error":
        assert last["message"].endswith(".") and "\n" not in last["message"]


@fuzzed(0.2)
@given(
    prompt=values,
    drafter=st.one_of(st.sampled_from(["none", "ngram", "draft_model"]), values),
    length=st.one_of(numbers, values),
    temperature=st.one_of(numbers, values),
    seed=st.one_of(numbers, values),
    given_settings=st.one_of(
        st.dictionaries(st.sampled_from(["gamma", "branches", "x"]), values), values
    ),
)
def test_fuzz_the_endpoint_by_http(served: Hosted, **sent: Any) -> None:
    """Direct HTTP: never a 500, always an end, and the process goes on."""
    data = [sent[n] for n in ("prompt", "drafter", "length", "temperature", "seed", "given_settings")]
    body = json.dumps({"data": data}).encode()  # NaN and lone surrogates as Python writes them
    headers = {"content-type": "application/json"}
    answer = served.http.post("/gradio_api/call/generate", content=body, headers=headers)
    assert answer.status_code in (200, 400, 413, 422), answer.text
    if answer.status_code == 200:
        with served.http.stream(
            "GET", f"/gradio_api/call/generate/{answer.json()['event_id']}"
        ) as stream:
            lines = [line for line in stream.iter_lines() if line]
        assert lines[-2] in ("event: complete", "event: error")
        assert "went wrong inside" not in lines[-1], lines[-1]


@pytest.fixture(scope="module")
def recording(tiny_llama: Any) -> list[dict[str, Any]]:
    made = run(target_of(tiny_llama), "ngram")
    parts: list[Any] = [made.started]
    for one in made.rounds:
        parts += [one.drafted, one.verified]
    return [json.loads(to_json(event)) for event in [*parts, made.finished]]


@fuzzed(0.3)
@given(choice=st.data())
def test_fuzz_uploaded_recordings(
    recording: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory, choice: Any
) -> None:
    """A true recording with something in it replaced, or anything at all."""
    kind = choice.draw(st.sampled_from(["value", "line", "bytes", "page", "order"]))
    lines = json.loads(json.dumps(recording))
    if kind == "value":
        line = choice.draw(st.sampled_from(lines))
        line[choice.draw(st.sampled_from(sorted(line)))] = choice.draw(values)
    elif kind == "line":
        lines.insert(choice.draw(st.integers(0, len(lines))), choice.draw(values))
    elif kind == "order":
        lines = choice.draw(st.permutations(lines[:8]))
    content = "\n".join(json.dumps(line) for line in lines).encode()
    if kind == "bytes":
        content = choice.draw(st.binary(max_size=200)) + content[choice.draw(st.integers(0, 400)) :]
    if kind == "page":
        inner = choice.draw(st.one_of(values.map(json.dumps), texts)).encode("utf-8", "replace")
        content = b'<script type="application/json" id="specdemo-data">' + inner + b"</script>"
    path = tmp_path_factory.getbasetemp() / "fuzzed.jsonl"
    path.write_bytes(content)
    shown = [json.loads(line) for line in files.opened(str(path), "en").splitlines()]
    assert shown and all(isinstance(line, dict) for line in shown)
    assert any(line.get("do") == "status" for line in shown)


def test_the_corpus_is_answered(served: Hosted) -> None:
    for text in CORPUS:
        for drafter in ("ngram", text):
            asked = {"prompt": text, "drafter": drafter, "length": 2, "temperature": 0.0}
            last = states(served, {**asked, "top_p": 1.0, "seed": 0}, {"gamma": text})[-1]
            assert last["state"] == "error" and "went wrong inside" not in last["message"]


def test_page_events_bear_any_values(served: Hosted, capfd: pytest.CaptureFixture[str]) -> None:
    """Every event of the page, with values that no page would send: an answer, and no trace of ours."""
    for event in events(served):
        if not event["backend_fn"]:
            continue
        for value in (None, -1, 1e308, "<img>", [], {}, [[[]]], True, {"path": "x"}, "\ud800"):
            data = [value] * len(event["inputs"])
            message = join(served, event["id"], data, f"s{event['id']}")
            assert message or value == "\ud800"
    told = capfd.readouterr().err
    ours = [line for line in told.splitlines() if "/specdemo/" in line and "line " in line]
    assert ours == [], "\n".join(ours[:20])
    until(lambda: not served.backend.worker.busy)


def test_page_actions_bear_one_odd_value(served: Hosted, capfd: pytest.CaptureFixture[str]) -> None:
    """The page's buttons with its own values, but one: a sentence or a run, never a failure inside."""
    components = {part["id"]: part["props"] for part in served.http.get("/config").json()["components"]}
    small = {"field-length": 8, "field-baseline": "off", "field-draws": 50, "field-prompt": "The fox"}
    choose = random.Random(0)
    actions = [e for e in events(served) if e["backend_fn"] and len(e["inputs"]) > 10]
    assert len(actions) >= 3
    for number in range(min(200, INPUTS // 5)):
        action = choose.choice(actions)
        props = [components[index] for index in action["inputs"]]
        data = [small.get(p.get("elem_id"), p.get("value")) for p in props]
        data[choose.randrange(len(data))] = choose.choice(
            [None, "", -1, 0.5, 2**60, "1e9", True, *CORPUS[:6]]
        )
        message = join(served, action["id"], data, f"odd{number}")
        assert message, data
        if message["success"]:
            assert "went wrong inside" not in json.dumps(message), data
    told = capfd.readouterr().err
    ours = [line for line in told.splitlines() if "/specdemo/" in line and "line " in line]
    assert ours == [], "\n".join(ours[:20])
