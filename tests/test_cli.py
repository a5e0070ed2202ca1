"""The command line as scripts use it: real processes on a tiny model folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import REPEAT

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny_llama: Any) -> Path:
    path = tmp_path_factory.mktemp("tiny-llama")
    model, tokenizer = tiny_llama
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


def specdemo(*arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(
        [sys.executable, "-m", "specdemo", *arguments],
        cwd=ROOT,
        env=env,
        input=stdin,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=240,
        check=False,
    )


def model_arguments(folder: Path) -> list[str]:
    return ["--model", str(folder), "--dtype", "fp32", "--device", "cpu", "--max-new-tokens", "12"]


def events_of(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_generate_json_is_one_event_a_line_and_nothing_else(folder: Path) -> None:
    arguments = ["generate", REPEAT, *model_arguments(folder), "--drafter", "ngram", "--json", "--raw"]
    events = events_of(specdemo(*arguments, "--gamma", "3", "--seed", "7"))
    kinds = [event["type"] for event in events]
    assert kinds[0] == "started" and kinds[-1] == "finished"
    assert kinds[1:-1] == ["drafted", "verified"] * ((len(kinds) - 2) // 2)
    started, finished = events[0], events[-1]
    assert started["seed"] == 7 and started["drafter"] == "ngram" and started["lossless"] is True
    assert started["settings"]["gamma"] == 3
    tokens = [token for event in events if event["type"] == "verified" for token in event["tokens"]]
    assert {"id", "text", "origin", "p"} <= set(tokens[0])
    assert {token["origin"] for token in tokens} <= {"accepted", "corrected", "bonus", "target"}
    assert [token["id"] for token in tokens] == finished["token_ids"]
    assert "".join(token["text"] for token in tokens) == finished["text"]
    assert finished["reason"] in {"length", "eos"}
    wanted = "tokens rounds mean_accepted_length acceptance_rate tokens_per_second prefill_ms"
    wanted += " draft_ms verify_ms overhead_ms"
    assert set(wanted.split()) <= set(finished["summary"])


def test_prompt_from_standard_input_and_coloured_summary(folder: Path) -> None:
    done = specdemo("generate", "-", *model_arguments(folder), "--raw", stdin=REPEAT)
    assert done.returncode == 0, done.stderr
    assert "12 tokens in 12 verify passes" in done.stdout
    assert "\x1b[" not in done.stdout  # no colours into a file


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["  "], "prompt is empty"),
        (["a\x07b"], "U+0007"),
        (["hello", "--gamma", "99", "--drafter", "ngram"], "gamma must be a number"),
        (["hello", "--temperature", "9"], "temperature must be a number"),
        (["hello", "--drafter", "telepathy"], "no drafter"),
        (["hello", "--drafter", "ngram", "--set", "speed=3"], "no setting"),
        (["hello", "--set", "x"], "no setting"),
        (["hello", "--acceptance", "maybe"], "acceptance rule"),
        (["hello", "--top-p", "nan"], "top_p must be a number"),
        (["hello", "--dtype", "int1"], "int1"),
        (["word " * 400, "--raw"], "tokens"),
        (["x" * 1_000_000], "characters"),
        (["hello", "--drafter", "draft_model"], "draft"),
        (["hello", "--drafter", "early_exit", "--set", "layers=4"], "layers"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    folder: Path, arguments: list[str], words: str
) -> None:
    model = ["--model", str(folder), "--device", "cpu"]
    if arguments[0].startswith("xxx"):  # longer than a command line may be
        done = specdemo("generate", "-", *model, stdin=arguments[0])
    else:
        done = specdemo("generate", *arguments[:1], *model, *arguments[1:])
    assert done.returncode == 2
    assert words in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_unknown_model_and_missing_device() -> None:
    unknown = specdemo("generate", "hello", "--model", "no/such-model")
    assert unknown.returncode == 2 and "no/such-model" in unknown.stderr
    assert "Traceback" not in unknown.stderr


def test_record_and_replay_give_the_same_events(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.jsonl"
    recorded = specdemo("record", REPEAT, *model_arguments(folder), "--raw", "--out", str(out))
    assert recorded.returncode == 0, recorded.stderr
    replayed = events_of(specdemo("replay", str(out), "--json", "--speed", "0"))
    assert replayed == [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    out.write_text("no recording\n", "utf-8")
    broken = specdemo("replay", str(out))
    assert broken.returncode == 2 and "Traceback" not in broken.stderr


def test_bench_measures_side_by_side_and_writes_json(folder: Path, tmp_path: Path) -> None:
    questions, out = tmp_path / "questions.jsonl", tmp_path / "out.json"
    rows = [
        {"question_id": 1, "category": "writing", "turns": [REPEAT, "Again."]},
        {"question_id": 2, "category": "qa", "turns": [REPEAT]},
    ]
    questions.write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    arguments = ["--questions", str(questions), "--drafters", "ngram,early_exit", "--peers"]
    done = specdemo("bench", *arguments, *model_arguments(folder), "--json", str(out))
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text("utf-8"))
    names = {row["drafter"] for row in result["rows"]}
    assert {"none", "ngram", "early_exit", "hf", "hf-ngram"} <= names
    for row in result["rows"]:
        assert row["tokens"] > 0 and row["tokens_per_second"] > 0 and row["speedup"] > 0
        # fp32 on the CPU: whoever drafts, the text is the target's (up to a proven tie)
        assert row["identical"] or row["gap"] < 1e-3, row
        if row["drafter"] == "none":
            assert row["speedup"] == 1.0 and row["mean_accepted_length"] == 1.0
    overall = [row for row in result["summary"] if row["category"] == "all"]
    assert {row["drafter"] for row in overall} == names
    assert "dialogue" in {row["category"] for row in result["summary"]}
    assert "early_exit" in done.stdout
    missing = specdemo("bench", "--questions", str(tmp_path / "none.jsonl"))
    assert missing.returncode == 2 and "cannot be used" in missing.stderr
