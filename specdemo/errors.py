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
    "questions": "The questions in {path} cannot be used: {why}.",
    "acceptance": "There is no acceptance rule {name}: choose exact or typical.",
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
    "model_not_found": ("The model {name} was not found: it is no folder on this machine, and {why}."),
    "gguf_missing": "SPECDEMO_GGUF points to {path}, which is not a file.",
    "cache_unwritable": (
        "The cache folder {folder} cannot be written: set SPECDEMO_CACHE to a folder of yours."
    ),
    "disk_full": (
        "There is no room on the disk for the model in {folder}: "
        "free some, or set SPECDEMO_CACHE to a folder elsewhere."
    ),
    "unknown_server": "There is no server {name}: choose one of {known}.",
    "server_syntax": "A server is configured wrongly: {why}.",
    "server_down": "The server {name} cannot be reached: {why}. Is it running?",
    "server_silent": "The server {name} did not answer within {seconds} seconds.",
    "server_key": "The server {name} refused the key: the host must set it.",
    "server_model": "The server {name} does not offer the model {model}.",
    "server_busy": "The server {name} is busy: try again in a moment.",
    "server_failed": "The server {name} failed ({code}): {why}.",
    "server_refused": "The server {name} refused the request ({code}): {why}.",
    "server_garbage": "The server {name} sent something that is no {engine} stream: {why}.",
    "server_limit": "The server {name} sent more than is accepted: {what}.",
    "server_cut": "The server {name} broke off before the answer was complete.",
    "config": "{mistakes}",
    "too_fast": "You started many runs in a short time: wait {seconds} seconds and try again.",
    "queue_full": "{waiting} runs are waiting already, and no more are taken: try again in a minute.",
    "deadline": "The run was ended after {seconds} seconds, the limit here: ask for a shorter answer.",
    "lent_gpu": "No GPU could be had for this run ({why}): try again later.",
    "head_unreadable": "The draft head {head} cannot be read: {why}.",
    "training_data": "The training cannot start: {why}.",
    "head_misfit": (
        "The draft head {head} does not fit {model}: it was made for {what} {theirs}, not {ours}."
    ),
    "not_loaded": "The model is not loaded ({why}): nothing can be run.",
    "internal": "Something went wrong inside this run ({why}). The page goes on: try again.",
}


class InputError(ValueError):
    """Bad input. ``str(error)`` is one English sentence; ``key`` and ``values`` translate it.

    ``key`` is one of ``SENTENCES``."""

    def __init__(self, key: str, **values: Any) -> None:
        self.key, self.values = key, values
        super().__init__(SENTENCES[key].format(**values))
