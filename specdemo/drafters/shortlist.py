"""A draft model that only guesses frequent tokens: most of a tiny model's time is its output head.

Whatever q a draft is sampled from, verification makes the output exact; a token that the draft cannot
name is simply never drafted. The ids lie beside the model in ``shortlist.json``."""

from __future__ import annotations

import copy
import json
import time
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from ..errors import InputError
from ..lean import LeanTarget
from ..lean.native import draft_matrix
from ..target import Target
from .vocabulary import Vocabulary

FILE = "shortlist.json"


def write(folder: Path, ids: Tensor) -> None:
    (folder / FILE).write_text(json.dumps(ids.tolist()) + "\n", encoding="utf-8")


def read(folder: Path, vocab: int) -> Tensor | None:
    """The ids of a folder's shortlist, None where there is none. Raises ``InputError``."""
    file = folder / FILE
    if not file.is_file():
        return None
    try:
        ids = torch.tensor(json.loads(file.read_text("utf-8")), dtype=torch.int64)
        good = ids.ndim == 1 and len(ids) > 0 and 0 <= int(ids.min()) <= int(ids.max()) < vocab
    except (OSError, ValueError, TypeError):
        good = False
    if not good:
        raise InputError("head_unreadable", head=folder.name, why=f"{FILE} is no list of token ids")
    return ids


def restricted(target: Target, ids: Tensor | None) -> tuple[Target, Tensor | None]:
    """(``target`` with logits for ``ids`` alone, the ids); unchanged where that is not possible.
    Its weights are shared; only models whose output head is their embedding table are restricted."""
    if ids is None or not isinstance(target, LeanTarget) or not _tied(target):
        return target, None
    made = copy.copy(target)
    rows = target.weights.table[ids.to(target.device)]
    halves = target.dtype_name != "fp32" and target.device.type == "cpu"
    made.weights = replace(target.weights, head=draft_matrix(rows, halves=halves))
    made._free = None
    return made, ids.to(target.device)


def extended(
    restricted: Target, ids: Tensor | None, prompt: Sequence[int]
) -> tuple[Target, Tensor | None]:
    """The same with logits for the tokens of ``prompt`` as well: see ``vocabulary``."""
    if ids is None or not isinstance(restricted, LeanTarget):
        return restricted, ids
    weights = restricted.weights
    base = Vocabulary(weights.head, ids.tolist(), ids)
    wider = base.extended(weights.table, prompt, weights.head.dtype)
    if wider is base:
        return restricted, ids
    made = copy.copy(restricted)
    made.weights = replace(weights, head=wider.matrix)
    made._free = None
    return made, wider.index


def _tied(target: LeanTarget) -> bool:
    """Whether the output head gives the embeddings' own products."""
    table = target.weights.table
    probe = table[:1].float()
    found = target.head(probe)[0, :64].float()
    return torch.allclose(found, (table[:64].float() @ probe[0]), rtol=0.05, atol=0.05)


_step_costs: weakref.WeakKeyDictionary[Target, float] = weakref.WeakKeyDictionary()


@torch.inference_mode()
def step_cost(draft: Target, target: Target) -> float:
    """Time of a pass of ``draft`` over one row, in such passes of ``target``; measured once. In turns,
    as in a round: a pass of the target drives the draft's weights out of the processor's caches."""
    if draft not in _step_costs:
        models = (draft, target)
        sessions = [model.open(64) for model in models]
        times: list[list[float]] = [[], []]
        for session in sessions:
            session.prefill([0] * 16)
        for _ in range(8):
            for model, session, took in zip(models, sessions, times, strict=True):
                model.synchronize()
                began = time.perf_counter()
                session.forward([0], [-1]).argmax(-1).tolist()
                took.append(time.perf_counter() - began)
        for session in sessions:
            session.close()
        _step_costs[draft] = min(times[0]) / min(times[1])
    return _step_costs[draft]
