"""The example of a new drafter keeps the promise of every drafter: the target's own output, faster."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers import run, target_of

from specdemo.drafters import REGISTRY
from specdemo.errors import InputError
from specdemo.sampling import SamplingParams

FILE = Path(__file__).resolve().parent.parent / "examples" / "successor_drafter.py"
PARAMS = SamplingParams(max_new_tokens=24, ignore_eos=True)
PROMPT = "one two three one two three one two"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("successor_drafter", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["successor_drafter"] = module
    spec.loader.exec_module(module)
    module.register()
    yield module
    del REGISTRY["successor"], sys.modules["successor_drafter"]


@pytest.mark.parametrize("gamma", [1, 4, 16])
def test_greedy_output_is_that_of_plain_decoding(
    example: ModuleType, tiny_llama: Any, tiny_gpt2: Any, gamma: int
) -> None:
    for pair in (tiny_llama, tiny_gpt2):
        target = target_of(pair)
        plain = run(target, "none", PROMPT, params=PARAMS, raw=True)
        drafted = run(target, "successor", PROMPT, {"gamma": gamma}, params=PARAMS, raw=True)
        assert drafted.finished.token_ids == plain.finished.token_ids  # type: ignore[union-attr]


def test_what_it_proposes_is_the_latest_successor(example: ModuleType, tiny_llama: Any) -> None:
    target = target_of(tiny_llama)
    drafted = run(target, "successor", PROMPT, {"gamma": 4}, params=PARAMS, raw=True)
    ids = target.tokenizer.encode(PROMPT)
    for one in drafted.rounds:
        last = ids[-1]
        after = dict(pairwise(ids))
        for depth, node in enumerate(one.drafted.nodes):
            assert node.id == after[last] and node.parent == depth - 1 and node.q is None
            last = node.id
        ids += [token.id for token in one.verified.tokens]  # type: ignore[union-attr]
    assert sum(len(one.drafted.nodes) for one in drafted.rounds) > 0


def test_its_setting_is_checked(example: ModuleType, tiny_llama: Any) -> None:
    with pytest.raises(InputError, match="gamma must be a number from 1 to 16"):
        run(target_of(tiny_llama), "successor", PROMPT, {"gamma": 17}, params=PARAMS)
