"""The 4-bit path: blocks read exactly, packed as the kernel wants them, cached whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize
from test_lean import tokens
from transformers import LlamaConfig, LlamaForCausalLM

from specdemo import q4
from specdemo.errors import InputError
from specdemo.lean import LeanTarget
from specdemo.lean.kernels import Int4Matrix

HEADS, KV_HEADS, HIDDEN, INNER, LAYERS = 4, 2, 64, 96, 2
SHAPES = {
    "attn_q": (64, HIDDEN),
    "attn_k": (32, HIDDEN),
    "attn_v": (32, HIDDEN),
    "attn_output": (HIDDEN, 64),
    "ffn_gate": (INNER, HIDDEN),
    "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
}
KINDS = [GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q4_1]


def write(path: Path, kind: GGMLQuantizationType) -> dict[str, torch.Tensor]:
    """A GGUF file with random blocks; returns the dequantised weights by GGUF name."""
    rng = np.random.default_rng(5)
    writer, exact = GGUFWriter(path, "llama"), {}
    for layer in range(LAYERS):
        for name, shape in SHAPES.items():
            packed = quantize((rng.standard_normal(shape) * 0.3).astype(np.float32), kind)
            key = f"blk.{layer}.{name}.weight"
            writer.add_tensor(key, packed, raw_dtype=kind)
            exact[key] = torch.from_numpy(np.array(dequantize(packed, kind)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return exact


def hub_order(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """From the pairs' order of a GGUF file to that of a transformers checkpoint."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def model_of(exact: dict[str, torch.Tensor]) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        initializer_range=0.2,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(4)
        model = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for index, layer in enumerate(model.model.layers):
            w = {name: exact[f"blk.{index}.{name}.weight"] for name in SHAPES}
            layer.self_attn.q_proj.weight.copy_(hub_order(w["attn_q"], HEADS))
            layer.self_attn.k_proj.weight.copy_(hub_order(w["attn_k"], KV_HEADS))
            layer.self_attn.v_proj.weight.copy_(w["attn_v"])
            layer.self_attn.o_proj.weight.copy_(w["attn_output"])
            layer.mlp.gate_proj.weight.copy_(w["ffn_gate"])
            layer.mlp.up_proj.weight.copy_(w["ffn_up"])
            layer.mlp.down_proj.weight.copy_(w["ffn_down"])
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_values_and_scales_are_read_exactly(kind: GGMLQuantizationType) -> None:
    weights = np.random.default_rng(0).standard_normal((16, 96)).astype(np.float32)
    packed = quantize(weights, kind)
    values, scale, low = q4.unpack_group(packed, kind.name)
    assert int(values.min()) >= 0 and int(values.max()) <= 15
    again = scale.repeat_interleave(32, 1) * values + low.repeat_interleave(32, 1)
    torch.testing.assert_close(again, torch.from_numpy(dequantize(packed, kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_kernel_computes_the_blocks(kind: GGMLQuantizationType) -> None:
    packed = quantize(np.random.default_rng(1).standard_normal((48, 96)).astype(np.float32), kind)
    matrix = Int4Matrix(*q4.unpack_group(packed, kind.name))
    assert matrix.shape == (48, 96)
    x = torch.randn(5, 96, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    found = matrix.apply(x, torch.empty(0)).float()
    wanted = x.float() @ torch.from_numpy(dequantize(packed, kind)).T
    torch.testing.assert_close(found, wanted, atol=0.25, rtol=0.02)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_is_that_of_the_dequantised_model(
    kind: GGMLQuantizationType, tmp_path: Path, tiny_tokenizer: Any
) -> None:
    exact = write(tmp_path / "tiny.gguf", kind)
    full = LeanTarget(model_of(exact), tiny_tokenizer, name="full")
    four = LeanTarget(
        model_of(exact), tiny_tokenizer, name="four", dtype_name="q4", gguf=tmp_path / "tiny.gguf"
    )
    results = []
    for target in (full, four):
        session = target.open(60)
        session.prefill(tokens(20))
        results.append(session.forward(tokens(30)[20:], range(-1, 9)).float().log_softmax(-1))
    difference = (results[0] - results[1]).abs()
    assert float(difference.max()) < 0.5 and float(difference.mean()) < 0.1
    assert four.weights.nbytes < full.weights.nbytes


@pytest.mark.parametrize("kernels", ["panels", "int4"])
def test_packed_once_and_repaired(kernels: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernels == "int4":
        monkeypatch.setattr(q4, "library", lambda: None)
    elif q4.library() is None:
        pytest.skip("no AVX-512 VNNI or no compiler")
    path = tmp_path / "tiny.gguf"
    write(path, KINDS[1])
    first = q4.packed_blocks(path, LAYERS)
    place = tmp_path / f"tiny.{kernels}.safetensors"
    assert {p.name for p in tmp_path.iterdir()} == {path.name, place.name}
    packed = q4._pack
    calls = []
    monkeypatch.setattr(q4, "_pack", lambda *a: calls.append(a) or packed(*a))

    def result(blocks: q4.Blocks) -> torch.Tensor:
        matrix = blocks.layers[1]["qkv"]
        x = torch.ones(3, HIDDEN, dtype=matrix.dtype)
        return matrix.apply(x, torch.empty(3, matrix.shape[0], dtype=matrix.dtype))

    assert torch.equal(result(q4.packed_blocks(path, LAYERS)), result(first)) and not calls
    place.write_bytes(place.read_bytes()[:1000])  # cut off
    assert torch.equal(result(q4.packed_blocks(path, LAYERS)), result(first)) and len(calls) == 1
    assert torch.equal(result(q4.packed_blocks(path, LAYERS)), result(first)) and len(calls) == 1


def test_a_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tiny.gguf"
    write(path, KINDS[0])

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise PermissionError(13, "not allowed")

    monkeypatch.setattr(q4.tempfile, "mkstemp", refuse)
    assert len(q4.packed_blocks(path, LAYERS).layers) == LAYERS
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_other_types_and_other_files_are_refused(tmp_path: Path, tiny_tokenizer: Any) -> None:
    write(tmp_path / "tiny.gguf", GGMLQuantizationType.Q8_0)
    with pytest.raises(InputError, match="Q8_0"):
        q4.packed_blocks(tmp_path / "tiny.gguf", LAYERS)
    exact = write(tmp_path / "good.gguf", KINDS[0])
    with pytest.raises(InputError, match="no GGUF file"):
        LeanTarget(model_of(exact), tiny_tokenizer, name="four", dtype_name="q4")
