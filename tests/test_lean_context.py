"""The same bits for a row alone and in a block, wherever in a long context the block lies.

Matrix products cut long sums into blocks, and where they cut may depend on the number of keys, which
depends on the number of rows.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from specdemo.lean import LeanTarget
from specdemo.lean.kernels import KEY_UNIT, LONGEST_TRIED, key_step

ROWS = 16


@pytest.fixture(scope="module")
def target(tiny_tokenizer: Any) -> LeanTarget:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2048,
    )
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    return LeanTarget(model, tiny_tokenizer, name="long", dtype_name="bf16")


# Blocks of 16 across the sizes at which the libraries met so far change how they cut.
@pytest.mark.parametrize("context", [56, 186, 250, 378, 506, 570, 634, 698, 762, 1146, 1530])
def test_a_block_has_the_bits_of_one_by_one(target: LeanTarget, context: int) -> None:
    generator = torch.Generator().manual_seed(context)
    ids = torch.randint(0, 320, (context + ROWS,), generator=generator).tolist()
    session = target.open(context + ROWS)
    session.prefill(ids[:context])
    block = session.forward(ids[context:], range(-1, ROWS - 1))
    session.crop(context)
    for row, token in enumerate(ids[context:]):
        (alone,) = session.forward([token], [-1])
        session.keep([0])
        assert torch.equal(alone, block[row]), f"row {row}"


def test_no_number_of_keys_in_use_changes_the_order_of_sums() -> None:
    step = key_step(2, 8, 64)
    generator = torch.Generator().manual_seed(1)
    values = torch.randn(2, LONGEST_TRIED, 64, generator=generator)
    shares = torch.rand(2, 8, LONGEST_TRIED, generator=generator)

    def mixed(keys: int, used: int) -> torch.Tensor:
        part = shares[..., :keys].clone()
        part[..., used:] = 0.0
        return torch.bmm(part, values[:, :keys])

    lengths = [*range(KEY_UNIT, step, KEY_UNIT), *range(step, LONGEST_TRIED + 1, step)]
    for used in (60, 380, 500, 700, 1500, 4000):
        seen = [mixed(keys, used) for keys in lengths if keys >= used]
        assert all(torch.equal(one, seen[0]) for one in seen), used
