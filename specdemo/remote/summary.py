"""Figures of a run on a server, under the keys of ``metrics.summarise``; what the server does not
report is None, never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..metrics import summarise
from ..run import Run
from .check import check
from .chunks import Counters
from .steps import Attribution, CounterSteps, Step


def summarise_server(
    run: Run,
    steps: list[Step],
    attribution: Attribution,
    counters: Counters | None,
    finished: bool,
) -> dict[str, Any]:
    """The summary of a run; differences from ``metrics.summarise``:

    ``mean_accepted_length`` and ``tokens_per_second`` leave out what comes first, with the prompt's
    pass; ``prefill_ms`` is the time to first token; ``decode_ms`` the time from the first
    chunk to the last. Draft, verify and overhead are not told apart by a server: None.
    ``accepted``, ``drafted`` and what follows from them are the server's own counts where it reports
    them. ``acceptance_rate`` is known only where each step's counts are. ``check``: see ``check``."""
    counted_live = isinstance(attribution, CounterSteps)
    verdict = check(steps, attribution.merged, counters, finished, counted_live)
    per_step = list(counters.per_step) if counters else []
    if counted_live:
        per_step = [(s.accepted or 0, s.drafted or 0) for s in steps if s.drafted]
    own = counters if counters is not None and counters.own else None
    accepted = verdict["inferred_accepted"]
    if own is not None and own.accepted is not None:
        accepted = own.accepted
    drafted = own.drafted if own is not None else None
    if drafted is None and per_step:
        drafted = sum(d for _, d in per_step)
    refused = sum(a < d for a, d in per_step) if per_step else None
    good = sum(a for a, _ in per_step)
    tested = good + refused if refused is not None else 0
    after = [step for step in steps if step.at > steps[0].at]
    decoded = sum(len(step.tokens) for step in after)
    later = sum(len(step.tokens) for step in steps[1:])
    decode_ms = (steps[-1].at - steps[0].at) * 1000.0 if steps else 0.0
    return summarise(run, steps[0].at * 1000.0 if steps else None) | {
        "mean_accepted_length": later / (len(steps) - 1) if len(steps) > 1 else None,
        "acceptance_rate": good / tested if tested else None,
        "drafted": drafted,
        "accepted": accepted,
        "rejected": refused,
        "draft_efficiency": accepted / drafted if drafted else None,
        "tokens_per_second": 1000.0 * decoded / decode_ms if decode_ms > 0.0 else None,
        "draft_ms": None,
        "verify_ms": None,
        "overhead_ms": None,
        "decode_ms": decode_ms,
        "check": verdict,
    }


def speedup(summary: Mapping[str, Any], baseline: Mapping[str, Any] | None) -> float | None:
    """Decode tokens/s over the baseline's, both measured; None (shown as n/a) otherwise."""
    fast = summary.get("tokens_per_second")
    slow = baseline.get("tokens_per_second") if baseline else None
    return fast / slow if fast and slow else None
