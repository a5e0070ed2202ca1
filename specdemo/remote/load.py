"""What happens to the speed-up when a server fills: the same prompts, more and more of them at once.

Speculation spends compute to save passes over the weights. A server that is full already shares each
pass among many requests, so there is less to save: the speed-up falls, below 1 in the end.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..events import Finished
from ..prompt import Turns
from .generation import generate
from .servers import Server
from .transport import Limits

if TYPE_CHECKING:  # needs torch
    from ..sampling import SamplingParams

PROMPTS = (
    "Count from one to thirty in words.",
    "Write the alphabet, one letter a line.",
    "Repeat the word hello twelve times.",
    "List the days of the week, then list them again.",
    "What is the capital of France? Answer in one sentence.",
    "Explain in three sentences why the sky is blue.",
    "Write a short poem about the sea.",
    "Write a Python function that adds two numbers.",
    "Write a Python class with three getters.",
    "Translate to French: the cat sits on the table.",
    "Give me a recipe for pancakes.",
    "What is 12 times 12? Show the steps.",
    "Name five animals and one sentence on each.",
    "Write an email that asks for a day off.",
    "Summarise: A draft model proposes tokens. The target verifies them. Accepted tokens are kept.",
    "Copy this sentence exactly: the quick brown fox jumps over the lazy dog.",
    "Write a JSON object with the fields name, age and city.",
    "What is the difference between a list and a tuple?",
    "Tell me a story about a robot in two paragraphs.",
    "Say hello in five languages.",
)


def levels_up_to(most: int) -> list[int]:
    """1, 2, 4, ... and ``most`` itself."""
    levels = [1]
    while levels[-1] * 2 < most:
        levels.append(levels[-1] * 2)
    return levels if most <= 1 else [*levels, most]


def measure(
    server: Server,
    prompts: Sequence[Turns],
    params: SamplingParams,
    level: int,
    cancel: threading.Event | None = None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """All ``prompts``, ``level`` at a time. Rates in tokens per second, times in milliseconds:

    ``tokens_per_second``: all answers' tokens over the wall time; ``each_tokens_per_second``: mean
    of the requests' decode rates; ``first_token_ms``: median time to first token, queue included;
    ``mean_accepted_length`` and ``acceptance_rate``: means over the requests that report them;
    ``checks``: how many requests' counts were confirmed, differed and so on; ``failed``: requests
    that ended with an error, whose sentences are in ``errors``."""

    def one(prompt: Turns) -> Finished:
        *_, last = generate(server, prompt, params, cancel=cancel, limits=limits)
        assert isinstance(last, Finished)
        return last

    began = time.perf_counter()
    with ThreadPoolExecutor(level) as pool:
        results = [pool.submit(one, prompt) for prompt in prompts]
    wall = time.perf_counter() - began
    finished: list[Finished] = []
    errors: list[str] = []
    for result in results:
        error = result.exception()
        if error is not None and not isinstance(error, ValueError):
            raise error  # a fault of this program, not of the server
        if error is not None:
            errors.append(str(error))
        elif result.result().reason in ("cut", "error"):
            errors.append(result.result().message)
        else:
            finished.append(result.result())
    summaries = [event.summary for event in finished]
    outcomes = [summary["check"]["outcome"] for summary in summaries]
    return {
        "concurrency": level,
        "requests": len(prompts),
        "failed": len(errors),
        "errors": sorted(set(errors)),
        "tokens": sum(summary["tokens"] for summary in summaries),
        "seconds": wall,
        "tokens_per_second": sum(summary["tokens"] for summary in summaries) / wall,
        "each_tokens_per_second": _mean(summaries, "tokens_per_second"),
        "first_token_ms": _median(summaries, "prefill_ms"),
        "mean_accepted_length": _mean(summaries, "mean_accepted_length"),
        "acceptance_rate": _mean(summaries, "acceptance_rate"),
        "checks": {outcome: outcomes.count(outcome) for outcome in sorted(set(outcomes))},
        "uncertain_tokens": sum(summary["check"]["uncertain_tokens"] for summary in summaries),
    }


def by_concurrency(
    server: Server,
    prompts: Sequence[Turns],
    params: SamplingParams,
    levels: Sequence[int],
    cancel: threading.Event | None = None,
    limits: Limits | None = None,
) -> Iterator[dict[str, Any]]:
    """One row a level: ``measure`` of the server and, under ``baseline``, of its baseline endpoint;
    ``speedup``: tokens per second of all requests over the baseline's, None without a baseline.

    The two endpoints run one after the other, never together: they may share a machine. A request
    of each goes before, because servers do much of their work only once."""
    baseline = server.without_speculation()
    for endpoint in filter(None, (baseline, server)):
        measure(endpoint, prompts[:1], params, 1, cancel, limits)
    for level in levels:
        if cancel is not None and cancel.is_set():
            return
        plain = measure(baseline, prompts, params, level, cancel, limits) if baseline else None
        row = measure(server, prompts, params, level, cancel, limits)
        usable = plain is not None and not plain["failed"] and not row["failed"]
        rate = plain["tokens_per_second"] if plain is not None and usable else None
        speedup = row["tokens_per_second"] / rate if rate else None
        yield row | {"baseline": plain, "speedup": speedup}


def _values(summaries: Sequence[Any], key: str) -> list[float]:
    return [summary[key] for summary in summaries if summary[key] is not None]


def _mean(summaries: Sequence[Any], key: str) -> float | None:
    values = _values(summaries, key)
    return statistics.fmean(values) if values else None


def _median(summaries: Sequence[Any], key: str) -> float | None:
    values = _values(summaries, key)
    return statistics.median(values) if values else None
