"""The ends of a run, against a naive oracle that looks at the whole text after every token."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdemo.output import Output

EOS = 99


def fill(tokens: list[tuple[int, str]], stop: list[str] = [], limit: int = 50, room: int = 50) -> Output:  # noqa: B006
    output = Output({EOS}, stop, limit, room)
    for token, piece in tokens:
        if output.reason is not None:
            break
        output.push(token, piece)
    return output


def numbered(*pieces: str) -> list[tuple[int, str]]:
    return list(enumerate(pieces))


def test_eos_ends_the_run_and_shows_nothing() -> None:
    output = fill([(1, "a"), (EOS, "<end>"), (2, "b")])
    assert (output.ids, output.text, output.reason) == ([1, EOS], "a", "eos")


def test_eos_may_come_first() -> None:
    output = fill([(EOS, "<end>")])
    assert (output.ids, output.texts, output.text, output.reason) == ([EOS], [""], "", "eos")


def test_stop_across_tokens_takes_back_what_lies_behind_it() -> None:
    output = fill(numbered("Hi ", "wo", "r", "ld", "!"), ["orl"])
    assert (output.ids, output.texts, output.text) == ([0, 1], ["Hi ", "w"], "Hi w")
    assert output.reason == "stop"


def test_stop_at_a_border_takes_whole_tokens_back() -> None:
    output = fill(numbered("a", "", "b", "c"), ["bc"])
    # The empty piece may be the first bytes of "b": it goes with it.
    assert (output.ids, output.text) == ([0], "a")


def test_stop_at_the_very_beginning() -> None:
    output = fill(numbered("st", "op"), ["stop"])
    assert (output.ids, output.texts, output.text, output.reason) == ([], [], "", "stop")


def test_the_earliest_of_several_stops_wins() -> None:
    assert fill(numbered("abcdef"), ["ef", "cd", "f"]).text == "ab"
    assert fill(numbered("ab", "cd", "ef"), ["bcdef", "d"]).text == "abc"


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_exactly_the_limit(limit: int) -> None:
    output = fill(numbered("a", "b", "c", "d"), limit=limit)
    assert (len(output.ids), output.reason) == (limit, "length")


def test_context_is_named_when_it_is_what_ends() -> None:
    assert fill(numbered("a", "b", "c"), room=2).reason == "context"
    assert fill(numbered("a", "b", "c"), limit=2, room=2).reason == "length"


def test_eos_and_stop_go_before_the_limit() -> None:
    assert fill([(1, "a"), (EOS, "")], limit=2).reason == "eos"
    assert fill(numbered("a", "b"), ["b"], limit=2).reason == "stop"


def test_what_may_become_a_stop_is_held_back() -> None:
    output = Output({EOS}, ["stop"], 50, 50)
    settled = []
    for token, piece in numbered("xs", "t", "o", "ry", ".", "s"):
        output.push(token, piece)
        settled.append(output.settled)
    assert settled == [0, 0, 0, 4, 5, 5]
    output.push(EOS, "")
    assert output.settled == 7  # the end settles everything


def test_without_stops_everything_is_settled_at_once() -> None:
    assert fill(numbered("a", "", "b")).settled == 3


# The oracle.

PIECES = st.lists(st.sampled_from(["", "a", "b", "ab", "ba", "aab", "c"]), max_size=14)
STOPS = st.lists(st.sampled_from(["ab", "ba", "aba", "abc", "bb", "c", "aabaab"]), max_size=3)


def oracle(
    tokens: list[tuple[int, str]], stops: list[str], limit: int, room: int
) -> tuple[str, str | None, int]:
    """Text, reason and number of tokens looked at."""
    text = ""
    for count, (token, piece) in enumerate(tokens, 1):
        if token == EOS:
            return text, "eos", count
        text += piece
        found = [text.index(stop) for stop in stops if stop in text]
        if found:
            return text[: min(found)], "stop", count
        if count == limit:
            return text, "length", count
        if count == room:
            return text, "context", count
    return text, None, len(tokens)


@settings(max_examples=300, deadline=None)
@given(
    pieces=PIECES,
    stops=STOPS,
    end=st.none() | st.integers(0, 13),
    limit=st.integers(1, 15),
    room=st.integers(1, 15),
)
def test_against_the_oracle(
    pieces: list[str], stops: list[str], end: int | None, limit: int, room: int
) -> None:
    tokens = numbered(*pieces)
    if end is not None and end < len(tokens):
        tokens[end] = (EOS, "")
    output = Output({EOS}, stops, limit, room)
    settled: list[tuple[int, str]] = []
    for token, piece in tokens:
        output.push(token, piece)
        # What was settled before stays: ids and texts that left the engine are never taken back.
        now = list(zip(output.ids, output.texts, strict=True))[: output.settled]
        assert now[: len(settled)] == settled
        settled = now
        assert output.text == "".join(output.texts)
        assert len(output.ids) == len(output.texts)
        if output.reason is not None:
            break
    text, reason, looked = oracle(tokens, stops, limit, room)
    assert (output.text, output.reason) == (text, reason)
    assert output.ids == [token for token, _ in tokens[: len(output.ids)]]
    if reason == "stop":  # no more tokens than the text needs
        assert not output.ids or sum(map(len, pieces[: len(output.ids) - 1])) < len(text)
    else:
        assert len(output.ids) == looked
    if reason is not None:
        assert output.settled == len(output.ids)
    elif stops:
        held = "".join(output.texts[output.settled :])
        assert len(held) < max(map(len, stops)) + 3  # held back no longer than a stop text needs
