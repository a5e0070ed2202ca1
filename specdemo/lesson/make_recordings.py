"""Makes the recordings that the page plays before a model is loaded, and that the lessons speak of.

Run ``python -m specdemo.lesson.make_recordings [NAME...]`` on an otherwise idle machine: each scenario
is run plain and with its drafter, one after the other, and written as it came. Nothing is edited.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..events import Started, to_json
from ..sampling import SamplingParams
from ..ui.backend import Backend, Order, default_loader
from ..ui.views.presets import PRESETS

FOLDER = Path(__file__).resolve().parents[2] / "assets" / "recordings"


@dataclass(frozen=True, slots=True)
class Scenario:
    """One recording: a preset's prompt with a drafter. ``plain``: record plain decoding beside it."""

    name: str
    preset: str
    drafter: str
    settings: dict[str, Any] = field(default_factory=dict)
    temperature: float = 0.0
    tokens: int = 96
    rule: str = "exact"
    draft: str = ""
    plain: bool = True


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("repeat", "repeat", "ngram", {"gamma": 8, "branches": 2}, tokens=128),
    Scenario("copy", "copy", "ngram", {"gamma": 8}),
    Scenario("story", "story", "early_exit", {"gamma": 3}, temperature=0.7),
    Scenario("self", "self", "draft_model", {"gamma": 4}, draft="target", tokens=64),
    Scenario(
        "mismatch", "mismatch", "early_exit", {"gamma": 6, "layers": 4}, temperature=1.0, tokens=64
    ),
    Scenario("code", "edit_code", "ngram", {"gamma": 8}),
    # Not adaptive: whole trees are what these lessons are about, even where smaller ones were faster.
    Scenario("medusa", "story", "medusa", {"adaptive": False}),
    Scenario("eagle3", "story", "eagle3", {"adaptive": False}),
    Scenario("typical", "story", "medusa", {"adaptive": False}, rule="typical", plain=False),
)


def record(backend: Backend, scenario: Scenario) -> Iterator[tuple[str, list[str]]]:
    """File name and lines of each run of a scenario."""
    prompt = next(preset.prompt for preset in PRESETS if preset.key == scenario.preset)
    params = SamplingParams(temperature=scenario.temperature, max_new_tokens=scenario.tokens, seed=1)
    main = Order(prompt, scenario.drafter, scenario.settings, params, scenario.draft, scenario.rule)
    if scenario.plain:
        lines = [to_json(event) for event in backend.generate(Order(prompt, "none", {}, params))]
        yield f"{scenario.name}.plain.jsonl", lines
    yield f"{scenario.name}.jsonl", [to_json(event) for event in backend.generate(main)]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="scenarios to record (default: all)")
    parser.add_argument("--dtype", default="auto")
    chosen = parser.parse_args(arguments)
    from ..drafters import REGISTRY

    backend = Backend(default_loader(dtype=chosen.dtype))
    job = backend.start()
    job.wait()
    if backend.state != "live":
        raise SystemExit(backend.message)
    for scenario in SCENARIOS:
        if scenario.drafter not in REGISTRY or (chosen.names and scenario.name not in chosen.names):
            continue
        try:
            files = list(record(backend, scenario))
        except InputError as error:  # heads that are not there
            print(f"{scenario.name}: {error}")
            continue
        for name, lines in files:
            (FOLDER / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
            print(name, json.loads(lines[-1])["summary"]["tokens_per_second"])
    write_index()


def write_index() -> None:
    """``index.json``: what is there and what it was recorded on, for the page's list."""
    runs = {}
    for path in sorted(FOLDER.glob("*.jsonl")):
        if path.name.endswith(".plain.jsonl"):
            continue
        started = json.loads(path.read_text(encoding="utf-8").split("\n", 1)[0])
        assert started["type"] == Started.type
        runs[path.stem] = {
            "drafter": started["drafter"],
            "plain": (FOLDER / f"{path.stem}.plain.jsonl").exists(),
            "device": started["environment"].get("device_name"),
        }
    (FOLDER / "index.json").write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
