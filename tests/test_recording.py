"""Recordings: whole or not at all, checked as a whole, replayed without a model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import target_of
from scripted import play

from specdemo.drafters.ngram import NGram
from specdemo.engine import Engine
from specdemo.events import (
    Drafted,
    DraftNode,
    Event,
    Finished,
    NodeVerdict,
    RecordingError,
    Started,
    Token,
    Verified,
    to_dict,
    to_json,
)
from specdemo.recording import MAX_BYTES, load, paced, parse, record
from specdemo.run import Run
from specdemo.sampling import SamplingParams

STARTED = Started(1, "m", "ngram", "p", 1, {}, "cpu", "fp32", 0, True)
ROUND = (
    Drafted(0, (DraftNode(5, "x", -1, None), DraftNode(6, "y", 0, None)), 1.0),
    Verified(
        0,
        (NodeVerdict("accepted", 1.0, 1.0), NodeVerdict("rejected", 0.0, 0.0)),
        (Token(5, "x", "accepted", node=0), Token(7, "z\u2028<img onerror=1>", "corrected")),
        2.0,
    ),
)
FINISHED = Finished("eos", "xz", (5, 7), {"tokens": 2})
WHOLE: list[Event] = [STARTED, *ROUND, FINISHED]


def lines(*events: Any) -> str:
    return "\n".join(json.dumps(e) if isinstance(e, dict) else to_json(e) for e in events)


def test_a_real_run_comes_back_unchanged(tiny_llama: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    params = SamplingParams(temperature=1.0, max_new_tokens=6, ignore_eos=True)
    engine = Engine(target_of(tiny_llama))
    made = NGram(min_match=1, branches=2, adaptive=False)
    live = list(record(engine.generate("a b a b a", made, params, raw=True, trace=True), path))
    assert [path] == list(tmp_path.iterdir())
    assert load(path) == live
    assert Run.of(load(path)).tokens == Run.of(live).tokens


def test_a_broken_off_run_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"

    def failing() -> Iterator[Event]:
        yield STARTED
        raise RuntimeError("lost")

    with pytest.raises(RuntimeError, match="lost"):
        list(record(failing(), path))
    stopped = record(iter(WHOLE), path)
    next(stopped)
    stopped.close()
    assert list(tmp_path.iterdir()) == []


def test_replay_needs_no_torch(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(lines(*WHOLE))
    code = (
        "import sys, pathlib\n"
        "from specdemo import recording, run, metrics\n"
        "folded = run.Run.of(recording.paced(recording.load(pathlib.Path(sys.argv[1])), 100.0))\n"
        "assert metrics.summarise(folded)['tokens'] == 2 and folded.finished is not None\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_line_ends_inside_texts_do_not_split_lines() -> None:
    """U+2028 and U+0085 end lines for Python, not for JSON; other writers may leave them unescaped."""
    raw = "\n".join(json.dumps(to_dict(event), ensure_ascii=False) for event in WHOLE)
    assert "\u2028" in raw
    assert parse(raw) == WHOLE
    assert parse(lines(*WHOLE).replace("\n", "\r\n") + "\r\n") == WHOLE


BAD = {
    "empty": "",
    "blank": "\n\n",
    "not JSON": "hello",
    "no beginning": lines(*WHOLE[1:]),
    "twice": lines(*WHOLE, *WHOLE),
    "two beginnings": lines(STARTED, *WHOLE),
    "goes on": lines(*WHOLE, *ROUND),
    "verdicts without a draft": lines(STARTED, ROUND[1]),
    "too few verdicts": lines(STARTED, Drafted(0, ROUND[0].nodes[:1], 1.0), ROUND[1]),
    "a node as its own parent": lines(STARTED, Drafted(0, (DraftNode(1, "a", 0, None),), 1.0)),
    "a parent from nowhere": lines(STARTED, Drafted(0, (DraftNode(1, "a", -2, None),), 1.0)),
    "a token of no node": lines(
        STARTED, Drafted(0, (), 0.0), Verified(0, (), (Token(1, "a", "accepted", node=0),), 1.0)
    ),
    "half a line": lines(*WHOLE)[:-10],
    "an endless pause": lines(STARTED, to_dict(ROUND[0]) | {"ms": 1e999}),
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_malformed_recordings_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(RecordingError) as caught:
        parse(text)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"\xff\xfe\x00")
    with large.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    for path in (tmp_path / "missing", tmp_path, binary, large):
        with pytest.raises(RecordingError) as caught:
            load(path)
        assert str(tmp_path) not in str(caught.value)  # names the file, not the machine's folders


def test_pace_is_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits add up to the recorded times over the speed; a foreign file cannot make it wait forever."""
    clock, waits = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr("specdemo.recording.time.sleep", sleep)
    monkeypatch.setattr("specdemo.recording.time.monotonic", lambda: clock[0])
    assert list(paced(WHOLE, 2.0)) == WHOLE
    assert waits == pytest.approx([0.0, 0.0005, 0.001, 0.0])
    assert list(paced([Drafted(0, (), 1e200)]))
    assert waits[-1] <= 60.0


def test_a_run_recorded_without_an_end_can_be_looked_at(tiny_llama: Any) -> None:
    assert parse(lines(STARTED, *ROUND))[0] == STARTED
    assert play(target_of(tiny_llama), max_new_tokens=1).finished is not None
