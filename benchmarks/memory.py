"""Resident memory of the embedded model against weights and cache, and over many generations."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import timing
import torch

from specdemo.drafters import create
from specdemo.engine import SPARE_ROWS, Engine
from specdemo.lean.compiled import library
from specdemo.lean.kernels import half_available
from specdemo.loading import load_target, load_tokenizer
from specdemo.run import Run
from specdemo.sampling import SamplingParams


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def main() -> None:
    args = timing.arguments(__doc__ or "", dtype="q4", generations=200, tokens=8)
    load_tokenizer()  # counted as the program, like torch and its libraries, not as the model
    torch.mm(torch.ones(256, 256), torch.ones(256, 256))
    half_available()
    library()
    empty = resident_mb()
    target: Any = load_target(dtype=args.dtype, device="cpu")
    engine, params = Engine(target), SamplingParams(max_new_tokens=args.tokens, ignore_eos=True)
    seen = []
    if args.realtime:
        timing.priority(True)
    for turn in range(args.generations):
        name = ("none", "ngram", "early_exit")[turn % 3]
        prompt = timing.PROMPTS[turn % len(timing.PROMPTS)]
        Run.of(engine.generate(prompt, create(name, target), params))
        seen.append(round(resident_mb(), 1))
    plan = target.plan
    size = 4 if target.fast is None else 2  # bytes a number in the cache
    cache = 2 * plan.layers * plan.kv_heads * plan.head_dim * size * (200 + SPARE_ROWS) / 1e6
    wanted = target.weights.resident() / 1e6 + cache
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    timing.finish(
        args,
        {
            "dtype": args.dtype,
            "generations": args.generations,
            "weights_and_cache_mb": round(wanted, 1),
            "program_mb": round(empty, 1),
            "model_mb": round(seen[-1] - empty, 1),
            "peak_model_mb": round(peak - empty, 1),
            "peak_to_weights_and_cache": round((peak - empty) / wanted, 3),
            "after_10_mb": seen[min(9, len(seen) - 1)],
            "after_all_mb": seen[-1],
        },
    )


if __name__ == "__main__":
    main()
