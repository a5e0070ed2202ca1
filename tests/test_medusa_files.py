"""Published Medusa heads: every kind of file read alike, what does not fit refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import target_of
from safetensors.torch import save_file
from torch import Tensor

from specdemo import heads
from specdemo.errors import InputError
from specdemo.target import Shape
from specdemo.train import publish

SHAPE = Shape(vocab=300, hidden=64, layers=4, context=512)


def _medusa(count: int, vocab: int = 300, layers: int = 1) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(count)
    made: dict[str, Tensor] = {}
    for i in range(count):
        for j in range(layers):
            made[f"{i}.{j}.linear.weight"] = torch.randn(64, 64, generator=generator) * 0.1
            made[f"{i}.{j}.linear.bias"] = torch.randn(64, generator=generator) * 0.1
        made[f"{i}.{layers}.weight"] = torch.randn(vocab, 64, generator=generator)
    return made


def _plain_medusa(made: dict[str, Tensor], index: int, layers: int, state: Tensor) -> Tensor:
    x = state.double()
    for j in range(layers):
        z = made[f"{index}.{j}.linear.weight"].double() @ x
        z = z + made[f"{index}.{j}.linear.bias"].double()
        x = x + z * torch.sigmoid(z)
    return made[f"{index}.{layers}.weight"].double() @ x


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", ["pt", "safetensors", "prefixed"])
def test_medusa_files(tmp_path: Path, tiny_llama: Any, kind: str, layers: int) -> None:
    """The file has 5 heads while its configuration says 2, as published for version 0.1."""
    target = target_of(tiny_llama)
    made = _medusa(5, target.shape.vocab, layers=layers)
    config = {"medusa_num_heads": 2, "medusa_num_layers": 1, "base_model_name_or_path": "x"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if kind == "pt":
        torch.save(made, tmp_path / "medusa_lm_head.pt")
    else:
        prefix = "medusa_head." if kind == "prefixed" else ""
        save_file({prefix + k: v for k, v in made.items()}, tmp_path / "medusa_lm_head.safetensors")
    loaded = heads.load_medusa(str(tmp_path), target.name, target.shape)
    assert len(loaded.blocks) == 5
    from specdemo.drafters.medusa_layer import MedusaLayer

    state = torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    got = MedusaLayer(loaded, target).logits(state, 5)
    want = torch.stack([_plain_medusa(made, i, layers, state[0]) for i in range(5)])
    torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)


def test_medusa_heads_over_a_reduced_vocabulary(tmp_path: Path, tiny_llama: Any) -> None:
    target = target_of(tiny_llama)
    ids = torch.arange(1, 41, 4)
    made = {**_medusa(3, len(ids)), "d2t": ids - torch.arange(len(ids))}
    publish.medusa(tmp_path, made, 3, "tiny", [[0.5, 0.2]] * 3, dtype=torch.float32)
    loaded = heads.load_medusa(str(tmp_path), target.name, target.shape)
    assert loaded.accuracies == ((0.5, 0.2),) * 3
    from specdemo.drafters.medusa_layer import MedusaLayer

    layer = MedusaLayer(loaded, target)
    assert layer.ids == ids.tolist()
    state = torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    want = torch.stack([_plain_medusa(made, i, 1, state[0]) for i in range(2)])
    torch.testing.assert_close(layer.logits(state, 2).double(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("1.0.linear.bias"), "block 0 of head 1 is incomplete"),
        (lambda t: t.pop("2.1.weight"), "head 2 lacks its output layer"),
        (lambda t: t.update({"lm_head.weight": torch.zeros(3, 64)}), "holds lm_head.weight"),
        (lambda t: [t.pop(k) for k in list(t) if k.startswith("0.")], "not numbered from 0"),
        (lambda t: t.update({"0.1.weight": torch.zeros(301, 64)}), "a vocabulary of 301, not 300"),
        (lambda t: t.update({"0.1.weight": torch.zeros(300, 32)}), "a hidden size of 32, not 64"),
    ],
)
def test_medusa_heads_that_do_not_fit(tmp_path: Path, change: Any, words: str) -> None:
    made = _medusa(3)
    change(made)
    (tmp_path / "config.json").write_text("{}")
    save_file(made, tmp_path / "medusa_lm_head.safetensors")
    with pytest.raises(InputError, match=words):
        heads.load_medusa(str(tmp_path), "tiny", SHAPE)
