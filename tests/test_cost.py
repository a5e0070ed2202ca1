"""The cost curve: real passes, consistent numbers, and stopping when asked."""

from __future__ import annotations

import json
import threading
from argparse import Namespace
from typing import Any

import pytest
from helpers import target_of
from test_lean import make

from specdemo import commands, cost
from specdemo.lean import LeanTarget


def test_curve_of_a_tiny_model(tiny_tokenizer: Any) -> None:
    target = LeanTarget(make("llama-tied"), tiny_tokenizer, name="lean")
    curve = cost.cost_curve(target, rows=(1, 2, 5), context=16)
    assert [p.rows for p in curve.points] == [1, 2, 5]
    one = curve.points[0].ms
    assert all(p.ms > 0 and p.ratio == pytest.approx(p.ms / one) for p in curve.points)
    weights = 320 * 64 + 3 * (64 * (128 + 64) + 3 * 64 * 96)  # head (tied), attention, MLP
    assert cost.weight_count(target) == weights and curve.weight_bytes == 4 * weights
    assert curve.bandwidth_share == pytest.approx(4 * weights / (one / 1e3) / curve.bandwidth)
    assert json.loads(json.dumps(curve.plain()))["points"][2]["rows"] == 5


def test_general_models_are_measured_too(tiny_llama: Any) -> None:
    target = target_of(tiny_llama)
    assert cost.weight_bytes(target) == sum(p.nbytes for p in tiny_llama[0].parameters())
    assert cost.cost_curve(target, rows=(1, 3), context=8).points[1].rows == 3


def test_each_number_of_rows_is_given_at_once_and_cancelling_stops(tiny_llama: Any) -> None:
    cancel = threading.Event()
    seen = []
    for value in cost.measure(target_of(tiny_llama), cancel, rows=(1, 2, 3, 4), context=8):
        seen.append([p["rows"] for p in value["points"]])
        assert {f["key"] for f in value["facts"]} == {"bandwidth", "compute"}
        if len(seen) == 2:
            cancel.set()
    assert seen == [[1], [1, 2]]


def test_a_slow_second_of_the_machine_does_not_bend_the_curve(
    tiny_llama: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """True cost: 1 ms and 0.1 ms more for each further row. Three times as slow during two turns, and
    one pass in the middle disturbed by 50 ms."""
    passes = iter(range(10_000))

    def seconds(target: Any, session: Any, rows: int) -> float:
        number = next(passes)
        slow = 3.0 if 40 <= number < 60 else 1.0
        return slow * (1.0 + 0.1 * (rows - 1)) / 1e3 + (0.05 if number == 33 else 0.0)

    monkeypatch.setattr(cost, "pass_seconds", seconds)
    curve = cost.cost_curve(target_of(tiny_llama), rows=(1, 2, 4, 8), context=8)
    assert [p.ms for p in curve.points] == pytest.approx([1.0, 1.1, 1.3, 1.7])
    assert [p.ratio for p in curve.points] == pytest.approx([1.0, 1.1, 1.3, 1.7])


def test_every_number_of_rows_is_timed_in_every_turn(tiny_llama: Any) -> None:
    whole = [
        value["points"] for value in cost.measure(target_of(tiny_llama), None, rows=(1, 3), context=8)
    ]
    assert [len(points) for points in whole] == [1, 2, *[2] * (cost.TURNS - 1)]


def test_rows_must_begin_with_one(tiny_llama: Any) -> None:
    with pytest.raises(ValueError, match="begin with 1"):
        cost.cost_curve(target_of(tiny_llama), rows=(2, 3))


def test_command(tiny_llama: Any, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setattr(commands, "load", lambda args: target_of(tiny_llama))
    monkeypatch.setattr(cost.cost_curve, "__defaults__", ((1, 2), 128))
    assert cost.cost_command(Namespace(context=8, json=True)) == 0
    written = json.loads(capsys.readouterr().out)
    assert [p["rows"] for p in written["points"]] == [1, 2]
    assert written["environment"]["torch"]
    assert cost.cost_command(Namespace(context=8, json=False)) == 0
    assert "GB/s" in capsys.readouterr().out
