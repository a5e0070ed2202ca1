"""What a target pass costs on this device, row by row, and how near it comes to the device's own limits.

The limits are measured, not looked up: memory by reading a large block, arithmetic by a large matrix
product in the dtype the model computes in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ..target import Session, Target

ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
CONTEXT = 128  # tokens in the cache while timing
REPEATS = 3
BLOCK = 256 * 2**20  # bytes read to measure the memory: larger than any cache
SIDE = 1024  # of the square matrices that measure the arithmetic


def measure(target: Target, cancel: threading.Event | None = None) -> Iterator[dict[str, Any]]:
    """The curve as it grows, lastly with the device's limits.

    ``points``: ``rows`` and ``ms``, the best of a few passes over a chain after ``CONTEXT`` tokens;
    ``facts``: sentences' keys with their values (see ``ui/text``, ``why_fact_...``)."""
    session = target.open(CONTEXT + max(ROWS))
    points: list[dict[str, float]] = []
    try:
        session.prefill([token % target.shape.vocab for token in range(CONTEXT)])
        for rows in ROWS:
            if cancel is not None and cancel.is_set():
                return
            points.append({"rows": rows, "ms": _pass_ms(target, session, rows)})
            yield {"points": list(points), "facts": []}
    finally:
        session.close()
    yield {"points": points, "facts": _facts(target, points)}


def _pass_ms(target: Target, session: Session, rows: int) -> float:
    tokens, parents = list(range(rows)), range(-1, rows - 1)
    return 1000.0 * _best(lambda: session.forward(tokens, parents), target)


def _best(work: Callable[[], Any], target: Target, repeats: int = REPEATS) -> float:
    """Seconds of the fastest of ``repeats`` calls after one that warms up."""
    best = float("inf")
    for _ in range(repeats + 1):
        target.synchronize()
        began = time.perf_counter()
        work()
        target.synchronize()
        best = min(best, time.perf_counter() - began)
    return best


def _facts(target: Target, points: list[dict[str, float]]) -> list[dict[str, Any]]:
    size = weight_bytes(target)
    facts = []
    if size:
        used = size / (points[0]["ms"] / 1000) / 1e9
        facts.append(_fact("bandwidth", used, read_rate(target)))
        last = points[-1]
        # Two operations a weight and row; attention is left out, it is small at this context.
        flops = 2.0 * weight_count(target) * last["rows"] / (last["ms"] / 1000) / 1e9
        facts.append(_fact("compute", flops, multiply_rate(target), rows=int(last["rows"])))
    return facts


def _fact(key: str, used: float, best: float, **more: Any) -> dict[str, Any]:
    share = f"{100 * used / best:.0f} %"
    return {"key": key, "values": {"used": f"{used:.1f}", "best": f"{best:.1f}", "share": share, **more}}


def weight_bytes(target: Target) -> int:
    """Bytes of weights that a pass reads, 0 where the target does not tell."""
    weights = getattr(target, "weights", None)
    if weights is not None and hasattr(weights, "nbytes"):
        return int(weights.nbytes)
    model = getattr(target, "model", None)
    if not isinstance(model, nn.Module):
        return 0
    # Of the embedding only one row is read, unless the head is the same matrix.
    table = target.embedding()
    tied = getattr(getattr(model, "config", None), "tie_word_embeddings", False)
    whole = sum(p.numel() * p.element_size() for p in model.parameters())
    return whole - (0 if tied else table.numel() * table.element_size())


def weight_count(target: Target) -> float:
    """Weights that take part in a product, from their bytes and the dtype's width."""
    bits = {"q4": 4.5, "bf16": 16.0, "fp32": 32.0}.get(target.dtype_name, 16.0)
    return weight_bytes(target) * 8.0 / bits


def read_rate(target: Target) -> float:
    """GB/s at which this device reads a block that fits no cache."""
    block = torch.ones(BLOCK // 4, dtype=torch.float32, device=target.device)
    return BLOCK / _best(block.sum, target) / 1e9


def multiply_rate(target: Target) -> float:
    """GFLOP/s of a large product on this device, fp32 on the CPU and the model's dtype on a GPU."""
    kind = torch.float32 if target.device.type == "cpu" else target.embedding().dtype
    left = torch.ones(SIDE, SIDE, dtype=kind, device=target.device)
    return 2.0 * SIDE**3 / _best(lambda: left @ left, target) / 1e9
