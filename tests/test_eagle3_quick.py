"""The EAGLE-3 layer on the compiled kernels computes what its plain form computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from specdemo import heads
from specdemo.drafters import eagle3_layer
from specdemo.drafters.eagle3_layer import Cache, Eagle3Layer
from specdemo.drafters.eagle3_steps import Steps
from specdemo.lean import LeanTarget, compiled
from specdemo.proposal import ROOT
from specdemo.train import publish
from specdemo.train.eagle3_model import Eagle3, HeadSizes

pytestmark = pytest.mark.skipif(compiled.library() is None, reason="no AVX-512 VNNI or no compiler")
SIZES = HeadSizes(64, 64, 4, 2, 32, 96, 320, 96, (1, 2, 3), rope_theta=500.0)


def tiny_model() -> LlamaForCausalLM:
    """A target that a head of ``SIZES`` fits."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture(scope="module")
def target(tiny_tokenizer: Any) -> LeanTarget:
    return LeanTarget(tiny_model().bfloat16(), tiny_tokenizer, name="tiny", dtype_name="bf16")


@pytest.fixture(scope="module")
def head(target: LeanTarget, tmp_path_factory: pytest.TempPathFactory) -> heads.Eagle3Head:
    folder: Path = tmp_path_factory.mktemp("head")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        module = Eagle3(SIZES)
        for name, parameter in module.named_parameters():
            if "norm" in name:
                parameter.data.uniform_(0.5, 1.5)
    ids = torch.arange(96) * 3
    known = torch.zeros(320, dtype=torch.bool)
    known[ids] = True
    tensors = {n: t.detach() for n, t in module.state_dict().items()}
    publish.eagle3(folder, {**tensors, "d2t": ids - torch.arange(96), "t2d": known}, SIZES, "tiny")
    return heads.load_eagle3(str(folder), "tiny", target.shape)


def drafts(layer: Eagle3Layer, context: int) -> list[Tensor]:
    """Logits after ``context`` true rows, after a chain of two, and of a tree's two branches."""
    generator = torch.Generator().manual_seed(1)
    states = [torch.randn(context, 64, generator=generator) for _ in range(3)]
    ids = torch.randint(0, 320, (context,), generator=generator).tolist()
    cache = Cache(layer, context + 16)
    mask = torch.ones(context, context, dtype=torch.bool).tril()
    output = layer.forward(layer.features(states), ids, range(context), cache, mask)
    made = [layer.logits(output[-1:])]
    row = torch.ones(1, context + 1, dtype=torch.bool)
    first = layer.forward(output[-1:], [7], [context], cache, row)
    made.append(layer.logits(first))
    branches = torch.ones(2, context + 3, dtype=torch.bool)
    branches[0, -1] = branches[1, -2] = False  # neither sees the other
    both = layer.forward(first.repeat(2, 1), [8, 9], [context + 1] * 2, cache, branches)
    made.append(layer.logits(both))
    cache.used = context  # what lies behind is scratch: drafted over again
    again = layer.forward(output[-1:], [7], [context], cache, row)
    torch.testing.assert_close(again, first, rtol=0, atol=0)
    return made


@pytest.fixture
def both(
    head: heads.Eagle3Head, target: LeanTarget, monkeypatch: pytest.MonkeyPatch
) -> tuple[Eagle3Layer, Eagle3Layer]:
    """The layer on the kernels, and in its plain form."""
    quick = Eagle3Layer(head, target)
    assert quick.quick is not None
    monkeypatch.setattr(eagle3_layer, "possible", lambda layer: False)
    plain = Eagle3Layer(head, target)
    assert plain.quick is None
    return quick, plain


def trees(layer: Eagle3Layer, context: int, rounds: int = 2) -> list[list[tuple[int, float]]]:
    """Candidates of the root, of two nodes below it and of five below those, in two rounds."""
    generator = torch.Generator().manual_seed(2)
    states = [torch.randn(context + 3, 64, generator=generator) for _ in range(3)]
    ids = torch.randint(0, 320, (context + 3,), generator=generator).tolist()
    steps, found = Steps(layer, context + 200, [], 0.7, 5), []
    steps.take(layer.features(states, range(context)), ids[:context])
    for at in range(rounds):
        found.append(steps.root())
        found += steps.branch([ROOT, ROOT], ids[:2], [[], []])
        found += steps.branch([0, 1, 1, 0, 0], ids[2:7], [[0], [1], [1], [0], [0]])
        found += steps.branch([4], ids[7:8], [[1, 4]])
        kept = [context, context + 2]
        steps.take(layer.features(states, kept), [ids[row] for row in kept])
        assert steps.rows == context + 2 * (at + 1)
    return found


@pytest.mark.parametrize("context", [8, 62, 300])
def test_the_same_candidates(context: int, both: tuple[Eagle3Layer, Eagle3Layer]) -> None:
    quick, plain = (trees(layer, context) for layer in both)
    assert len(quick) == len(plain) == 18
    for a, b in zip(quick, plain, strict=True):
        assert len(a) == len(b) == 5 and [p for _, p in a] == sorted([p for _, p in a], reverse=True)
        chances = dict(b)
        assert len(set(chances) & {token for token, _ in a}) >= 4  # the fifth may be the sixth there
        for token, chance in a:
            assert chance == pytest.approx(chances.get(token, chance), rel=0.05)


def test_many_rows_and_a_long_tree(both: tuple[Eagle3Layer, Eagle3Layer]) -> None:
    """More scratch rows than there is room for at first; what was there before stays."""
    made = []
    for layer in both:
        steps = Steps(layer, 500, [], 1.0, 3)
        steps.take(layer.features([torch.ones(4, 64)] * 3), [1, 2, 3, 4])
        steps.root()
        steps.branch([ROOT], [5], [[]])
        for at in range(90):
            chain = steps.branch([at], [at], [range(at + 1)])
        again = steps.branch([ROOT], [5], [[]])
        made.append([chain[0], again[0]])
    for a, b in zip(*made, strict=True):
        assert a[0][0] == b[0][0] and a[0][1] == pytest.approx(b[0][1], rel=0.1)


@pytest.mark.parametrize("context", [3, 64, 300])
def test_the_same_logits(context: int, both: tuple[Eagle3Layer, Eagle3Layer]) -> None:
    quick, plain = both
    for a, b in zip(drafts(quick, context), drafts(plain, context), strict=True):
        torch.testing.assert_close(a, b, rtol=0.02, atol=0.03)
