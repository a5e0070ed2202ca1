"""Thousands of first and second tokens after one prefix, drawn by the real verification walk.

p and q are computed once by the model; each draw then is a whole speculative round on them. Only
tokens that p or q can give are kept ("compact" ids), so a draw takes microseconds, not a vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..museum import Exhibit, exhibits
from ..proposal import Proposal
from ..rows import Chooser, DenseRows, TorchChooser
from ..sampling import SamplingParams, probabilities
from ..target import Target
from ..verify import verify
from .statistics import Fit, fit


@dataclass(frozen=True, slots=True)
class Position:
    """Distributions after a prefix, and after the prefix with each possible first token.

    ``texts``: of the M compact tokens. ``p``, ``q``: ``[1 + M, M]`` fp64, row 0 after the prefix, row
    i + 1 after the prefix and compact token i (zeros where i cannot come first); after temperature and
    filters. ``raw_q``: q before them, on the same tokens (its rows need not sum to 1)."""

    texts: tuple[str, ...]
    p: Tensor
    q: Tensor
    raw_q: Tensor

    @property
    def second(self) -> Tensor:
        """``[M]``: the distribution of the second token, whatever the first one was."""
        return self.p[0] @ self.p[1:]


def draw(position: Position, exhibit: Exhibit, chooser: Chooser) -> tuple[int, int]:
    """First and second committed token of one generation that drafts two tokens a round."""
    first, second = _round(position, exhibit, chooser, 0, 2)
    if second is None:
        second, _ = _round(position, exhibit, chooser, first + 1, 1)
    return first, second


def _round(
    position: Position, exhibit: Exhibit, chooser: Chooser, row: int, depth: int
) -> tuple[int, int | None]:
    """One round from ``row``; its first committed token, and the second if there is one."""
    claimed = position.q if exhibit.claim == "q" else position.raw_q
    rows, tokens = [row], list[int]()
    for _ in range(depth):
        q = position.q[rows[-1]]
        tokens.append(int(q.argmax()) if exhibit.draft == "argmax" else chooser.sample(q))
        rows.append(tokens[-1] + 1)
    # The row after the last draft token only gives a bonus token that nobody looks at here.
    p = position.p[[*rows[:-1], rows[0]]]
    verdict = verify(Proposal.chain(tokens, claimed[rows[:-1]]), DenseRows(p), exhibit.rule, chooser)
    committed = [*(tokens[node] for node in verdict.path), verdict.final]
    return committed[0], committed[1] if depth > 1 and len(committed) > 1 else None


@dataclass(frozen=True, slots=True)
class Tally:
    """What was drawn so far, beside what should have been."""

    first: list[int]
    second: list[int]
    fit_first: Fit
    fit_second: Fit


def sample(
    position: Position, exhibit: Exhibit, draws: int, seed: int, chunk: int = 250
) -> Iterator[Tally]:
    """Draw ``draws`` times; a tally after every ``chunk``."""
    chooser = TorchChooser(seed)
    size = len(position.texts)
    first, second = [0] * size, [0] * size
    p_first, p_second = position.p[0].tolist(), position.second.tolist()
    for number in range(1, draws + 1):
        one, two = draw(position, exhibit, chooser)
        first[one] += 1
        second[two] += 1
        if number % chunk == 0 or number == draws:
            yield Tally(list(first), list(second), fit(first, p_first), fit(second, p_second))


def prepare(target: Target, ids: list[int], params: SamplingParams, layers: int, texts: Any) -> Position:
    """The position after the prompt ``ids``; the draft is the target's first ``layers`` layers.

    ``params`` must filter (``top_k``), or every token would be possible. ``texts(id)`` names a token.
    """
    session = target.open(len(ids) + 2 + 4 * max(1, params.top_k))
    try:
        session.prefill(ids[:-1])
        last = ids[-1]
        p0 = probabilities(session.forward([last], [-1]), params)[0]
        q0 = probabilities(session.early([last], [-1], layers), params)[0]
        firsts = ((p0 > 0) | (q0 > 0)).nonzero()[:, 0].tolist()
        block, parents = [last, *firsts], [-1, *([0] * len(firsts))]
        target_logits = session.forward(block, parents).clone()  # [1 + F, V]
        draft_logits = session.early(block, parents, layers).clone()
    finally:
        session.close()
    p, q = probabilities(target_logits, params), probabilities(draft_logits, params)
    raw_q = draft_logits.float().softmax(-1)
    used = ((p > 0).any(0) | (q > 0).any(0)).nonzero()[:, 0]
    compact = used.tolist()
    place = [0, *(compact.index(token) + 1 for token in firsts)]

    def spread(rows: Tensor) -> Tensor:
        result = torch.zeros(len(compact) + 1, len(compact), dtype=torch.float64)
        result[place] = rows[:, used].double().cpu()
        return result

    return Position(tuple(texts(i) for i in compact), spread(p), spread(q), spread(raw_q))


__all__ = ["Position", "Tally", "draw", "exhibits", "prepare", "sample"]
