"""The lean forward against the transformers forward, on tiny random models of every family."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    GemmaConfig,
    GemmaForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from specdemo.errors import InputError
from specdemo.hf import HFTarget
from specdemo.lean import LeanTarget, supports
from specdemo.lean.kernels import good_rows, half_available
from specdemo.lean.native import native_available

SIZES: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "llama-tied": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama3-rope": lambda: LlamaForCausalLM(LlamaConfig(**SIZES, rope_parameters=LLAMA3_ROPE)),
    "linear-rope": lambda: LlamaForCausalLM(
        LlamaConfig(
            **SIZES, rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
        )
    ),
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZES)),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=32)),
    "mistral": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=None)),
}
TREE = [-1, 0, 0, 1, 2, 2, 3]


def make(name: str) -> PreTrainedModel:
    """A random model whose biases and norm weights are no longer zeros and ones."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = FAMILIES[name]().float().eval()
        for key, parameter in model.named_parameters():
            if key.endswith("bias"):
                torch.nn.init.normal_(parameter)
            elif "norm" in key:
                torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


def tokens(count: int, seed: int = 0) -> list[int]:
    return torch.randint(0, 320, (count,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("name", FAMILIES)
def test_same_numbers_as_transformers(name: str, tiny_tokenizer: Any) -> None:
    model = make(name)
    general = HFTarget(model, tiny_tokenizer, name="general")
    lean = LeanTarget(model, tiny_tokenizer, name="lean", keep_model=True)
    assert lean.shape == general.shape and lean.eos_ids == general.eos_ids
    a, b = general.open(400, (0, 1, 3)), lean.open(400, (0, 1, 3))

    def same(x: torch.Tensor, y: torch.Tensor) -> None:
        torch.testing.assert_close(y, x, atol=2e-4, rtol=1e-3)

    for session in (a, b):
        session.prefill(tokens(300))  # several chunks
    for layer in (0, 1, 3):
        assert b.hidden[layer].shape == (300, 64)
        same(a.hidden[layer], b.hidden[layer])
    same(general.head(a.hidden[3]), lean.head(b.hidden[3]))
    same(a.forward(tokens(7), TREE), b.forward(tokens(7), TREE))
    for layer in (0, 1, 3):
        same(a.hidden[layer], b.hidden[layer])
    for session in (a, b):
        session.keep([0, 2, 5])  # moves rows
        assert session.length == 303
    same(a.forward([9], [-1]), b.forward([9], [-1]))
    same(a.early([9, 8, 7], [-1, 0, 0], 2), b.early([9, 8, 7], [-1, 0, 0], 2))
    same(a.forward([9, 4], [-1, 0]), b.forward([9, 4], [-1, 0]))  # scratch rows are overwritten
    for session in (a, b):
        session.keep([0, 1])
        session.crop(100)
    same(a.forward([9, 4], [-1, 0]), b.forward([9, 4], [-1, 0]))
    torch.testing.assert_close(lean.embedding(), general.embedding())


@pytest.mark.parametrize("name", ["llama-tied", "qwen2", "qwen3"])
def test_bf16_weights_are_held_exactly(name: str, tiny_tokenizer: Any) -> None:
    """Without bf16 products the bf16 path of a CPU computes in fp32 what the rounded weights say: far
    closer to the fp32 forward of the same weights than bf16 arithmetic, which rounds every result."""
    rounded = make(name).to(torch.bfloat16)
    exact = copy.deepcopy(rounded).float()
    general = HFTarget(exact, tiny_tokenizer, name="general")
    lean = LeanTarget(rounded, tiny_tokenizer, name="lean", dtype_name="bf16")
    a, b = general.open(64), lean.open(64)
    for session in (a, b):
        session.prefill(tokens(20))
    tolerance = 2e-4 if half_available() and not native_available() else 0.2
    torch.testing.assert_close(
        b.forward(tokens(7), TREE).float(), a.forward(tokens(7), TREE), atol=tolerance, rtol=1e-3
    )


def test_the_models_own_weights_are_freed(tiny_tokenizer: Any) -> None:
    model = make("llama-tied")
    LeanTarget(model, tiny_tokenizer, name="lean")
    assert sum(p.numel() for p in model.parameters()) == 0


def test_unsupported_models_are_refused(tiny_tokenizer: Any, tiny_gpt2: Any) -> None:
    gemma = GemmaForCausalLM(GemmaConfig(**SIZES, head_dim=16))  # looks alike, computes otherwise
    sliding = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=16))
    bias = LlamaForCausalLM(LlamaConfig(**SIZES, attention_bias=True))
    assert supports(bias)  # its biases are zeros as yet: that of the output projection adds nothing
    bias.model.layers[1].self_attn.o_proj.bias.data[3] = 0.5
    dynamic = LlamaForCausalLM(
        LlamaConfig(
            **SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
        )
    )
    for model in (gemma, sliding, bias, dynamic, tiny_gpt2[0]):
        assert not supports(model)
    with pytest.raises(InputError, match="cannot be used here"):
        LeanTarget(gemma, tiny_tokenizer, name="gemma")


def test_a_full_cache_is_refused(tiny_tokenizer: Any) -> None:
    session = LeanTarget(make("llama-tied"), tiny_tokenizer, name="lean").open(10)
    session.prefill(tokens(8))
    session.forward([1, 2], [-1, 0])
    with pytest.raises(ValueError, match="do not fit"):
        session.forward([1, 2, 3], [-1, 0, 1])
    with pytest.raises(ValueError, match="roll back"):
        session.crop(9)


@pytest.mark.skipif(not half_available(), reason="this build of torch has no FBGEMM")
def test_padded_row_counts_grow_and_reach_every_count() -> None:
    padded = good_rows()
    assert all(n <= m for n, m in enumerate(padded))
    assert all(padded[m] == m for m in padded)
    assert list(padded) == sorted(padded)
