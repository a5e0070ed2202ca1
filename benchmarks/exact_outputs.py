"""How many greedy outputs of each drafter equal plain decoding's, token for token, over all questions.

Untimed, so it may run beside other work and in shares: ``--share 0/2`` and ``--share 1/2`` append to
``--rows``; what is there already is not run again. ``--summary`` counts. Where an output differs, the
row holds the first difference and the gap of the target's two best logits there.

The prompt's pass is the same for every drafter and is computed once per question.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import timing
import torch

from specdemo import environment
from specdemo.bench import divergence, read_questions
from specdemo.drafters import create
from specdemo.engine import Engine
from specdemo.lean import LeanSession, LeanTarget
from specdemo.loading import load_target
from specdemo.resources import resources
from specdemo.run import Run
from specdemo.sampling import SamplingParams

#: name in the table: drafter, settings
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "ngram": ("ngram", {"adaptive": False, "gamma": 6}),
    "ngram tree": ("ngram", {"adaptive": False, "gamma": 4, "branches": 3}),
    "early_exit": ("early_exit", {}),
    "draft_model": ("draft_model", {}),
    "eagle3": ("eagle3", {}),
    "medusa": ("medusa", {}),
}


class Repeating(LeanTarget):
    """Remembers the last prompt's cache rows and states; asked for the same again it copies them."""

    layers: tuple[int, ...] = ()
    known: tuple[list[int], torch.Tensor, torch.Tensor, dict[int, torch.Tensor]] | None = None

    def open(self, capacity: int, hidden_layers: Sequence[int] = ()) -> LeanSession:
        return RepeatingSession(self, capacity, tuple({*self.layers, *hidden_layers}))


def filled(keys: torch.Tensor, end: int) -> torch.Tensor:
    """The first ``end`` rows of a cache of keys, or the blocks of 64 that hold them."""
    return keys[..., :end] if keys.dim() == 4 else keys[:, :, : -(-end // 64)]


class RepeatingSession(LeanSession):
    @torch.inference_mode()
    def prefill(self, ids: Sequence[int]) -> None:
        target, arena, end = self.target, self._arena, len(ids)
        assert isinstance(target, Repeating)
        if target.known is None or target.known[0] != list(ids) or self.length:
            super().prefill(ids)
            kept = filled(arena.keys, end).clone(), arena.values[:, :, :end].clone()
            target.known = (list(ids), *kept, dict(self.hidden))
            return
        _, keys, values, self.hidden = target.known
        filled(arena.keys, end).copy_(keys)
        arena.values[:, :, :end] = values
        self.length = end


def rows(args: argparse.Namespace, done: set[str]) -> Iterator[dict[str, Any]]:
    target: Any = load_target(dtype=args.dtype, device="cpu")
    target.__class__ = Repeating
    engine = Engine(target)
    params = SamplingParams(max_new_tokens=args.tokens)
    needs = {}
    for name in args.methods.split(","):
        needs[name] = resources(target, METHODS[name][0])
    made = [create(METHODS[n][0], target, dict(METHODS[n][1]), **needs[n]) for n in needs]
    target.layers = tuple({layer for drafter in made for layer in drafter.hidden_layers})
    part, parts = (int(x) for x in args.share.split("/"))
    for question in read_questions(args.questions)[part::parts]:
        turns = [{"role": "user", "content": question["turns"][0]}]

        def output(drafter: Any, turns: Any = turns) -> tuple[list[int], int]:
            run = Run.of(engine.generate(turns, drafter, params))
            assert run.finished is not None
            return list(run.finished.token_ids), int(run.finished.summary["accepted"])

        plain: list[int] | None = None
        for name in needs:
            key = f"{args.dtype}/{name}/{question['question_id']}"
            if key in done:
                continue
            plain = output(create("none", target))[0] if plain is None else plain
            drafter, settings = METHODS[name]
            ids, accepted = output(create(drafter, target, dict(settings), **needs[name]))
            row = {"key": key, "tokens": len(plain), "accepted": accepted, "equal": ids == plain}
            yield row if ids == plain else {**row, **divergence(engine, turns, ids, plain)}


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    table: dict[str, Any] = {}
    for row in found:
        dtype, name, _ = row["key"].split("/")
        counts = table.setdefault(dtype, {}).setdefault(
            name, {"equal": 0, "of": 0, "tokens": 0, "accepted": 0, "different": []}
        )
        counts["equal"] += row["equal"]
        counts["of"] += 1
        counts["tokens"] += row["tokens"]
        counts["accepted"] += row["accepted"]
        if not row["equal"]:
            counts["different"].append({k: row[k] for k in ("key", "diverges_at", "gap")})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=Path, help="Spec-Bench rows, JSON lines")
    parser.add_argument("--rows", type=Path, required=True, help="results so far, JSON lines")
    parser.add_argument("--dtype", default="q4")
    parser.add_argument("--methods", default="ngram,ngram tree,early_exit")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--share", default="0/1")
    parser.add_argument("--summary", type=Path, help="write the counts into this JSON file's outputs")
    args = parser.parse_args()
    text = args.rows.read_text("utf-8") if args.rows.exists() else ""
    found = [json.loads(line) for line in text.splitlines()]
    if args.summary:
        known = json.loads(args.summary.read_text("utf-8")) if args.summary.exists() else {}
        known |= {"outputs": summary(found), "outputs_environment": environment.describe("cpu")}
        args.summary.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(known["outputs"], indent=1))
        return
    with args.rows.open("a", encoding="utf-8") as file:
        for row in rows(args, {row["key"] for row in found}):
            file.write(json.dumps(row) + "\n")
            file.flush()


if __name__ == "__main__":
    assert timing.RESULTS.exists()
    main()
