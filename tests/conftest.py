"""Shared fixtures: tiny random models of three architectures, and the embedded model once."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test talks to the Hub
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_gguf import write_gguf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

torch.set_num_threads(1)  # tiny models; spinning threads of a pool only get in the way

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "A draft model proposes tokens; the target verifies them, and keeps what it agrees with.",
    "def add(a, b):\n    return a + b\n",
    "Emoji: 👍🏽 👩‍🚀 🎉, and more emoji 👍🏽 🎉.",
    "中文：你好，世界。日本語：こんにちは、世界。한국어: 안녕하세요.",
    "Combining marks: e\u0301 n\u0303 o\u0308, naïve café.",
]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # ids 0, 1 and 2


def make_tokenizer(vocab_size: int = 300, special: list[str] = SPECIAL) -> PreTrainedTokenizerFast:
    """A real byte-level BPE tokenizer with ChatML special tokens."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(SENTENCES, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|im_end|>",
        bos_token="<|im_start|>",
        pad_token="<|im_end|>",
        unk_token="<|endoftext|>",
        chat_template=CHAT_TEMPLATE,
    )


def _common(tokenizer: PreTrainedTokenizerFast) -> dict[str, Any]:
    return {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "dtype": "float32",
    }


def _sizes() -> dict[str, Any]:
    return {
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        # Wide weights: logits far enough apart that a greedy choice is seldom a numerical tie.
        "initializer_range": 0.25,
    }


def _ready(kind: type[PreTrainedModel], config: Any, seed: int) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config).to(torch.float32).eval()


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


@pytest.fixture(scope="session")
def tiny_llama(tiny_tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
    config = LlamaConfig(**_common(tiny_tokenizer), **_sizes())
    return _ready(LlamaForCausalLM, config, 1), tiny_tokenizer


@pytest.fixture(scope="session")
def tiny_qwen3(tiny_tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
    config = Qwen3Config(**_common(tiny_tokenizer), **_sizes(), head_dim=24)
    return _ready(Qwen3ForCausalLM, config, 2), tiny_tokenizer


@pytest.fixture(scope="session")
def tiny_gpt2(tiny_tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
    config = GPT2Config(
        **_common(tiny_tokenizer),
        n_embd=64,
        n_layer=3,
        n_head=4,
        n_positions=512,
        initializer_range=0.25,
    )
    return _ready(GPT2LMHeadModel, config, 3), tiny_tokenizer


@pytest.fixture(scope="session")
def embedded_folder() -> Path:
    """The embedded model's folder; downloaded and converted once per machine."""
    from specdemo import embedded

    return embedded.ensure()


@pytest.fixture(scope="session")
def tiny_gguf(
    tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: PreTrainedTokenizerFast
) -> tuple[Path, dict[str, np.ndarray]]:
    """A GGUF file and what its 4-bit blocks hold, by GGUF name."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return path, write_gguf(path, tiny_tokenizer)


@pytest.fixture
def own_gguf(tiny_gguf: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny file in place of the download, and an empty cache. The cache's path is returned."""
    monkeypatch.setenv("SPECDEMO_GGUF", str(tiny_gguf[0]))
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
