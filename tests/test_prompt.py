"""Prompts: what cannot be used is refused in one sentence, what can is tokenised as it stands."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import target_of

from specdemo.errors import SENTENCES, InputError
from specdemo.hf import HFTarget
from specdemo.prompt import MAX_CHARACTERS, check_text, encode, last_text


@pytest.fixture(scope="module")
def target(tiny_llama: Any) -> HFTarget:
    return target_of(tiny_llama)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("", "empty_prompt"),
        ("  \n\t", "empty_prompt"),
        ("\u3000", "empty_prompt"),
        ("a" * 1_000_000, "prompt_too_large"),
        ("a" * (MAX_CHARACTERS + 1), "prompt_too_large"),
        ("a\ud800b", "bad_character"),
        ("\udfff", "bad_character"),
        ("a\x00", "bad_character"),
        ("a\x1b[31m", "bad_character"),
        ("a\x7f", "bad_character"),
        ("a\x85b", "bad_character"),
    ],
    ids=lambda value: repr(value)[:14],
)
@pytest.mark.parametrize("raw", [True, False])
def test_bad_text_is_one_sentence(target: HFTarget, text: str, key: str, raw: bool) -> None:
    with pytest.raises(InputError) as caught:
        encode(target, text, raw)
    assert caught.value.key == key
    sentence = str(caught.value)
    assert sentence.isprintable()  # the bad character itself is not repeated
    assert sentence.endswith(".")
    assert len(sentence) < 200
    with pytest.raises(InputError):
        encode(target, [{"role": "user", "content": "hi"}, {"role": "user", "content": text}], raw)


@pytest.mark.parametrize(
    "text", ["a\nb\tc\r\n", "👩‍🚀 e\u0301", "<img onerror=x>", "${x} {{ y }}", "\u200b a"]
)
def test_good_text_is_left_as_it_is(target: HFTarget, text: str) -> None:
    check_text(text)
    ids = encode(target, text, raw=True)
    assert target.tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text


def test_the_context_must_hold_the_prompt_and_one_token(target: HFTarget) -> None:
    limit = target.shape.context
    unit = target.tokenizer.encode("\x7f~"[1:])
    assert len(unit) == 1
    fits = "~" * (limit - 1)
    assert len(target.tokenizer.encode(fits)) == limit - 1
    assert len(encode(target, fits, raw=True)) == limit - 1
    with pytest.raises(InputError) as caught:
        encode(target, fits + "~", raw=True)
    assert caught.value.key == "prompt_too_long"
    assert str(limit) in str(caught.value)


def test_turns_go_through_the_models_template(target: HFTarget) -> None:
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "{{ 7 * 7 }}"},
    ]
    text = target.tokenizer.decode(encode(target, turns))
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\n{{ 7 * 7 }}<|im_end|>\n"
        "<|im_start|>assistant\n"
    )  # content is data: a template inside it is not run
    assert encode(target, "Hi") == encode(target, [{"role": "user", "content": "Hi"}])
    assert last_text(turns) == "{{ 7 * 7 }}"
    assert last_text("Hi") == "Hi"


def test_no_turns_at_all(target: HFTarget) -> None:
    with pytest.raises(InputError) as caught:
        encode(target, [])
    assert caught.value.key == "empty_prompt"
    assert last_text([]) == ""


class Deaf:
    """A tokenizer that normalises a text away."""

    chat_template = None

    def encode(self, text: str) -> list[int]:
        return []


def test_a_text_without_tokens_is_empty(target: HFTarget) -> None:
    class Empty:
        tokenizer, shape = Deaf(), target.shape

    with pytest.raises(InputError) as caught:
        encode(Empty(), "\u00ad")  # type: ignore[arg-type]
    assert caught.value.key == "empty_prompt"


def test_every_sentence_is_one() -> None:
    for key, sentence in SENTENCES.items():
        assert sentence[-1] in ".?}", key  # some end with a reason that is a sentence itself
        assert "\n" not in sentence, key
