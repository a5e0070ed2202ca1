"""The draft model's own length control, and drafts that only know frequent tokens."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import REPEAT, run, target_of
from test_eagle3_quick import tiny_model
from transformers import LlamaForCausalLM

from specdemo.drafters import create, shortlist
from specdemo.drafters.draft_model import DraftModel
from specdemo.engine import Engine
from specdemo.errors import InputError
from specdemo.lean import LeanTarget, compiled
from specdemo.lean.session import LeanSession
from specdemo.prompt import encode
from specdemo.run import Run
from specdemo.sampling import SamplingParams

GREEDY = SamplingParams(max_new_tokens=32, ignore_eos=True)


@pytest.fixture(scope="module")
def small(tiny_llama: Any) -> LeanTarget:
    """A tied model of the tiny tokenizer on the lean path."""
    config = copy.deepcopy(tiny_llama[0].config)
    config.tie_word_embeddings = True
    torch.manual_seed(5)
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    return LeanTarget(model, tiny_llama[1], name="small", dtype_name="fp32")


def test_a_shortlist_keeps_the_logits_of_its_tokens(small: LeanTarget) -> None:
    ids = torch.tensor([3, 7, 11, 40, 41])
    short, kept = shortlist.restricted(small, ids)
    assert kept is not None and kept.tolist() == ids.tolist()
    found = []
    for model in (small, short):
        session = model.open(16)
        session.prefill([5, 6, 7])
        found.append(session.forward([8, 9], [-1, 0]).clone())
        session.close()
    torch.testing.assert_close(found[1], found[0][:, ids], rtol=1e-4, atol=1e-4)
    assert small.head(torch.zeros(1, small.shape.hidden)).shape[1] == small.shape.vocab  # as it was


def test_a_model_with_a_head_of_its_own_is_left_alone(tiny_llama: Any) -> None:
    config = copy.deepcopy(tiny_llama[0].config)
    config.tie_word_embeddings = False
    model = LlamaForCausalLM(config).eval()
    untied = LeanTarget(model, tiny_llama[1], name="untied", dtype_name="fp32")
    assert shortlist.restricted(untied, torch.tensor([1, 2])) == (untied, None)
    assert shortlist.restricted(untied, None) == (untied, None)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_restricted_draft_names_its_tokens_only_and_the_text_stays(
    tiny_llama: Any, small: LeanTarget, temperature: float
) -> None:
    target = target_of(tiny_llama)
    ids = torch.arange(0, small.shape.vocab, 3)
    short, kept = shortlist.restricted(small, ids)
    params = SamplingParams(max_new_tokens=32, ignore_eos=True, temperature=temperature, seed=3)
    made = create("draft_model", target, {"gamma": 3}, draft=short, ids=kept)
    drafted = Run.of(Engine(target).generate(REPEAT, made, params))
    nodes = [node.id for r in drafted.rounds for node in r.drafted.nodes]
    prompt = encode(target, REPEAT)
    _, named = shortlist.extended(short, kept, prompt)
    assert named is not None and {*ids.tolist(), *prompt} <= set(named.tolist())
    assert len(named) == len(set(named.tolist())) < small.shape.vocab
    assert nodes and set(nodes) <= set(named.tolist())
    if temperature == 0.0:
        plain = run(target, "none", params=GREEDY)
        assert drafted.finished.token_ids == plain.finished.token_ids


def test_adaptive_drafts_end_while_they_fail_and_come_back(tiny_llama: Any, small: LeanTarget) -> None:
    target = target_of(tiny_llama)
    made = create("draft_model", target, {"gamma": 4, "adaptive": True}, draft=small)
    assert isinstance(made, DraftModel) and made.step_cost > 0.0
    made.step_cost = 0.05
    params = SamplingParams(max_new_tokens=100, ignore_eos=True)
    drafted = Run.of(Engine(target).generate(REPEAT, made, params))
    lengths = [len(r.drafted.nodes) for r in drafted.rounds]
    assert lengths[0] > 0 and 0 in lengths  # a random model is never right
    assert any(lengths[lengths.index(0) :])  # and is tried again
    plain = run(target, "none", params=params)
    assert drafted.finished.token_ids == plain.finished.token_ids


@pytest.mark.skipif(not compiled.multiplies_bf16(), reason="no AVX-512 bf16 or no compiler")
@pytest.mark.parametrize(
    "settings", [{}, {"gamma": 1}, {"gamma": 9}, {"confidence": 0.3}, {"adaptive": True}]
)
@pytest.mark.parametrize("listed", [False, True])
def test_a_greedy_chain_in_one_call_names_what_single_steps_name(
    tiny_tokenizer: Any, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], listed: bool
) -> None:
    def made(seed: int) -> LeanTarget:
        model = tiny_model()
        model.config.tie_word_embeddings = True
        model.lm_head.weight = model.model.embed_tokens.weight
        noise = torch.Generator().manual_seed(seed)
        for weight in model.parameters():  # so sharp that some tokens are sure and others not
            weight.data += 0.3 * torch.randn(weight.shape, generator=noise) * (weight.ndim == 2)
        return LeanTarget(model.bfloat16(), tiny_tokenizer, name="tiny", dtype_name="bf16")

    target = made(1)
    draft, ids = shortlist.restricted(target, torch.arange(0, 320, 2) if listed else None)
    params = SamplingParams(max_new_tokens=90, ignore_eos=True)

    def drafts() -> list[list[int]]:
        drafter = create("draft_model", target, settings, draft=draft, ids=ids)
        drafter.step_cost = 0.02  # type: ignore[attr-defined]  # not measured: the same in both
        found = Run.of(Engine(target).generate(REPEAT, drafter, params))
        return [[node.id for node in one.drafted.nodes] for one in found.rounds]

    quick = drafts()
    calls: list[int] = []
    monkeypatch.setattr(LeanSession, "chain", lambda *_: calls.append(1))
    assert drafts() == quick
    assert calls and any(quick)
    if "confidence" in settings:
        assert len({len(tokens) for tokens in quick}) > 1


@pytest.mark.parametrize("text", ["[1, 2, 99999999]", "[]", "{", '["a"]', "[[1], [2]]"])
def test_a_shortlist_that_makes_no_sense_is_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / shortlist.FILE).write_text(text)
    with pytest.raises(InputError) as caught:
        shortlist.read(tmp_path, 512)
    assert caught.value.key == "head_unreadable"


def test_a_shortlist_comes_back_as_written(tmp_path: Path) -> None:
    assert shortlist.read(tmp_path, 512) is None
    shortlist.write(tmp_path, torch.tensor([4, 9, 200]))
    found = shortlist.read(tmp_path, 512)
    assert found is not None and found.tolist() == [4, 9, 200]
