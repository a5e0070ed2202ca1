"""A visitor is hostile: requests, prompts, recordings and model text that try to get out.

``FUZZ=10000 pytest tests/test_security.py`` makes up that many inputs instead of a few.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from helpers import run, target_of
from hosted import Hosted, hosted, until
from hostile import CORPUS, numbers, texts, values
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from starlette.responses import JSONResponse

from specdemo.config import Config
from specdemo.events import to_json
from specdemo.hosting import api
from specdemo.hosting.guard import Guard
from specdemo.hosting.headers import policy
from specdemo.hosting.visitors import Buckets
from specdemo.ui.views import files
from specdemo.ui.views.live import Sessions

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


def join(page: Hosted, index: int, data: list[Any], session: str = "visitor") -> dict[str, Any]:
    """Send a page event by HTTP, as the browser does; its last message (none when refused at once)."""
    body = json.dumps({"data": data, "fn_index": index, "session_hash": session}).encode()
    headers = {"content-type": "application/json"}
    answer = page.http.post("/gradio_api/queue/join", content=body, headers=headers)
    if answer.status_code == 400:
        assert answer.json()["detail"].endswith(".")
        return {}
    assert answer.status_code == 200, answer.text
    with page.http.stream("GET", f"/gradio_api/queue/data?session_hash={session}") as stream:
        lines = [json.loads(line[6:]) for line in stream.iter_lines() if line.startswith("data: ")]
    return next(m for m in reversed(lines) if m["msg"] == "process_completed")


def events(page: Hosted) -> list[dict[str, Any]]:
    return page.http.get("/config").json()["dependencies"]


# Which paths there are


@pytest.mark.parametrize(
    "path",
    [
        "/gradio_api/file=/etc/passwd",
        "/gradio_api/file=app.py",
        "/gradio_api/file/etc/passwd",
        "/gradio_api/proxy=http://169.254.169.254/",
        "/gradio_api/custom_component/x/client/component/index.js",
        "/gradio_api/stream/a/b/c/playlist.m3u8",
        "/gradio_api/runs",
        "/gradio_api/run-history/records",
        "/gradio_api/deep_link?session_hash=x",
        "/gradio_api/dev/reload",
        "/gradio_api/token",
        "/gradio_api/openapi.json",
        "/gradio_api/vibe-code/",
        "/gradio_api/profiling/traces",
        "/monitoring",
        "/monitoring/summary",
        "/docs",
        "/redoc",
        "/openapi.json",
        "/specdemo/../app.py",
        "/specdemo/js/../../app.py",
        "/specdemo/js/..%2f..%2fapp.py",
        "/specdemo/js/%2e%2e/%2e%2e/app.py",
        "/static/..%2f..%2f..%2fetc/passwd",
        "/assets//etc/passwd",
        "/healthz/x",
    ],
)
def test_what_the_page_does_not_need_is_not_there(served: Hosted, path: str) -> None:
    answer = raw(served, f"GET {path} HTTP/1.1")
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 403")), answer[:200]
    assert b"root:" not in answer and b"specdemo.cli" not in answer


def raw(page: Hosted, line: str, body: bytes = b"", headers: str = "") -> bytes:
    """The answer to a request as it is written, without a client that tidies paths."""
    import socket

    host, port = page.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(
            f"{line}\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n".encode() + body
        )
        parts = []
        while chunk := connection.recv(65536):
            parts.append(chunk)
    return b"".join(parts)


@pytest.mark.parametrize(
    "path", ["run/generate", "api/generate", "call/predict", "call/opened", "vibe-edit"]
)
def test_other_ways_to_call_a_function_are_closed(served: Hosted, path: str) -> None:
    assert served.http.post(f"/gradio_api/{path}", json={"data": []}).status_code == 404


def test_one_endpoint_is_public(served: Hosted) -> None:
    public = [event["api_name"] for event in events(served) if event["api_visibility"] != "private"]
    assert public == ["generate"]
    assert list(served.http.get("/gradio_api/info").json()["named_endpoints"]) == ["/generate"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE", "CONNECT"])
def test_other_methods_are_refused(served: Hosted, method: str) -> None:
    assert raw(served, f"{method} /config HTTP/1.1")[9:12] in (b"405", b"400")


# What a request may hold


def test_a_body_that_is_too_large_is_refused(served: Hosted) -> None:
    big = b'{"data": ["' + b"x" * 2_000_000 + b'"]}'
    assert served.http.post("/gradio_api/queue/join", content=big).status_code == 413
    chunks = (b"x" * 100_000 for _ in range(20))  # without a length announced
    answer = served.http.post("/gradio_api/queue/join", content=chunks)
    assert answer.status_code == 413
    upload = {"files": ("a.jsonl", b"x" * 9_500_000)}
    assert served.http.post("/gradio_api/upload", files=upload).status_code == 413
    assert served.http.get("/healthz").status_code == 200


@pytest.mark.parametrize("path", ["/etc/passwd", "app.py", "../app.py", "/proc/self/environ"])
def test_a_visitor_cannot_name_a_file(served: Hosted, path: str) -> None:
    upload = next(e["id"] for e in events(served) if e["targets"] and e["targets"][0][1] == "upload")
    file = {"path": path, "meta": {"_type": "gradio.FileData"}}
    message = join(served, upload, [file, "en"])
    assert message["success"] is False and "root:" not in json.dumps(message)


def test_a_visitor_cannot_name_an_address(served: Hosted) -> None:
    """Gradio would fetch a file that is given by its address."""
    for event in (e for e in events(served) if e["inputs"] or e["api_name"] == "generate"):
        file = {"path": "http://example.org/x", "meta": {"_type": "gradio.FileData"}}
        body = {"data": [{"deep": [file]}], "fn_index": event["id"], "session_hash": "v"}
        assert served.http.post("/gradio_api/queue/join", json=body).status_code == 400
    assert served.http.post("/gradio_api/call/generate", json={"data": [file]}).status_code == 400
    nested = b'{"data": ' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    assert served.http.post("/gradio_api/queue/join", content=nested).status_code == 400


@pytest.mark.parametrize(
    "name", ["/etc", "meta-llama/Llama-3.1-8B", "http://x", "@target", "none@target"]
)
def test_a_visitor_cannot_name_a_model_or_a_server(served: Hosted, name: str) -> None:
    asked = {"prompt": "hi", "length": 4, "temperature": 0.0, "top_p": 1.0, "seed": 0}
    final = states(served, {**asked, "drafter": name}, {"draft": "/etc"})[-1]
    assert final["state"] == "error" and final["message"].endswith(".")
    for setting in ("draft", "head", "model", "server", "path"):
        final = states(served, {**asked, "drafter": "ngram"}, {setting: name})[-1]
        assert final["state"] == "error" and "has no setting" in final["message"]


# Headers, passwords, limits


def test_every_answer_carries_the_security_headers(served: Hosted) -> None:
    for path in ("/", "/config", "/healthz", "/specdemo/js/main.js", "/nothing", "/gradio_api/info"):
        headers = served.http.get(path).headers
        rules = dict(rule.split(" ", 1) for rule in headers["content-security-policy"].split("; "))
        assert rules["default-src"] == rules["connect-src"] == "'self'"
        assert rules["frame-ancestors"] == "'self'" and headers["x-frame-options"] == "SAMEORIGIN"
        assert "unsafe-inline" not in rules["script-src"] and "http" not in rules["script-src"]
        assert headers["x-content-type-options"] == "nosniff"


def test_the_policy_names_the_inline_scripts_alone() -> None:
    html = b"<script>a()</script><script src='x.js'></script><script type=module>b()</script>"
    assert len(re.findall("sha256-", policy(html))) == 2
    assert policy(html) != policy(html.replace(b"a()", b"a( )"))
    framed = policy(b"", ("https://huggingface.co",))
    assert "frame-ancestors 'self' https://huggingface.co" in framed


def test_a_class_needs_its_password(tiny_llama: Any) -> None:
    config = Config(log="off", auth=("class:open sesame",))
    with hosted(tiny_llama, config) as page:
        for path in ("/config", "/gradio_api/info"):
            assert page.http.get(path).status_code == 401
        body = {"data": ["hi", "ngram", 4, 0.0, 0, {}], "fn_index": 0, "session_hash": "x"}
        assert page.http.post("/gradio_api/queue/join", json=body).status_code == 401
        assert page.http.post("/gradio_api/call/generate", json=body).status_code == 401
        assert page.http.post("/gradio_api/upload", files={"files": b"x"}).status_code == 401
        assert page.http.get("/healthz").status_code == 200
        for wrong in ("", "open sesam", "open sesame "):
            sent = {"username": "class", "password": wrong}
            assert page.http.post("/login", data=sent).status_code in (400, 422)
        right = {"username": "class", "password": "open sesame"}
        assert page.http.post("/login", data=right).status_code == 200
        assert page.http.get("/config").status_code == 200
        assert "open sesame" not in page.http.get("/config").text


def test_guessing_passwords_and_uploading_are_slowed_down() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        status = 400 if b"wrong" in (await receive())["body"] else 200
        await JSONResponse({}, status)(scope, receive, send)

    guard = Guard(app, uploads=Buckets(3), logins=Buckets(3))

    async def codes(path: str, body: bytes) -> list[int]:
        transport = httpx.ASGITransport(app=guard)
        async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
            return [(await client.post(path, content=body)).status_code for _ in range(5)]

    assert asyncio.run(codes("/login", b"right")) == [200] * 5  # a class may log in at once
    assert asyncio.run(codes("/login", b"wrong")) == [400] * 3 + [429] * 2
    assert asyncio.run(codes("/gradio_api/upload", b"x")) == [200] * 3 + [429] * 2


def test_uploads_can_be_switched_off(tiny_llama: Any) -> None:
    with hosted(tiny_llama, Config(log="off", recordings=False), load=False) as page:
        assert page.http.post("/gradio_api/upload", files={"files": b"x"}).status_code == 404
        assert not any(e["targets"] and e["targets"][0][1] == "upload" for e in events(page))


# Made-up inputs


def states(page: Hosted, values: dict[str, Any], drafter_settings: Any) -> list[dict[str, Any]]:
    """The endpoint's answers, without HTTP in between."""
    request = SimpleNamespace(session_hash="fuzz", client=None, headers={}, username=None)

    async def collect() -> list[dict[str, Any]]:
        answers = api._states(page.backend, Sessions(), values, drafter_settings, request)
        return [state async for state in answers]

    return asyncio.run(collect())


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
