"""Why a run was as fast as it was, and what another setting might have given.

``explain`` turns the formula's prediction into the measured speed-up step by step, each step a factor
with a cause. ``what_if`` replays a recorded trace with another draft length. Both are estimates from
what was recorded, and say so; a real run is the check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .metrics import expected_length, expected_speedup


@dataclass(frozen=True, slots=True)
class Step:
    """What a recorded round was: counts of draft tokens, committed tokens, times in milliseconds."""

    drafted: int
    accepted: int
    rejected: int
    tokens: int
    draft_ms: float
    verify_ms: float
    overhead_ms: float

    @property
    def ms(self) -> float:
        return self.draft_ms + self.verify_ms + self.overhead_ms


@dataclass(frozen=True, slots=True)
class Factor:
    """One step from the prediction to the measurement; ``key`` names its words."""

    key: str
    value: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """``predicted`` times all ``factors`` is ``measured``. ``alpha``: acceptance of tested tokens;
    ``gamma``: mean drafted per round; ``c``: a draft token's time in plain tokens' times;
    ``pass_cost``: a verify pass in the same unit; ``tau`` and ``expected_tau``: measured and from the
    formula; ``break_even``: the smallest alpha with which this draft would have paid, None if none."""

    alpha: float
    gamma: float
    c: float
    pass_cost: float
    tau: float
    expected_tau: float
    predicted: float
    measured: float
    factors: tuple[Factor, ...]
    break_even: float | None


def explain(steps: Sequence[Step], plain_ms: float) -> Explanation:
    """``steps`` of a run, ``plain_ms``: decode time a token of plain decoding, milliseconds.

    The prediction is Leviathan et al. 2022, theorem 3.8: expected tau / (gamma c + 1). Raises
    ``ValueError`` when there is nothing to explain."""
    tested = sum(s.accepted + s.rejected for s in steps)
    drafted = sum(s.drafted for s in steps)
    tokens, rounds = sum(s.tokens for s in steps), len(steps)
    if not tested or not tokens or plain_ms <= 0:
        raise ValueError("No draft token was tested in this run.")
    alpha, gamma = sum(s.accepted for s in steps) / tested, drafted / rounds
    draft = sum(s.draft_ms for s in steps) / rounds / plain_ms
    verify = sum(s.verify_ms for s in steps) / rounds / plain_ms
    overhead = sum(s.overhead_ms for s in steps) / rounds / plain_ms
    tau, c = tokens / rounds, draft / gamma
    expected = _length(alpha, gamma)
    predicted = expected / (draft + 1.0)
    factors = (
        Factor("tau", tau / expected),
        Factor("pass", (draft + 1.0) / (draft + verify)),
        Factor("overhead", (draft + verify) / (draft + verify + overhead)),
    )
    measured = tau / (draft + verify + overhead)
    limit = _break_even(gamma, draft + verify + overhead)
    return Explanation(alpha, gamma, c, verify, tau, expected, predicted, measured, factors, limit)


def _length(alpha: float, gamma: float) -> float:
    """Expected tau for a mean draft length, which need not be whole: between its neighbours."""
    low = int(gamma)
    part = gamma - low
    return (1 - part) * expected_length(alpha, low) + part * expected_length(alpha, low + 1)


def _break_even(gamma: float, cost: float) -> float | None:
    """The alpha at which expected tau equals the round's cost in plain tokens; by bisection."""
    if cost <= 1.0:
        return 0.0
    if cost > gamma + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _length(middle, gamma) < cost else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Estimate:
    """What another setting might have given: ``tau`` and tokens a second, both estimated."""

    gamma: int
    alpha: float
    tau: float
    tokens_per_second: float
    speedup: float | None


def what_if(
    steps: Sequence[Step],
    gamma: int,
    alpha: float | None = None,
    plain_ms: float | None = None,
    pass_ms: Callable[[int], float] | None = None,
) -> Estimate:
    """The run again with drafts of ``gamma``.

    With ``alpha`` None the recorded verdicts are replayed: the text's tokens are walked in order, a
    token the draft had right continues a draft, one it had wrong ends it, and where nothing is known
    (bonus tokens) the run's own acceptance rate counts as part of a token. With ``alpha`` the formula
    gives tau. ``pass_ms(rows)``: measured time of a pass over so many rows; without it the run's
    passes are taken to cost the same whatever their rows, which flatters long drafts."""
    if not steps or gamma < 0:
        raise ValueError("There is no run to replay.")
    tested = sum(s.accepted + s.rejected for s in steps)
    drafted = sum(s.drafted for s in steps)
    rate = sum(s.accepted for s in steps) / tested if tested else 0.0
    tau = _replayed_length(steps, gamma, rate) if alpha is None else expected_length(alpha, gamma)
    draft = gamma * (sum(s.draft_ms for s in steps) / drafted if drafted else 0.0)
    mean_verify = sum(s.verify_ms for s in steps) / len(steps)
    if pass_ms is None:
        verify = mean_verify
    else:
        # The curve's shape, at the level that this run was measured at.
        mean_rows = round(drafted / len(steps)) + 1
        verify = mean_verify * pass_ms(gamma + 1) / pass_ms(mean_rows)
    overhead = sum(s.overhead_ms for s in steps) / len(steps)
    per_second = 1000.0 * tau / (draft + verify + overhead)
    speedup = per_second * plain_ms / 1000.0 if plain_ms else None
    return Estimate(gamma, rate if alpha is None else alpha, tau, per_second, speedup)


def _replayed_length(steps: Sequence[Step], gamma: int, rate: float) -> float:
    """Mean committed tokens a round when the recorded tokens are drafted ``gamma`` at a time.

    ``hits``: for every token of the text the chance that the draft would have had it right: 1
    accepted, 0 corrected or not drafted, ``rate`` for a bonus token. The walk carries the probability
    of a round beginning at each token."""
    hits: list[float] = []
    for step in steps:
        bonus = step.rejected == 0 and step.drafted > 0
        last = step.tokens - min(step.accepted, step.tokens)
        hits += [1.0] * (step.tokens - last) + [rate if bonus else 0.0] * last
    begins = [0.0] * (len(hits) + gamma + 2)
    begins[0] = 1.0
    rounds = 0.0
    for index in range(len(hits)):
        rounds += begins[index]
        going = begins[index]
        for depth in range(gamma + 1):
            place = index + depth
            right = hits[place] if depth < gamma and place < len(hits) else 0.0
            begins[place + 1] += going * (1.0 - right)
            going *= right
            if going == 0.0:
                break
    return len(hits) / rounds


def steps_from(rounds: Sequence[dict[str, Any]]) -> list[Step]:
    """Steps from plain values, as the page sends them. Raises ``ValueError`` for anything else."""
    names = ("drafted", "accepted", "rejected", "tokens")
    times = ("draft_ms", "verify_ms", "overhead_ms")
    result = []
    for entry in rounds:
        try:
            counts = [int(entry[name]) for name in names]
            spans = [float(entry[name]) for name in times]
        except (TypeError, KeyError, ValueError, OverflowError) as error:
            raise ValueError("A round of the trace has wrong values.") from error
        if min(counts) < 0 or not all(0 <= span < 1e9 for span in spans):
            raise ValueError("A round of the trace has wrong values.")
        result.append(Step(*counts, *spans))
    return result


__all__ = ["Estimate", "Explanation", "Step", "expected_speedup", "explain", "steps_from", "what_if"]
