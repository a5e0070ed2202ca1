"""The bench's arithmetic and its reading of questions; whole runs are in ``test_cli``."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from helpers import target_of

from specdemo.bench import _rows, divergence, read_questions, task_of
from specdemo.bench_report import median_interval, print_table, summary_rows
from specdemo.engine import Engine
from specdemo.errors import InputError


def _row(drafter: str, category: str, speedup: float, **changes: Any) -> dict[str, Any]:
    row = {
        "drafter": drafter,
        "question_id": 1,
        "category": category,
        "task": task_of(category),
        "tokens": 60,
        "rounds": 30,
        "mean_accepted_length": 2.0,
        "acceptance_rate": 0.5,
        "tokens_per_second": 40.0,
        "speedup": speedup,
        "plain_apart": 0.02,
        "identical": True,
        "draft_ms": 10.0,
        "overhead_ms": 5.0,
        "decode_ms": 100.0,
    }
    return {**row, **changes}


def test_summary_takes_the_median_of_ratios_and_groups_the_dialogue_task() -> None:
    rows = [
        _row("ngram", "writing", 1.0),
        _row("ngram", "coding", 3.0, identical=False, gap=0.5),
        _row("ngram", "qa", 2.0, tokens=30),
    ]
    by = {row["category"]: row for row in summary_rows(rows)}
    assert set(by) == {"all", "dialogue", "writing", "coding", "qa"}
    assert by["all"]["speedup"] == 2.0 and by["all"]["mean_accepted_length"] == 150 / 90
    assert by["dialogue"]["questions"] == 2 and by["dialogue"]["speedup"] == 2.0
    assert by["all"]["identical"] == 2 and by["all"]["largest_gap"] == 0.5
    low, high = by["all"]["speedup_interval"]
    assert 1.0 <= low <= 2.0 <= high <= 3.0
    assert by["all"]["draft_share"] == pytest.approx(0.1)


def test_interval_covers_the_median_and_narrows_with_more_questions() -> None:
    wide = median_interval([1.0, 1.5, 2.0, 2.5, 3.0])
    narrow = median_interval([1.0, 1.5, 2.0, 2.5, 3.0] * 20)
    assert wide[0] == narrow[0] == 2.0
    assert narrow[2] - narrow[1] < wide[2] - wide[1]
    assert median_interval([1.2]) == (1.2, 1.2, 1.2)


def test_table_names_what_it_was_measured_on() -> None:
    environment = {
        "model": "tiny",
        "dtype": "fp32",
        "device_name": "a CPU",
        "threads": 1,
        "temperature": 0.0,
        "max_new_tokens": 8,
        "questions": 1,
    }
    out = io.StringIO()
    rows = [_row("none", "qa", 1.0)]
    print_table({"environment": environment, "rows": rows, "summary": summary_rows(rows)}, out)
    assert "tiny fp32 on a CPU" in out.getvalue() and "speed-up" in out.getvalue()
    assert "changed" not in out.getvalue()
    rows = [_row("none", "qa", 1.0), _row("ngram", "qa", 1.0, question_id=2, plain_apart=0.4)]
    print_table({"environment": environment, "rows": rows, "summary": summary_rows(rows)}, out)
    assert "changed in 1 of 2 questions" in out.getvalue() and "up to 40 % apart" in out.getvalue()


def test_plain_decoding_runs_before_and_after_and_the_mean_of_both_counts(tiny_llama: Any) -> None:
    """A machine that is slow at the beginning: against the first plain run alone, a drafter of the
    same speed as the second would look 3 times as fast."""
    asked: list[str] = []

    def runner(name: str, times: list[float]) -> Any:
        def one(turns: list[dict[str, str]]) -> dict[str, Any]:
            asked.append(name)
            zero = dict.fromkeys(("rounds", "accepted", "rejected", "draft_ms", "overhead_ms"), 0)
            tokens = {"ids": [1, 2], "text": "x", "tokens": 2, "decode_tokens": 2}
            return {**zero, **tokens, "decode_ms": times.pop(0)}

        return one

    runners = {"none": runner("none", [60.0, 20.0]), "a": runner("a", [20.0]), "b": runner("b", [40.0])}
    question = {"question_id": 7, "category": "qa", "turns": ["hello"]}
    rows = list(_rows([question], runners, Engine(target_of(tiny_llama)), greedy=True))
    assert asked == ["none", "a", "b", "none"]
    by = {row["drafter"]: row for row in rows}
    assert [by[name]["speedup"] for name in ("none", "a", "b")] == pytest.approx([1.0, 2.0, 1.0])
    assert by["none"]["tokens_per_second"] == pytest.approx(50.0)
    assert by["a"]["plain_apart"] == pytest.approx(2.0)


def test_questions_are_limited_per_task(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    rows = [
        {"question_id": i, "category": c, "turns": ["a"]}
        for i, c in enumerate(["writing", "coding", "qa", "qa", "stem"])
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n", "utf-8")
    assert [q["question_id"] for q in read_questions(path, 2)] == [0, 1, 2, 3]
    assert len(read_questions(path)) == 5


@pytest.mark.parametrize(
    "text",
    ["", "not json", "[]", '{"question_id": 1}', '{"question_id":1,"category":"qa","turns":[]}'],
)
def test_questions_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=r"q\.jsonl"):
        read_questions(path)


def test_divergence_reports_the_targets_own_gap(tiny_llama: Any) -> None:
    target = target_of(tiny_llama)
    turns = [{"role": "user", "content": "hello"}]
    found = divergence(Engine(target), turns, [5, 6, 7], [5, 9, 7])
    assert found["diverges_at"] == 1 and found["gap"] >= 0.0
    assert divergence(Engine(target), turns, [5, 6], [5])["diverges_at"] == 1
