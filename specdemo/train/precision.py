"""Mixed precision: matrix products in bf16 where this machine multiplies faster in it (tensor cores,
AMX), weights, norms, losses and optimiser in fp32."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import torch
from torch import Tensor

FASTER = 1.5  # times as fast as fp32, or casting back and forth is not worth it
SIDE = 512


def compute_dtype(device: torch.device) -> torch.dtype:
    """What products are computed in on ``device``: bf16 or fp32."""
    return torch.bfloat16 if half_pays(device.type) else torch.float32


@cache
def half_pays(kind: str) -> bool:
    """Whether bf16 products beat fp32 ones: true on GPUs, measured on a CPU (some milliseconds)."""
    if kind != "cpu":
        return kind == "cuda"
    full = torch.ones(SIDE, SIDE)
    return _seconds(full) > FASTER * _seconds(full.bfloat16())


def _seconds(square: Tensor) -> float:
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        square @ square
        best = min(best, time.perf_counter() - start)
    return best


def mixed(device: torch.device) -> torch.autocast:
    """A context in which products run in ``compute_dtype``."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=half_pays(device.type))


class SoftEntropy(torch.autograd.Function):
    """Cross-entropy of ``logits`` ``[P, V]`` against ``expected`` ``[P, V]`` (rows sum to one), one
    number a row. The gradient, softmax - expected, is made in the forward pass and in the dtype of
    the logits: five passes over the matrix in all, where autograd makes a dozen."""

    @staticmethod
    def forward(context: Any, logits: Tensor, expected: Tensor) -> Tensor:
        logs = logits.log_softmax(-1)
        entropy = -(expected * logs).sum(-1, dtype=torch.float32)
        context.save_for_backward(logs.exp_().sub_(expected))
        return entropy

    @staticmethod
    def backward(context: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (difference,) = context.saved_tensors
        return difference * grads[0].to(difference.dtype)[:, None], None


def soft_entropy(logits: Tensor, expected: Tensor) -> Tensor:
    """``[P]`` fp32; see ``SoftEntropy``."""
    made: Tensor = SoftEntropy.apply(logits, expected)
    return made
