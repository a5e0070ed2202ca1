"""The measured cost of a verify pass: never falling, kept between processes; no folder is no error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import target_of

from specdemo import pass_cost
from specdemo.drafters import create
from specdemo.engine import Engine
from specdemo.pass_cost import ROWS, ByContext, Measured, measure, rising
from specdemo.run import Run
from specdemo.sampling import SamplingParams


def test_between_and_beyond_the_measured_rows() -> None:
    cost = Measured({1: 1.0, 2: 1.1, 4: 1.5, 8: 3.5})
    assert cost(1) == 1.0 and cost(4) == 1.5
    assert cost(3) == pytest.approx(1.3)
    assert cost(6) == pytest.approx(2.5)
    assert cost(12) == pytest.approx(5.5)


def test_a_longer_context_makes_wide_passes_dearer() -> None:
    cost = ByContext({64: {1: 1.0, 8: 2.0}, 1024: {1: 1.0, 8: 4.0}})
    assert cost(8) == cost.at(3)(8) == cost.at(64)(8) == 2.0
    assert cost.at(544)(8) == pytest.approx(3.0) and cost.at(544)(1) == 1.0
    assert cost.at(1024)(8) == cost.at(9000)(8) == 4.0


def test_the_engine_asks_for_the_cost_behind_its_prompt(tiny_llama: Any) -> None:
    asked: list[int] = []

    class Curves(ByContext):
        def at(self, context: int) -> Measured:
            asked.append(context)
            return super().at(context)

    engine = Engine(target_of(tiny_llama), Curves({64: {1: 1.0, 8: 2.0}, 1024: {1: 1.0, 8: 4.0}}))
    run = Run.of(
        engine.generate("Hello", create("none", engine.target), SamplingParams(max_new_tokens=5))
    )
    assert run.started is not None and asked == [run.started.prompt_tokens + 5]


@pytest.mark.parametrize(
    ("measured", "kept"),
    [
        ([1.0, 1.1, 1.2], [1.0, 1.1, 1.2]),
        ([1.0, 0.8, 0.9, 1.3], [1.0, 1.0, 1.0, 1.3]),
        ([1.0, 1.8, 1.2, 1.2, 2.0], [1.0, 1.4, 1.4, 1.4, 2.0]),
        ([1.0, 1.2, 1.6, 1.0], [1.0, 1.2, 1.3, 1.3]),
        ([1.0], [1.0]),
    ],
)
def test_a_spike_is_shared_by_its_neighbours(measured: list[float], kept: list[float]) -> None:
    assert rising(measured) == pytest.approx(kept)


def test_measured_relative_to_one_row_and_never_falling(tiny_llama: Any) -> None:
    found = measure(target_of(tiny_llama))
    assert found[1] == 1.0 and set(found) == set(ROWS)
    values = [found[rows] for rows in ROWS]
    assert values == sorted(values)


def test_kept_so_that_a_seed_gives_the_same_drafts_again(
    tiny_llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    target = target_of(tiny_llama)
    first = pass_cost.pass_cost(target)
    (file,) = (tmp_path / "pass-cost").glob("*.json")
    monkeypatch.setattr(pass_cost, "measure", lambda *a: pytest.fail("measured again"))
    again = pass_cost.pass_cost(target)
    assert [first(rows) for rows in range(1, 40)] == [again(rows) for rows in range(1, 40)]
    monkeypatch.undo()
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    for damage in ("not json", "{}", json.dumps({str(rows): -1.0 for rows in ROWS})):
        file.write_text(damage, "utf-8")
        assert pass_cost.pass_cost(target)(1) == 1.0
        assert json.loads(file.read_text("utf-8"))["64"]["1"] == 1.0


def test_a_folder_that_cannot_be_written_is_no_error(
    tiny_llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("", "utf-8")
    monkeypatch.setattr(pass_cost.cache, "root", lambda: blocked)
    assert pass_cost.pass_cost(target_of(tiny_llama))(1) == 1.0
