"""The example prompts of the page: each teaches one thing. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...catalog import PROMPTS

TEXTS = {prompt.key: prompt.text for prompt in PROMPTS}


@dataclass(frozen=True, slots=True)
class Preset:
    """``key`` names the words ``example_<key>``; ``values`` are form values that go with the prompt:
    fields by name, drafter controls as ``drafter.name``."""

    key: str
    prompt: str
    values: dict[str, Any] = field(default_factory=dict)


LOOKUP: dict[str, Any] = {"drafter": "ngram", "temperature": 0.0, "ngram.branches": 1}

PRESETS: tuple[Preset, ...] = (
    # Two branches: where the verses went on differently before, the draft is a tree.
    Preset("repeat", TEXTS["repeat"], {**LOOKUP, "length": 192, "ngram.branches": 2}),
    Preset("copy", TEXTS["copy"], {**LOOKUP, "length": 96}),
    Preset("edit_code", TEXTS["edit_code"], {**LOOKUP, "length": 128}),
    Preset("translate", TEXTS["translate"], {**LOOKUP, "length": 64}),
    Preset("story", TEXTS["story"], {"drafter": "eagle3", "temperature": 0.7, "length": 128}),
    Preset("emoji", TEXTS["emoji"], {**LOOKUP, "length": 96}),
    Preset(
        "self",
        "Explain in three sentences why the sky is blue.",
        {"drafter": "draft_model@target", "temperature": 0.0, "length": 96},
    ),
    Preset(
        "mismatch",
        "Write a sonnet about the quiet of a library at night.",
        {
            "drafter": "early_exit",
            "temperature": 1.0,
            "length": 96,
            "early_exit.layers": 4,
            "early_exit.gamma": 6,
        },
    ),
)
