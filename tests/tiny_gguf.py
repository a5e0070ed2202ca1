"""Writes a tiny random Llama as a GGUF file with 4-bit blocks, like the embedded model's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

HIDDEN, HEADS, LAYERS, FFN = 64, 2, 2, 96


def write_gguf(path: Path, tokenizer: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """A random Llama in GGUF, matrices in 4-bit blocks; returns what the blocks hold, as floats."""
    rng = np.random.default_rng(seed)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("tiny")
    writer.add_context_length(256)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FFN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([token for token, _ in vocabulary])
    writer.add_token_types([3 if index < 3 else 1 for _, index in vocabulary])
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(tokenizer.chat_template)
    held: dict[str, np.ndarray] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        kind = gguf.GGMLQuantizationType.Q4_1
        packed = gguf.quantize(rng.normal(0, 0.2, (rows, columns)).astype(np.float32), kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
        held[name] = gguf.dequantize(packed, kind)

    matrix("token_embd.weight", len(vocabulary), HIDDEN)
    writer.add_tensor("output_norm.weight", np.ones(HIDDEN, np.float32))
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{layer}.{name}.weight", HIDDEN, HIDDEN)
        matrix(f"blk.{layer}.ffn_gate.weight", FFN, HIDDEN)
        matrix(f"blk.{layer}.ffn_up.weight", FFN, HIDDEN)
        matrix(f"blk.{layer}.ffn_down.weight", HIDDEN, FFN)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(HIDDEN, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held
