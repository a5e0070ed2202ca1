"""Recordings: a run as JSON lines. Replaying gives the same iterator of events, without a model."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .events import Drafted, Event, Finished, RecordingError, Started, Verified, read_events, to_json

MAX_BYTES = 20_000_000
MAX_PAUSE = 60.0  # seconds; a foreign recording may claim any time


def record(events: Iterable[Event], path: Path) -> Iterator[Event]:
    """Pass events through and write each as a line. The file appears whole or not at all."""
    partial = path.with_name(path.name + ".part")
    try:
        with partial.open("w", encoding="utf-8") as file:
            for event in events:
                file.write(to_json(event) + "\n")
                yield event
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def parse(text: str) -> list[Event]:
    """All events of a recording, checked as a whole: one run, in order, nodes and verdicts matching.

    Raises ``RecordingError`` with one sentence."""
    if len(text) > MAX_BYTES:
        raise RecordingError(f"The recording is larger than {MAX_BYTES // 1_000_000} MB.")
    events = list(read_events(text.split("\n")))  # not splitlines: text may hold U+2028
    if not events or not isinstance(events[0], Started):
        raise RecordingError("This is not a specdemo recording: it does not begin with a run.")
    nodes = 0
    for event in events[1:]:
        if isinstance(event, Started):
            raise RecordingError("The recording holds more than one run.")
        if isinstance(event, Drafted):
            nodes = len(event.nodes)
            if any(not -1 <= node.parent < index for index, node in enumerate(event.nodes)):
                raise RecordingError("A draft in the recording is not a tree.")
        elif isinstance(event, Verified):
            if len(event.verdicts) != nodes:
                raise RecordingError("A round in the recording has verdicts for other tokens.")
            if any(t.node is not None and not 0 <= t.node < nodes for t in event.tokens):
                raise RecordingError("A token in the recording points to a draft that is not there.")
            nodes = 0
    if any(isinstance(event, Finished) for event in events[:-1]):
        raise RecordingError("The recording goes on after its end.")
    return events


def load(path: Path) -> list[Event]:
    """Read and check a recording. Raises ``RecordingError``, also for an unreadable file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RecordingError(f"The recording is larger than {MAX_BYTES // 1_000_000} MB.")
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise RecordingError(f"The recording {path.name} cannot be read.") from error


def paced(events: Iterable[Event], speed: float = 1.0) -> Iterator[Event]:
    """The events at the pace they were recorded at, ``speed`` times as fast."""
    due = time.monotonic()
    for event in events:
        if isinstance(event, Drafted):
            due += event.ms / 1000 / speed
        elif isinstance(event, Verified):
            due += (event.ms + event.overhead_ms) / 1000 / speed
        time.sleep(min(max(0.0, due - time.monotonic()), MAX_PAUSE))
        yield event
