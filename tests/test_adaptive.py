"""Adaptive draft length: the depth with the best expected speed-up, for any measured cost curve."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdemo.drafters.adaptive import WORTH, RunningRate, best_depth, free_pass
from specdemo.metrics import expected_length


def steep(rows: int) -> float:
    return float(rows)  # a machine on which every row costs a whole pass


def test_free_rows_draft_as_far_as_allowed_and_costly_rows_never() -> None:
    assert best_depth(0.8, 8, free_pass) == 8
    assert best_depth(0.99, 8, steep) == 0
    assert best_depth(0.0, 8, free_pass) == 0
    assert best_depth(0.9, 0, free_pass) == 0


@given(
    alpha=st.floats(0.0, 1.0),
    slope=st.floats(0.0, 1.0),
    step=st.floats(0.0, 0.5),
    limit=st.integers(0, 12),
)
def test_no_other_depth_is_better(alpha: float, slope: float, step: float, limit: int) -> None:
    def cost(rows: int) -> float:
        return 1.0 + slope * (rows - 1)

    def gain(depth: int) -> float:
        return expected_length(alpha, depth) / (cost(depth + 1) + step * depth)

    chosen = best_depth(alpha, limit, cost, step)
    gains = [gain(depth) for depth in range(1, limit + 1)]
    if chosen:
        assert gain(chosen) == pytest.approx(max(gains)) and gain(chosen) > WORTH - 1e-9
    else:
        assert all(value <= WORTH + 1e-9 for value in gains)


def test_running_rate_follows_and_forgets() -> None:
    rate = RunningRate(prior=0.5)
    rate.update(accepted=20, rejected=0)
    assert rate.value > 0.9
    rate.update(accepted=0, rejected=20)
    assert rate.value < 0.1
    for _ in range(300):
        rate.forget()
    assert rate.value == pytest.approx(0.5, abs=0.01)
