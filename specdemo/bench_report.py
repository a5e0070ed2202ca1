"""The bench's table: per category and overall, medians of ratios with their interval."""

from __future__ import annotations

import random
import statistics
from typing import Any, TextIO

_RESAMPLES = 2000
MARGIN = 0.15  # plain decoding before and after the others further apart: the machine changed its speed


def median_interval(values: list[float], seed: int = 0) -> tuple[float, float, float]:
    """Median and its 95 % bootstrap interval (percentile method, fixed seed)."""
    median = statistics.median(values)
    if len(values) < 2:
        return median, median, median
    chance = random.Random(seed)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    low, high = int(0.025 * _RESAMPLES), int(0.975 * _RESAMPLES)
    return median, medians[low], medians[high]


def summary_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row a drafter and category, the dialogue task together as ``dialogue``, and ``all``."""
    result: list[dict[str, Any]] = []
    for drafter in dict.fromkeys(row["drafter"] for row in rows):
        own = [row for row in rows if row["drafter"] == drafter]
        groups: dict[str, list[dict[str, Any]]] = {"all": own}
        for row in own:
            for key in dict.fromkeys((row["task"], row["category"])):
                groups.setdefault(key, []).append(row)
        result += [_summary(drafter, key, group) for key, group in groups.items()]
    return result


def _summary(drafter: str, category: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    def total(key: str) -> float:
        return sum(row[key] or 0 for row in rows)

    rates = [row["acceptance_rate"] for row in rows if row["acceptance_rate"] is not None]
    ratios = [row["speedup"] for row in rows if row["speedup"] is not None]
    median, low, high = median_interval(ratios) if ratios else (None, None, None)
    judged = [row["identical"] for row in rows if row["identical"] is not None]
    gaps = [row["gap"] for row in rows if "gap" in row]
    rounds, decode = total("rounds"), total("decode_ms")
    return {
        "drafter": drafter,
        "category": category,
        "questions": len(rows),
        "tokens": int(total("tokens")),
        "rounds": int(rounds),
        "mean_accepted_length": total("tokens") / rounds if rounds else None,
        "acceptance_rate": statistics.mean(rates) if rates else None,
        "tokens_per_second": statistics.median(row["tokens_per_second"] for row in rows),
        "speedup": median,
        "speedup_interval": [low, high],
        "identical": sum(judged) if judged else None,
        "compared": len(judged),
        "largest_gap": max(gaps) if gaps else None,
        "draft_share": total("draft_ms") / decode if decode else None,
        "overhead_share": total("overhead_ms") / decode if decode else None,
    }


def print_table(result: dict[str, Any], out: TextIO) -> None:
    """The summary as aligned columns."""
    env = result["environment"]
    print(
        f"{env['model']} {env['dtype']} on {env['device_name']}, {env['threads']} threads, "
        f"temperature {env['temperature']}, {env['max_new_tokens']} new tokens, "
        f"{env['questions']} questions",
        file=out,
    )
    heads = [
        "drafter",
        "category",
        "n",
        "tau",
        "alpha",
        "tok/s",
        "speed-up",
        "interval",
        "identical",
        "gap",
        "overhead",
    ]
    table = [heads]
    for row in result["summary"]:
        low, high = row["speedup_interval"]
        same = "" if row["identical"] is None else f"{row['identical']}/{row['compared']}"
        table.append(
            [
                row["drafter"],
                row["category"],
                str(row["questions"]),
                _number(row["mean_accepted_length"]),
                _number(row["acceptance_rate"]),
                _number(row["tokens_per_second"], 1),
                _number(row["speedup"]),
                "" if low is None else f"{low:.2f}-{high:.2f}",
                same,
                _number(row["largest_gap"], 4),
                _percent(row["overhead_share"]),
            ]
        )
    widths = [max(len(line[i]) for line in table) for i in range(len(heads))]
    for line in table:
        cells = (
            cell.ljust(width) if i < 2 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip(), file=out)
    if warning := changed(result["rows"]):
        print(warning, file=out)


def changed(rows: list[dict[str, Any]]) -> str:
    """A sentence on the questions during which plain decoding changed its speed; empty if none did."""
    apart = {row["question_id"]: row["plain_apart"] for row in rows if row["plain_apart"] is not None}
    moved = [value for value in apart.values() if value > MARGIN]
    if not moved:
        return ""
    return (
        f"This machine's speed changed in {len(moved)} of {len(apart)} questions: plain decoding before "
        f"and after the others was up to {100 * max(moved):.0f} % apart. Speed-ups are against the mean."
    )


def _number(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}%"
