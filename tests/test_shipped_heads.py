"""What lies in ``assets/heads``: it loads, fits the embedded model, drafts for it, and stays small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from specdemo import heads
from specdemo.drafters import create
from specdemo.drafters.trained import HEADS_FOLDER
from specdemo.engine import Engine
from specdemo.loading import load_target
from specdemo.resources import resources
from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.target import Shape, Target
from specdemo.train import publish
from specdemo.train.eagle3_model import HeadSizes

SHAPE = Shape(vocab=49152, hidden=576, layers=30, context=8192)
KINDS = ("eagle3", "medusa", "draft_model")


@pytest.fixture(scope="module")
def target(embedded_folder: Path) -> Target:
    return load_target(dtype="fp32", device="cpu")


def test_every_head_is_small_and_has_a_card() -> None:
    sizes = {kind: sum(p.stat().st_size for p in (HEADS_FOLDER / kind).rglob("*")) for kind in KINDS}
    assert all(0 < size < 30_000_000 for size in sizes.values())
    weights = [p.stat().st_size for p in HEADS_FOLDER.rglob("*.safetensors")]
    assert len(weights) == len(KINDS) and max(weights) < publish.LARGEST
    assert sum(sizes.values()) < 62_000_000 and sum(weights) < 60_000_000
    for kind in KINDS:
        card = (HEADS_FOLDER / kind / "README.md").read_text("utf-8")
        assert "Apache-2.0" in card and "Held-out" in card and "tokens" in card


@pytest.mark.parametrize("layout", ["classic", "speculators"])
def test_the_shipped_eagle3_head_goes_through_both_layouts(tmp_path: Path, layout: str) -> None:
    source = HEADS_FOLDER / "eagle3"
    kept = heads.load_eagle3(str(source), "smollm2-135m", SHAPE)
    config = json.loads((source / "config.json").read_text("utf-8"))
    sizes = HeadSizes(
        hidden=576,
        target_hidden=576,
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        intermediate=config["intermediate_size"],
        vocab=config["vocab_size"],
        draft_vocab=config["draft_vocab_size"],
        layers=tuple(config["eagle_aux_hidden_state_layer_ids"]),
        rope_theta=config["rope_theta"],
    )
    tensors = load_file(source / "model.safetensors")
    publish.eagle3(tmp_path, tensors, sizes, "smollm2-135m", layout)  # type: ignore[arg-type]
    names = set(load_file(tmp_path / "model.safetensors"))
    assert any(name.startswith("layers.0.") for name in names) == (layout == "speculators")
    again = heads.load_eagle3(str(tmp_path), "smollm2-135m", SHAPE)
    assert again.layers == kept.layers and again.heads == kept.heads
    assert kept.ids is not None and again.ids is not None and torch.equal(kept.ids, again.ids)
    assert kept.tensors.keys() == again.tensors.keys()
    assert all(torch.equal(kept.tensors[name], again.tensors[name]) for name in kept.tensors)
    assert torch.equal(kept.inv_freq, again.inv_freq)


@pytest.mark.parametrize(
    ("drafter", "settings"),
    [
        ("eagle3", {"adaptive": False}),
        ("eagle3", {"chain": True}),
        ("medusa", {"adaptive": False}),
        ("draft_model", {"gamma": 3}),
        ("auto", {}),
    ],
)
def test_shipped_heads_draft_and_the_text_is_the_targets(
    target: Target, drafter: str, settings: dict[str, object]
) -> None:
    params = SamplingParams(max_new_tokens=40)
    prompt = "What is the capital of Italy, and what is it known for?"
    engine = Engine(target)

    def run(name: str, given: dict[str, object]) -> Run:
        made = create(name, target, given, **resources(target, name))
        return Run.of(engine.generate(prompt, made, params))

    plain, drafted = run("none", {}), run(drafter, settings)
    assert drafted.finished is not None and plain.finished is not None
    assert drafted.finished.token_ids == plain.finished.token_ids
    assert drafted.finished.summary["mean_accepted_length"] > 1.2


def test_the_draft_model_is_the_embedded_models_pair(target: Target) -> None:
    found = resources(target, "draft_model")
    draft, ids = found["draft"], found["ids"]
    assert draft.shape.vocab == target.shape.vocab and draft.shape.layers < target.shape.layers
    assert ids is not None and len(ids) < target.shape.vocab  # it guesses frequent tokens only
    assert set(target.eos_ids) <= {*ids.tolist(), *target.eos_ids}
    assert int(target.tokenizer.encode("<|im_end|>")[0]) in ids.tolist()
