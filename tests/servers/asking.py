"""Asking a replayed server, and what must hold of every refusal and of every answer that was cut."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from specdemo.events import Event, Finished, Started, Verified
from specdemo.remote import Limits, Server, ServerError, generate
from specdemo.sampling import SamplingParams

from . import replay

KEY = "sk-very-secret-1234567890"
# Patient, because a machine that runs tests may be busy; only silence is waited for.
CALM = Limits(connect=20, first=60, between=60, total=120, lookup=60, tries=3, pause=0.01)
SHORT = Limits(connect=20, first=4, between=1.5, total=120, lookup=60, tries=3, pause=0.01)
BOTH = ("vllm_ngram_count", "llamacpp_ngram_count")


def run(
    recorded: dict[str, Any],
    site: replay.Site,
    cancel: threading.Event | None = None,
    limits: Limits = CALM,
    **server: str,
) -> list[Event]:
    configured = Server("room", recorded["kind"], site.url, api_key=KEY, **server)
    params = SamplingParams(**recorded["settings"])
    prompt, raw = recorded["prompt"], recorded["raw"]
    return list(generate(configured, prompt, params, raw=raw, cancel=cancel, limits=limits))


def refused(
    recorded: dict[str, Any], site: replay.Site, limits: Limits = CALM, **server: str
) -> ServerError:
    with pytest.raises(ServerError) as caught:
        run(recorded, site, limits=limits, **server)
    sentence = str(caught.value)
    assert "room" in sentence and sentence.endswith((".", "?")) and "\n" not in sentence
    assert KEY not in sentence and KEY not in repr(caught.value) and site.url not in sentence
    return caught.value


def cut(events: list[Event], recorded: dict[str, Any]) -> Finished:
    """The run was cut, and what had arrived is there."""
    finished = events[-1]
    assert isinstance(events[0], Started) and isinstance(finished, Finished)
    assert finished.reason == "cut" and "room" in finished.message and KEY not in finished.message
    tokens = [t for e in events if isinstance(e, Verified) for t in e.tokens]
    assert 3 < len(tokens) < recorded["settings"]["max_new_tokens"]
    assert finished.token_ids == tuple(token.id for token in tokens)
    assert finished.text == "".join(token.text for token in tokens) != ""
    assert finished.summary["check"]["outcome"] == "not_finished"
    assert finished.summary["tokens"] == len(tokens)
    return finished
