"""Target states of a corpus, cached on disk: what the heads are trained on.

Raw ``hidden_states`` of a few layers in float16, one file a corpus shard. A shard is written whole
or not at all, so an interrupted extraction goes on where it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .data import FeatureInfo, Shard, read_shard, shard_paths

LARGEST = 60_000.0  # float16 ends at 65504; the states of a first token may be larger


def extract(
    model: Any,
    name: str,
    corpus: Path,
    out: Path,
    layers: Sequence[int],
    batch_tokens: int = 2048,
    progress: Callable[[int, int], None] | None = None,
) -> int:
    """States of every shard of ``corpus`` into ``out``; returns the tokens computed now.

    ``model``: a transformers causal LM. ``layers``: indices of ``hidden_states``. ``progress`` is
    called with (tokens done, tokens in all)."""
    info = FeatureInfo(name, tuple(layers), model.config.hidden_size, model.config.vocab_size)
    info.write(out)
    paths = shard_paths(corpus)
    shards = [read_shard(path) for path in paths]
    total, done, computed = sum(s.tokens for s in shards), 0, 0
    for shard in shards:
        file = out / f"{shard.name}.npy"
        if not file.exists():
            states = shard_states(model, shard, layers, batch_tokens)
            temporary = out / f".{shard.name}.tmp.npy"
            np.save(temporary, states)
            os.replace(temporary, file)
            computed += shard.tokens
        done += shard.tokens
        if progress is not None:
            progress(done, total)
    return computed


@torch.inference_mode()
def shard_states(model: Any, shard: Shard, layers: Sequence[int], batch_tokens: int) -> np.ndarray:
    """``[N, L, H]`` float16 for all tokens of a shard."""
    hidden = model.config.hidden_size
    out = np.empty((shard.tokens, len(layers), hidden), np.float16)
    by_length = sorted(range(len(shard.rows)), key=lambda i: len(shard.rows[i].ids))
    group: list[int] = []
    for position, index in enumerate(by_length):
        group.append(index)
        longest = len(shard.rows[index].ids)
        last = position + 1 == len(by_length)
        if last or (len(group) + 1) * longest > batch_tokens:
            states = batch_states(model, [shard.rows[i].ids for i in group], layers)
            for i, rows in zip(group, states, strict=True):
                out[shard.starts[i] : shard.starts[i] + len(rows)] = rows.numpy()
            group = []
    return out


def batch_states(model: Any, rows: Sequence[Tensor], layers: Sequence[int]) -> list[Tensor]:
    """States ``[T, L, H]`` float16 on the CPU, one tensor a row. Right padding needs no mask: with
    causal attention no real token sees it."""
    longest = max(len(r) for r in rows)
    ids = torch.zeros(len(rows), longest, dtype=torch.int64)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
    output = model.model(ids.to(model.device), use_cache=False, output_hidden_states=True)
    states = torch.stack([output.hidden_states[layer] for layer in layers], dim=2)
    states = states.clamp_(-LARGEST, LARGEST).half().cpu()
    return [states[i, : len(row)] for i, row in enumerate(rows)]
