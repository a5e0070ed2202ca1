"""EAGLE-3 drafting on recorded steps, with a recorder that runs on a CPU: the same drafts as without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_eagle3_quick import SIZES, tiny_model
from test_eagle3_quick import drafts as logits_of
from test_lean_graphs import Recorder

from specdemo.drafters import trained
from specdemo.drafters.eagle3 import Eagle3
from specdemo.drafters.eagle3_graph import GraphCache
from specdemo.engine import Engine
from specdemo.lean import LeanTarget
from specdemo.run import Run
from specdemo.sampling import SamplingParams
from specdemo.train import publish
from specdemo.train.eagle3_model import Eagle3 as Module

PARAMS = SamplingParams(max_new_tokens=40, ignore_eos=True)


def target_with(tokenizer: Any, capture: Recorder | None) -> LeanTarget:
    return LeanTarget(tiny_model(), tokenizer, name="tiny", capture=capture)


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder: Path = tmp_path_factory.mktemp("head")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        module = Module(SIZES)
    ids = torch.arange(96) * 3
    known = torch.zeros(320, dtype=torch.bool)
    known[ids] = True
    tensors = {n: t.detach() for n, t in module.state_dict().items()}
    tensors |= {"d2t": ids - torch.arange(96), "t2d": known}
    publish.eagle3(folder, tensors, SIZES, "tiny", dtype=torch.float32)
    return str(folder)


def drafts(target: LeanTarget, head: str, prompt: str) -> tuple[list[Any], tuple[int, ...]]:
    """What was drafted in every round, and the tokens."""
    layer = trained.eagle3(target, head)
    drafter = Eagle3(depth=4, budget=12, top_k=4, adaptive=False, layer=layer)
    run = Run.of(Engine(target).generate(prompt, drafter, PARAMS, raw=True))
    assert run.finished is not None
    nodes = [[(n.id, n.parent) for n in r.drafted.nodes] for r in run.rounds]
    return nodes, run.finished.token_ids


@pytest.mark.parametrize("context", [3, 64, 300])
def test_recorded_steps_compute_the_same(context: int, head: str, tiny_tokenizer: Any) -> None:
    recorder = Recorder()
    found = {}
    for capture in (None, recorder):
        target = target_with(tiny_tokenizer, capture)
        found[capture] = logits_of(trained.eagle3(target, head), context)
    assert recorder.replays >= 4
    for a, b in zip(found[recorder], found[None], strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_a_second_run_needs_no_new_recordings(head: str, tiny_tokenizer: Any) -> None:
    recorder = Recorder()
    target = target_with(tiny_tokenizer, recorder)
    first = drafts(target, head, "Hello there")
    recordings = recorder.recordings
    layer = trained.eagle3(target, head)
    assert isinstance(layer._free, GraphCache)
    assert drafts(target, head, "Hello there") == first
    assert recorder.recordings == recordings
