"""The example prompts of the page: each teaches one thing. Data only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_PARAGRAPH = (
    "The lighthouse keeper climbed the stairs each evening, counted the ships on the horizon, "
    "and wrote their names into a blue notebook before the lamp was lit."
)


@dataclass(frozen=True, slots=True)
class Preset:
    """``key`` names the words ``example_<key>``; ``values`` are form values and
    ``controls`` drafter controls (by drafter and name) that go with the prompt."""

    key: str
    prompt: str
    values: dict[str, Any] = field(default_factory=dict)
    controls: dict[tuple[str, str], Any] = field(default_factory=dict)


PRESETS: tuple[Preset, ...] = (
    Preset(
        "repeat",
        f"Write this paragraph three times, word for word:\n\n{_PARAGRAPH}",
        {"drafter": "ngram", "temperature": 0.0, "length": 128},
    ),
    Preset(
        "code",
        "Rename the variable x to total in this function and give back the whole function:\n\n"
        "def add_all(numbers):\n    x = 0\n    for number in numbers:\n        x = x + number\n"
        "    print(x)\n    return x\n",
        {"drafter": "ngram", "temperature": 0.0, "length": 128},
    ),
    Preset(
        "translate",
        "Translate into French: The old bridge was closed, so we walked along the river until the "
        "sun went down.",
        {"drafter": "ngram", "temperature": 0.0, "length": 64},
    ),
    Preset(
        "story",
        "Tell a short story about a robot that learns to bake bread.",
        {"temperature": 0.7, "length": 128},
    ),
    Preset(
        "emoji",
        "Repeat this line exactly, twice: 🎉 Happy birthday 生日快乐 👩‍🚀🚀 naïve café ✨",
        {"drafter": "ngram", "temperature": 0.0, "length": 96},
    ),
    Preset(
        "self",
        "Explain in three sentences why the sky is blue.",
        {"drafter": "draft_model@target", "temperature": 0.0, "length": 96},
    ),
    Preset(
        "mismatch",
        "Write a sonnet about the quiet of a library at night.",
        {"drafter": "early_exit", "temperature": 1.0, "length": 96},
        {("early_exit", "layers"): 4, ("early_exit", "gamma"): 6},
    ),
)
