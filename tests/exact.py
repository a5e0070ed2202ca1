"""Exact output distributions on tiny vocabularies: tables for target and draft, ways of drafting, and
the joint distribution of the first committed tokens, enumerated over the real ``verify``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from itertools import product

import torch
from helpers import Enumerator
from torch import Tensor

from specdemo.proposal import ROOT, Proposal
from specdemo.rows import Chooser, Dense, DenseRows, PeakRows
from specdemo.sampling import SamplingParams, distributions
from specdemo.verify import AcceptanceRule, Exact, verify

LENGTH = 2  # committed tokens looked at
Sequence = tuple[int, ...]
Propose = Callable[[Chooser], Proposal]


class Table:
    """A "model": logits that depend on all tokens so far, by a fixed random table in fp64.
    ``prefix`` -> row after the processing of ``params``."""

    def __init__(self, seed: int, vocab: int, params: SamplingParams | None = None, spread: float = 1.5):
        self.vocab, self.params = vocab, params or SamplingParams(temperature=1.0)
        generator = torch.Generator().manual_seed(seed)
        count = sum(vocab**n for n in range(4))
        self._logits = torch.randn(count, vocab, generator=generator, dtype=torch.float64) * spread
        self.prompt = [0, 1]

    def logits(self, prefix: Sequence) -> Tensor:
        place = 0
        for token in prefix:
            place = place * self.vocab + token + 1
        return self._logits[place]

    def row(self, prefix: Sequence) -> Tensor:
        """``[V]``: as plain decoding sees it, the prefix being committed output."""
        rows = distributions(self.logits(prefix)[None], self.params, self.prompt, list(prefix))
        return _dense(rows, 0, self.vocab)

    def rows(self, proposal: Proposal) -> DenseRows | PeakRows:
        """As verification sees it: nothing of the proposal is committed."""
        prefixes = proposal.prefixes()
        logits = torch.stack([self.logits(tuple(prefix)) for prefix in prefixes])
        return distributions(logits, self.params, self.prompt, [], prefixes)


def _dense(rows: DenseRows | PeakRows, index: int, vocab: int) -> Tensor:
    row = rows.row(index)
    if isinstance(row, Dense):
        return row.probs
    return torch.nn.functional.one_hot(torch.tensor(row.token), vocab).double()


def plain(p: Table) -> dict[Sequence, float]:
    """What plain decoding gives: p(a) p(b|a) and so on."""
    result = {}
    for sequence in product(range(p.vocab), repeat=LENGTH):
        weight = 1.0
        for n, token in enumerate(sequence):
            weight *= float(p.row(sequence[:n])[token])
        result[sequence] = weight
    return result


def speculative(
    p: Table, propose: Propose | Callable[[], Proposal], rule: AcceptanceRule | None = None
) -> dict[Sequence, float]:
    """What one round (then plain decoding up to ``LENGTH``) gives, every outcome weighed."""
    chooser = Enumerator()

    def once() -> Sequence:
        proposal = propose(chooser)  # type: ignore[call-arg]
        verdict = verify(proposal, p.rows(proposal), rule or Exact(), chooser)
        tokens = [*(proposal.tokens[node] for node in verdict.path), verdict.final]
        while len(tokens) < LENGTH:
            tokens.append(chooser.sample(p.row(tuple(tokens))))
        return tuple(tokens[:LENGTH])

    result: dict[Sequence, float] = defaultdict(float)
    for sequence, weight in chooser.outcomes(once):
        result[sequence] += weight
    return result


def error(got: dict[Sequence, float], want: dict[Sequence, float]) -> float:
    """Largest difference of a probability."""
    return max(abs(got.get(s, 0.0) - want.get(s, 0.0)) for s in {*got, *want})


def _without(row: Tensor, used: list[int]) -> Tensor:
    """``row`` without the tokens already drawn; uniform over the rest if they had all the mass."""
    for left in (row.clone(), torch.ones_like(row)):
        left[used] = 0.0
        if float(left.sum()) > 0.0:
            return left / left.sum()
    raise ValueError("More siblings than tokens.")


def drafted(q: Table, shape: list[int], siblings: str) -> Propose:
    """A drafter of trees. ``shape[i]`` is the parent of node i (-1: root), ``siblings`` how children
    of one node come about: ``iid``, ``without_replacement`` or ``deterministic`` (q's best ones)."""

    def propose(chooser: Chooser) -> Proposal:
        tokens: list[int] = []
        rows: list[Tensor] = []
        used: dict[int, list[int]] = defaultdict(list)
        prefixes: dict[int, Sequence] = {ROOT: ()}
        for node, parent in enumerate(shape):
            row = q.row(prefixes[parent])
            if siblings != "iid" and used[parent]:
                row = _without(row, used[parent])
            token = int(row.argmax()) if siblings == "deterministic" else chooser.sample(row)
            used[parent].append(token)
            tokens.append(token)
            rows.append(row)
            prefixes[node] = (*prefixes[parent], token)
        return Proposal(tokens, shape, None if siblings == "deterministic" else torch.stack(rows))

    return propose
