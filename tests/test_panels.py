"""The compiled kernels: right numbers, the same bits for a row in any company; a way without them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from specdemo import q4
from specdemo.hf import HFTarget
from specdemo.lean import LeanTarget, compiled, panels
from specdemo.lean.panels import PanelMatrix

needs_kernels = pytest.mark.skipif(compiled.library() is None, reason="no AVX-512 VNNI or no compiler")
needs_bf16 = pytest.mark.skipif(not compiled.multiplies_bf16(), reason="no bf16 products here")
COUNTS = (*range(1, 18), 24, 31, 64)
TREE = (-1, 0, 0, 1, 2, 4)
PATH = (0, 2, 4, 5)
SIZES = {
    "vocab_size": 320,
    "hidden_size": 480,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 1024,
}


def draws(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def matrix_of(kind: str, rows: int, columns: int) -> tuple[PanelMatrix, Tensor]:
    """A matrix of a kind, and its weights in full."""
    weight = draws(rows, columns, seed=1)
    if kind == "half":
        return PanelMatrix(
            panels.HALF, (rows, columns), panels.pack_half(weight)
        ), weight.bfloat16().float()
    if kind == "full":
        matrix = panels.full_matrix(weight)
        assert matrix is not None
        return matrix, weight
    if kind == "int8":
        packed = quantize(weight.numpy(), GGMLQuantizationType.Q8_0)
        made = panels.pack_int8(*q4.unpack_bytes(packed))
        full = dequantize(packed, GGMLQuantizationType.Q8_0)
        return PanelMatrix(panels.INT8, (rows, columns), *made), torch.from_numpy(full)
    packed = quantize(weight.numpy(), GGMLQuantizationType[kind])
    made = panels.pack_int4(*q4.unpack_group(packed, kind))
    full = dequantize(packed, GGMLQuantizationType[kind])
    return PanelMatrix(panels.INT4, (rows, columns), *made), torch.from_numpy(full)


def rounded(x: Tensor, kind: str) -> Tensor:
    """Activations as the kernel rounds them: a plain re-statement."""
    if kind in ("half", "full"):
        return x.bfloat16().float() if kind == "half" else x
    groups = x.unflatten(-1, (-1, 32))
    scale = groups.abs().amax(-1, keepdim=True) / 127.0
    return ((groups / scale).round() * scale).flatten(-2)


KINDS = ["full", pytest.param("half", marks=needs_bf16), "Q4_0", "Q4_1", "int8"]


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(96, 64), (160, 320)])
def test_products_are_those_of_the_stored_weights(kind: str, shape: tuple[int, int]) -> None:
    matrix, full = matrix_of(kind, *shape)
    x = draws(13, shape[1], seed=2)
    found = matrix.apply(x, torch.empty(13, shape[0]))
    wanted = rounded(x, kind).double() @ full.double().T
    torch.testing.assert_close(found.double(), wanted, atol=2e-3, rtol=1e-3)


@needs_kernels
@pytest.mark.parametrize("kind", KINDS)
def test_a_row_has_the_same_bits_in_any_company(kind: str) -> None:
    matrix, _ = matrix_of(kind, 96, 192)
    x = draws(64, 192, seed=3)
    alone = torch.cat([matrix.apply(x[i : i + 1], torch.empty(1, 96)) for i in range(64)])
    threads = torch.get_num_threads()
    try:
        for count in COUNTS:
            torch.set_num_threads(1 + count % 3)
            start = (64 - count) // 2
            found = matrix.apply(x[start : start + count].contiguous(), torch.empty(count, 96))
            assert torch.equal(found, alone[start : start + count]), count
    finally:
        torch.set_num_threads(threads)


@needs_kernels
def test_a_row_of_zeros_and_one_of_large_numbers() -> None:
    matrix, full = matrix_of("Q4_1", 32, 64)
    x = torch.stack([torch.zeros(64), draws(64) * 1e4])
    found = matrix.apply(x, torch.empty(2, 32))
    assert bool((found[0] == 0).all())
    torch.testing.assert_close(found[1], rounded(x, "Q4_1")[1] @ full.T, atol=1.0, rtol=1e-3)


def model_of(name: str, heads: int) -> Any:
    torch.manual_seed(0)
    if name == "qwen3":
        model: Any = Qwen3ForCausalLM(Qwen3Config(**{**SIZES, "num_attention_heads": heads}))
    else:
        model = LlamaForCausalLM(LlamaConfig(**{**SIZES, "num_attention_heads": heads}))
    for name_, weight in model.named_parameters():
        if "norm" in name_:
            weight.data = 1.0 + 0.2 * torch.rand_like(weight)
    return model.bfloat16().eval()


@needs_bf16
@pytest.mark.parametrize("name", ["llama", "qwen3"])
@pytest.mark.parametrize("heads", [2, 4, 6, 8, 10])
def test_a_pass_is_the_forward_of_transformers(name: str, heads: int, tiny_tokenizer: Any) -> None:
    """Groups of 1, 2, 3, 4 and 5 heads; a tree behind a context of more than one block of keys."""
    model = model_of(name, heads)
    exact = HFTarget(model_of(name, heads).float(), tiny_tokenizer, name="exact")
    fast = LeanTarget(model, tiny_tokenizer, name="fast", dtype_name="bf16")
    assert fast.fast is not None
    ids = torch.randint(0, 320, (150,), generator=torch.Generator().manual_seed(0)).tolist()
    sessions = [exact.open(220, (0, 2, 3)), fast.open(220, (0, 2, 3))]
    for session in sessions:
        session.prefill(ids)
    a, b = (session.forward([5, 6, 7, 8, 9, 10], TREE) for session in sessions)
    torch.testing.assert_close(b.float(), a, atol=0.06, rtol=0.02)
    for layer in (0, 2, 3):
        torch.testing.assert_close(
            sessions[1].hidden[layer], sessions[0].hidden[layer].float(), atol=0.06, rtol=0.02
        )
    for session in sessions:
        session.keep([0, 2, 4])
    a, b = (session.early([1, 2], [-1, 0], 2) for session in sessions)
    torch.testing.assert_close(b.float(), a, atol=0.06, rtol=0.02)


@needs_bf16
@pytest.mark.parametrize("context", [1, 63, 64, 200, 700])
def test_chains_and_trees_have_the_bits_of_single_rows(context: int, tiny_tokenizer: Any) -> None:
    target = LeanTarget(model_of("llama", 6), tiny_tokenizer, name="fast", dtype_name="bf16")
    ids = torch.randint(0, 320, (context + 16,), generator=torch.Generator().manual_seed(1)).tolist()
    session = target.open(context + 64)
    session.prefill(ids[:context])
    alone = []
    for token in ids[context:]:
        alone.append(session.forward([token], [-1])[0])
        session.keep([0])
    session.crop(context)
    for count in (2, 3, 7, 16):
        found = session.forward(ids[context : context + count], range(-1, count - 1))
        assert torch.equal(found, torch.stack(alone[:count])), count
    tree = [ids[context + PATH.index(row)] if row in PATH else 300 + row for row in range(len(TREE))]
    assert torch.equal(session.forward(tree, TREE)[list(PATH)], torch.stack(alone[: len(PATH)]))


def test_without_a_compiler_torch_does_the_work(tmp_path: Path) -> None:
    """In a process of its own, because what was compiled stays: no kernels, and the same model runs."""
    code = (
        "import torch\n"
        "from specdemo.lean import compiled\n"
        "from specdemo.lean.native import matrix_of\n"
        "assert compiled.library() is None\n"
        "m = matrix_of(torch.ones(64, 64), halves=True)\n"
        "x = torch.ones(2, 64, dtype=m.dtype)\n"
        "print(float(m.apply(x, torch.empty(2, 64, dtype=m.dtype)).float().sum()))\n"
    )
    for changed in (
        {"SPECDEMO_KERNELS": "torch"},
        {"CXX": "/nowhere/c++", "SPECDEMO_CACHE": str(tmp_path)},
    ):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PATH": "", "HOME": str(tmp_path), **changed},
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        assert done.returncode == 0, done.stderr
        assert float(done.stdout) == 64.0 * 64 * 2


def test_packing_keeps_every_value() -> None:
    values = torch.from_numpy(np.random.default_rng(0).integers(0, 16, (64, 96), dtype=np.uint8))
    packed, scales = panels.pack_int4(values, draws(64, 3), draws(64, 3, seed=1))
    assert packed.shape == (2, 3, 4, 2, 16, 4) and scales.shape == (2, 3, 2, 32)
    # Output 37 is lane 5 of block 0 of panel 1; column 45 is group 1, line 1, high half, byte 1.
    assert int(packed[1, 1, 1, 0, 5, 1] >> 4) == int(values[37, 45])
    assert float(scales[1, 1, 0, 5]) == pytest.approx(float(draws(64, 3)[37, 1]), rel=1e-3)


@needs_kernels
@pytest.mark.parametrize("count", [1, 15, 16, 63, 64, 65, 1000, 49152])
def test_the_first_of_the_largest(count: int) -> None:
    rows = (draws(7, count) * 3).round()  # many equal ones
    rows[3] = -torch.inf
    rows[3, count // 2] = -5.0
    wanted = [int((row == row.max()).nonzero()[0]) for row in rows]
    assert compiled.largest(rows) == wanted
    assert compiled.largest(rows[:, : count // 2 + 1]) == [
        int((row == row.max()).nonzero()[0]) for row in rows[:, : count // 2 + 1]
    ]


def test_the_largest_of_what_the_kernels_do_not_take() -> None:
    assert compiled.largest(torch.tensor([[0.0, 2.0], [3.0, 1.0]], dtype=torch.float64)) == [1, 0]
    assert compiled.largest(torch.full((1, 40), torch.nan)) == [0]
