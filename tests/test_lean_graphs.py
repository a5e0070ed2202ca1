"""The recorded path, with a recorder that runs on a CPU: same code, same results, no stale memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_lean import TREE, make, tokens

from specdemo import graphs
from specdemo.lean import LeanTarget
from specdemo.lean.passes import Pass


class Recorder:
    """Stands in for CUDA graphs: results live in the memory of the first run and are overwritten by
    every replay, as a graph's are. Counts recordings and replays."""

    def __init__(self) -> None:
        self.recordings = self.replays = 0

    def __call__(self, run: Callable[[], Any]) -> Callable[[], Any]:
        self.recordings += 1
        logits, states = run()

        def replay() -> Any:
            self.replays += 1
            fresh, fresh_states = run()
            logits.copy_(fresh)
            for layer, state in states.items():
                state.copy_(fresh_states[layer])
            return logits, states

        return replay


def test_recorded_passes_give_the_same_and_own_their_results(tiny_tokenizer: Any) -> None:
    recorder = Recorder()
    plain = LeanTarget(make("qwen3"), tiny_tokenizer, name="plain")
    recorded = LeanTarget(make("qwen3"), tiny_tokenizer, name="recorded", capture=recorder)
    kept = []
    for turn in range(3):  # later sessions use the first one's cache and recordings
        a, b = plain.open(150, (1, 3)), recorded.open(150, (1, 3))
        for session in (a, b):
            session.prefill(tokens(40 + turn))
        for step in range(4):
            x, y = a.forward(tokens(7, step), TREE), b.forward(tokens(7, step), TREE)
            kept.append((x, y, a.hidden, b.hidden))
            kept.append((a.early([5], [-1], 2), b.early([5], [-1], 2), {}, {}))
            for session in (a, b):
                session.forward(tokens(7, step), TREE)
                session.keep([0, 2, 4])
        a.close()
        b.close()
    for x, y, states, recorded_states in kept:
        torch.testing.assert_close(y, x)
        assert states.keys() == recorded_states.keys()
        for layer in states:
            torch.testing.assert_close(recorded_states[layer], states[layer])
    assert recorder.recordings < recorder.replays
    assert recorder.recordings <= 4  # a verify pass and an early one, at one or two sizes of keys


def test_without_a_gpu_nothing_is_recorded() -> None:
    if torch.cuda.is_available():
        return

    def run() -> int:
        return 3

    assert graphs.record(run) is run


def test_the_gpus_attention_computes_the_same(
    tiny_tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The branch for GPUs, run on the CPU: one fused attention, keys of a row side by side."""
    target = LeanTarget(make("llama-tied"), tiny_tokenizer, name="lean")
    results = []
    run = Pass.run

    def fused(self: Pass, *arguments: Any) -> Any:
        self._fused = True
        return run(self, *arguments)

    for branch in (run, fused):
        monkeypatch.setattr(Pass, "run", branch)
        session = target.open(150)
        if branch is fused:
            arena = session._arena
            arena.keys = torch.zeros_like(arena.values).transpose(2, 3)
        session.prefill(tokens(40))
        first = session.forward(tokens(7), TREE)
        session.keep([0, 2, 4])
        results.append((first, session.forward(tokens(3, 5), [-1, 0, 1])))
        session.close()
    for plain, other in zip(*results, strict=True):
        torch.testing.assert_close(other, plain, atol=1e-4, rtol=1e-4)
