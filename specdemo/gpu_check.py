"""``python -m specdemo.gpu_check``: what must hold and how fast it is, on a GPU, in one script.

Equality of greedy fp32 with plain decoding, the statistics of sampling, then with recorded graphs off
and on: plain tokens/s against the bandwidth limit, the cost curve, the speed-up of every drafter, and
peak memory. Prints one table and writes ``--json``. ``--device cpu`` rehearses it without a GPU. Needs
torch, transformers, safetensors and gguf only.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from . import environment
from .bench import divergence
from .catalog import DEFAULT
from .cost import cost_curve
from .drafters import REGISTRY, create
from .engine import Engine
from .errors import InputError
from .graphs import record
from .loading import load_target
from .probe import probe
from .prompt import encode
from .resources import resources
from .run import Run
from .sampling import SamplingParams, probabilities
from .target import Target

PROMPTS = (
    "Name the planets of the solar system in order, with one fact for each.",
    "Write a Python function that returns the n-th Fibonacci number, then explain it line by line.",
    "Summarise in two sentences: The old harbour, the old market and the old mill were rebuilt after "
    "the flood. The old harbour took ten years, the old market five, and the old mill three.",
    "Translate into French: The weather is fine today, and the weather will be fine tomorrow.",
)
TIE = 1e-3  # fp32 outputs may part only where the two best logits are this close
ALPHA = 1e-4  # a right sampler fails the statistics once in ten thousand checks
CANDIDATES = 8


class Table:
    """Lines of (what, value, verdict), printed as they come and kept for the JSON."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, value: str, good: bool | None = None, **data: Any) -> None:
        verdict = "" if good is None else "ok" if good else "FAILED"
        self.rows.append({"what": what, "value": value, "good": good, **data})
        print(f"{what:<44} {value:<40} {verdict}", flush=True)

    @property
    def failed(self) -> bool:
        return any(row["good"] is False for row in self.rows)


def drafters(target: Target) -> Iterator[tuple[str, dict[str, Any]]]:
    """Drafters that work with this target, with what they need."""
    for name in REGISTRY:
        try:
            needs = resources(target, name)
            create(name, target, None, **needs)
        except InputError:
            continue
        yield name, needs


def generate(engine: Engine, name: str, needs: dict[str, Any], prompt: str, params: Any) -> Run:
    return Run.of(engine.generate(prompt, create(name, engine.target, None, **needs), params))


def equality(table: Table, target: Target, tokens: int) -> None:
    """Greedy fp32: every drafter's tokens are those of plain decoding, but for numerical ties."""
    engine, params = Engine(target), SamplingParams(max_new_tokens=tokens)
    plain: dict[str, list[int]] = {}
    for name, needs in drafters(target):
        same, gaps = 0, []
        for prompt in PROMPTS:
            ids = list(generate(engine, name, needs, prompt, params).finished.token_ids)  # type: ignore[union-attr]
            reference = plain.setdefault(prompt, ids)
            if ids == reference:
                same += 1
            else:
                turns = [{"role": "user", "content": prompt}]
                gaps.append(divergence(engine, turns, ids, reference)["gap"])
        if name != "none":
            told = f"{same} of {len(PROMPTS)} equal" + (f", gap {max(gaps):.1e}" if gaps else "")
            table.add(f"greedy fp32, {name}", told, all(g <= TIE for g in gaps), same=same, gaps=gaps)


def statistics(table: Table, target: Target, runs: int) -> None:
    """The first token of speculative sampling follows p: chi-square against the exact p."""
    engine = Engine(target)
    params = SamplingParams(temperature=1.0, top_k=CANDIDATES, max_new_tokens=4)
    ids = encode(target, PROMPTS[0])
    session = target.open(len(ids) + 8)
    session.prefill(ids[:-1])
    p = probabilities(session.forward(ids[-1:], [-1]), params)[0].cpu()
    session.close()
    for name, needs in drafters(target):
        counts = torch.zeros_like(p)
        for seed in range(runs):
            run = generate(engine, name, needs, PROMPTS[0], _seeded(params, seed))
            counts[run.finished.token_ids[0]] += 1  # type: ignore[union-attr]
        alien = int(counts[p == 0].sum())
        likely = (p * runs >= 5) & (p > 0)  # the rest together, as chi-square wants it
        expected = torch.cat([p[likely] * runs, (p[~likely].sum() * runs)[None]])
        seen = torch.cat([counts[likely], counts[~likely].sum()[None]])
        keep = expected > 0
        chi = float(((seen - expected)[keep] ** 2 / expected[keep]).sum())
        freedom = max(1, int(keep.sum()) - 1)
        chance = float(torch.special.gammaincc(torch.tensor(freedom / 2.0), torch.tensor(chi / 2.0)))
        good = chance > ALPHA and alien == 0
        table.add(f"sampling, {name}", f"chance {chance:.3f} over {runs} runs", good, chance=chance)


def _seeded(params: SamplingParams, seed: int) -> SamplingParams:
    return replace(params, seed=seed)


def speed(table: Table, target: Target, tokens: int, label: str) -> None:
    """Plain decoding against the bandwidth limit, the curve, each drafter's speed-up, memory."""
    curve = cost_curve(target)
    table.add(
        f"rows: time to one row, {label}",
        ", ".join(f"{p.rows}: {p.ratio:.2f}" for p in curve.points if p.rows in (2, 4, 8, 16, 64)),
        curve=curve.plain(),
    )
    engine = Engine.measured(target)
    params = SamplingParams(max_new_tokens=tokens, ignore_eos=True)
    plain = 0.0
    for name, needs in drafters(target):
        generate(engine, name, needs, PROMPTS[0], params)  # warm up, record graphs
        count, seconds, accepted, rounds = 0, 0.0, 0, 0
        for prompt in PROMPTS:
            s = generate(engine, name, needs, prompt, params).finished.summary  # type: ignore[union-attr]
            count, rounds, accepted = count + s["tokens"], rounds + s["rounds"], accepted + s["accepted"]
            seconds += (s["draft_ms"] + s["verify_ms"] + s["overhead_ms"]) / 1e3
        rate = count / seconds
        if name == "none":
            plain = rate
            limit = curve.bandwidth / curve.weight_bytes
            told = f"{rate:.1f} tokens/s, {100 * rate / limit:.0f} % of the limit {limit:.0f}"
            table.add(f"plain, {label}", told, rate=rate, limit=limit)
        else:
            told = f"{rate / plain:.2f}x, {rate:.1f} tokens/s, {count / rounds:.2f} tokens a round"
            table.add(f"{name}, {label}", told, rate=rate, speedup=rate / plain, accepted=accepted)


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 if something that must hold does not."""
    text = "Check a GPU: equality, statistics, cost, speed. One table."
    parser = argparse.ArgumentParser(prog="specdemo.gpu_check", description=text)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to rehearse")
    parser.add_argument("--model", default=DEFAULT, help="catalogue key, Hub id or local folder")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--runs", type=int, default=300, help="runs for the sampling statistics")
    parser.add_argument("--json", type=Path, help="write the results here")
    args = parser.parse_args(arguments)
    began, table = time.perf_counter(), Table()
    try:
        return _checks(args, table)
    except InputError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    finally:
        if table.rows:
            seconds = time.perf_counter() - began
            result = {
                "environment": environment.describe(args.device),
                "seconds": seconds,
                "rows": table.rows,
            }
            if args.json:
                args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
            print(f"{seconds:.0f} seconds")


def _checks(args: argparse.Namespace, table: Table) -> int:
    cuda = args.device == "cuda"
    torch.backends.cuda.matmul.allow_tf32 = False
    target = load_target(args.model, "fp32", args.device)
    table.add("fp32 rows alone and in blocks", probe(target).key, None)
    equality(table, target, args.tokens)
    statistics(table, target, args.runs)
    del target
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    target = load_target(args.model, "auto", args.device)
    promise = probe(target)
    told = f"{promise.key}, largest difference {promise.largest:.1e}"
    table.add(f"{target.dtype_name} rows alone and in blocks", told, None, **promise.plain())
    for graphs in (False, True) if cuda else (False,):
        if hasattr(target, "capture"):
            target.capture = record if graphs else None
        speed(table, target, args.tokens, f"{target.dtype_name}, graphs {'on' if graphs else 'off'}")
    if cuda:
        peak = torch.cuda.max_memory_allocated() / 1e6
        resident = getattr(getattr(target, "weights", None), "resident", lambda: math.nan)() / 1e6
        table.add("peak memory", f"{peak:.0f} MB, weights {resident:.0f} MB", None, peak_mb=peak)
    return int(table.failed)


if __name__ == "__main__":
    sys.exit(main())
