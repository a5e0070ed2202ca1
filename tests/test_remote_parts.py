"""The parts that all clients share: event streams, texts of tokens, and JSON of any form."""

from __future__ import annotations

import contextlib
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdemo.remote import REGISTRY, Server, ServerError
from specdemo.remote.chunks import Splitter
from specdemo.remote.generation import MALFORMED
from specdemo.remote.sse import Decoder, StreamError
from specdemo.sampling import SamplingParams

FIELDS = re.findall(
    r"\w+",
    "choices delta content text token_ids logprobs tokens token_logprobs bytes usage "
    "model completion_tokens finish_reason stop_reason metrics speculative_decoding "
    "meta_info per_step_accepted per_step_drafted output_ids type matched stop "
    "stop_type timings tokens_predicted draft_n avg_decoded_tokens_per_iter "
    "prompt_token_ids ",
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(data=JSON, kind=st.sampled_from(list(REGISTRY)))
@settings(max_examples=300, deadline=None)
def test_no_json_whatever_breaks_more_than_the_run(data: Any, kind: str) -> None:
    client = REGISTRY[kind](Server("room", kind, "http://a.example"), "x", SamplingParams())
    if not isinstance(data, dict):
        data = {"choices": data, "meta_info": data, "content": "", "stop": True}
    steps = client.attribution()
    with contextlib.suppress(*MALFORMED, ServerError):
        steps.feed(0.0, client.parse(data))
        steps.finish(None)


def test_event_streams_by_the_standard() -> None:
    decoder = Decoder()
    whole = b": ping\r\n\r\ndata: a\ndata:b\r\n\nevent: x\nid: 7\n\ndata: \xe4\xbd\xa0\n\ndata: rest"
    for size in (1, 2, 3, 100):
        decoder, got = Decoder(), []
        for start in range(0, len(whole), size):
            got += decoder.feed(whole[start : start + size])
        assert got == ["a\nb", "你"]
    with pytest.raises(StreamError, match="line"):
        list(Decoder(max_line=2**20).feed(b"x" * (2**20 + 1)))
    with pytest.raises(StreamError, match="more than"):
        list(Decoder(max_total=2**20).feed(b":\n" * 2**20))


def test_parts_add_up_to_the_text() -> None:
    def parts(*chunks: tuple[str, tuple[str | None, ...]]) -> list[list[str]]:
        splitter = Splitter()
        return [splitter.split(text, pieces) for text, pieces in chunks]

    assert parts((" a b", (" a", " b"))) == [[" a", " b"]]
    # Text held back (a stop text might begin) goes to the token that brings it.
    assert parts((" a", (" a", " b")), (" b c", (" c",))) == [[" a", ""], [" b c"]]
    assert parts(("", (" a",)), (" a b", (" b",))) == [[""], [" a b"]]
    # Halves of a character have no text of their own.
    assert parts(("", (None,)), ("😀!", (None, "!"))) == [[""], ["😀", "!"]]
    assert parts(("😀!", (None, None, "!"))) == [["😀", "", "!"]]
    # Special tokens are not in the text.
    assert parts(("a", ("a", "<|im_end|>")), ("b", ("b",))) == [["a", ""], ["b"]]
    assert parts(("unlike", ("x", "y"))) == [["unlike", ""]]
