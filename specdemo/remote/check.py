"""Compare what was inferred from a stream with the server's own counts, and say it in words."""

from __future__ import annotations

from collections import Counter as Tally
from typing import Any, Literal

from .chunks import Counters
from .steps import Step

Outcome = Literal["confirmed", "differs", "not_reported", "not_finished"]


def check(
    steps: list[Step], merged: int, counters: Counters | None, finished: bool, counts_along: bool
) -> dict[str, Any]:
    """The verdict as plain values: ``outcome``; ``inferred_accepted`` and ``server_accepted``
    tokens; ``hidden``: accepted tokens that the end of the answer cut off, unseen by anybody;
    ``merged_chunks``; ``uncertain_tokens``; ``source`` of the server's counts; ``note`` in words.

    ``counts_along``: the steps themselves came from the server's counts."""
    tokens = [token for step in steps for token in step.tokens]
    inferred = sum(token.origin == "accepted" for token in tokens)
    result: dict[str, Any] = {
        "outcome": "not_reported",
        "inferred_accepted": inferred,
        "server_accepted": counters.accepted if counters else None,
        "hidden": 0,
        "merged_chunks": merged,
        "uncertain_tokens": sum(not token.certain for token in tokens),
        "source": counters.source if counters else "",
    }
    if counters is None:
        outcome: Outcome = "not_reported" if finished else "not_finished"
        note = (
            "The server reports no counts to compare with."
            if finished
            else "The answer is not complete, so there are no counts to compare with."
        )
        return result | {"outcome": outcome, "note": note}
    agrees, hidden = _compare(steps, inferred, counters, counts_along)
    result |= {"outcome": "confirmed" if agrees else "differs", "hidden": hidden}
    return result | {"note": _words(result, counters, agrees)}


def _compare(
    steps: list[Step], inferred: int, counters: Counters, counts_along: bool
) -> tuple[bool, int]:
    decode = steps[1:]  # the first token comes with the prompt
    if counters.accepted is None:
        if counters.mean_length is None:
            return False, 0
        produced = sum(len(step.tokens) for step in steps)
        # The mean may or may not count the prompt's pass; it is rounded.
        means = {produced / max(1, len(steps)), (produced - 1) / max(1, len(decode))}
        return any(abs(mean - counters.mean_length) < 0.01 * mean for mean in means), 0
    hidden = counters.accepted - inferred
    # Only the last step can have accepted more than there is to see. A step whose visible tokens
    # were all accepted was cut; otherwise the answer ended with the step.
    cut = bool(decode) and all(token.origin == "accepted" for token in decode[-1].tokens)
    longest = max((d for _, d in counters.per_step), default=64)
    if hidden and not (cut and 0 < hidden <= longest):
        return False, 0
    if counts_along or not decode:
        return True, hidden
    seen = [sum(token.origin == "accepted" for token in step.tokens) for step in decode]
    seen[-1] += hidden
    if counters.per_step:
        # Steps without a draft are not listed, and look like steps that accepted nothing.
        told = [accepted for accepted, _ in counters.per_step]
        return [n for n in seen if n] == [n for n in told if n], hidden
    if counters.histogram:
        told_tally = {length: n for length, n in enumerate(counters.histogram) if length and n}
        return Tally(n for n in seen if n) == told_tally, hidden
    return True, hidden


def _words(result: dict[str, Any], counters: Counters, agrees: bool) -> str:
    told, source = counters.accepted, counters.source
    if agrees and told is None:
        return f"The length of the steps agrees with {source}."
    if agrees:
        words = f"The accepted tokens agree with {source}: {told}."
        if result["hidden"]:
            words += f" The end of the answer cut off {result['hidden']} of them."
        return words
    if told is None:
        return f"The length of the steps differs from {source}: chunks may have been merged."
    words = f"{result['inferred_accepted']} accepted tokens are coloured, but {source} says {told}: "
    if counters.own:
        return words + "steps were merged into one chunk, so the colours of some tokens are wrong."
    return words + "chunks were merged, or others used the server at the same time."
