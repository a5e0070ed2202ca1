"""Predictions: formulas against simulation, explanation that multiplies out, what-if on made traces."""

from __future__ import annotations

import math
import random

import pytest

from specdemo.metrics import expected_length
from specdemo.predict import Step, explain, steps_from, what_if


def simulated(alpha: float, gamma: int, rounds: int, seed: int = 0) -> list[Step]:
    """Rounds of a chain draft whose tokens are each accepted with ``alpha``, at fixed times."""
    chance = random.Random(seed)
    steps = []
    for _ in range(rounds):
        accepted = 0
        while accepted < gamma and chance.random() < alpha:
            accepted += 1
        rejected = int(accepted < gamma)
        steps.append(Step(gamma, accepted, rejected, accepted + 1, 2.0 * gamma, 30.0, 1.0))
    return steps


def test_factors_multiply_from_the_prediction_to_the_measured_speedup() -> None:
    steps = simulated(0.7, 4, 500)
    result = explain(steps, plain_ms=25.0)
    product = result.predicted * math.prod(factor.value for factor in result.factors)
    assert product == pytest.approx(result.measured, rel=1e-12)
    tokens = sum(step.tokens for step in steps)
    ms = sum(step.ms for step in steps)
    assert result.measured == pytest.approx(25.0 / (ms / tokens), rel=1e-12)


def test_expected_length_is_what_a_simulation_gives() -> None:
    result = explain(simulated(0.8, 5, 20_000), plain_ms=30.0)
    assert result.tau == pytest.approx(expected_length(0.8, 5), rel=0.02)
    assert result.alpha == pytest.approx(0.8, abs=0.01)
    assert result.expected_tau == pytest.approx(result.tau, rel=0.02)


def test_break_even_is_where_the_expected_length_pays_for_the_round() -> None:
    result = explain(simulated(0.6, 4, 300), plain_ms=25.0)
    assert result.break_even is not None
    cost = (2.0 * 4 + 30.0 + 1.0) / 25.0
    assert expected_length(result.break_even, 4) == pytest.approx(cost, rel=1e-6)
    hopeless = [Step(2, 0, 1, 1, 500.0, 30.0, 1.0)]
    assert explain(hopeless, plain_ms=25.0).break_even is None


def test_replaying_with_the_recorded_length_gives_the_recorded_tau() -> None:
    steps = simulated(0.7, 3, 2_000)
    tau = sum(step.tokens for step in steps) / len(steps)
    assert what_if(steps, 3).tau == pytest.approx(tau, rel=0.02)


@pytest.mark.parametrize("gamma", [1, 2, 5, 8])
def test_what_if_agrees_with_a_real_simulation_of_the_other_length(gamma: int) -> None:
    estimate = what_if(simulated(0.7, 3, 4_000), gamma)
    assert estimate.tau == pytest.approx(expected_length(0.7, gamma), rel=0.05)


def test_what_if_uses_the_cost_curve_and_never_flatters_long_drafts_with_it() -> None:
    steps = simulated(0.5, 3, 500)
    flat = what_if(steps, 12)
    steep = what_if(steps, 12, pass_ms=lambda rows: 10.0 * rows)
    assert steep.tokens_per_second < flat.tokens_per_second
    with_alpha = what_if(steps, 2, alpha=1.0)
    assert with_alpha.tau == 3.0


def test_plain_rounds_have_nothing_to_explain_and_bad_traces_are_refused() -> None:
    with pytest.raises(ValueError):
        explain([Step(0, 0, 0, 1, 0.0, 30.0, 1.0)], plain_ms=30.0)
    for bad in ([{}], [{"drafted": -1}], ["x"], [{"drafted": "x"}], [None]):
        with pytest.raises(ValueError):
            steps_from(bad)  # type: ignore[arg-type]
