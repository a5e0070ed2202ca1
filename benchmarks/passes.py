"""Cost of a pass by its number of rows, in turns: every turn times each number of rows once.

A curve measured point by point shows the hour as much as the kernels where a machine's speed changes;
here the ratio to one row is the median over turns of neighbours in time.
"""

from __future__ import annotations

import statistics
import time

import timing

from specdemo.cost import ROWS
from specdemo.loading import load_target
from specdemo.target import Session

CONTEXT = 128


def pass_ms(session: Session, rows: int) -> float:
    """The better of two, so that one interruption does not count."""
    times = []
    for _ in range(2):
        began = time.perf_counter()
        session.forward(list(range(rows)), range(-1, rows - 1))
        times.append(time.perf_counter() - began)
    return min(times) * 1e3


def main() -> None:
    args = timing.arguments(__doc__ or "", dtypes="q4,bf16,fp32", turns=15)
    results = {}
    for dtype in args.dtypes.split(","):
        target = load_target(dtype=dtype, device="cpu")
        session = target.open(CONTEXT + max(ROWS))
        session.prefill([(7 * n) % target.shape.vocab for n in range(CONTEXT)])
        for rows in ROWS:
            pass_ms(session, rows)
        if args.realtime:
            timing.priority(True)
        times: dict[int, list[float]] = {rows: [] for rows in ROWS}
        ratios: dict[int, list[float]] = {rows: [] for rows in ROWS}
        for _ in range(args.turns):
            for rows in ROWS:
                one = pass_ms(session, 1)
                times[rows].append(pass_ms(session, rows))
                after = pass_ms(session, 1)
                ratios[rows].append(2 * times[rows][-1] / (one + after))
        if args.realtime:
            timing.priority(False)
        session.close()
        results[dtype] = [
            {
                "rows": rows,
                "ms": round(statistics.median(times[rows]), 2),
                "best_ms": round(min(times[rows]), 2),
                "ratio": round(statistics.median(ratios[rows]), 3),
            }
            for rows in ROWS
        ]
    timing.finish(args, {"context": CONTEXT, "turns": args.turns, "dtypes": results})


if __name__ == "__main__":
    main()
