"""A visitor is hostile: requests that try to get out, headers, passwords, limits."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hosted import Hosted, hosted
from starlette.responses import JSONResponse
from visiting import events, join, states

from specdemo.config import Config
from specdemo.hosting.guard import Guard
from specdemo.hosting.headers import policy
from specdemo.hosting.visitors import Buckets


@pytest.fixture(scope="module")
def served(tiny_llama: Any) -> Iterator[Hosted]:
    config = Config(log="off", rate=10_000, address_rate=100_000, max_output=8)
    with hosted(tiny_llama, config) as page:
        yield page


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
