"""Recordings that come from the reader's disk: checked as hostile input, then shown like any run."""

from __future__ import annotations

import json
import re
from itertools import count
from pathlib import Path

from ...events import RecordingError, to_json
from ...recording import parse
from ..text import say
from .bus import Bus

MAX_BYTES = 8_000_000
_added = count(1)
_DATA = re.compile(r'<script type="application/json" id="specdemo-data">(.*?)</script>', re.DOTALL)


def runs_of(text: str) -> dict[str, list[str]]:
    """Lines by slot of a JSONL recording or of an exported page. Raises ``RecordingError``."""
    if not text.lstrip().startswith("<"):
        return {"main": [to_json(event) for event in parse(text)]}
    found = _DATA.search(text)
    try:
        runs = json.loads(found.group(1))["runs"] if found else None
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise RecordingError("The page holds no recording that can be read.") from error
    if not isinstance(runs, dict) or "main" not in runs:
        raise RecordingError("The page holds no recording.")
    result = {}
    for slot in ("plain", "main"):
        lines = runs.get(slot)
        if lines is None:
            continue
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise RecordingError("The page holds no recording that can be read.")
        result[slot] = [to_json(event) for event in parse("\n".join(lines))]
    return result


def read(path: str | None) -> tuple[str, dict[str, list[str]]]:
    """Name and runs of an uploaded file. Raises ``RecordingError``, also for what is no text."""
    file = Path(path or "")
    try:
        if not file.is_file() or file.stat().st_size > MAX_BYTES:
            raise RecordingError(f"The file is larger than {MAX_BYTES // 1_000_000} MB.")
        return file.name[:80], runs_of(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, OSError) as error:
        raise RecordingError("The file is not text.") from error


def opened(path: str | None, lang: str) -> str:
    """The page's text for an uploaded file: its runs, or one sentence saying why not."""
    try:
        name, runs = read(path)
    except RecordingError as error:
        return Bus([]).error(say(lang, "bad_recording", why=error)).text
    bus = Bus(["main", "plain"], kind="file")
    for slot, lines in runs.items():
        bus.page("open", slot=slot).lines(lines)
    return bus.status("done", "status_opened", name=name).text


def added(path: str | None, lang: str) -> str:
    """An uploaded recording as one more row of the comparison; the plain run that an exported page
    holds is what its speed-up is measured against."""
    try:
        name, runs = read(path)
    except RecordingError as error:
        return Bus([]).error(say(lang, "bad_recording", why=error)).text
    bus, number = Bus([]), next(_added)
    for slot, lines in runs.items():
        place = f"cmp:file{number}" if slot == "main" else f"own:file{number}"
        bus.page("open", slot=place, file=name).lines(lines)
    return bus.status("done", "status_opened", name=name).text
