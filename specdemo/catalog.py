"""Models, draft pairs, published heads and example prompts: data, and who may pick what.

Nothing here imports torch. A visitor picks among ``offered()``: the embedded model, and what the
host names in ``SPECDEMO_MODELS`` (comma separated: keys of this catalogue, Hub ids, local folders).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from .errors import InputError

DEFAULT = "smollm2-135m"
NOT_RUN = "not run here"


@dataclass(frozen=True, slots=True)
class Model:
    """A causal LM. ``source``: Hub id or folder; empty for the embedded model. ``parameters`` in
    millions (0: unknown). ``drafts``: keys of smaller models with the same tokenizer. ``note``:
    what a reader must know, ``NOT_RUN`` where this project never ran the checkpoint."""

    key: str
    title: str
    source: str
    family: str = ""
    parameters: int = 0
    licence: str = ""
    drafts: tuple[str, ...] = ()
    note: str = NOT_RUN

    @property
    def embedded(self) -> bool:
        return not self.source


@dataclass(frozen=True, slots=True)
class Heads:
    """Published draft heads. ``method``: the drafter that reads them; ``target``: a model's key;
    ``source``: Hub id; ``layout``: how the files name their tensors."""

    key: str
    method: str
    target: str
    source: str
    layout: str
    note: str = NOT_RUN


@dataclass(frozen=True, slots=True)
class Prompt:
    """An example prompt. ``key`` names its label in ``ui/text``; the text itself is English."""

    key: str
    text: str


def _llama3(key: str, title: str, source: str, size: int, drafts: tuple[str, ...] = ()) -> Model:
    return Model(key, title, source, "llama-3", size, "Llama 3 Community License", drafts)


def _qwen3(key: str, title: str, source: str, size: int, drafts: tuple[str, ...] = ()) -> Model:
    return Model(key, title, source, "qwen3", size, "Apache-2.0", drafts)


MODELS: dict[str, Model] = {
    model.key: model
    for model in (
        Model(DEFAULT, "SmolLM2 135M Instruct", "", "smollm2", 135, "Apache-2.0", note=""),
        Model(
            "smollm2-360m",
            "SmolLM2 360M Instruct",
            "HuggingFaceTB/SmolLM2-360M-Instruct",
            "smollm2",
            362,
            "Apache-2.0",
            (DEFAULT,),
        ),
        Model(
            "smollm2-1.7b",
            "SmolLM2 1.7B Instruct",
            "HuggingFaceTB/SmolLM2-1.7B-Instruct",
            "smollm2",
            1711,
            "Apache-2.0",
            (DEFAULT, "smollm2-360m"),
        ),
        _qwen3("qwen3-0.6b", "Qwen3 0.6B", "Qwen/Qwen3-0.6B", 596),
        _qwen3("qwen3-8b", "Qwen3 8B", "Qwen/Qwen3-8B", 8191, ("qwen3-0.6b",)),
        _llama3("llama-3.2-1b", "Llama 3.2 1B Instruct", "meta-llama/Llama-3.2-1B-Instruct", 1236),
        _llama3(
            "llama-3.1-8b",
            "Llama 3.1 8B Instruct",
            "meta-llama/Llama-3.1-8B-Instruct",
            8030,
            ("llama-3.2-1b",),
        ),
        Model(
            "vicuna-7b",
            "Vicuna 7B v1.3",
            "lmsys/vicuna-7b-v1.3",
            "vicuna",
            6738,
            "Llama 1 licence, non-commercial",
        ),
    )
}

HEADS: dict[str, Heads] = {
    heads.key: heads
    for heads in (
        Heads(
            "eagle3-llama-3.1-8b",
            "eagle3",
            "llama-3.1-8b",
            "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
            "classic",
        ),
        Heads(
            "eagle3-qwen3-8b",
            "eagle3",
            "qwen3-8b",
            "RedHatAI/Qwen3-8B-speculator.eagle3",
            "speculators",
        ),
        Heads(
            "medusa-vicuna-7b",
            "medusa",
            "vicuna-7b",
            "FasterDecoding/medusa-vicuna-7b-v1.3",
            "medusa",
        ),
    )
}

_PARAGRAPH = (
    "The lighthouse at the end of the pier was built in 1874. Its lamp burned oil for fifty years, "
    "until a cable was laid along the sea bed. The last keeper left in 1986, and the lamp has "
    "turned by itself ever since."
)
_CODE = """def area(width, height):
    if width < 0 or height < 0:
        raise ValueError("A side cannot be negative.")
    return width * height"""

# Each was tried with the embedded model: the first three make it write text that returns, in verses of
# its own, copied, or as code; what a translation needs stands nowhere before.
PROMPTS: tuple[Prompt, ...] = (
    Prompt(
        "repeat",
        "Write a poem of four verses. Every verse ends with the line: "
        "and the lamp turns round and round.",
    ),
    Prompt("copy", f"Repeat this paragraph word for word:\n\n{_PARAGRAPH}"),
    Prompt(
        "edit_code",
        f"Here is a function:\n\n```python\n{_CODE}\n```\n\nWrite it again with type hints.",
    ),
    Prompt(
        "translate",
        "Translate into Spanish: Good morning, my friend. The sun is shining and the birds are singing.",
    ),
    Prompt("story", "Write a short story about a fox who finds a radio in the forest."),
    Prompt("emoji", "Copy this line three times:\n🌊 大海 sea, 🐚 贝壳 shell, 🌙 月亮 moon"),
)


def describe(name: str) -> Model:
    """The entry for a catalogue key, a Hub id, or a folder (its key is the folder's own name, so
    that a visitor sees nothing of the host's paths)."""
    name = name.strip()
    for model in MODELS.values():
        if name == model.key or (model.source and model.source.lower() == name.lower()):
            return model
    if os.path.isdir(os.path.expanduser(name)):
        folder = os.path.abspath(os.path.expanduser(name))
        return Model(os.path.basename(folder), os.path.basename(folder), folder, note="")
    return Model(name, name, name, note="")


def offered() -> tuple[Model, ...]:
    """What a visitor may pick: the embedded model first, then the host's, in the host's order."""
    named = [DEFAULT, *os.environ.get("SPECDEMO_MODELS", "").split(",")]
    models = {model.key: model for model in map(describe, filter(str.strip, named))}
    return tuple(models.values())


def choose(key: str) -> Model:
    """The offered model with this key. Raises ``InputError("unknown_model")`` for anything else."""
    models = {model.key: model for model in offered()}
    if key not in models:
        raise InputError("unknown_model", name=repr(key)[:80], known=", ".join(models))
    return models[key]


def drafts_for(key: str) -> tuple[Model, ...]:
    """Offered models listed as drafts of this one; its own key is never among them."""
    listed = describe(key).drafts
    return tuple(model for model in offered() if model.key in listed)


def heads_for(key: str) -> tuple[Heads, ...]:
    """Published heads for a model's key or Hub id."""
    return tuple(heads for heads in HEADS.values() if heads.target == describe(key).key)
