"""The tab "Why is it fast?": the prediction explained, the cost curve measured, what-if estimates."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

from ...errors import InputError
from ...predict import Step, explain, steps_from, what_if
from ..text import say_error
from . import form, live
from .bus import Bus
from .measure import measured
from .parts import Action, Call, Field, Tab

LONGEST_DRAFT = 16

FIELDS = (
    Field("guess_gamma", "slider", 4, options={"minimum": 1, "maximum": LONGEST_DRAFT, "step": 1}),
    Field("guess_alpha", "slider", 0.0, options={"minimum": 0, "maximum": 1, "step": 0.05}),
    Field("trace", "hidden", "", from_page="trace"),
)


def read_trace(text: str) -> tuple[list[Step], float | None, dict[int, float]]:
    """Steps of the run on show, milliseconds a token of its plain run (None: not measured), and the
    cost curve by rows as far as it was measured. Raises ``ValueError`` for anything else."""
    if len(text) > 4_000_000:
        raise ValueError("The trace is too large.")
    try:
        data = json.loads(text)
        steps = steps_from(data["rounds"])
        plain = data.get("plain_ms")
        curve = {int(rows): float(ms) for rows, ms in (data.get("curve") or {}).items()}
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError("The trace is not one.") from error
    if any(rows < 1 or not 0 < ms < 1e9 for rows, ms in curve.items()):
        raise ValueError("The cost curve is not one.")
    return steps, float(plain) if plain else None, curve


def interpolated(curve: dict[int, float], rows: int) -> float:
    """Milliseconds of a pass over ``rows``, between the measured neighbours."""
    known = sorted(curve)
    if rows <= known[0]:
        return curve[known[0]]
    for low, high in pairwise(known):
        if rows <= high:
            part = (rows - low) / (high - low)
            return (1 - part) * curve[low] + part * curve[high]
    return curve[known[-1]] * rows / known[-1]


async def explanation(call: Call) -> AsyncIterator[str]:
    """Prediction, measurement and what lies between, and estimates for other draft lengths."""
    bus = Bus([])
    try:
        steps, plain_ms, curve = read_trace(str(call.values["trace"]))
        gamma = int(form.number("gamma", call.values["guess_gamma"], 1, LONGEST_DRAFT, whole=True))
        alpha = form.number("alpha", call.values["guess_alpha"], 0.0, 1.0) or None
        value = explained(steps, plain_ms, curve, gamma, alpha)
    except InputError as error:
        yield bus.error(say_error(call.lang, error)).text
        return
    except ValueError:
        yield bus.status("done", "why_nothing").text
        return
    yield bus.page("data", name="why", value=value).status("done", "").text


def explained(
    steps: list[Step], plain_ms: float | None, curve: dict[int, float], gamma: int, alpha: float | None
) -> dict[str, Any]:
    """Everything the tab shows of a run, as plain values."""

    def pass_ms(rows: int) -> float:
        return interpolated(curve, rows)

    cost = pass_ms if curve else None
    guess = what_if(steps, gamma, alpha, plain_ms, cost)
    lengths = [asdict(what_if(steps, g, alpha, plain_ms, cost)) for g in range(1, LONGEST_DRAFT + 1)]
    value: dict[str, Any] = {"guess": asdict(guess), "lengths": lengths, "asked_alpha": alpha}
    if plain_ms is not None:
        value["explanation"] = asdict(explain(steps, plain_ms))
    return value


async def curve(call: Call) -> AsyncIterator[str]:
    """Measure the time of a target pass against the rows it verifies, on this device."""

    def make(cancel: threading.Event) -> Iterator[dict[str, Any]]:
        from ...cost import measure

        yield from measure(call.backend.loaded().target, cancel)

    async for page in measured(call, Bus([]), "curve", make):
        yield page


async def check(call: Call) -> AsyncIterator[str]:
    """A real run of the form's prompt with the guessed draft length, plain decoding measured too."""
    try:
        order = form.order(call.values, call.settings, call.turns, call.backend.config.max_output)
        gamma = form.number("gamma", call.values["guess_gamma"], 1, LONGEST_DRAFT, whole=True)
    except InputError as error:
        yield Bus([]).error(say_error(call.lang, error)).text
        return
    length = "gamma" if "gamma" in order.settings else "depth"
    settings = {**order.settings, length: int(gamma)}
    if "adaptive" in settings:
        settings["adaptive"] = False  # else the length would not be the one that was asked for
    async for text in live.run(call, replace(order, settings=settings), "before"):
        yield text


EXPLAIN = Action("explain", explanation, primary=True)
TAB = Tab(
    "why",
    FIELDS,
    (EXPLAIN, Action("measure_curve", curve), Action("check_guess", check, bus="live")),
    on_select=EXPLAIN,
)
