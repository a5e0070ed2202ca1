"""Plain 4-bit decoding here and in llama.cpp, on the same GGUF file, threads and prompts, in turns.

llama.cpp's figure is its own (``predicted_per_second``: decoding alone, without prompt, network or
text); ours is that of the engine's rounds. Our ``ngram`` is there to show what speculation adds.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import httpx
import timing

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from servers import llama

from specdemo import embedded
from specdemo.drafters import create
from specdemo.engine import Engine
from specdemo.loading import load_target
from specdemo.run import Run
from specdemo.sampling import SamplingParams


def ours(engine: Engine, drafter: str, prompt: str, tokens: int) -> float:
    """Tokens per second."""
    params = SamplingParams(max_new_tokens=tokens, ignore_eos=True)
    run = Run.of(engine.generate(prompt, create(drafter, engine.target), params))
    assert run.finished is not None
    s = run.finished.summary
    return 1e3 * s["tokens"] / (s["draft_ms"] + s["verify_ms"] + s["overhead_ms"])


def theirs(url: str, prompt: str, tokens: int) -> float:
    asked = {
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "cache_prompt": False,
    }
    answer = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=120)
    answer.raise_for_status()
    found: dict[str, Any] = answer.json()["timings"]
    assert found["predicted_n"] == tokens
    return float(found["predicted_per_second"])


def main() -> None:
    args = timing.arguments(__doc__ or "", dtype="q4", tokens=64, repeats=9, threads=2)
    engine = Engine.measured(load_target(dtype=args.dtype, device="cpu"))
    speeds: dict[str, list[float]] = {"llama.cpp": [], "none": [], "ngram": []}
    with llama.running(embedded.gguf_path(), threads=str(args.threads)) as url:
        for turn in range(-1, args.repeats):
            prompt = timing.PROMPTS[turn % len(timing.PROMPTS)]
            found = {"llama.cpp": theirs(url, prompt, args.tokens)}
            for name in ("none", "ngram"):
                found[name] = ours(engine, name, prompt, args.tokens)
            if turn >= 0:  # the first warms up
                for name, value in found.items():
                    speeds[name].append(round(value, 1))

    def ratio(name: str) -> float:
        pairs = zip(speeds[name], speeds["llama.cpp"], strict=True)
        return round(statistics.median(a / b for a, b in pairs), 3)

    timing.finish(
        args,
        {
            "dtype": args.dtype,
            "tokens": args.tokens,
            "tokens_per_second": speeds,
            "ratios": {"plain": ratio("none"), "ngram": ratio("ngram")},
        },
    )


if __name__ == "__main__":
    main()
