"""Errors a person can act on: a key and its values; the sentence is made in the page's language."""

from __future__ import annotations

from typing import Any

# The English sentences; other languages live in ``ui/text`` under the same keys.
SENTENCES: dict[str, str] = {
    "range": "{name} must be a number from {low} to {high}, not {value}.",
    "stop": "A stop text must not be empty.",
    "empty_prompt": "The prompt is empty: type something for the model to answer.",
    "prompt_too_long": (
        "The prompt has {tokens} tokens, but the model holds {limit} with the answer: shorten it."
    ),
    "prompt_too_large": "The prompt has {size} characters, at most {limit} are accepted: shorten it.",
    "bad_character": ("The prompt contains the character {code}, which no model can read: remove it."),
    "unknown_drafter": "There is no drafter {name}: choose one of {known}.",
    "unknown_setting": "The drafter {drafter} has no setting {name}: it knows {known}.",
    "unknown_model": "The model {name} is not offered here: choose one of {known}.",
    "tokenizer_mismatch": (
        "The draft model {draft} uses another tokenizer than {target}: "
        "choose a draft of the same family."
    ),
    "no_memory": (
        "The device ran out of memory: shorten the prompt or the answer, or choose a smaller model."
    ),
    "no_network": (
        "The model {name} is not in the cache and could not be downloaded ({why}): "
        "connect to a network once, or point SPECDEMO_GGUF to the file."
    ),
    "bad_checksum": "The downloaded model {name} is damaged (its checksum differs): try again.",
    "unsupported_model": "The model {name} cannot be used here: {why}.",
    "no_device": "The device {device} is not available on this machine: choose cpu or auto.",
    "dtype": "{dtype} is not available here: {why}.",
    "layers": "early_exit needs between 1 and {most} layers, not {value}.",
    "needs": "The drafter {drafter} cannot work with {model}: {why}.",
}


class InputError(ValueError):
    """Bad input. ``str(error)`` is one English sentence; ``key`` and ``values`` translate it.

    ``key`` is one of ``SENTENCES``."""

    def __init__(self, key: str, **values: Any) -> None:
        self.key, self.values = key, values
        super().__init__(SENTENCES[key].format(**values))
