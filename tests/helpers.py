"""What several test modules share: targets from the tiny models, runs, and an enumerating chooser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from specdemo.drafters import create
from specdemo.engine import Engine
from specdemo.hf import HFTarget
from specdemo.run import Run
from specdemo.sampling import SamplingParams

REPEAT = "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over"


def target_of(pair: tuple[Any, Any], name: str = "tiny") -> HFTarget:
    return HFTarget(pair[0], pair[1], name=name, dtype_name="fp32")


def run(
    target: HFTarget,
    drafter: str = "none",
    prompt: Any = REPEAT,
    settings: dict[str, Any] | None = None,
    draft: HFTarget | None = None,
    params: SamplingParams | None = None,
    **options: Any,
) -> Run:
    """One run of the real engine, folded."""
    made = create(drafter, target, settings, draft=draft)
    params = params or SamplingParams(max_new_tokens=32)
    return Run.of(Engine(target).generate(prompt, made, params, **options))


class Enumerator:
    """A ``Chooser`` that walks every outcome of a procedure, each with its exact probability.

    Replays a list of choices; where it ends, the first outcome is taken and the others are
    remembered. ``outcomes`` runs the procedure until nothing is left."""

    def __init__(self) -> None:
        self._plan: list[int] = []
        self._taken: list[tuple[int, list[float]]] = []

    def accept(self, probability: float) -> tuple[bool, float | None]:
        if probability >= 1.0:
            return True, None
        if probability <= 0.0:
            return False, None
        return self._choose([probability, 1.0 - probability]) == 0, 0.5

    def sample(self, probs: Tensor) -> int:
        return self._choose((probs / probs.sum()).tolist())

    def _choose(self, weights: list[float]) -> int:
        index = len(self._taken)
        if index < len(self._plan):
            choice = self._plan[index]
        else:
            choice = next(i for i, weight in enumerate(weights) if weight > 0.0)
        self._taken.append((choice, weights))
        return choice

    def outcomes(self, procedure: Callable[[], Any]) -> Iterator[tuple[Any, float]]:
        """Every (result, probability) of ``procedure``."""
        self._plan = []
        while True:
            self._taken = []
            result = procedure()
            weight = 1.0
            for choice, weights in self._taken:
                weight *= weights[choice]
            yield result, weight
            while self._taken:
                choice, weights = self._taken.pop()
                rest = [i for i in range(choice + 1, len(weights)) if weights[i] > 0.0]
                if rest:
                    self._plan = [c for c, _ in self._taken] + [rest[0]]
                    break
            else:
                return


def distribution(logits: Tensor) -> Tensor:
    return torch.softmax(logits.double(), -1)
