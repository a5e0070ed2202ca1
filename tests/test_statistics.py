"""Real sampled runs against exact probabilities: chi-square tests with fixed seeds.

The enumeration tests replace chance; here it is the real generator, drafters and caches included.
A correct program fails with a probability of 1e-4 a test; as the seeds are fixed, always or never."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from exact import LENGTH, Table, drafted, plain
from test_engine_exact import NGRAM, PROMPT, _model

from specdemo.drafters import create
from specdemo.engine import Engine
from specdemo.events import Finished
from specdemo.proposal import Proposal
from specdemo.rows import TorchChooser
from specdemo.sampling import SamplingParams
from specdemo.verify import Exact, verify

FALSE_ALARM = 1e-4


def tail(statistic: float, freedom: int) -> float:
    """Probability that chi-square with ``freedom`` degrees exceeds ``statistic``."""
    return float(torch.special.gammaincc(torch.tensor(freedom / 2), torch.tensor(statistic / 2)))


def chi_square(seen: Counter[Any], want: dict[Any, float], count: int) -> tuple[float, int]:
    """Statistic and degrees of freedom; cells expected fewer than 5 times are put together."""
    assert all(want.get(cell, 0.0) > 0.0 for cell in seen), "an impossible outcome was drawn"
    large = {cell: p for cell, p in want.items() if p * count >= 5}
    rest = 1.0 - sum(large.values())
    terms = [(seen[cell] - p * count) ** 2 / (p * count) for cell, p in large.items()]
    if rest * count >= 5:
        other = count - sum(seen[cell] for cell in large)
        terms.append((other - rest * count) ** 2 / (rest * count))
    return sum(terms), len(terms) - 1


def _sampled(p: Table, propose: Any, seed: int, count: int) -> Counter[Any]:
    chooser, seen = TorchChooser(seed), Counter[Any]()
    for _ in range(count):
        proposal: Proposal = propose(chooser)
        verdict = verify(proposal, p.rows(proposal), Exact(), chooser)
        tokens = [*(proposal.tokens[node] for node in verdict.path), verdict.final]
        while len(tokens) < LENGTH:
            tokens.append(chooser.sample(p.row(tuple(tokens))))
        seen[tuple(tokens[:LENGTH])] += 1
    return seen


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ([-1, 0], "iid"),
        ([-1, -1, 0], "iid"),
        ([-1, -1], "without_replacement"),
        ([-1, 0], "deterministic"),
    ],
    ids=str,
)
def test_verification_by_chi_square(shape: list[int], kind: str, seed: int) -> None:
    p, q = Table(30, 4), Table(31, 4)
    count = 800
    statistic, freedom = chi_square(_sampled(p, drafted(q, shape, kind), seed, count), plain(p), count)
    assert freedom >= 7
    assert tail(statistic, freedom) > FALSE_ALARM


def test_the_check_sees_a_wrong_q() -> None:
    """The same number of runs suffices to see a draft that hands over another q than it drew from."""
    p, q, raw = Table(30, 4), Table(31, 4, SamplingParams(temperature=0.5)), Table(31, 4)

    def propose(chooser: TorchChooser) -> Proposal:
        return Proposal.chain([chooser.sample(q.row(()))], raw.row(())[None])

    statistic, freedom = chi_square(_sampled(p, propose, 1, 800), plain(p), 800)
    assert tail(statistic, freedom) < FALSE_ALARM**2


@pytest.mark.parametrize(
    ("drafter", "settings"),
    [
        ("ngram", {**NGRAM, "branches": 3}),
        ("draft_model", {"gamma": 2}),
    ],
    ids=str,
)
def test_runs_of_the_engine_by_chi_square(drafter: str, settings: dict[str, Any]) -> None:
    """Whole runs, one a seed: the first two tokens against the bare model's probabilities."""
    target, draft = _model(1, 2), _model(2, 1)
    engine, seen, count = Engine(target), Counter[Any](), 150
    for seed in range(count):
        params = SamplingParams(temperature=1.0, max_new_tokens=2, seed=seed, ignore_eos=True)
        made = create(drafter, target, settings, draft=draft)
        *_, last = engine.generate(PROMPT, made, params, raw=True)
        assert isinstance(last, Finished)
        seen[last.token_ids] += 1
    want: dict[Any, float] = {}
    prompt = target.tokenizer.encode(PROMPT)
    with torch.no_grad():
        first = target.model(torch.tensor([prompt])).logits[0, -1].softmax(-1).tolist()
        for a, pa in enumerate(first):
            second = target.model(torch.tensor([[*prompt, a]])).logits[0, -1].softmax(-1).tolist()
            want |= {(a, b): pa * pb for b, pb in enumerate(second)}
    statistic, freedom = chi_square(seen, want, count)
    assert freedom >= 4
    assert tail(statistic, freedom) > FALSE_ALARM
