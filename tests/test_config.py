"""The host's settings: where values come from, a sentence for every mistake, no secret ever shown."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from typing import Any

import pytest

from specdemo import config
from specdemo.config import FIELDS, Config, ConfigError, flag, load, load_with_sources, variable


def flags(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    return parser.parse_args(list(arguments))


def mistakes(environ: dict[str, str], *arguments: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(environ, flags(*arguments))
    for sentence in caught.value.mistakes:
        assert (
            sentence.endswith((".", "?"))
            and "\n" not in sentence
            and sentence[0].isalpha() | (sentence[0] == "-")
        )
    return caught.value.mistakes


def test_nothing_set_gives_the_defaults() -> None:
    assert load({}) == Config()


def test_a_flag_wins_over_a_variable_and_both_over_the_default() -> None:
    environ = {"SPECDEMO_PORT": "8000", "SPECDEMO_RATE": "5"}
    got, sources = load_with_sources(environ, flags("--port", "9000"))
    assert (got.port, got.rate, got.queue) == (9000, 5, 256)
    assert (sources["port"], sources["rate"], sources["queue"]) == ("--port", "SPECDEMO_RATE", "default")


def test_lists_flags_that_repeat_and_switches() -> None:
    environ = {"SPECDEMO_MODELS": "qwen3-0.6b, smollm2-360m", "SPECDEMO_RECORDINGS": "off"}
    got = load(
        environ,
        flags("--server", "vllm=http://a:1,model=x", "--server", "b=http://b:2,kind=llamacpp"),
    )
    assert got.models == ("qwen3-0.6b", "smollm2-360m")
    assert got.servers == ("vllm=http://a:1,model=x", "b=http://b:2,kind=llamacpp")
    assert got.recordings is False


def test_servers_of_the_environment_keep_their_commas() -> None:
    got = load({"SPECDEMO_SERVERS": "vllm=http://a:1,model=x b=http://b:2,kind=llamacpp"})
    assert got.servers == ("vllm=http://a:1,model=x", "b=http://b:2,kind=llamacpp")


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_refuses_nonsense_or_is_free_text(name: str) -> None:
    field = FIELDS[name]
    free = name in ("model", "draft", "models", "host")
    if free:
        return
    nonsense = "ftp://nothing" if name == "servers" else "\\?nonsense"
    (sentence,) = mistakes({variable(name): nonsense})
    assert variable(name) in sentence
    if not field.metadata["secret"]:
        (sentence,) = mistakes({}, flag(name), nonsense)
        assert flag(name) in sentence


@pytest.mark.parametrize(
    ("environ", "part"),
    [
        ({"SPECDEMO_PORT": "70000"}, "from 0 to 65535"),
        ({"SPECDEMO_DEADLINE": "nan"}, "from 1 to 86400"),
        ({"SPECDEMO_DEADLINE": "inf"}, "from 1 to 86400"),
        ({"SPECDEMO_DEVCE": "cpu"}, "did you mean SPECDEMO_DEVICE?"),
        ({"SPECDEMO_QWERTZ": "1"}, "not a setting"),
        ({"SPECDEMO_DTYPE": "q4", "SPECDEMO_DEVICE": "cuda"}, "choose bf16"),
        ({"SPECDEMO_AUTH": "a:12345,a:67890"}, "names the user a twice"),
        ({"SPECDEMO_AUTH": "a:1"}, "four characters"),
        ({"SPECDEMO_SERVERS": "vllm=http://a:1 vllm=http://b:1"}, "vllm twice"),
        ({"SPECDEMO_ROOT_PATH": "https://example.org/demo"}, "a path such as"),
        ({"SPECDEMO_FRAME": "'none'; script-src *"}, "origins such as"),
    ],
)
def test_what_is_wrong_is_said(environ: dict[str, str], part: str) -> None:
    assert part in " ".join(mistakes(environ))


def test_all_mistakes_are_told_at_once() -> None:
    environ = {"SPECDEMO_PORT": "x", "SPECDEMO_RATE": "-1", "SPECDEMO_LANG": "fr", "SPECDEMO_X": "1"}
    assert len(mistakes(environ)) == 4


SECRETS = {
    "SPECDEMO_AUTH": "class:Tr0ubador-secret",
    "SPECDEMO_SERVERS": "vllm=http://inside.example:8000,model=m",
    "SPECDEMO_KEY_VLLM": "sk-key-secret",
}


def test_secrets_are_never_shown(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    got = load(SECRETS)
    assert got.users == {"class": "Tr0ubador-secret"}
    config.config_command(flags())
    shown = capsys.readouterr().out + repr(got)
    assert "secret" not in shown and "sk-key" not in shown
    assert "1 user(s)" in shown and "key set" in shown
    broken = {**SECRETS, "SPECDEMO_AUTH": "Tr0ubador-secret", "SPECDEMO_SERVERS": "http://u:secret@h"}
    assert "secret" not in " ".join(mistakes(broken))


def test_on_a_space_the_page_listens_to_all_and_may_be_framed() -> None:
    got = load({"SPACE_ID": "someone/specdemo"})
    assert (got.host, got.proxy, got.frame) == ("0.0.0.0", True, ("https://huggingface.co",))
    assert load({"SPACE_ID": "a/b", "SPECDEMO_HOST": "127.0.0.1"}).host == "127.0.0.1"


def test_the_command_prints_one_sentence_a_mistake_and_no_trace() -> None:
    environ = {**os.environ, "SPECDEMO_PORT": "x", "SPECDEMO_RATE": "y"}
    done = subprocess.run(
        [sys.executable, "-m", "specdemo", "config"], env=environ, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stdout == ""
    assert "SPECDEMO_PORT must be a whole number" in done.stderr
    assert "SPECDEMO_RATE must be a whole number" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 2 and "Traceback" not in done.stderr
