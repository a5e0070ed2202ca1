"""Tokenizers are compared by what ids mean; a draft to which they mean other things is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from conftest import make_tokenizer
from test_loading import saved

from specdemo import loading
from specdemo.errors import InputError


def test_tokenizers_are_compared_by_what_ids_mean(tiny_tokenizer: Any) -> None:
    assert loading.same_tokenizer(tiny_tokenizer, make_tokenizer())
    longer = make_tokenizer()
    longer.add_tokens(["<extra_1>", "<extra_2>"])  # behind the last token: the same family
    assert loading.same_tokenizer(tiny_tokenizer, longer)
    assert loading.same_tokenizer(longer, tiny_tokenizer)
    assert not loading.same_tokenizer(tiny_tokenizer, make_tokenizer(280))  # ordinary tokens lack
    swapped = make_tokenizer(special=["<|im_end|>", "<|im_start|>", "<|endoftext|>"])
    assert not loading.same_tokenizer(tiny_tokenizer, swapped)


def test_a_draft_with_another_tokenizer_is_refused(
    tiny_llama: tuple[Any, Any], tiny_gpt2: tuple[Any, Any], tmp_path: Path
) -> None:
    target = loading.load_target(str(saved(tiny_llama, tmp_path / "target")), "fp32", "cpu")
    same = loading.load_target(str(saved(tiny_gpt2, tmp_path / "same")), "fp32", "cpu")
    loading.check_tokenizers(target, same)
    model, _ = tiny_gpt2
    other = make_tokenizer(special=["<|im_end|>", "<|im_start|>", "<|endoftext|>"])
    draft = loading.load_target(str(saved((model, other), tmp_path / "other")), "fp32", "cpu")
    with pytest.raises(InputError) as caught:
        loading.check_tokenizers(target, draft)
    target.tokenizer.add_tokens([f"<extra_{number}>" for number in range(9)])
    with pytest.raises(InputError):  # ids that the draft has no row for
        loading.check_tokenizers(target, same)
    assert caught.value.key == "tokenizer_mismatch"
