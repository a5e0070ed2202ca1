"""What a target pass costs by the number of rows it verifies, against the limits of the machine.

Speculation pays where verifying several rows costs little more than one: while the time goes into
reading weights, which all rows share, and not into arithmetic, which each row adds to.

The numbers of rows take turns, each timed next to a pass of one row: a busy second of the machine, or a
change of its speed, hits all of them alike and does not bend the curve.
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from . import environment
from .lean import LeanTarget
from .pass_cost import pass_seconds
from .target import Session, Target

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
TURNS = 9
SECONDS = 20.0  # no further turn is begun after these
WARM_UPS = 2  # passes of a kind that are not timed: they make buffers or record graphs
READ_BYTES = 256 * 2**20
PRODUCT = 1024  # side of the square product that shows the arithmetic speed


@dataclass(frozen=True, slots=True)
class Point:
    """``ratio``: time of a pass over ``rows`` to a pass of one row just before it, the median of the
    turns; ``ms``: that times the median time of all passes of one row."""

    rows: int
    ms: float
    ratio: float


@dataclass(frozen=True, slots=True)
class CostCurve:
    """``weight_bytes``: read by a pass. ``bandwidth``: of a plain streaming read here, bytes/s;
    ``bandwidth_share``: weight bytes over one row's time, of that. ``flops``: of the fastest products
    seen here, per second; ``flops_used``: what the widest measured pass reached."""

    points: tuple[Point, ...]
    context: int
    dtype: str
    weight_bytes: int
    bandwidth: float
    bandwidth_share: float
    flops: float
    flops_used: float

    def plain(self) -> dict[str, Any]:
        """JSON-able; ``facts`` are keys and values of sentences for the page."""
        facts = []
        if self.points:
            used, last = self.bandwidth_share * self.bandwidth, self.points[-1].rows
            facts = [
                _fact("bandwidth", used, self.bandwidth),
                _fact("compute", self.flops_used, self.flops, rows=last),
            ]
        return {**asdict(self), "facts": facts}


def _fact(key: str, used: float, best: float, **values: Any) -> dict[str, Any]:
    billions = {"used": round(used / 1e9, 1), "best": round(best / 1e9, 1)}
    return {"key": key, "values": {**values, **billions, "share": f"{100 * used / best:.0f} %"}}


def measure(
    target: Target,
    cancel: threading.Event | None = None,
    rows: Sequence[int] = ROWS,
    context: int = 128,
) -> Iterator[dict[str, Any]]:
    """Measure, giving the curve so far (``CostCurve.plain``): in the first turn after every number of
    rows, then after every turn."""
    for curve in curves(target, cancel, rows, context):
        yield curve.plain()


def cost_curve(target: Target, rows: Sequence[int] = ROWS, context: int = 128) -> CostCurve:
    """The whole curve. Raises ``ValueError`` if ``rows`` is empty or does not begin with 1."""
    *_, last = curves(target, None, rows, context)
    return last


def curves(
    target: Target, cancel: threading.Event | None, rows: Sequence[int], context: int
) -> Iterator[CostCurve]:
    if not rows or rows[0] != 1:
        raise ValueError("The numbers of rows must begin with 1.")
    target.settle()
    bandwidth, flops = _bandwidth(target.device), _flops(target)
    session = target.open(context + max(rows))
    try:
        session.prefill([token % target.shape.vocab for token in range(context)])
        for points in _turns(target, session, cancel, rows):
            read, last = weight_bytes(target), points[-1]
            yield CostCurve(
                points=points,
                context=context,
                dtype=target.dtype_name,
                weight_bytes=read,
                bandwidth=bandwidth,
                bandwidth_share=read / (points[0].ms / 1e3) / bandwidth,
                flops=flops,
                flops_used=2 * weight_count(target) * last.rows / (last.ms / 1e3),
            )
    finally:
        session.close()


def _turns(
    target: Target, session: Session, cancel: threading.Event | None, rows: Sequence[int]
) -> Iterator[tuple[Point, ...]]:
    ones: list[float] = []  # seconds of all passes of one row
    ratios: dict[int, list[float]] = {count: [] for count in rows}
    began = time.perf_counter()
    for turn in range(TURNS):
        for count in rows:
            if cancel is not None and cancel.is_set():
                return
            for _ in range(WARM_UPS if turn == 0 else 0):
                pass_seconds(target, session, count)
            ones.append(pass_seconds(target, session, 1))
            ratios[count].append(pass_seconds(target, session, count) / ones[-1] if count > 1 else 1.0)
            if turn == 0:
                yield _points(ones, ratios)
        if turn > 0:
            yield _points(ones, ratios)
        if time.perf_counter() - began > SECONDS:
            return


def _points(ones: list[float], ratios: dict[int, list[float]]) -> tuple[Point, ...]:
    one = statistics.median(ones) * 1e3
    found = {count: statistics.median(of) for count, of in ratios.items() if of}
    return tuple(Point(count, one * ratio, ratio) for count, ratio in found.items())


def weight_bytes(target: Target) -> int:
    """Bytes of weights that one pass reads (the embedding table only where it is the head too)."""
    weights = getattr(target, "weights", None)
    return int(weights.nbytes) if weights is not None else _parameters(target, bytes_each=True)


def weight_count(target: Target) -> int:
    """Weights that every row is multiplied with."""
    weights = getattr(target, "weights", None)
    return int(weights.count) if weights is not None else _parameters(target, bytes_each=False)


def _parameters(target: Target, bytes_each: bool) -> int:
    model: Any = getattr(target, "model", None)
    if model is None:
        return 0
    table = model.get_input_embeddings().weight
    tied = table is model.get_output_embeddings().weight
    chosen = [p for p in model.parameters() if tied or p is not table]
    return sum(p.nbytes if bytes_each else p.numel() for p in chosen)


def _bandwidth(device: torch.device) -> float:
    """Bytes per second of summing a large tensor: a plain streaming read by all threads."""
    data = torch.ones(READ_BYTES // 4, device=device)
    return READ_BYTES / _best_seconds(lambda: data.sum(), device)


def _flops(target: Target) -> float:
    """The fastest products seen here, per second: a large one of torch's, and on a CPU one of the
    target's own matrices, small enough for the caches, with the rows of the widest pass."""
    device = target.device
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    size = PRODUCT * (4 if device.type == "cuda" else 1)
    a = torch.ones(size, size, device=device, dtype=dtype)
    best = 2 * size**3 / _best_seconds(lambda: a @ a, device)
    if isinstance(target, LeanTarget) and device.type == "cpu":
        matrix, rows = target.weights.layers[0].gate_up, max(ROWS)
        x, out = (torch.ones(rows, n, dtype=matrix.dtype) for n in reversed(matrix.shape))
        own = 2 * matrix.size * rows / _best_seconds(lambda: matrix.apply(x, out), device)
        best = max(best, own)
    return best


def _best_seconds(run: Any, device: torch.device) -> float:
    best = float("inf")
    for _ in range(12):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return best


def cost_command(args: argparse.Namespace) -> int:
    """``python -m specdemo cost``: a table, or JSON with the environment."""
    from .commands import load

    target = load(args)
    curve = cost_curve(target, context=args.context)
    if args.json:
        about = {**environment.describe(target.device), "model": target.name}
        print(json.dumps({"environment": about, **curve.plain()}, indent=1))
        return 0
    print(f"{target.name}, {curve.dtype}, {curve.context} tokens in the cache")
    print(f"{'rows':>5} {'ms':>8} {'to one row':>11} {'ms a row':>9}")
    for point in curve.points:
        print(f"{point.rows:>5} {point.ms:>8.2f} {point.ratio:>11.2f} {point.ms / point.rows:>9.2f}")
    print(
        f"one row reads {curve.weight_bytes / 1e6:.0f} MB of weights at "
        f"{100 * curve.bandwidth_share:.0f} % of this machine's {curve.bandwidth / 1e9:.1f} GB/s;\n"
        f"{curve.points[-1].rows} rows compute at {curve.flops_used / 1e9:.1f} of "
        f"{curve.flops / 1e9:.1f} GFLOP/s"
    )
    return 0
