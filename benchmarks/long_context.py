"""Time of a one-row and a four-row pass behind 128, 1024 and 4096 tokens, and of the prefill."""

from __future__ import annotations

import statistics
import time

import timing

from specdemo.loading import load_target
from specdemo.target import Session

LENGTHS = (128, 1024, 4096)


def pass_ms(session: Session, rows: int, repeats: int) -> float:
    times = []
    for _ in range(repeats + 2):
        began = time.perf_counter()
        session.forward([5] * rows, range(-1, rows - 1))
        times.append(time.perf_counter() - began)
    return round(statistics.median(times[2:]) * 1e3, 2)


def main() -> None:
    args = timing.arguments(__doc__ or "", dtype="q4", repeats=9)
    target = load_target(dtype=args.dtype, device="cpu")
    target.settle()
    if args.realtime:
        timing.priority(True)
    rows = []
    for length in LENGTHS:
        session = target.open(length + 8)
        began = time.perf_counter()
        session.prefill([(7 * n) % target.shape.vocab for n in range(length)])
        prefill = time.perf_counter() - began
        one, four, eight = (pass_ms(session, n, args.repeats) for n in (1, 4, 8))
        session.close()
        rows.append(
            {
                "context": length,
                "one_row_ms": one,
                "four_rows_ms": four,
                "eight_rows_ms": eight,
                "prefill_s": round(prefill, 2),
            }
        )
    if args.realtime:
        timing.priority(False)
    timing.finish(args, {"dtype": args.dtype, "rows": rows})


if __name__ == "__main__":
    main()
