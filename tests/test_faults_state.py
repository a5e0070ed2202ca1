"""Twenty faults that other speculative decoders had, second half: state, caches, vocabularies, text.

Each docstring names the fault and the handling without which the test fails. The faults of EAGLE
(17, 18) are tested here on the drafters that share their cause; EAGLE's own tests are with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from conftest import make_tokenizer
from helpers import REPEAT, target_of
from scripted import Scripted, ids_of, oracle, play
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from specdemo.detokenize import Detokenizer
from specdemo.drafters import Context, create
from specdemo.drafters.ngram import NGram
from specdemo.errors import InputError
from specdemo.hf import HFTarget
from specdemo.proposal import Proposal
from specdemo.rows import TorchChooser
from specdemo.sampling import SamplingParams

PENALTY = {"repetition_penalty": 1.6, "presence_penalty": 1.0}


def _llama(tokenizer: Any, seed: int, vocab: int, kind: Any = LlamaForCausalLM, **more: Any) -> HFTarget:
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.25,
    }
    config = (LlamaConfig if kind is LlamaForCausalLM else MistralConfig)(
        vocab_size=vocab, **{**sizes, **more}
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return target_of((kind(config).eval(), tokenizer), f"model-{seed}")


@pytest.fixture(scope="module")
def target(tiny_llama: Any) -> HFTarget:
    return target_of(tiny_llama)


@pytest.fixture(scope="module")
def draft(tiny_tokenizer: Any) -> HFTarget:
    return _llama(tiny_tokenizer, 12, len(tiny_tokenizer))


def test_11_penalty_state_sees_one_token_per_step(target: HFTarget) -> None:
    """Each row counts its own draft prefix: a draft of the penalised answer is accepted whole. If the
    penalties saw committed tokens only, rows behind the first would be judged by other numbers."""
    options: dict[str, Any] = {"max_new_tokens": 12, "ignore_eos": True, **PENALTY}
    future = ids_of(play(target, **options))
    got = play(target, oracle(future, 11), **options)
    assert ids_of(got) == future
    assert got.finished.summary["rejected"] == 0
    assert len(got.rounds) == 1


def test_12_processor_state_leaks_between_runs(target: HFTarget, draft: HFTarget) -> None:
    """The processing is a function of ids; nothing of a run, finished or given up, reaches the next."""
    options: dict[str, Any] = {"max_new_tokens": 8, "ignore_eos": True, "temperature": 0.9, **PENALTY}

    def once() -> list[int]:
        return ids_of(play(target, create("draft_model", target, draft=draft), **options))

    first = once()
    play(target, prompt="def add(a, b): return a + b", **options)
    from specdemo.engine import Engine

    given_up = Engine(target).generate(
        "other text", create("draft_model", target, draft=draft), SamplingParams(**options), raw=True
    )
    for _ in range(3):
        next(given_up)
    assert once() == first
    given_up.close()
    assert once() == first


@pytest.mark.parametrize(("target_extra", "draft_extra"), [(0, 25), (25, 0), (7, 30)])
def test_13_padded_vocabularies(tiny_tokenizer: Any, target_extra: int, draft_extra: int) -> None:
    """Draft logits are cut to the tokenizer's tokens and fitted to the target's width: models of one
    family whose vocabularies are padded differently work together, greedy and sampling."""
    size = len(tiny_tokenizer)
    target = _llama(tiny_tokenizer, 20, size + target_extra)
    draft = _llama(tiny_tokenizer, 21, size + draft_extra)
    for temperature in (0.0, 1.5):
        made = create("draft_model", target, draft=draft)
        options = {"max_new_tokens": 8, "ignore_eos": True, "temperature": temperature, **PENALTY}
        got = play(target, made, **options)
        nodes = [node for one in got.rounds for node in one.drafted.nodes]
        assert nodes
        assert all(node.id < size for node in nodes)  # an id without a token is never proposed
        if temperature == 0.0:
            assert ids_of(got) == ids_of(play(target, **options))


def test_14_a_different_tokenizer_is_refused(target: HFTarget) -> None:
    """What ids mean is compared, not sizes: an equally large vocabulary is refused when one token is
    another, or the same tokens have other ids."""
    swapped = make_tokenizer(special=["<|im_end|>", "<|im_start|>", "<|endoftext|>"])
    same_size = make_tokenizer(len(target.tokenizer) - 1)
    same_size.add_tokens(["<|new|>"])
    assert len(same_size) == len(target.tokenizer)
    for tokenizer in (swapped, same_size):
        with pytest.raises(InputError) as caught:
            create("draft_model", target, draft=_llama(tokenizer, 22, len(tokenizer)))
        assert caught.value.key == "tokenizer_mismatch"
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError) as caught:
        create("draft_model", target)
    assert caught.value.key == "needs"


@pytest.mark.parametrize("window", [None, 8])
def test_15_sliding_window_caches_corrupt(tiny_tokenizer: Any, window: int | None) -> None:
    """The cache keeps all rows and the window lives in the mask: after rollbacks far past the window
    the logits are those of a fresh pass over the kept ids."""
    size = len(tiny_tokenizer)
    target = _llama(tiny_tokenizer, 23, size, MistralForCausalLM, sliding_window=window)
    ids = list(range(40, 70))
    session = target.open(200)
    session.prefill(ids)
    session.forward([5, 6, 7, 8, 9, 10], [-1, 0, 0, 1, 3, 4])
    session.keep([0, 1, 3])  # a path of the tree: 5, 6, 8
    session.forward([11, 12], [-1, 0])
    session.keep([0])
    session.crop(len(ids) - 6)  # further back than the tokens fed since the prompt
    kept = ids[:-6]
    block = [90, 91, 92]
    got = session.forward(block, [-1, 0, 1])
    with torch.no_grad():
        want = target.model(torch.tensor([kept + block])).logits[0, -3:]
    torch.testing.assert_close(got, want, atol=1e-4, rtol=1e-3)


def test_16_oversized_crop_keeps_stale_rows(target: HFTarget) -> None:
    """A rollback to more rows than are kept is an error, and rows not kept are never seen again."""
    session = target.open(100)
    session.prefill([5, 6, 7, 8])
    first = session.forward([9, 10], [-1, 0])
    with pytest.raises(ValueError, match="Cannot roll back"):
        session.crop(6)  # rows of the last pass were not kept
    with pytest.raises(ValueError, match="Cannot roll back"):
        session.crop(-1)
    session.forward([200, 201, 202], [-1, 0, 1])
    again = session.forward([9, 10], [-1, 0])
    torch.testing.assert_close(again, first, atol=1e-5, rtol=1e-4)
    assert session.length == 4


@pytest.mark.parametrize("name", ["draft_model", "early_exit"])
def test_17_draft_cache_not_redone_after_a_rejection(
    target: HFTarget, draft: HFTarget, name: str
) -> None:
    """The draft's cache is cropped to what was committed and fed the rest: in every round it drafts
    what a fresh drafter would draft behind the same ids (also after full acceptance, when its last
    token has not been through it yet)."""
    made = create(name, target, draft=draft)
    seen: list[tuple[list[int], list[int]]] = []
    propose = made.propose

    def watch(context: Context) -> Proposal:
        ids, room = context.ids, context.room
        proposal = propose(context)
        session = target.open(200)
        session.prefill(ids[:-1])
        fresh_context = Context(target, session, context.params, TorchChooser(0), ids, room=room)
        fresh = create(name, target, draft=draft)
        fresh.start(fresh_context)
        seen.append((list(proposal.tokens), list(fresh.propose(fresh_context).tokens)))
        return proposal

    made.propose = watch  # type: ignore[method-assign]
    got = play(target, made, max_new_tokens=10, ignore_eos=True)
    assert got.finished.summary["rejected"] > 0
    assert all(drafted == fresh for drafted, fresh in seen)


def test_17_full_acceptance_leaves_no_hole(target: HFTarget) -> None:
    """The target as its own draft: every round is accepted whole, and stays so, only if the bonus
    token and the last draft token both went through the draft's cache."""
    made = create("draft_model", target, {"gamma": 3}, draft=target)
    got = play(target, made, max_new_tokens=12, ignore_eos=True)
    assert got.finished.summary["rejected"] == 0
    assert len(got.rounds) == 3


def test_18_norm_and_residual_of_a_cut_model(target: HFTarget) -> None:
    """Drafting from inner states goes through the final norm: an early exit after all layers would be
    the model itself, and after fewer it is the model with the later layers taken out."""
    ids = [5, 6, 7, 8]
    session = target.open(100)
    session.prefill(ids[:-1])
    whole = session.forward(ids[-1:], [-1])
    last = session.early(ids[-1:], [-1], target.shape.layers)
    torch.testing.assert_close(last, whole, atol=1e-5, rtol=1e-4)


EMOJI = "👍🏽 👩‍🚀 日本 e\u0301 🎉!"


def test_19_stream_drops_text_or_shows_half_a_character(target: HFTarget) -> None:
    """Bytes of a character wait for the rest of it: pieces add up, none has a replacement character,
    and tokens, text and ids of a run of random bytes agree."""
    ids = target.tokenizer.encode(EMOJI)
    detokenizer = Detokenizer(target.tokenizer)
    pieces = [detokenizer.push(token) for token in ids]
    assert "".join(pieces) == EMOJI
    assert len(pieces) == len(ids) > len(EMOJI)
    assert "" in pieces
    got = play(target, max_new_tokens=40, ignore_eos=True, temperature=5.0, seed=3)
    assert len(got.tokens) == 40
    assert "\ufffd" not in got.text
    assert got.text == got.finished.text == "".join(token.text for token in got.tokens)
    assert got.text == target.tokenizer.decode(ids_of(got), skip_special_tokens=True).replace(
        "\ufffd", ""
    )


def test_20_constraints_hold_for_every_committed_token(target: HFTarget, draft: HFTarget) -> None:
    """Whatever limits p (here top-k) limits drafted tokens as well: a token with p = 0 is never
    accepted, and the corrected token is drawn inside the limit. One allowed token is greedy."""
    options: dict[str, Any] = {"max_new_tokens": 10, "ignore_eos": True, "temperature": 1.5}
    wild = Scripted(lambda context: Proposal([7, 8, 9], [-1, -1, 0]))
    for drafter in (wild, create("draft_model", target, draft=draft), NGram(min_match=1, branches=3)):
        got = ids_of(play(target, drafter, top_k=2, **options))
        prompt = target.tokenizer.encode(REPEAT)
        with torch.no_grad():
            logits = target.model(torch.tensor([prompt + got])).logits[0, len(prompt) - 1 : -1]
        allowed = logits.topk(2).indices
        assert all(token in row for token, row in zip(got, allowed.tolist(), strict=True))
    greedy = ids_of(play(target, **{**options, "temperature": 0.0}))
    assert ids_of(play(target, wild, top_k=1, **options)) == greedy
