"""Events survive JSON unchanged; what is not an event is refused in one sentence."""

from __future__ import annotations

import dataclasses
import json
import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdemo import events
from specdemo.events import (
    Alternative,
    Drafted,
    DraftNode,
    Finished,
    NodeVerdict,
    RecordingError,
    Started,
    Token,
    Verified,
    from_dict,
    from_json,
    read_events,
    to_dict,
    to_json,
)

NUMBERS = st.floats(-1e12, 1e12)
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | NUMBERS | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def _strategy(annotation: Any) -> st.SearchStrategy[Any]:
    """Values of a field, from its annotation: a new field is covered without being listed here."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return st.lists(_strategy(arguments[0]), max_size=3).map(tuple)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(_strategy, arguments))
    if annotation is type(None):
        return st.none()
    if str(origin) == "typing.Literal":
        return st.sampled_from(arguments)
    if annotation in (int, str, bool):
        return {int: st.integers(), str: st.text(), bool: st.booleans()}[annotation]
    if annotation is float:
        return NUMBERS
    if dataclasses.is_dataclass(annotation):
        return _instances(annotation)
    return st.dictionaries(st.text(), PLAIN, max_size=3)  # Mapping[str, Any]


def _instances(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{f.name: _strategy(hints[f.name]) for f in dataclasses.fields(kind)})


@settings(max_examples=150, deadline=None)
@given(event=st.one_of(*map(_instances, (Started, Drafted, Verified, Finished))))
def test_round_trip(event: events.Event) -> None:
    line = to_json(event)
    assert "\n" not in line
    assert line.isascii()  # lone surrogates and odd line ends included
    assert from_json(line) == event
    assert json.loads(line)["type"] == event.type


def test_defaults_may_be_missing() -> None:
    full = to_dict(Verified(0, (NodeVerdict("accepted"),), (Token(1, "a", "bonus"),), 1.0))
    short = {"type": "verified", "round": 0, "verdicts": [{"judgement": "accepted"}]}
    short |= {"tokens": [{"id": 1, "text": "a", "origin": "bonus"}], "ms": 1}
    assert from_dict(short) == from_dict(full)


def test_unknown_fields_of_a_later_version_are_passed_over() -> None:
    line = to_dict(Drafted(0, (DraftNode(1, "a", -1, None),), 1.0)) | {"later": [1, 2]}
    assert from_dict(line) == Drafted(0, (DraftNode(1, "a", -1, None),), 1.0)


def test_numbers_that_json_lacks_become_null() -> None:
    event = Finished("eos", "", (), {"a": float("nan"), "b": [float("inf")]})
    assert json.loads(to_json(event))["summary"] == {"a": None, "b": [None]}


GOOD = to_dict(
    Verified(
        0,
        (NodeVerdict("accepted", 0.5, 1.0),),
        (Token(1, "a", "accepted", 0.5, 0.5, 0, 0.4, (Alternative(1, "a", 0.5),)),),
        1.0,
    )
)


def _changed(**changes: Any) -> dict[str, Any]:
    return {**GOOD, **changes}


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        "started",
        {},
        {"type": 3},
        {"type": "exec"},
        {"type": "verified"},
        {"type": "__class__"},
        _changed(round="0"),
        _changed(round=True),
        _changed(round=1.0),
        _changed(ms="fast"),
        _changed(ms=None),
        _changed(ms=float("nan")),
        _changed(ms=float("inf")),
        _changed(ms=10**400),
        _changed(tokens={}),
        _changed(tokens=["a"]),
        _changed(tokens=[{"id": 1}]),
        _changed(tokens=[{"id": 1, "text": ["<img>"], "origin": "bonus"}]),
        _changed(tokens=[{"id": 1, "text": "a", "origin": "painted"}]),
        _changed(tokens=[{"id": 1, "text": "a", "origin": ["bonus"]}]),
        _changed(tokens=[{"id": 1, "text": "a", "origin": "bonus", "node": 0.5}]),
        _changed(tokens=[{"id": 1, "text": "a", "origin": "bonus", "alternatives": 5}]),
        _changed(verdicts=[{"judgement": None}]),
        {"type": "finished", "reason": "eos", "text": "", "token_ids": [1.5], "summary": {}},
        {"type": "finished", "reason": "eos", "text": "", "token_ids": [], "summary": []},
        {"type": "finished", "reason": "because", "text": "", "token_ids": [], "summary": {}},
    ],
    ids=repr,
)
def test_hostile_values_are_refused(data: Any) -> None:
    with pytest.raises(RecordingError) as caught:
        from_dict(data)
    sentence = str(caught.value)
    assert sentence.endswith(".")
    assert "\n" not in sentence
    assert len(sentence) < 200


@pytest.mark.parametrize(
    "line",
    ["", "{", "nul", "[" * 100_000, '{"type":' * 5000, "1" * 5000, '{"type":"started"} {}', "\ufeff{}"],
    ids=lambda line: line[:12],
)
def test_lines_that_are_no_json(line: str) -> None:
    with pytest.raises(RecordingError):
        from_json(line)


def test_deep_values_are_refused_before_they_can_break_the_writer() -> None:
    deep: Any = 1
    for _ in range(500):
        deep = [deep]
    line = json.dumps(to_dict(Finished("eos", "", (), {})) | {"summary": {"a": deep}})
    with pytest.raises(RecordingError):
        from_json(line)


@settings(max_examples=100, deadline=None)
@given(
    data=st.dictionaries(st.sampled_from([*GOOD, "type", "x"]), PLAIN),
    kind=st.sampled_from(["started", "drafted", "verified", "finished"]),
)
def test_anything_is_an_event_or_a_sentence(data: dict[str, Any], kind: str) -> None:
    try:
        event = from_dict({**data, "type": kind})
    except RecordingError:
        return
    assert from_json(to_json(event)) == event


def test_blank_lines_are_skipped() -> None:
    line = to_json(Drafted(0, (), 0.0))
    assert len(list(read_events(["", line, "  \n", line]))) == 2
