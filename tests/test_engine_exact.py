"""The whole engine, enumerated: every general drafter gives exactly plain decoding's distribution.

A real double-precision model with a vocabulary of a few tokens; the engine's chance is replaced by an
enumerator, so that every outcome of whole runs is walked and weighed, caches and rollbacks included."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
import torch
from helpers import Enumerator
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from specdemo.drafters import REGISTRY, create
from specdemo.engine import Engine
from specdemo.events import Finished
from specdemo.hf import HFTarget
from specdemo.sampling import SamplingParams

WORDS = ["<end>", "a", "b", "c", "d"]
PROMPT = "a b a c a b a"
EXACT = 1e-9
Runs = dict[tuple[int, ...], float]

NGRAM = {"min_match": 1, "gamma": 2, "adaptive": False}
#: Drafter, settings, processed, tokens. Filters leave three tokens, so runs of three stay few.
CASES: list[tuple[str, dict[str, Any], bool, int]] = [
    ("ngram", NGRAM, True, 3),
    ("ngram", {**NGRAM, "branches": 3}, False, 3),
    ("ngram", {**NGRAM, "branches": 3}, True, 3),
    ("ngram", {**NGRAM, "adaptive": True}, True, 3),
    ("draft_model", {"gamma": 2}, False, 2),
    ("draft_model", {"gamma": 2}, True, 3),
    ("draft_model", {"gamma": 2, "confidence": 0.4}, True, 3),
    ("early_exit", {"gamma": 2, "layers": 1}, False, 2),
    ("early_exit", {"gamma": 2, "layers": 1}, True, 3),
]
PROCESSED = {
    "temperature": 0.8,
    "top_k": 3,
    "top_p": 0.95,
    "min_p": 0.02,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.3,
}


def _tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<end>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<end>")


def _model(seed: int, layers: int, padding: int = 0) -> HFTarget:
    """GPT-2 computes in the weights' dtype throughout, norms included: double means double."""
    config = GPT2Config(
        vocab_size=len(WORDS) + padding,
        n_embd=8,
        n_layer=layers,
        n_head=2,
        n_positions=32,
        eos_token_id=0,
        bos_token_id=0,
        initializer_range=0.6,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = GPT2LMHeadModel(config).double().eval()
    return HFTarget(model, _tokenizer(), f"gpt2-{seed}", "fp64")


@pytest.fixture(scope="module")
def target() -> HFTarget:
    return _model(1, 2)


@pytest.fixture(scope="module")
def draft() -> HFTarget:
    return _model(2, 1, padding=2)


def enumerate_runs(
    target: HFTarget, drafter: str, settings: dict[str, Any], draft: HFTarget, params: SamplingParams
) -> Runs:
    """Probability of every output (ids) of the engine."""
    engine, chooser, result = Engine(target), Enumerator(), defaultdict[tuple[int, ...], float](float)

    def once() -> tuple[int, ...]:
        made = create(drafter, target, settings, draft=draft)
        *_, last = engine.generate(PROMPT, made, params, raw=True, chooser=chooser)
        assert isinstance(last, Finished)
        return last.token_ids

    for ids, weight in chooser.outcomes(once):
        result[ids] += weight
    return result


@pytest.fixture(scope="module")
def plain(target: HFTarget, draft: HFTarget) -> dict[tuple[bool, int], Runs]:
    """Plain decoding, by (processed, length)."""
    return {
        (processed, length): enumerate_runs(target, "none", {}, draft, _params(processed, length))
        for processed in (False, True)
        for length in (2, 3)
    }


def _params(processed: bool, length: int) -> SamplingParams:
    values = PROCESSED if processed else {"temperature": 1.0}
    return SamplingParams(max_new_tokens=length, **values)  # type: ignore[arg-type]


def test_the_cases_cover_the_general_drafters() -> None:
    assert {name for name, *_ in CASES} | {"none"} == {"none", "ngram", "draft_model", "early_exit"}
    assert {name for name, *_ in CASES} <= set(REGISTRY)


def test_plain_decoding_is_the_model_itself(target: HFTarget, plain: dict[Any, Runs]) -> None:
    """The reference, computed from the bare model: products of softmax rows, ended by <end>."""
    prompt = target.tokenizer.encode(PROMPT)

    def walk(ids: list[int], weight: float, left: int) -> Runs:
        if left == 0 or (ids and ids[-1] == 0):
            return {tuple(ids): weight}
        with torch.no_grad():
            row = target.model(torch.tensor([prompt + ids])).logits[0, -1].softmax(-1)
        result: Runs = {}
        for token, p in enumerate(row.tolist()):
            result |= walk([*ids, token], weight * p, left - 1)
        return result

    want = walk([], 1.0, 2)
    assert plain[False, 2].keys() == want.keys()
    assert max(abs(plain[False, 2][ids] - want[ids]) for ids in want) < EXACT
    assert sum(want.values()) == pytest.approx(1.0)


@pytest.mark.parametrize(("drafter", "settings", "processed", "length"), CASES, ids=str)
def test_every_drafter_gives_the_distribution_of_plain_decoding(
    target: HFTarget,
    draft: HFTarget,
    plain: dict[tuple[bool, int], Runs],
    drafter: str,
    settings: dict[str, Any],
    processed: bool,
    length: int,
) -> None:
    got = enumerate_runs(target, drafter, settings, draft, _params(processed, length))
    want = plain[processed, length]
    assert max(abs(got.get(ids, 0.0) - want.get(ids, 0.0)) for ids in {*got, *want}) < EXACT
