"""Which promise holds here: identical bits, or an identical distribution up to rounding.

Greedy speculative decoding gives the very tokens of plain decoding if a row's logits have the same
bits whether it is computed alone or in a block with others. That is a property of the device's
kernels, so it is looked at, not assumed: a few passes of the loaded model at the start.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from . import cache
from .pass_cost import key_of, write
from .target import Session, Target

_VERSION = 2  # of what is compared: older results in the cache folder do not count
BLOCKS = (2, 7, 16)
# Tokens before the probe. Its rows then cross a border between two sizes of passes; the second one also
# lies where matrix products begin to cut their sums into blocks (512 keys with AVX-512).
CONTEXTS = (58, 506)
# A tree that holds the chain of the probe's first tokens, other branches lying between its rows.
TREE = (-1, 0, 0, 1, 2, 4)
PATH = (0, 2, 4, 5)


@dataclass(frozen=True, slots=True)
class Promise:
    """``chains``: blocks of a chain gave the bits of one by one decoding; ``trees``: so did a tree's
    paths. ``largest``: the largest difference of logits seen; ``blocks``: sizes tried."""

    chains: bool
    trees: bool
    largest: float
    blocks: tuple[int, ...]

    @property
    def key(self) -> str:
        """ "bits" or "distribution": which sentence the page shows."""
        return "bits" if self.chains else "distribution"

    def plain(self) -> dict[str, Any]:
        """JSON-able values."""
        return {**asdict(self), "promise": self.key}


def promise_of(target: Target) -> Promise:
    """The promise for a target: from the cache folder (for this model, device, libraries and number of
    threads), else probed now and written there. A folder that cannot be written is no error."""
    path = cache.root() / "promise" / f"{key_of(target)}-{_VERSION}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = json.loads(path.read_text("utf-8"))
        return Promise(
            bool(kept["chains"]), bool(kept["trees"]), float(kept["largest"]), tuple(kept["blocks"])
        )
    found = probe(target)
    with suppress(OSError):
        write(path, json.dumps(found.plain()))
    return found


def probe(target: Target, blocks: Sequence[int] = BLOCKS) -> Promise:
    """Compare rows computed alone and in blocks of ``blocks`` rows: about thirty passes behind each of
    ``CONTEXTS`` that the model holds."""
    count = max(*blocks, len(TREE))
    chain = tree = 0.0
    held = [context for context in CONTEXTS if context + count <= target.shape.context]
    for context in held or CONTEXTS[:1]:  # never a promise without having looked
        apart = _compare(target, context, count, blocks)
        chain, tree = max(chain, apart[0]), max(tree, apart[1])
    return Promise(chain == 0.0, tree == 0.0, max(chain, tree), tuple(blocks))


def _compare(target: Target, context: int, count: int, blocks: Sequence[int]) -> tuple[float, float]:
    """The largest differences of chains and of a tree's path from one by one decoding."""
    ids = _tokens(target, context + count)
    tokens = ids[context:]
    session = target.open(context + count)
    try:
        session.prefill(ids[:context])
        alone = _in_blocks(session, tokens, 1)
        differences = [_apart(_in_blocks(session, tokens, size), alone) for size in blocks]
        branches = _tokens(target, context + count + len(TREE))[-len(TREE) :]
        row_of = {row: index for index, row in enumerate(PATH)}
        mixed = [tokens[row_of[r]] if r in row_of else branches[r] for r in range(len(TREE))]
        found = session.forward(mixed, TREE)[list(PATH)]
        return max(differences), _apart(found, alone[: len(PATH)])
    finally:
        session.close()


def _in_blocks(session: Session, tokens: Sequence[int], size: int) -> Tensor:
    """Logits ``[T, V]`` of ``tokens`` behind the session's rows, ``size`` rows a pass; the rows stay."""
    context = session.length
    parts = []
    for start in range(0, len(tokens), size):
        part = tokens[start : start + size]
        parts.append(session.forward(part, range(-1, len(part) - 1)))
        session.keep(range(len(part)))
    session.crop(context)
    return torch.cat(parts)


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a.float() - b.float()).abs().max())


def _tokens(target: Target, count: int) -> list[int]:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, target.shape.vocab, (count,), generator=generator).tolist()
