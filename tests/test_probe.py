"""Bits of a row alone and in blocks: the probe, and the whole embedded model in its default dtype."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from test_lean import make

from specdemo import probe as probing
from specdemo import terminal
from specdemo.drafters.none import NoDraft
from specdemo.engine import Engine
from specdemo.events import Started
from specdemo.hf import HFTarget
from specdemo.lean import LeanTarget
from specdemo.lean.kernels import half_available
from specdemo.loading import load_target
from specdemo.sampling import SamplingParams
from specdemo.target import Target


def one_by_one_and_in_blocks(target: Target, length: int, blocks: list[int]) -> list[torch.Tensor]:
    """Logits of the same tokens, one row a pass and then in blocks, from one prompt."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, target.shape.vocab, (length + 40,), generator=generator).tolist()
    session = target.open(length + 40)
    session.prefill(ids[:length])
    results = []
    for size in [1, *blocks]:
        session.crop(length)
        rows = []
        for start in range(length, len(ids), size):
            part = ids[start : start + size]
            rows.append(session.forward(part, range(-1, len(part) - 1)))
            session.keep(range(len(part)))
        results.append(torch.cat(rows))
    session.close()
    return results


def test_the_embedded_model_gives_the_bits_that_the_probe_promises(embedded_folder: Any) -> None:
    """The probe looks at 16 rows; what it says must hold for others, across a border of passes."""
    target = load_target(device="cpu")
    promise = probing.probe(target)
    alone, *others = one_by_one_and_in_blocks(target, 170, [2, 5, 11])
    for block in others:
        assert torch.equal(block.argmax(-1), alone.argmax(-1))
        if promise.chains:
            assert torch.equal(block, alone)
    session = target.open(200)
    session.prefill(list(range(100, 170)))
    tree = session.forward([5, 6, 7, 8, 9, 10], [-1, 0, 0, 1, 2, 2])  # 5 7 10 is one path
    chain = session.forward([5, 7, 10], [-1, 0, 1])
    session.close()
    if promise.trees:
        assert torch.equal(tree[[0, 2, 5]], chain)


@pytest.mark.skipif(not half_available(), reason="this build of torch has no FBGEMM")
def test_sixteen_bit_weights_give_the_same_bits_in_blocks(tiny_tokenizer: Any) -> None:
    model = make("llama-tied").to(torch.bfloat16)
    target = LeanTarget(model, tiny_tokenizer, name="lean", dtype_name="bf16")
    promise = probing.probe(target)
    alone, *others = one_by_one_and_in_blocks(target, 50, [2, 3, 7, 13])
    assert promise.chains == all(torch.equal(block, alone) for block in others)


def test_the_probe_sees_a_difference(tiny_llama: Any) -> None:
    """A target that adds a trifle to blocks must not be promised to be exact."""
    honest = HFTarget(tiny_llama[0], tiny_llama[1], name="tiny")

    class Session:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

        def forward(self, tokens: Any, parents: Any) -> torch.Tensor:
            logits = self.inner.forward(tokens, parents)
            return logits if len(tokens) == 1 else logits + 1e-3

    class Shifted:
        shape = honest.shape

        def open(self, *args: Any) -> Any:
            return Session(honest.open(*args))

    target: Any = Shifted()
    promise = probing.probe(target)
    assert not promise.chains and not promise.trees and promise.key == "distribution"
    assert promise.largest >= 9e-4
    assert promise.plain()["promise"] == "distribution"


def test_a_promise_is_kept_and_a_broken_file_probed_again(
    tiny_llama: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    target = HFTarget(tiny_llama[0], tiny_llama[1], name="tiny")
    probes: list[Target] = []
    real = probing.probe

    def counted(target: Target) -> probing.Promise:
        probes.append(target)
        return real(target)

    monkeypatch.setattr(probing, "probe", counted)
    first = probing.promise_of(target)
    assert first == real(target) == probing.promise_of(target) and len(probes) == 1
    (file,) = (tmp_path / "promise").iterdir()
    file.write_text("{}")
    assert probing.promise_of(target) == first and len(probes) == 2


@pytest.mark.parametrize("promise", ["bits", "distribution", ""])
def test_runs_and_the_terminal_say_the_promise(promise: str, tiny_llama: Any) -> None:
    target = HFTarget(tiny_llama[0], tiny_llama[1], name="tiny")
    engine = Engine(target, promise=promise)
    events = list(engine.generate("one two", NoDraft(), SamplingParams(max_new_tokens=3), raw=True))
    assert isinstance(events[0], Started)
    assert events[0].environment.get("promise", "") == promise
    out = io.StringIO()
    terminal.show(iter(events), out)
    assert ("very bits" in out.getvalue()) == (promise == "bits")
    assert ("up to rounding" in out.getvalue()) == (promise == "distribution")
