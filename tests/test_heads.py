"""Published draft heads: every layout read alike, what does not fit refused, one step re-stated."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import target_of
from safetensors.torch import save_file
from torch import Tensor

from specdemo import heads
from specdemo.drafters.eagle3_layer import Cache, Eagle3Layer
from specdemo.errors import InputError
from specdemo.hf import HFTarget
from specdemo.target import Shape
from specdemo.train import publish
from specdemo.train.eagle3_model import Eagle3, HeadSizes

SHAPE = Shape(vocab=300, hidden=64, layers=4, context=512)
SIZES = HeadSizes(64, 64, 4, 2, 16, 48, 300, 40, (1, 2, 3), rope_theta=500.0)
DRAFT_IDS = torch.arange(3, 3 + 40 * 5, 5)


def _tensors(sizes: HeadSizes = SIZES, seed: int = 3) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = Eagle3(sizes)
        for name, parameter in module.named_parameters():
            if "norm" in name:
                parameter.data.uniform_(0.5, 1.5)  # a norm of ones would hide which one is applied
    made = {name: value.detach() for name, value in module.state_dict().items()}
    known = torch.zeros(sizes.vocab, dtype=torch.bool)
    known[DRAFT_IDS] = True
    return {**made, "d2t": DRAFT_IDS - torch.arange(len(DRAFT_IDS)), "t2d": known}


def _write(folder: Path, layout: str) -> None:
    if layout == "bin":
        publish.eagle3(folder, _tensors(), SIZES, "tiny", dtype=torch.float32)
        torch.save(_tensors(), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    else:
        publish.eagle3(folder, _tensors(), SIZES, "tiny", layout, dtype=torch.float32)  # type: ignore[arg-type]


def _edit(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in {**config, **changes}.items() if v is not None}))


@pytest.mark.parametrize("layout", ["classic", "speculators", "bin"])
def test_layouts_give_the_same_head(tmp_path: Path, layout: str) -> None:
    _write(tmp_path, layout)
    head = heads.load_eagle3(str(tmp_path), "tiny", SHAPE)
    expected = _tensors()
    for name, value in head.tensors.items():
        assert torch.equal(value, expected[f"{name}.weight"]), name
    assert head.ids is not None and torch.equal(head.ids, DRAFT_IDS)
    assert head.layers == (1, 2, 3)
    assert (head.heads, head.kv_heads, head.head_dim) == (4, 2, 16)


def _plain_step(
    head: heads.Eagle3Head, table: Tensor, states: Tensor, ids: list[int], chain: list[int]
) -> Tensor:
    """An EAGLE-3 chain written down once more, slowly: row after row, no cache, no fused weights.
    Logits after the last true row, then after each token of ``chain``."""
    w = {name.removeprefix("midlayer."): value.double() for name, value in head.tensors.items()}

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.pow(2).mean() + head.eps).sqrt() * weight

    def turn(x: Tensor, position: int) -> Tensor:
        half = head.head_dim // 2
        out = x.clone()
        for i in range(half):
            angle = position * float(head.inv_freq[i])
            a, b = x[..., i].clone(), x[..., i + half].clone()
            out[..., i] = a * math.cos(angle) - b * math.sin(angle)
            out[..., i + half] = b * math.cos(angle) + a * math.sin(angle)
        return out

    keys: list[Tensor] = []
    values: list[Tensor] = []
    logits: list[Tensor] = []
    output = torch.zeros(head.hidden, dtype=torch.float64)
    for position, token in enumerate([*ids, *chain]):
        true_row = position < len(ids)
        h = w["fc"] @ states[position].double() if true_row else output
        normed = norm(h, w["hidden_norm"])
        x = torch.cat([norm(table[token].double(), w["input_layernorm"]), normed])
        q = turn((w["self_attn.q_proj"] @ x).view(head.heads, head.head_dim), position)
        keys.append(turn((w["self_attn.k_proj"] @ x).view(head.kv_heads, head.head_dim), position))
        values.append((w["self_attn.v_proj"] @ x).view(head.kv_heads, head.head_dim))
        mixed = []
        for i in range(head.heads):
            group = i * head.kv_heads // head.heads
            scores = torch.stack([q[i] @ k[group] for k in keys]) / head.head_dim**0.5
            shares = scores.softmax(0)
            mixed.append(sum(s * v[group] for s, v in zip(shares, values, strict=True)))
        residual = normed if head.norm_before_residual else h
        r = residual + w["self_attn.o_proj"] @ torch.cat(mixed)  # type: ignore[arg-type]
        m = norm(r, w["post_attention_layernorm"])
        gate = w["mlp.gate_proj"] @ m
        output = r + w["mlp.down_proj"] @ (gate * torch.sigmoid(gate) * (w["mlp.up_proj"] @ m))
        if position >= len(ids) - 1:
            logits.append(w["lm_head"] @ norm(output, w["norm"]))
    return torch.stack(logits)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_draft_equals_the_layer_written_down_again(
    tmp_path: Path, tiny_llama: Any, norm_first: bool
) -> None:
    target = target_of(tiny_llama)
    _write(tmp_path, "speculators")
    _edit(tmp_path, norm_before_residual=norm_first)
    shape = replace(target.shape)
    sizes = SHAPE if shape == SHAPE else replace(SHAPE, vocab=shape.vocab)
    head = heads.load_eagle3(str(tmp_path), "tiny", sizes)
    assert head.norm_before_residual is norm_first
    layer = Eagle3Layer(head, target)
    generator = torch.Generator().manual_seed(1)
    states = [torch.randn(5, 64, generator=generator) for _ in range(3)]
    ids, chain = [5, 9, 11, 3, 20], [7, 8]
    cache = Cache(layer, 32)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    output = layer.forward(layer.features(states), ids, range(5), cache, mask)[-1:]
    got = [layer.logits(output)]
    for at, token in enumerate(chain):
        row = torch.ones(1, 6 + at, dtype=torch.bool)
        output = layer.forward(output, [token], [5 + at], cache, row)
        got.append(layer.logits(output))
    want = _plain_step(head, target.embedding(), torch.cat(states, dim=-1), ids, chain)
    torch.testing.assert_close(torch.cat(got).double(), want, rtol=1e-4, atol=1e-4)


def test_training_module_and_drafting_layer_agree(tmp_path: Path, tiny_llama: Any) -> None:
    """What is trained (all rows at once, unrolled) is what drafts (row by row, with a cache)."""
    target = target_of(tiny_llama)
    sizes = replace(SIZES, vocab=target.shape.vocab)
    publish.eagle3(tmp_path, _tensors(), SIZES, "tiny", dtype=torch.float32)
    head = heads.load_eagle3(str(tmp_path), "tiny", replace(SHAPE, vocab=max(300, target.shape.vocab)))
    module, layer = Eagle3(sizes), Eagle3Layer(head, target)
    module.load_state_dict({k: v for k, v in _tensors().items() if k not in ("d2t", "t2d")})
    generator = torch.Generator().manual_seed(2)
    states = torch.randn(6, 3 * 64, generator=generator)
    ids = [4, 8, 15, 16, 23, 42]
    table = target.embedding()
    shifted = [torch.tensor([ids[i:] + [0] * i]) for i in range(3)]
    with torch.no_grad():
        outputs = module.unroll(states[None], [table[index] for index in shifted])
        expected = [module.logits(out)[0] for out in outputs]
    for row in range(3):  # true rows up to ``row``, then the chain of the tokens that follow
        cache = Cache(layer, 32)
        part = layer.features([s[: row + 1] for s in states.split(64, dim=-1)])
        mask = torch.ones(row + 1, row + 1, dtype=torch.bool).tril()
        output = layer.forward(part, ids[: row + 1], range(row + 1), cache, mask)[-1:]
        for step in range(3):
            torch.testing.assert_close(
                layer.logits(output)[0], expected[step][row], rtol=1e-4, atol=1e-4
            )
            full = torch.ones(1, row + 2 + step, dtype=torch.bool)
            output = layer.forward(output, [ids[row + 1 + step]], [row + 1 + step], cache, full)


@pytest.mark.parametrize(
    ("config", "place", "expected"),
    [
        ({}, None, (2, 6, 9)),
        ({"eagle_aux_hidden_state_layer_ids": [1, 5, 8]}, None, (1, 5, 8)),
        ({}, {"eagle_aux_hidden_state_layer_ids": [1, 5, 8]}, (2, 6, 9)),
    ],
    ids=["default", "indices of hidden_states", "layer outputs"],
)
def test_which_states_are_fused(
    tmp_path: Path, config: dict[str, Any], place: Any, expected: tuple[int, ...]
) -> None:
    _write(tmp_path, "classic")
    _edit(tmp_path, **{"eagle_aux_hidden_state_layer_ids": None, "eagle_config": place, **config})
    head = heads.load_eagle3(str(tmp_path), "tiny", replace(SHAPE, layers=12))
    assert head.layers == expected


def test_a_missing_rope_theta_is_that_of_llama(tmp_path: Path) -> None:
    _write(tmp_path, "classic")
    _edit(tmp_path, rope_theta=None)
    head = heads.load_eagle3(str(tmp_path), "tiny", SHAPE)
    expected = 10000.0 ** -(torch.arange(0, 16, 2) / 16)
    torch.testing.assert_close(head.inv_freq, expected)


MISFITS = [
    ({}, {"hidden": 128}, "a hidden size of 64, not 128"),
    ({}, {"vocab": 200}, "a vocabulary of 300, not 200"),
    ({}, {"layers": 2}, "layer 3, not one of 2 layers"),
    ({"eagle_aux_hidden_state_layer_ids": [1, 2]}, {}, "fused states of size 192, not 128"),
]


@pytest.mark.parametrize(("config", "shape", "words"), MISFITS)
def test_what_does_not_fit_is_refused_with_both_numbers(
    tmp_path: Path, config: dict[str, Any], shape: dict[str, int], words: str
) -> None:
    _write(tmp_path, "classic")
    _edit(tmp_path, **config)
    with pytest.raises(InputError, match=words) as raised:
        heads.load_eagle3(str(tmp_path), "other-model", replace(SHAPE, **shape))
    assert "other-model" in str(raised.value)
    assert raised.value.key == "head_misfit"


class Malicious:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path(self.path),))  # type: ignore[attr-defined]


def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path: Path) -> None:
    _write(tmp_path, "bin")
    evil = Malicious()
    evil.path = str(tmp_path / "ran")  # type: ignore[attr-defined]
    torch.save({"fc.weight": evil}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="holds more than tensors"):
        heads.load_eagle3(str(tmp_path), "tiny", SHAPE)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "model.safetensors").unlink(), "it has none of model.safetensors"),
        (lambda f: (f / "model.safetensors").write_bytes(b"\x00" * 64), "is damaged"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is missing or no JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "config.json is no object"),
    ],
)
def test_damaged_files_are_one_sentence(tmp_path: Path, damage: Any, words: str) -> None:
    _write(tmp_path, "classic")
    damage(tmp_path)
    with pytest.raises(InputError, match=words):
        heads.load_eagle3(str(tmp_path), "tiny", SHAPE)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.pop("fc.weight"), "lacks 1 of its tensors, such as fc.weight"),
        (lambda t: t.update({"fc.bias": torch.zeros(64)}), "holds fc.bias"),
        (lambda t: t.update({"d2t": torch.zeros(7, dtype=torch.int64)}), "d2t has 7 entries"),
        (lambda t: t.pop("d2t"), "40 rows for 300 tokens"),
        (lambda t: t.update({"norm.weight": torch.ones(3)}), r"norm.weight is \[3\]"),
    ],
)
def test_tensors_that_make_no_sense(tmp_path: Path, change: Any, words: str) -> None:
    _write(tmp_path, "classic")
    tensors = {k: v.contiguous() for k, v in _tensors().items()}
    change(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=words):
        heads.load_eagle3(str(tmp_path), "tiny", SHAPE)


def test_a_name_that_is_neither_folder_nor_hub_id() -> None:
    with pytest.raises(InputError, match="neither a folder nor a Hub id"):
        heads.load_eagle3("no such/place/at all", "tiny", SHAPE)


def test_no_head_is_known_for_an_unknown_model(tiny_llama: Any) -> None:
    from specdemo.drafters import create

    target: HFTarget = target_of(tiny_llama)
    for name in ("eagle3", "medusa"):
        with pytest.raises(InputError, match="no published head is known"):
            create(name, target)
