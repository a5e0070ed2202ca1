"""Any transformers model as a target: trees, rollback, early exit, captured states, limits."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers import target_of
from scripted import Scripted, play
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from specdemo.errors import InputError
from specdemo.hf import PREFILL_CHUNK, HFTarget
from specdemo.proposal import Proposal

PREFIX = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
TOKENS, PARENTS = [20, 21, 22, 23, 24, 25], [-1, 0, 0, 1, 2, 3]
CLOSE = {"atol": 2e-4, "rtol": 1e-3}


def _seeded(kind: Any, config: Any) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        return kind(config).to(torch.float32).eval()


@pytest.fixture(scope="module", params=["llama", "qwen3", "gpt2", "gemma2", "mistral"])
def target(request: pytest.FixtureRequest, tiny_tokenizer: Any) -> HFTarget:
    if request.param in ("llama", "qwen3", "gpt2"):
        return target_of(request.getfixturevalue(f"tiny_{request.param}"), request.param)
    sizes: dict[str, Any] = {
        "vocab_size": len(tiny_tokenizer),
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 1024,
        "initializer_range": 0.25,
        "sliding_window": 4,  # shorter than the prefix, and than the tree is deep
    }
    if request.param == "gemma2":
        model = _seeded(Gemma2ForCausalLM, Gemma2Config(**sizes, head_dim=16))
    else:
        model = _seeded(MistralForCausalLM, MistralConfig(**sizes))
    return target_of((model, tiny_tokenizer), request.param)


@pytest.fixture(scope="module")
def llama(tiny_llama: Any) -> HFTarget:
    return target_of(tiny_llama)


def alone(target: HFTarget, ids: list[int]) -> torch.Tensor:
    """Logits of the bare model for the last of ``ids``, without a cache."""
    with torch.no_grad():
        return target.model(torch.tensor([ids])).logits[0, -1]


def path(row: int) -> list[int]:
    tokens: list[int] = []
    while row >= 0:
        tokens.append(TOKENS[row])
        row = PARENTS[row]
    return tokens[::-1]


def test_every_row_of_a_tree_is_its_path_run_alone(target: HFTarget) -> None:
    session = target.open(100)
    session.prefill(PREFIX)
    logits = session.forward(TOKENS, PARENTS)
    assert logits.shape == (len(TOKENS), target.shape.vocab)
    for row in range(len(TOKENS)):
        torch.testing.assert_close(logits[row], alone(target, PREFIX + path(row)), **CLOSE)


def test_a_kept_path_of_a_tree_is_as_if_fed_as_text(target: HFTarget) -> None:
    session = target.open(100)
    session.prefill(PREFIX)
    session.forward(TOKENS, PARENTS)
    session.keep([0, 2, 4])
    assert session.length == len(PREFIX) + 3
    kept = [*PREFIX, 20, 22, 24]
    torch.testing.assert_close(session.forward([30], [-1])[0], alone(target, [*kept, 30]), **CLOSE)
    session.keep([0])
    session.crop(len(PREFIX) + 1)  # back into the tree, and on along another way
    logits = session.forward([31, 32], [-1, 0])
    torch.testing.assert_close(logits[1], alone(target, [*PREFIX, 20, 31, 32]), **CLOSE)


def test_keeping_nothing_drops_the_pass(llama: HFTarget) -> None:
    session = llama.open(100)
    session.prefill(PREFIX)
    session.forward(TOKENS, PARENTS)
    session.keep([])
    assert session.length == len(PREFIX)
    torch.testing.assert_close(session.forward([30], [-1])[0], alone(llama, [*PREFIX, 30]), **CLOSE)


@pytest.mark.parametrize("layers", [1, 2])
def test_early_exit_is_the_model_cut_short(target: HFTarget, layers: int) -> None:
    """The same as a model that was built with fewer layers and given the same weights; the pass
    leaves no trace in the cache that later rows could see."""
    config = type(target.config).from_dict(target.config.to_dict())
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    short = type(target.model)(config).eval()
    short.load_state_dict(target.model.state_dict(), strict=False)
    session = target.open(100)
    session.prefill(PREFIX)
    got = session.early(TOKENS, PARENTS, layers)
    for row in (0, 3, 4):
        with torch.no_grad():
            want = short(torch.tensor([PREFIX + path(row)])).logits[0, -1]
        torch.testing.assert_close(got[row], want, **CLOSE)
    assert session.length == len(PREFIX)
    torch.testing.assert_close(session.forward([30], [-1])[0], alone(target, [*PREFIX, 30]), **CLOSE)


def test_captured_states_are_numbered_as_hugging_face_numbers_them(target: HFTarget) -> None:
    layers = [0, 1, target.shape.layers - 1, target.shape.layers]
    session = target.open(100, layers)
    session.prefill(PREFIX)
    with torch.no_grad():
        want = target.model(torch.tensor([[*PREFIX, 20, 21]]), output_hidden_states=True).hidden_states
    for layer in layers:
        assert session.hidden[layer].shape == (len(PREFIX), target.shape.hidden)
        torch.testing.assert_close(session.hidden[layer], want[layer][0, :-2], **CLOSE)
    logits = session.forward([20, 21], [-1, 0])
    for layer in layers:
        torch.testing.assert_close(session.hidden[layer], want[layer][0, -2:], **CLOSE)
    before = session.hidden[layers[1]]
    session.early([20], [-1], 1)
    assert session.hidden[layers[1]] is before  # self-speculation leaves them alone
    if target.name != "gemma2":  # whose logits are capped behind the head
        torch.testing.assert_close(target.head(session.hidden[target.shape.layers]), logits, **CLOSE)
    assert target.embedding().shape == (target.shape.vocab, target.shape.hidden)


def test_a_long_prompt_goes_in_chunks(tiny_tokenizer: Any) -> None:
    """Longer than a chunk, with a sliding window: states of all chunks, logits as in one pass."""
    config = MistralConfig(
        vocab_size=len(tiny_tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        sliding_window=50,
        max_position_embeddings=1024,
        initializer_range=0.3,
    )
    target = target_of((_seeded(MistralForCausalLM, config), tiny_tokenizer))
    ids = torch.randint(len(tiny_tokenizer), (PREFILL_CHUNK + 40,), generator=torch.Generator()).tolist()
    session = target.open(1000, [2])
    session.prefill(ids)
    assert session.length == len(ids) == len(session.hidden[2])
    torch.testing.assert_close(session.forward([30], [-1])[0], alone(target, [*ids, 30]), **CLOSE)


def test_sessions_of_one_target_do_not_meet(llama: HFTarget) -> None:
    one, two = llama.open(100), llama.open(100)
    one.prefill(PREFIX)
    two.prefill(PREFIX[::-1])
    one.early([20], [-1], 2)
    torch.testing.assert_close(one.forward([30], [-1])[0], alone(llama, [*PREFIX, 30]), **CLOSE)
    torch.testing.assert_close(two.forward([30], [-1])[0], alone(llama, [*PREFIX[::-1], 30]), **CLOSE)
    one.close()
    assert two.length == len(PREFIX)


def test_a_run_ends_where_the_context_ends(tiny_tokenizer: Any) -> None:
    """Every position is used and none beyond: the last token is written at the last position."""
    config = LlamaConfig(
        vocab_size=len(tiny_tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=24,
    )
    target = target_of((_seeded(LlamaForCausalLM, config), tiny_tokenizer))
    deepest = 0
    forward = target.model.forward

    def watched(*args: Any, **options: Any) -> Any:
        nonlocal deepest
        deepest = max(deepest, int(options["position_ids"].max()))
        return forward(*args, **options)

    target.model.forward = watched
    greedy = Scripted(lambda context: Proposal.chain([7] * context.room))
    for drafter in (None, greedy):
        got = play(target, drafter, "~" * 10, max_new_tokens=100, ignore_eos=True)
        assert got.finished.reason == "context"
        assert len(got.tokens) == 24 - 10
        assert deepest == 22  # the token at the last position, 23, is never fed


@pytest.mark.parametrize("kind", ["linear_attention", "chunked_attention"])
def test_layers_that_are_not_plain_attention_are_refused(llama: HFTarget, kind: str) -> None:
    """Their state cannot be rolled back row by row, or their mask is another: better no than wrong."""

    class Hybrid:
        model_type, is_encoder_decoder, layer_types = "hybrid", False, ["full_attention", kind]

        def get_text_config(self) -> Any:
            return self

    class Model:
        config = Hybrid()

    with pytest.raises(InputError) as caught:
        HFTarget(Model(), llama.tokenizer, "hybrid")  # type: ignore[arg-type]
    assert caught.value.key == "unsupported_model"


def test_end_tokens_are_those_of_all_configurations(tiny_llama: Any) -> None:
    model, tokenizer = tiny_llama
    before = model.generation_config.eos_token_id
    model.generation_config.eos_token_id = [0, 5]
    try:
        assert target_of(tiny_llama).eos_ids == {0, 5, tokenizer.eos_token_id}
    finally:
        model.generation_config.eos_token_id = before
