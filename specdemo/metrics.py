"""Figures of a run, by the definitions of the field (Leviathan et al. 2022, section 3; Spec-Bench)."""

from __future__ import annotations

from typing import Any

from .run import Run


def summarise(run: Run, prefill_ms: float | None = None) -> dict[str, Any]:
    """The summary of a run:

    ``tokens`` committed; ``rounds`` verify passes; ``mean_accepted_length`` tau = tokens / rounds
    (plain decoding: 1); ``acceptance_rate`` alpha = accepted / (accepted + rejected), tested tokens
    only, None when none was tested; ``drafted``, ``accepted``, ``rejected``; ``draft_efficiency`` =
    accepted / drafted; ``tokens_per_second`` of decoding (prefill apart); ``prefill_ms``,
    ``draft_ms``, ``verify_ms``, ``overhead_ms`` sums in milliseconds."""
    verdicts = [v.judgement for verified in run.verified for v in verified.verdicts]
    accepted, rejected = verdicts.count("accepted"), verdicts.count("rejected")
    drafted = sum(len(r.drafted.nodes) for r in run.rounds)
    tokens, rounds = len(run.tokens), len(run.verified)
    draft_ms = sum(r.drafted.ms for r in run.rounds)
    verify_ms = sum(v.ms for v in run.verified)
    overhead_ms = sum(v.overhead_ms for v in run.verified)
    decode_ms = draft_ms + verify_ms + overhead_ms
    return {
        "tokens": tokens,
        "rounds": rounds,
        "mean_accepted_length": tokens / rounds if rounds else None,
        "acceptance_rate": accepted / (accepted + rejected) if accepted + rejected else None,
        "drafted": drafted,
        "accepted": accepted,
        "rejected": rejected,
        "draft_efficiency": accepted / drafted if drafted else None,
        "tokens_per_second": 1000.0 * tokens / decode_ms if decode_ms > 0 else None,
        "prefill_ms": prefill_ms,
        "draft_ms": draft_ms,
        "verify_ms": verify_ms,
        "overhead_ms": overhead_ms,
    }


def expected_length(alpha: float, gamma: int) -> float:
    """Expected tau of a chain of ``gamma`` with acceptance ``alpha``: (1 - a^(g+1)) / (1 - a)
    (Leviathan et al. 2022, equation 1)."""
    return float(gamma + 1) if alpha >= 1.0 else (1.0 - alpha ** (gamma + 1)) / (1.0 - alpha)


def expected_speedup(alpha: float, gamma: int, c: float, pass_cost: float = 1.0) -> float:
    """Expected speed-up tau / (gamma c + k): ``c`` draft step / one-row target pass, ``pass_cost`` k
    the measured cost of a verify pass of gamma + 1 rows in one-row passes (theorem 3.8: k = 1)."""
    return expected_length(alpha, gamma) / (gamma * c + pass_cost)
