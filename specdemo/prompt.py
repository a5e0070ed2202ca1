"""From what a person typed to ids: checked, with the model's chat template or raw."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .errors import InputError

if TYPE_CHECKING:  # a page over a server checks prompts without torch
    from .target import Target

MAX_CHARACTERS = 200_000
Turns = str | Sequence[Mapping[str, str]]


def last_text(prompt: Turns) -> str:
    """What the person typed last: the prompt itself or the content of the last turn."""
    return prompt if isinstance(prompt, str) else (prompt[-1]["content"] if prompt else "")


def check_text(text: str) -> None:
    """Raises ``InputError`` for what no model can read: nothing, too much, broken characters."""
    if not text.strip():
        raise InputError("empty_prompt")
    if len(text) > MAX_CHARACTERS:
        raise InputError("prompt_too_large", size=len(text), limit=MAX_CHARACTERS)
    for character in text:
        kind = unicodedata.category(character)
        if kind == "Cs" or (kind == "Cc" and character not in "\n\r\t"):
            raise InputError("bad_character", code=f"U+{ord(character):04X}")


def encode(target: Target, prompt: Turns, raw: bool = False) -> list[int]:
    """Ids of a prompt. ``prompt``: a text, or turns of ``role`` (system, user, assistant) and
    ``content``. ``raw``: no chat template, the text is continued as it stands.

    Raises ``InputError`` when the text cannot be used or leaves no room for an answer."""
    turns = (
        [{"role": "user", "content": prompt}]
        if isinstance(prompt, str)
        else [dict(turn) for turn in prompt]
    )
    if not turns:
        raise InputError("empty_prompt")
    for turn in turns:
        if turn["role"] != "assistant":
            check_text(turn["content"])
    tokenizer = target.tokenizer
    if raw or not tokenizer.chat_template:
        text = prompt if isinstance(prompt, str) else "\n\n".join(turn["content"] for turn in turns)
        ids = tokenizer.encode(text)
    else:
        rendered = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        ids = tokenizer.encode(rendered, add_special_tokens=False)
    if not ids:  # nothing of the text is left after the tokenizer's normalisation
        raise InputError("empty_prompt")
    if len(ids) + 1 > target.shape.context:
        raise InputError("prompt_too_long", tokens=len(ids), limit=target.shape.context)
    return ids
