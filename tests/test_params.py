"""Sampling parameters out of range: one sentence each, naming the parameter."""

from __future__ import annotations

import math
from typing import Any

import pytest

from specdemo.errors import InputError
from specdemo.sampling import SamplingParams


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("temperature", 5.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", None),
        ("temperature", True),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("min_p", -0.01),
        ("repetition_penalty", 0.0),
        ("presence_penalty", 3),
        ("max_new_tokens", 0),
        ("max_new_tokens", 10**9),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 1e400),
    ],
)
def test_out_of_range_is_one_sentence(name: str, value: Any) -> None:
    with pytest.raises(InputError) as caught:
        SamplingParams(**{name: value})
    sentence = str(caught.value)
    assert caught.value.key == "range"
    assert name in sentence
    assert sentence.endswith(".")
    assert "\n" not in sentence


@pytest.mark.parametrize("stop", [("",), ("a", ""), (1,), "abc", None])
def test_stop_texts_must_be_texts(stop: Any) -> None:
    with pytest.raises(InputError) as caught:
        SamplingParams(stop=stop)
    assert caught.value.key == "stop"


def test_whole_numbers_of_a_page_are_taken() -> None:
    params = SamplingParams(top_k=40.0, max_new_tokens=8.0, seed=1.0)  # type: ignore[arg-type]
    assert (params.top_k, params.max_new_tokens, params.seed) == (40, 8, 1)
    assert all(type(v) is int for v in (params.top_k, params.max_new_tokens, params.seed))
    assert SamplingParams().greedy
    assert not SamplingParams().penalised
