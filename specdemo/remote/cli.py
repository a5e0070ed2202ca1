"""``generate --server`` and ``bench --server``: a serving engine from the terminal."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..events import Event, Finished
from .generation import generate
from .load import PROMPTS, by_concurrency, levels_up_to
from .servers import Server, configure, describe, find
from .summary import speedup


def add_server_arguments(parser: argparse.ArgumentParser, concurrency: bool = False) -> None:
    """``--server``; with ``concurrency`` also how many requests at once."""
    parser.add_argument(
        "--server",
        metavar="NAME",
        help="run on a serving engine: a name from SPECDEMO_SERVERS, or "
        "NAME=URL[,kind=KIND][,model=MODEL][,baseline=URL]; keys from SPECDEMO_KEY_<NAME>",
    )
    if concurrency:
        parser.add_argument(
            "--concurrency",
            type=int,
            default=1,
            metavar="N",
            help="with --server: 1, 2, 4 ... N requests at once",
        )


def server_of(given: str) -> Server:
    """The server that ``--server`` names. Raises ``InputError``."""
    entry = [given] if "=" in given else []
    configure(entry)
    return find(given.partition("=")[0])


def run_generate(args: argparse.Namespace) -> int:
    """Exit code 0, or 1 when the server broke off."""
    from ..commands import params_of
    from ..events import to_json
    from ..terminal import show

    server = server_of(args.server)
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    seen: list[Finished] = []

    def events(on: Server) -> Iterator[Event]:
        seen.clear()
        for event in generate(on, prompt, params_of(args), raw=args.raw):
            if isinstance(event, Finished):
                seen.append(event)
            yield event

    if args.json:
        for event in events(server):
            print(to_json(event), flush=True)
        if seen[-1].reason == "cut":
            print(f"specdemo: {seen[-1].message}", file=sys.stderr)
        return int(seen[-1].reason == "cut")
    code = show(events(server))
    finished = seen[-1]
    print(finished.summary["check"]["note"])
    baseline = server.without_speculation()
    plain: Mapping[str, Any] | None = None
    if baseline is not None and code == 0:
        for _ in events(baseline):
            pass
        plain = seen[-1].summary if seen[-1].reason != "cut" else None
    ratio = speedup(finished.summary, plain)
    if ratio is not None:
        print(f"speed-up {ratio:.2f} over the baseline endpoint, measured with this prompt")
    elif baseline is None:
        print("speed-up n/a: no baseline endpoint is configured for this server")
    else:
        print("speed-up n/a: the baseline endpoint gave nothing to compare with")
    return code


def run_bench(args: argparse.Namespace) -> int:
    """A table, and JSON where ``--json`` says. Exit code 0, or 1 when every request failed."""
    from ..errors import InputError
    from ..sampling import SamplingParams

    if not 1 <= args.concurrency <= 1024:
        raise InputError("range", name="concurrency", value=args.concurrency, low=1, high=1024)
    server = server_of(args.server)
    params = SamplingParams(
        temperature=args.temperature, seed=args.seed, max_new_tokens=args.max_new_tokens
    )
    prompts = list(PROMPTS)
    if args.questions is not None:
        from ..bench import read_questions

        prompts = [row["turns"][0] for row in read_questions(args.questions, args.limit)]
    levels = levels_up_to(args.concurrency)
    if len(prompts) < args.concurrency:  # enough requests to keep every place busy
        prompts *= -(-args.concurrency // len(prompts))
    rows = []
    print(table_head())
    for row in by_concurrency(server, prompts, params, levels):
        rows.append(row)
        print(table_line(row), flush=True)
    for sentence in _remarks(rows):
        print(sentence)
    if args.json:
        settings = {"max_new_tokens": params.max_new_tokens, "temperature": params.temperature}
        result = {"server": describe(server), "settings": settings, "rows": rows}
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if all(row["failed"] == row["requests"] for row in rows) else 0


_COLUMNS = (
    ("at once", "concurrency", "d"),
    ("tokens/s", "tokens_per_second", ".1f"),
    ("each", "each_tokens_per_second", ".1f"),
    ("first token ms", "first_token_ms", ".0f"),
    ("tau", "mean_accepted_length", ".2f"),
    ("accepted", "acceptance_rate", ".0%"),
    ("speed-up", "speedup", ".2f"),
    ("failed", "failed", "d"),
)


def table_head() -> str:
    return "  ".join(f"{title:>{_width(title)}}" for title, _, _ in _COLUMNS)


def table_line(row: Mapping[str, Any]) -> str:
    """One level; what was not measured or not reported is n/a."""
    cells = []
    for title, key, form in _COLUMNS:
        text = "n/a" if row[key] is None else format(row[key], form)
        cells.append(f"{text:>{_width(title)}}")
    return "  ".join(cells)


def _width(title: str) -> int:
    return max(8, len(title))


def _remarks(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    errors: set[str] = set()
    for row in rows:
        checks = ", ".join(f"{n} {outcome.replace('_', ' ')}" for outcome, n in row["checks"].items())
        if checks:
            yield f"at once {row['concurrency']}: accepted counts {checks}"
        errors |= set(row["errors"])
    yield from sorted(errors)
    if all(row["baseline"] is None for row in rows):
        yield "speed-up n/a: no baseline endpoint is configured for this server"
