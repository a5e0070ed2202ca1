"""The terminal view: colours with a second mark on a terminal, none elsewhere, hostile text tamed."""

from __future__ import annotations

import io
from typing import Any

from helpers import REPEAT, target_of

from specdemo.drafters import create
from specdemo.engine import Engine
from specdemo.events import Finished
from specdemo.sampling import SamplingParams
from specdemo.terminal import printable, show


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _events(tiny: Any, drafter: str = "ngram") -> Any:
    target = target_of(tiny)
    params = SamplingParams(max_new_tokens=16, ignore_eos=True)
    return Engine(target).generate(REPEAT, create(drafter, target), params, raw=True)


def test_text_and_summary_without_colours_in_a_file(tiny_llama: Any) -> None:
    plain = io.StringIO()
    assert show(_events(tiny_llama), plain) == 0
    assert "\x1b" not in plain.getvalue()
    assert "16 tokens in" in plain.getvalue() and "tau" in plain.getvalue()


def test_colours_and_underline_on_a_terminal(tiny_llama: Any) -> None:
    out = Terminal()
    show(_events(tiny_llama), out)
    assert "\x1b[4;38;2;0;158;115m" in out.getvalue()
    assert "accepted from the draft" in out.getvalue()


def test_model_text_cannot_steer_the_terminal() -> None:
    assert printable("a\x1b]0;title\x07b\ud800\n\tc\x9b31m") == "a]0;titleb\n\tc31m"


def test_a_run_that_broke_off_says_so_and_fails() -> None:
    out = io.StringIO()
    end = Finished("cut", "", (), {}, message="The server closed the stream.")
    assert show(iter([end]), out) == 1
    assert "The server closed the stream." in out.getvalue()
