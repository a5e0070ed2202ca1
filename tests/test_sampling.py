"""Logits to probabilities: as Hugging Face does it, row by row; drawing; parameters out of range."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process as hf

from specdemo.rows import Dense, DenseRows, Peak, PeakRows, TorchChooser
from specdemo.sampling import SamplingParams, distributions, penalise, probabilities

PROMPT, OUTPUT = [3, 5, 5, 900], [7, 3, 11]


def _logits(rows: int, vocab: int, seed: int = 0, spread: float = 3.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, vocab, generator=generator) * spread


def _hugging_face(logits: torch.Tensor, params: SamplingParams, ids: list[int]) -> torch.Tensor:
    """The processors ``generate`` would build, in its order."""
    chain: list[Any] = []
    if params.repetition_penalty != 1.0:
        chain.append(hf.RepetitionPenaltyLogitsProcessor(params.repetition_penalty))
    chain.append(hf.TemperatureLogitsWarper(params.temperature))
    if params.top_k:
        chain.append(hf.TopKLogitsWarper(params.top_k))
    if params.top_p < 1.0:
        chain.append(hf.TopPLogitsWarper(params.top_p))
    if params.min_p > 0.0:
        chain.append(hf.MinPLogitsWarper(params.min_p))
    scores = logits.clone()
    for one in chain:
        scores = one(torch.tensor([ids] * len(logits)), scores)
    return scores.softmax(-1)


@pytest.mark.parametrize(
    "values",
    [
        {"temperature": 0.7},
        {"temperature": 1.0, "top_k": 5},
        {"temperature": 1.3, "top_p": 0.8},
        {"temperature": 1.0, "min_p": 0.1},
        {"temperature": 1.0, "repetition_penalty": 1.4},
        {"temperature": 1.0, "repetition_penalty": 0.6},
        {"temperature": 0.8, "top_k": 40, "top_p": 0.9, "min_p": 0.02, "repetition_penalty": 1.2},
    ],
    ids=str,
)
def test_as_hugging_face(values: dict[str, Any]) -> None:
    params = SamplingParams(**values)
    logits = _logits(4, 1000)
    got = distributions(logits, params, PROMPT, OUTPUT)
    assert isinstance(got, DenseRows)
    want = _hugging_face(logits, params, PROMPT + OUTPUT)
    assert torch.equal(got.probs > 0, want > 0)
    torch.testing.assert_close(got.probs, want, atol=1e-6, rtol=1e-4)


def test_presence_penalty_by_hand() -> None:
    """Subtracted once from what was written, however often; the prompt does not count."""
    params = SamplingParams(temperature=1.0, presence_penalty=0.5)
    logits = torch.zeros(2, 6)
    got = penalise(logits, params, prompt=[0], output=[1, 1, 2], prefixes=[[], [2, 4]])
    assert got.tolist() == [[0, -0.5, -0.5, 0, 0, 0], [0, -0.5, -0.5, 0, -0.5, 0]]
    assert logits.abs().sum() == 0  # the model's own tensor is left alone


def test_a_prefix_counts_as_output() -> None:
    """A row behind draft tokens equals the row after those tokens were committed."""
    params = SamplingParams(temperature=0.9, repetition_penalty=1.3, presence_penalty=0.4)
    logits = _logits(1, 50)
    prefix = [4, 9]
    ahead = distributions(logits, params, [3, 5], [7], [prefix]).row(0)
    after = distributions(logits, params, [3, 5], [7, *prefix]).row(0)
    assert isinstance(ahead, Dense)
    assert isinstance(after, Dense)
    assert torch.equal(ahead.probs, after.probs)


def test_penalties_are_not_lost_in_bf16() -> None:
    logits = torch.tensor([[30.0, 29.9]], dtype=torch.bfloat16)
    got = penalise(logits, SamplingParams(presence_penalty=0.01), [], [0], [[]])
    assert float(logits[0, 0].float() - got[0, 0]) == pytest.approx(0.01, abs=1e-5)


def test_greedy_rows_are_one_hot_and_penalised() -> None:
    logits = torch.tensor([[1.0, 0.9, 0.0], [0.0, 1.0, 2.0]])
    assert distributions(logits, SamplingParams()) == PeakRows([0, 2])
    penalised = SamplingParams(presence_penalty=0.5)
    assert distributions(logits, penalised, [], [0]) == PeakRows([1, 2])
    row = distributions(logits, SamplingParams()).row(0)
    assert (row.prob(0), row.prob(1), row.residual(0, None)) == (1.0, 0.0, Peak(0))


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.99, 0.9999])
@pytest.mark.parametrize("spread", [0.01, 1.0, 4.0], ids=["flat", "middle", "peaked"])
def test_top_p_against_a_full_sort(top_p: float, spread: float) -> None:
    """The widening top-k finds the same set as sorting the whole vocabulary, flat rows included."""
    logits = _logits(2, 6000, seed=4, spread=spread).double()
    got = probabilities(logits, SamplingParams(temperature=1.0, top_p=top_p))
    for row, plain in zip(got, logits.softmax(-1), strict=True):
        order = plain.argsort(descending=True)
        mass = plain[order].cumsum(0)
        count = int((mass < top_p).sum()) + 1  # the smallest set that reaches top_p
        kept = torch.zeros(6000, dtype=torch.bool)
        kept[order[:count]] = True
        assert torch.equal(row > 0, kept)
        torch.testing.assert_close(row[kept], plain[kept] / plain[kept].sum())


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    temperature=st.one_of(st.floats(0.01, 5.0), st.sampled_from([1e-3, 1e-20, 5e-324])),
    top_k=st.integers(0, 60),
    top_p=st.floats(1e-6, 1.0),
    min_p=st.floats(0.0, 1.0),
)
def test_always_a_distribution(
    seed: int, temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    logits = _logits(2, 50, seed, spread=10.0)
    logits[:, 40:] = -torch.inf  # a padded vocabulary
    probs = probabilities(logits, params)
    assert bool(torch.isfinite(probs).all())
    assert bool((probs >= 0).all())
    torch.testing.assert_close(probs.sum(-1), torch.ones(2))
    assert float(probs[:, 40:].sum()) == 0.0
    assert torch.equal(probs.argmax(-1), logits.argmax(-1))
    if top_k:
        assert int((probs > 0).sum(-1).max()) <= top_k


def test_top_k_cuts_ties_to_exactly_k() -> None:
    probs = probabilities(torch.zeros(1, 10), SamplingParams(temperature=1.0, top_k=3))
    assert sorted(probs[0].tolist())[-4:] == pytest.approx([0.0, 1 / 3, 1 / 3, 1 / 3])


def test_double_stays_double_and_bf16_becomes_float() -> None:
    params = SamplingParams(temperature=1.0, top_p=0.9)
    assert probabilities(torch.zeros(1, 4, dtype=torch.float64), params).dtype == torch.float64
    assert probabilities(torch.zeros(1, 4, dtype=torch.bfloat16), params).dtype == torch.float32


def test_residual() -> None:
    p = Dense(torch.tensor([0.5, 0.3, 0.2]))
    rest = p.residual(0, torch.tensor([0.7, 0.3, 0.0]))
    assert rest.probs.tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert p.residual(0, None).probs.tolist() == pytest.approx([0.0, 0.6, 0.4])
    assert p.probs.tolist() == pytest.approx([0.5, 0.3, 0.2])  # p itself is left alone
    assert p.residual(0, p.probs) is p  # nothing left but rounding


# Drawing.


def test_same_seed_same_draws() -> None:
    def draws(seed: int) -> list[Any]:
        chooser, probs = TorchChooser(seed), torch.full((9,), 1 / 9)
        return [(chooser.sample(probs), chooser.accept(0.5)) for _ in range(20)]

    assert draws(3) == draws(3)
    assert draws(3) != draws(4)


def test_the_global_generator_is_neither_used_nor_moved() -> None:
    before = torch.get_rng_state()
    TorchChooser(0).sample(torch.tensor([0.5, 0.5]))
    assert torch.equal(before, torch.get_rng_state())


def test_certain_outcomes_take_no_draw() -> None:
    chooser = TorchChooser(0)
    assert chooser.accept(1.0) == (True, None)
    assert chooser.accept(0.0) == (False, None)
    accepted, draw = chooser.accept(0.25)
    assert draw is not None
    assert accepted == (draw < 0.25)


class Uniform(TorchChooser):
    """The real chooser with its uniform number given."""

    def __init__(self, value: float) -> None:
        super().__init__(0)
        self.value = value

    def uniform(self) -> float:
        return self.value


@pytest.mark.parametrize("value", [0.0, 0.3, 0.7, math.nextafter(1.0, 0.0)])
def test_a_token_of_probability_zero_is_never_drawn(value: float) -> None:
    """At the borders of the running sum too: the first, last and neighbouring tokens have weight 0."""
    for weights in ([0, 0.3, 0, 0.4, 0.3, 0], [0, 0, 1, 0], [0, 1e-30, 0], [0, 0.3, 0.7, 0, 0]):
        probs = torch.tensor(weights)
        assert float(probs[Uniform(value).sample(probs)]) > 0.0


@pytest.mark.parametrize("seed", [0, 1])
def test_draws_follow_the_distribution(seed: int) -> None:
    """Chi-square, 7 degrees of freedom, 4000 draws; the bound 29.88 has a false-alarm rate of 1e-4,
    and the seeds are fixed. Moving 0.05 of the mass from the first token to the second would add 83."""
    probs = torch.tensor([0.3, 0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.02])
    chooser, count = TorchChooser(seed), 4000
    seen = torch.bincount(torch.tensor([chooser.sample(probs) for _ in range(count)]), minlength=8)
    expected = probs * count
    assert float(((seen - expected) ** 2 / expected).sum()) < 29.88
    accepted = sum(chooser.accept(0.3)[0] for _ in range(count))
    assert abs(accepted - 0.3 * count) < 3.9 * math.sqrt(count * 0.3 * 0.7)  # 1e-4, two-sided
