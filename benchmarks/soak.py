"""500 short runs, each by a new visitor: the memory of the process must stay flat.

    python benchmarks/soak.py [--runs 500] [--tokens 8]

The first fifth warms up (allocator, caches). After it the memory may grow by 3 % at most, and neither
threads nor open files may grow. Exit code 1 otherwise. Writes ``assets/results/soak.json``.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

import httpx
from served_app import app, one_run, write

DRAFTERS = ("none", "ngram", "early_exit")
GROWTH = 0.03


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--tokens", type=int, default=8)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--model", default="", help="folder or key (default: embedded)")
    options = parser.parse_args()
    samples: list[dict[str, Any]] = []
    failed = 0
    # Gradio remembers 2 * queue sessions: with few of them the warm-up fills that table.
    flags = ["--rate", "10000", "--address-rate", "100000", "--queue", "16", "--dtype", options.dtype]
    flags += ["--model", options.model] if options.model else []
    with app(*flags) as served:
        began = time.monotonic()
        for number in range(options.runs):
            prompt = f"Count from {number} to {number + 5}."
            final = one_run(served.url, prompt, DRAFTERS[number % 3], options.tokens)
            failed += final["state"] != "done"
            if (number + 1) % max(1, options.runs // 20) == 0:
                samples.append({"runs": number + 1, **served.figures()})
        seconds = time.monotonic() - began
        status = httpx.get(f"{served.url}/specdemo/status.json", timeout=30).json()
    warm = samples[len(samples) // 5 :]
    growth = warm[-1]["memory_mb"] / warm[0]["memory_mb"] - 1
    result = {
        "what": "short runs one after the other, each by a new visitor",
        "model": {name: status[name] for name in ("model", "device", "dtype")},
        "runs": options.runs,
        "failed": failed,
        "tokens_a_run": options.tokens,
        "seconds": round(seconds, 1),
        "memory_growth_after_warm_up": round(growth, 4),
        "samples": samples,
    }
    write("soak.json", result)
    threads = warm[-1]["threads"] - warm[0]["threads"]
    files = warm[-1]["open_files"] - warm[0]["open_files"]
    if failed or growth > GROWTH or threads > 4 or files > 4:
        print("a run failed, or something grew", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
