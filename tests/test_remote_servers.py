"""Servers are named by the host alone; addresses are checked and keys never shown."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from specdemo import remote
from specdemo.errors import InputError
from specdemo.remote import REGISTRY, configure, configured_servers, describe, find, parse_server
from specdemo.remote.servers import KINDS

KEY = "sk-very-secret"


def test_every_kind_has_a_client() -> None:
    assert set(REGISTRY) == set(KINDS) == {"vllm", "sglang", "llamacpp", "trtllm"}


def test_a_name_that_is_a_kind_needs_no_more() -> None:
    server = parse_server("vllm=http://127.0.0.1:8000/v1", {})
    assert (server.name, server.kind, server.base_url) == ("vllm", "vllm", "http://127.0.0.1:8000")
    assert server.model == "" and server.without_speculation() is None


def test_all_options() -> None:
    entry = (
        "big=https://gpu.example:8443/llm/v1/,kind=sglang,model=m/x-7B,baseline=http://gpu.example/v1"
    )
    server = parse_server(entry, {"SPECDEMO_KEY_BIG": KEY})
    assert server.base_url == "https://gpu.example:8443/llm" and server.model == "m/x-7B"
    baseline = server.without_speculation()
    assert baseline is not None and baseline.base_url == "http://gpu.example"
    assert baseline.kind == "sglang" and baseline.model == "m/x-7B"
    assert baseline.api_key == KEY  # the same host


def test_a_key_is_not_sent_to_a_baseline_elsewhere() -> None:
    entry = "vllm=https://a.example,baseline=https://b.example"
    server = parse_server(entry, {"SPECDEMO_KEY_VLLM": KEY})
    assert server.without_speculation().api_key == ""  # type: ignore[union-attr]
    own = parse_server(entry, {"SPECDEMO_KEY_VLLM": KEY, "SPECDEMO_KEY_VLLM_BASELINE": "other"})
    assert own.without_speculation().api_key == "other"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "vllm",
        "=http://a",
        "vllm=",
        "vllm=a.example:8000",
        "vllm=ftp://a.example",
        "vllm=file:///etc/passwd",
        "vllm=http://",
        "vllm=http://a.example:99999",
        "vllm=http://a.example:x",
        "vllm=http://[::1",
        "vllm=http://user:secret@a.example",
        "vllm=http://a.example/?key=secret",
        "vllm=http://a.example/#x",
        "vllm=http://a.example/a b",
        "room=http://a.example",
        "room=http://a.example,kind=gpt",
        "vllm=http://a.example,kind=",
        "vllm=http://a.example,colour=red",
        "vllm=http://a.example,model=x,model=y",
        "vllm=http://a.example,baseline=javascript:alert(1)",
        "my room=http://a.example,kind=vllm",
        "../x=http://a.example,kind=vllm",
    ],
)
def test_bad_entries_are_one_sentence_without_the_address(entry: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_server(entry, {})
    sentence = str(caught.value)
    assert sentence.endswith(".") and "secret" not in sentence and "a.example" not in sentence


def test_a_key_that_no_header_may_hold() -> None:
    with pytest.raises(InputError) as caught:
        parse_server("vllm=http://a.example", {"SPECDEMO_KEY_VLLM": "bad\nX-Evil: 1"})
    assert "X-Evil" not in str(caught.value)


def test_keys_are_in_no_description() -> None:
    server = parse_server(
        "room-1=http://a.example,kind=vllm,baseline=http://a.example:1", {"SPECDEMO_KEY_ROOM_1": KEY}
    )
    assert server.api_key == KEY and server.baseline_key == KEY
    shown = (
        repr(server) + str(server) + json.dumps(describe(server)) + repr(server.without_speculation())
    )
    assert KEY not in shown
    assert describe(server) == {
        "name": "room-1",
        "kind": "vllm",
        "engine": "vLLM",
        "model": "",
        "baseline": True,
    }


def test_environment_and_flags() -> None:
    try:
        environ = {"SPECDEMO_SERVERS": "vllm=http://a.example  llamacpp=http://b.example"}
        configure(["vllm=http://c.example"], environ)
        assert list(configured_servers()) == ["vllm", "llamacpp"]
        assert find("vllm").base_url == "http://c.example"  # the flag wins
        for address in ("http://evil.example", "sglang", "vllm=http://evil.example", ""):
            with pytest.raises(InputError):
                find(address)
        with pytest.raises(InputError):
            configure(["vllm=http://a.example", "vllm=http://b.example"], {})
        assert "vllm" in configured_servers()  # a bad call changes nothing
    finally:
        configure([], {})
    with pytest.raises(InputError, match="none is configured"):
        find("vllm")


def test_clients_need_no_torch() -> None:
    code = f"import sys, {remote.__name__}.load; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
