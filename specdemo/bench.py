"""``python -m specdemo bench``: drafters side by side on the same questions, in one process.

Per question every drafter runs, one after the other in a rotating order, so that a slow minute of the
machine hits all alike; plain decoding runs before them and again after them. Speed-ups are ratios per
question, against the mean of its two plain runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm

from .bench_report import print_table, summary_rows
from .drafters import REGISTRY, check_settings, create
from .engine import Engine
from .errors import InputError
from .resources import resources
from .run import Run
from .sampling import SamplingParams

#: The categories that Spec-Bench's paper reports together as its dialogue task (MT-bench).
DIALOGUE = frozenset(
    ["writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"]
)
#: Plain decoding's second run, at the end of a question.
AGAIN = "none, again"
#: One turn's figures: token ids, decode tokens and milliseconds, rounds, accepted, rejected.
Result = dict[str, Any]
Runner = Callable[[list[dict[str, str]]], Result]


def read_questions(path: Path, limit: int = 0) -> list[dict[str, Any]]:
    """Spec-Bench rows (``question_id``, ``category``, ``turns``), at most ``limit`` per category
    (0: all). The eight MT-bench categories count as one, dialogue. Raises ``InputError``."""
    questions: list[dict[str, Any]] = []
    counts: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8") as file:
            for line in filter(str.strip, file):
                row = json.loads(line)
                turns = row["turns"]
                if not turns or not all(isinstance(turn, str) for turn in turns):
                    raise ValueError("a question needs turns")
                task = task_of(row["category"])
                counts[task] = counts.get(task, 0) + 1
                if not limit or counts[task] <= limit:
                    questions.append({**row, "question_id": row["question_id"]})
    except OSError as error:
        raise InputError("questions", path=path.name, why="it cannot be read") from error
    except (ValueError, KeyError, TypeError) as error:
        why = "a row lacks question_id, category or turns"
        raise InputError("questions", path=path.name, why=why) from error
    if not questions:
        raise InputError("questions", path=path.name, why="it holds no question")
    return questions


def task_of(category: str) -> str:
    return "dialogue" if category in DIALOGUE else category


def engine_runner(
    engine: Engine, name: str, settings: Mapping[str, Any], draft: str, params: SamplingParams
) -> Runner:
    """Runs one turn on our engine."""
    needs = resources(engine.target, name, draft)

    def one(turns: list[dict[str, str]]) -> Result:
        drafter = create(name, engine.target, dict(settings), **needs)
        run = Run.of(engine.generate(turns, drafter, params))
        assert run.finished is not None
        s = run.finished.summary
        return {
            "ids": list(run.finished.token_ids),
            "text": run.text,
            "tokens": s["tokens"],
            "rounds": s["rounds"],
            "accepted": s["accepted"],
            "rejected": s["rejected"],
            "decode_tokens": s["tokens"],
            "decode_ms": s["draft_ms"] + s["verify_ms"] + s["overhead_ms"],
            "draft_ms": s["draft_ms"],
            "overhead_ms": s["overhead_ms"],
        }

    return one


def run(args: argparse.Namespace) -> int:
    """The command. Prints a table, and writes ``--json``."""
    from . import environment
    from .commands import load, settings_of

    questions = read_questions(args.questions, args.limit)
    names = ["none", *(n for n in args.drafters.split(",") if n and n != "none")]
    settings = {}
    for name in names:
        if name not in REGISTRY:
            raise InputError("unknown_drafter", name=repr(name)[:40], known=", ".join(REGISTRY))
        settings[name] = settings_of(name, args.gamma, args.set)
        check_settings(REGISTRY[name], settings[name])
    params = SamplingParams(
        temperature=args.temperature, max_new_tokens=args.max_new_tokens, seed=args.seed
    )
    engine = Engine.measured(load(args))
    runners = {n: engine_runner(engine, n, settings[n], args.draft, params) for n in names}
    if args.peers:
        from .peers import peer_runners

        runners |= peer_runners(engine.target, args, params)
    for runner in runners.values():  # warm up everything that is measured
        runner([{"role": "user", "content": "Count from one to five, twice."}])

    rows = list(_rows(questions, runners, engine, params.greedy))
    result = {
        "environment": {
            **environment.describe(engine.target.device),
            "model": engine.target.name,
            "dtype": engine.target.dtype_name,
            "device": engine.target.device.type,
            "temperature": args.temperature,
            "max_new_tokens": args.max_new_tokens,
            "questions": len(questions),
            "settings": {name: settings[name] for name in names},
        },
        "rows": rows,
        "summary": summary_rows(rows),
    }
    print_table(result, sys.stdout)
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


def _rows(
    questions: list[dict[str, Any]], runners: dict[str, Runner], engine: Engine, greedy: bool
) -> Iterator[dict[str, Any]]:
    order = list(runners)
    total = sum(len(q["turns"]) for q in questions) * (len(order) + 1)
    with tqdm(total=total, unit="run", disable=not sys.stderr.isatty()) as bar:
        others = [name for name in order if name != "none"]
        for number, question in enumerate(questions):
            shift = number % max(1, len(others))
            results = _question(question, runners, others[shift:] + others[:shift], bar)
            yield from (_row(question, name, results, engine, greedy) for name in order if results[name])


def _question(
    question: dict[str, Any], runners: dict[str, Runner], order: list[str], bar: Any
) -> dict[str, list[Result]]:
    """All turns by plain decoding, by the runners of ``order``, and by plain decoding again (``AGAIN``).
    The history is always plain decoding's, so that each one answers the same prompt."""
    results: dict[str, list[Result]] = {name: [] for name in ("none", *order, AGAIN)}
    turns: list[dict[str, str]] = []
    for text in question["turns"]:
        turns.append({"role": "user", "content": text})
        for name in results:
            bar.set_postfix_str(name)
            try:
                runner = runners["none" if name == AGAIN else name]
                results[name].append({**runner(turns), "turns": list(turns)})
            except InputError as error:
                bar.write(f"question {question['question_id']}, {name}: {error}")
            bar.update()
        if not results["none"]:
            break
        turns.append({"role": "assistant", "content": results["none"][-1]["text"]})
    return results


def _row(
    question: dict[str, Any],
    name: str,
    results: dict[str, list[Result]],
    engine: Engine,
    greedy: bool,
) -> dict[str, Any]:
    own, plain = results[name], results["none"]

    def total(key: str, of: list[Result] = own) -> float:
        return sum(result[key] or 0 for result in of)

    def speed(of: list[Result]) -> float:
        return 1000.0 * total("decode_tokens", of) / max(total("decode_ms", of), 1e-9)

    plain_speeds = [speed(results[key]) for key in ("none", AGAIN) if results[key]]
    pace = statistics.harmonic_mean(plain_speeds) if plain_speeds else None  # of the mean time a token
    own_speed = pace if name == "none" and pace else speed(own)
    tested = total("accepted") + total("rejected")
    identical = [a["ids"] == b["ids"] for a, b in zip(own, plain, strict=False)]
    row = {
        "drafter": name,
        "question_id": question["question_id"],
        "category": question["category"],
        "task": task_of(question["category"]),
        "tokens": int(total("tokens")),
        "rounds": int(total("rounds")),
        "mean_accepted_length": total("tokens") / total("rounds") if total("rounds") else None,
        "acceptance_rate": total("accepted") / tested if tested else None,
        "tokens_per_second": own_speed,
        "speedup": own_speed / pace if pace else None,
        "plain_apart": max(plain_speeds) / min(plain_speeds) - 1 if len(plain_speeds) > 1 else None,
        "identical": all(identical) if greedy else None,
        "draft_ms": total("draft_ms"),
        "overhead_ms": total("overhead_ms"),
        "decode_ms": total("decode_ms"),
    }
    if greedy and not row["identical"]:
        turn = identical.index(False)
        row |= divergence(engine, own[turn]["turns"], own[turn]["ids"], plain[turn]["ids"])
    return row


def divergence(
    engine: Engine, turns: list[dict[str, str]], ids: list[int], plain: list[int]
) -> dict[str, Any]:
    """Where two greedy outputs part, and the target's top-1/top-2 logit gap there: a gap near zero
    is a numerical tie, a large one would be a bug."""
    from .prompt import encode

    pairs = enumerate(zip(ids, plain, strict=False))
    first = next((i for i, (a, b) in pairs if a != b), min(len(ids), len(plain)))
    context = encode(engine.target, turns) + plain[:first]
    session = engine.target.open(len(context) + 1)
    try:
        session.prefill(context[:-1])
        top = session.forward(context[-1:], [-1])[0].float().topk(2).values
    finally:
        session.close()
    return {"diverges_at": first, "gap": float(top[0] - top[1])}
