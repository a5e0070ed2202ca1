"""Figures of a run: hand-made runs with known answers, and the formulas of the paper."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdemo.events import Drafted, DraftNode, Finished, NodeVerdict, Origin, Token, Verified
from specdemo.metrics import expected_length, expected_speedup, summarise
from specdemo.run import Run


def one_round(verdicts: str, tokens: str, draft_ms: float = 0.0, ms: float = 0.0) -> list[object]:
    """``verdicts``: a(ccepted), r(ejected), n(ot judged); ``tokens``: and c(orrected), b(onus), t."""
    names = {"a": "accepted", "r": "rejected", "n": "not_judged"}
    origins: dict[str, Origin] = {"a": "accepted", "c": "corrected", "b": "bonus", "t": "target"}
    return [
        Drafted(0, tuple(DraftNode(0, "", -1, None) for _ in verdicts), draft_ms),
        Verified(
            0,
            tuple(NodeVerdict(names[v]) for v in verdicts),  # type: ignore[arg-type]
            tuple(Token(1, "x", origins[t]) for t in tokens),
            ms,
            1.0,
        ),
    ]


def test_summary_by_hand() -> None:
    run = Run.of(
        [
            *one_round("aaarn", "aaac", 2.0, 10.0),
            *one_round("aa", "aab", 2.0, 10.0),
            *one_round("rnn", "c", 2.0, 10.0),
            *one_round("", "t", 0.0, 10.0),
        ]  # type: ignore[list-item]
    )
    summary = summarise(run, prefill_ms=7.0)
    assert (summary["tokens"], summary["rounds"]) == (9, 4)
    assert summary["mean_accepted_length"] == 9 / 4  # corrected, bonus and plain tokens count
    assert (summary["drafted"], summary["accepted"], summary["rejected"]) == (10, 5, 2)
    assert summary["acceptance_rate"] == 5 / 7  # tested tokens only
    assert summary["draft_efficiency"] == 5 / 10
    assert (summary["draft_ms"], summary["verify_ms"], summary["overhead_ms"]) == (6.0, 40.0, 4.0)
    assert summary["tokens_per_second"] == pytest.approx(9 / 0.050)  # without the prefill
    assert summary["prefill_ms"] == 7.0


def test_plain_decoding_has_a_length_of_one_and_no_rate() -> None:
    summary = summarise(Run.of([*one_round("", "t", 0, 5), *one_round("", "t", 0, 5)]))  # type: ignore[list-item]
    assert summary["mean_accepted_length"] == 1.0
    assert summary["acceptance_rate"] is None
    assert summary["draft_efficiency"] is None


def test_an_empty_run_divides_by_nothing() -> None:
    summary = summarise(Run())
    assert (summary["tokens"], summary["rounds"]) == (0, 0)
    assert summary["mean_accepted_length"] is None
    assert summary["tokens_per_second"] is None


def test_a_server_that_reports_no_draft_still_makes_rounds() -> None:
    verified = Verified(0, (), (Token(1, "a", "target"),), 1.0)
    run = Run.of([verified, verified, Finished("eos", "aa", (1, 1), {})])
    assert (len(run.rounds), run.text) == (2, "aa")
    assert run.finished is not None


@given(alpha=st.floats(0.0, 1.0), gamma=st.integers(0, 20))
def test_expected_length_is_the_sum_of_powers(alpha: float, gamma: int) -> None:
    """1 + a + ... + a^gamma, the closed form included where a is near 1."""
    want = sum(alpha**i for i in range(gamma + 1))
    assert expected_length(alpha, gamma) == pytest.approx(want, rel=1e-6)


def test_expected_length_against_simulation() -> None:
    """Chains of 4 with independent acceptance 0.7: a fixed seed, within 5 standard errors."""
    chance, rounds = random.Random(0), 20_000
    total = 0
    for _ in range(rounds):
        length = 1
        while length <= 4 and chance.random() < 0.7:
            length += 1
        total += length
    assert total / rounds == pytest.approx(expected_length(0.7, 4), abs=5 * 1.6 / rounds**0.5)


def test_expected_speedup() -> None:
    """Theorem 3.8 of Leviathan et al., and what remains of it where a wider pass costs more."""
    assert expected_speedup(0.8, 5, 0.0) == pytest.approx(expected_length(0.8, 5))
    assert expected_speedup(0.8, 5, 0.1) == pytest.approx(expected_length(0.8, 5) / 1.5)
    assert expected_speedup(0.8, 5, 0.1, pass_cost=2.0) == pytest.approx(expected_length(0.8, 5) / 2.5)
    assert expected_speedup(0.0, 5, 0.1) < 1.0
    assert expected_speedup(1.0, 3, 0.0) == 4.0
