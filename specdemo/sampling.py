"""From logits to the distribution a token is drawn from: one function for target and draft.

Order as in Hugging Face ``generate``: penalties, temperature, top-k, top-p, min-p.
The same processing gives p and q: a q taken before it would make verification inexact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from .errors import InputError
from .lean.compiled import largest
from .rows import DenseRows, PeakRows

_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 5.0),
    "top_k": (0, 1_000_000),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (0.1, 10.0),
    "presence_penalty": (-2.0, 2.0),
    "max_new_tokens": (1, 1_000_000),
    "seed": (0, 2**63 - 1),
}
_COLD, _COLDEST = 1e-3, 1e-30  # temperatures at which fp32 needs care


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn. ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1, ``min_p`` 0,
    ``repetition_penalty`` 1 and ``presence_penalty`` 0 switch the filter off.

    Raises ``InputError`` (one sentence) when a value is not a number or out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    max_new_tokens: int = 128
    seed: int = 0
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        for f in fields(self):
            if f.name not in _RANGES:
                continue
            value, (low, high) = getattr(self, f.name), _RANGES[f.name]
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            whole = f.type == "int"
            if not number or not low <= value <= high or (whole and value != int(value)):
                raise InputError("range", name=f.name, value=repr(value)[:40], low=low, high=high)
            if whole:
                object.__setattr__(self, f.name, int(value))
        if self.top_p == 0.0:
            raise InputError("range", name="top_p", value="0", low="0.01", high=1.0)
        texts = isinstance(self.stop, (tuple, list)) and all(isinstance(s, str) and s for s in self.stop)
        if not texts:
            raise InputError("stop")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def penalised(self) -> bool:
        return self.repetition_penalty != 1.0 or self.presence_penalty != 0.0


def distributions(
    logits: Tensor,
    params: SamplingParams,
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    prefixes: Sequence[Sequence[int]] | None = None,
) -> PeakRows | DenseRows:
    """Rows of logits ``[T, V]`` to rows of distributions.

    ``prompt`` and ``output`` are the committed ids and ``prefixes[i]`` the draft tokens before
    row i; only the penalties look at them. Greedy needs one transfer from the device in all.
    """
    prefixes = prefixes or [()] * logits.shape[0]
    return rows_of(penalise(logits, params, prompt, output, prefixes), params)


def rows_of(logits: Tensor, params: SamplingParams) -> PeakRows | DenseRows:
    """Penalised logits ``[T, V]`` to rows of distributions."""
    if params.greedy:
        return PeakRows(largest(logits))
    return DenseRows(probabilities(logits, params))


def penalise(
    logits: Tensor,
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    prefixes: Sequence[Sequence[int]],
) -> Tensor:
    """Repetition penalty (Keskar et al. 2019: prompt and output) and presence penalty (output).

    Each row counts its own draft prefix as output, so that verification sees what plain decoding
    would have seen at that position. Returns a new tensor ``[T, V]``, in fp32 at least (a small
    penalty is lost in bf16), or ``logits`` itself when there is nothing to do."""
    if not params.penalised:
        return logits
    logits = logits.clone() if logits.dtype == torch.float64 else logits.to(torch.float32, copy=True)
    said, wrote = set(prompt) | set(output), set(output)
    for row, prefix in zip(logits, prefixes, strict=True):
        if params.repetition_penalty != 1.0:
            index = torch.tensor(sorted(said | set(prefix)), device=row.device)
            value = row[index]
            row[index] = torch.where(
                value < 0, value * params.repetition_penalty, value / params.repetition_penalty
            )
        if params.presence_penalty != 0.0 and (wrote or prefix):
            index = torch.tensor(sorted(wrote | set(prefix)), device=row.device)
            row[index] -= params.presence_penalty
    return logits


def probabilities(logits: Tensor, params: SamplingParams) -> Tensor:
    """Temperature, top-k, top-p, min-p, softmax: ``[T, V]`` in fp32 (fp64 stays fp64)."""
    if logits.dtype != torch.float64:
        logits = logits.float()
    if params.temperature < _COLD:
        # Divided by next to nothing logits would overflow: count from the largest, which stays 0.
        logits = logits - logits.amax(-1, keepdim=True)
    logits = logits / max(params.temperature, _COLDEST)
    size = logits.shape[-1]
    if 0 < params.top_k < size:
        # Exactly k tokens, ties cut by index: p and q must agree on what is left.
        kept = logits.topk(params.top_k, dim=-1)
        logits = torch.full_like(logits, -torch.inf).scatter_(-1, kept.indices, kept.values)
    probs = logits.softmax(-1)
    if params.top_p < 1.0:
        probs = _nucleus(probs, params.top_p)
    if params.min_p > 0.0:
        floor = probs.amax(-1, keepdim=True) * params.min_p
        probs = torch.where(probs < floor, 0.0, probs)
    if params.top_p < 1.0 or params.min_p > 0.0:
        probs = probs / probs.sum(-1, keepdim=True)
    return probs


def _nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Keep the smallest set of most likely tokens whose mass reaches ``top_p``; unnormalised.

    Sorting a whole vocabulary costs more than a small model's forward, so only as many of the
    largest are taken as the mass needs."""
    size, width = probs.shape[-1], 64
    while True:
        width = min(width, size)
        top = probs.topk(width, dim=-1)
        before = top.values.cumsum(-1) - top.values
        if width == size or bool((before[..., -1] >= top_p).all()):
            break
        width *= 8
    values = torch.where(before < top_p, top.values, 0.0)
    return torch.zeros_like(probs).scatter_(-1, top.indices, values)
