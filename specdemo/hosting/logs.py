"""Structured logs: one line an occurrence, as JSON or as text. No prompt and no answer by default.

An error's message may repeat what a visitor typed, so only its type and its place in the program
are written.
"""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

LOGGER = logging.getLogger("specdemo")


class Formatter(logging.Formatter):
    """``as_json``: one JSON object a line; else ``time level event name=value ...``."""

    def __init__(self, as_json: bool) -> None:
        super().__init__()
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        values: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "values", {}),
        }
        if self.as_json:
            return json.dumps(values, default=str)
        first = " ".join(str(values.pop(name)) for name in ("time", "level", "event"))
        # JSON also here: no value may break a line in two and so forge an entry.
        return " ".join([first, *(f"{name}={json.dumps(v, default=str)}" for name, v in values.items())])


def set_up(kind: str, stream: TextIO | None = None) -> None:
    """``kind``: json, text or off. Standard error by default. Calling it again replaces the first."""
    LOGGER.handlers.clear()
    LOGGER.propagate = False
    LOGGER.setLevel(logging.INFO)
    if kind == "off":
        LOGGER.addHandler(logging.NullHandler())
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Formatter(kind == "json"))
    LOGGER.addHandler(handler)


def write(event: str, level: int = logging.INFO, **values: Any) -> None:
    """One occurrence with its plain values."""
    LOGGER.log(level, event, extra={"values": values})


def error_values(error: BaseException) -> dict[str, Any]:
    """Type and places of an error, innermost last; not its message."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    where = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return {"kind": type(error).__name__, "where": where}
