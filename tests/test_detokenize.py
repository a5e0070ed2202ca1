"""Ids to text, token by token: nothing lost, never half a character, one piece a token."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import SENTENCES
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers
from transformers import PreTrainedTokenizerFast

from specdemo.detokenize import Detokenizer, Pieces

TEXTS = [
    "👍🏽👩‍🚀🏳️‍🌈👨‍👩‍👧‍👦",  # skin tones and zero-width joiners
    "中文字 日本語 한국어",
    "e\u0301o\u0308n\u0303 a\u0323\u0302",  # combining marks
    "𝔘𝔫𝔦 𐍈 \U0001f9d1\u200d\U0001f4bb",
    "plain, with  two spaces\n\n and\ttabs ",
    " leading",
    "mixed 你👍a\u0301 b",
]


def llama2_tokenizer() -> PreTrainedTokenizerFast:
    """A SentencePiece-like tokenizer as Llama 2 has it: ▁ for spaces, single bytes as <0xNN>, the
    first space of a text dropped by its decoder."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += ["▁", *"abcdefghijklmnopqrstuvwxyz,.é你", "▁a", "▁t", "th", "▁th", "▁the", "er", "on"]
    merges = [("▁", "a"), ("▁", "t"), ("t", "h"), ("▁t", "h"), ("▁th", "e"), ("e", "r"), ("o", "n")]
    vocab = {word: index for index, word in enumerate(words)}
    backend = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


@pytest.fixture(scope="module")
def bytes_tokenizer(tiny_tokenizer: Any) -> Any:
    return tiny_tokenizer


@pytest.fixture(scope="module")
def fallback_tokenizer() -> Any:
    return llama2_tokenizer()


@pytest.fixture(scope="module", params=["byte_level", "byte_fallback"])
def tokenizer(request: pytest.FixtureRequest, bytes_tokenizer: Any, fallback_tokenizer: Any) -> Any:
    return bytes_tokenizer if request.param == "byte_level" else fallback_tokenizer


def pieces_of(tokenizer: Any, ids: list[int]) -> list[str]:
    """By the window alone; what is known of single tokens must not change a piece."""
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token) for token in ids]
    if not isinstance(tokenizer, Counting):
        knowing = Detokenizer(tokenizer, Pieces(tokenizer).whole)
        assert [knowing.push(token) for token in ids] == pieces
    return pieces


def decoded(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


@pytest.mark.parametrize("text", [*TEXTS, *SENTENCES, "".join(TEXTS) * 3], ids=lambda text: text[:8])
def test_pieces_add_up(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = pieces_of(tokenizer, ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == decoded(tokenizer, ids) == text
    assert not any("\ufffd" in piece for piece in pieces)


# Any text without lone surrogates; U+FFFD itself cannot be told from a broken character.
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd▁"), max_size=25)


@settings(max_examples=100, deadline=None)
@given(text=ANY_TEXT)
def test_pieces_add_up_for_any_text(tokenizer: Any, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    pieces = pieces_of(tokenizer, ids)
    assert "".join(pieces) == decoded(tokenizer, ids)
    assert not any("\ufffd" in piece for piece in pieces)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_ids_show_no_broken_character(tokenizer: Any, data: st.DataObject) -> None:
    """Random ids, as a hot model writes them: half characters, special tokens, anything."""
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=40))
    pieces = pieces_of(tokenizer, ids)
    assert len(pieces) == len(ids)
    assert not any("\ufffd" in piece for piece in pieces)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_byte_level_pieces_are_the_valid_part_of_random_ids(
    bytes_tokenizer: Any, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, len(bytes_tokenizer) - 1), max_size=40))
    whole = decoded(bytes_tokenizer, ids)
    assert "".join(pieces_of(bytes_tokenizer, ids)) == whole.replace("\ufffd", "")


def test_bytes_wait_for_their_character(tokenizer: Any) -> None:
    ids = tokenizer.encode("x👍", add_special_tokens=False)
    pieces = pieces_of(tokenizer, ids)
    assert len(pieces) > 2  # several tokens share the character; each still has a piece of its own
    assert [piece for piece in pieces if piece] == ["x", "👍"]
    assert pieces[-1] == "👍"


def test_special_tokens_have_no_text_and_do_not_eat_spaces(fallback_tokenizer: Any) -> None:
    """The window of recent ids never consists of special tokens alone: the decoder would take the
    next space for the first one of the text."""
    ids = fallback_tokenizer.encode("the other", add_special_tokens=False) * 2
    the = fallback_tokenizer.convert_tokens_to_ids("▁the")
    ids = [*ids, 2, 2, 2, 2, the, 2, the]
    pieces = pieces_of(fallback_tokenizer, ids)
    assert pieces[-7:] == ["", "", "", "", " the", "", " the"]
    assert "".join(pieces) == decoded(fallback_tokenizer, ids)


class Counting:
    """The real tokenizer; remembers how much it was asked to decode at once."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.longest = inner, 0

    def decode(self, ids: list[int], **options: Any) -> str:
        self.longest = max(self.longest, len(ids))
        return str(self.inner.decode(ids, **options))


@pytest.mark.parametrize("text", ["👍", "中", "a b ", "é"])
def test_the_window_stays_short(tokenizer: Any, text: str) -> None:
    """Decoding everything at each token would make long answers quadratic; runs of byte tokens too."""
    ids = tokenizer.encode(text * 60, add_special_tokens=False)
    counting = Counting(tokenizer)
    assert "".join(pieces_of(counting, ids)) == text * 60
    assert counting.longest <= 16


def test_texts_of_tokens_add_up_only_where_bytes_stand_side_by_side(
    bytes_tokenizer: Any, fallback_tokenizer: Any
) -> None:
    known = Pieces(bytes_tokenizer).whole
    assert known(bytes_tokenizer.encode("a")[0]) == "a"
    assert known(bytes_tokenizer.eos_token_id) == ""
    assert known(bytes_tokenizer.encode("🚀")[0]) is None  # a part of a character
    the = fallback_tokenizer.convert_tokens_to_ids("▁the")
    assert Pieces(fallback_tokenizer).whole(the) is None  # its space goes at the beginning of a text


# Single tokens, as draft tokens and alternatives are shown.


def test_single_tokens_show_spaces_bytes_and_names(
    bytes_tokenizer: Any, fallback_tokenizer: Any
) -> None:
    pieces = Pieces(bytes_tokenizer)
    assert pieces.text(bytes_tokenizer.eos_token_id) == "<|im_end|>"
    assert pieces.text(bytes_tokenizer.encode(" ")[0]) == " "
    shown = "".join(pieces.text(token) for token in bytes_tokenizer.encode("🚀"))
    assert shown.replace("›‹", " ") == "‹F0 9F 9A 80›"
    assert pieces.text(len(bytes_tokenizer) + 3) == f"‹{len(bytes_tokenizer) + 3}›"  # padding
    pieces = Pieces(fallback_tokenizer)
    assert pieces.text(fallback_tokenizer.convert_tokens_to_ids("<0xF0>")) == "‹F0›"
    assert pieces.text(fallback_tokenizer.convert_tokens_to_ids("▁the")) == " the"
    assert pieces.text(2) == "</s>"


def test_every_token_of_the_vocabulary_can_be_shown(tokenizer: Any) -> None:
    pieces = Pieces(tokenizer)
    for token in range(len(tokenizer) + 2):
        assert pieces.text(token)
        assert "\ufffd" not in pieces.text(token)
