"""A run in the terminal: tokens in the colours of their origin as they come, then a summary.

Colour is never the only mark: accepted tokens are underlined, corrected ones bold, bonus ones italic.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from typing import Any, TextIO

from .events import Event, Finished, Started, Verified

# The hues of the page (assets/css), as 24-bit ANSI with a second mark.
_STYLES = {
    "accepted": "\x1b[4;38;2;0;158;115m",
    "corrected": "\x1b[1;38;2;213;94;0m",
    "bonus": "\x1b[3;38;2;30;136;229m",
    "target": "",
}
_WORDS = {
    "accepted": "accepted from the draft",
    "corrected": "corrected by the target",
    "bonus": "bonus",
    "target": "plain decoding",
}
_PROMISES = {
    "bits": "lossless: greedy text has the very bits of plain decoding here",
    "distribution": "lossless up to rounding: the kernels here sum a row differently in wider passes",
}
_RESET = "\x1b[0m"


def show(events: Iterator[Event], out: TextIO | None = None) -> int:
    """Print a run. Returns the exit code: 1 when the run broke off, 0 otherwise."""
    out = out or sys.stdout
    colours = out.isatty()
    started: Started | None = None
    code = 0
    for event in events:
        if isinstance(event, Started):
            started = event
            print(_dim(_heading(event), colours), file=out)
        elif isinstance(event, Verified):
            for token in event.tokens:
                style = _STYLES[token.origin] if colours else ""
                text = printable(token.text)
                out.write(f"{style}{text}{_RESET}" if style and text else text)
            out.flush()
        elif isinstance(event, Finished):
            print(file=out)
            _print_end(event, started, colours, out)
            code = 1 if event.reason in ("error", "cut") else 0
    return code


def _heading(event: Started) -> str:
    name = event.environment.get("device_name", event.device)
    loss = "" if event.lossless else " · lossy acceptance"
    return f"{event.model} {event.dtype} · {event.drafter} · {name}{loss}"


def _print_end(event: Finished, started: Started | None, colours: bool, out: TextIO) -> None:
    s = event.summary
    legend = "  ".join(
        f"{_STYLES[name]}{words}{_RESET if _STYLES[name] else ''}" if colours else words
        for name, words in _WORDS.items()
        if colours
    )
    if legend:
        print(_RESET + legend, file=out)
    lines = [
        f"{_number(s.get('tokens'))} tokens in {_number(s.get('rounds'))} verify passes, "
        f"tau {_number(s.get('mean_accepted_length'), 2)}, "
        f"alpha {_number(s.get('acceptance_rate'), 2)}, "
        f"{_number(s.get('tokens_per_second'), 1)} tokens/s, ended by {event.reason}",
        f"prefill {_number(s.get('prefill_ms'))} ms; draft {_number(s.get('draft_ms'))}, "
        f"verify {_number(s.get('verify_ms'))}, overhead {_number(s.get('overhead_ms'))} ms",
    ]
    if drift := s.get("drift"):
        lines.append(
            f"drift: {drift['different']} of {drift['tokens']} tokens are not what the target alone "
            f"would have taken; mean KL from it {_number(drift.get('mean_kl'), 3)} nats"
        )
    if started and started.lossless and (promise := started.environment.get("promise")):
        lines.append(_PROMISES.get(promise, ""))
    if started and started.note:
        lines.append(started.note)
    if event.message:
        lines.append(event.message)
    for line in lines:
        print(_dim(line, colours), file=out)


def printable(text: str) -> str:
    """Model text without control characters: it must not steer the terminal."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cs"))


def _dim(text: str, colours: bool) -> str:
    return f"\x1b[2m{text}{_RESET}" if colours else text


def _number(value: Any, digits: int = 0) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"
