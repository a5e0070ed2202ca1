"""The tab "Is it lossless?": the sampling experiment, the museum of bugs, where greedy texts part."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict, replace
from typing import Any

from ...errors import InputError
from ...events import Finished
from ...lesson import lossless
from ...lesson.divergence import divergence
from ...lesson.statistics import SURE, Fit
from ...museum import KEYS, exhibits
from ...prompt import check_text, encode
from ...sampling import SamplingParams
from ..backend import RULES
from ..text import say_error
from . import form, live
from .bus import Bus
from .measure import measured
from .parts import Action, Call, Field, Tab

TOP_K = 8
SHOWN = 12
MOST_DRAWS = 20_000

FIELDS = (
    Field("prefix", "text", "The weather in the mountains can", options={"lines": 2}),
    Field("exhibit", "choice", "exact", choices=tuple((f"exhibit_{key}", key) for key in KEYS)),
    Field("heat", "slider", 1.0, options={"minimum": 0.3, "maximum": 2, "step": 0.1}),
    Field("draws", "slider", 4000, options={"minimum": 500, "maximum": MOST_DRAWS, "step": 500}),
    Field("parting", "hidden", "", from_page="parting"),
)


def _fit(fit: Fit) -> dict[str, Any]:
    return {**asdict(fit), "differs": fit.differs, "sure": SURE}


def tally_values(
    place: lossless.Position, tally: lossless.Tally, key: str, draws: int
) -> dict[str, Any]:
    """A tally as the page draws it: the likeliest tokens by p, the others as one bar."""

    def bars(p: list[float], counts: list[int]) -> list[dict[str, Any]]:
        order = sorted(range(len(p)), key=lambda i: -max(p[i], counts[i] / max(1, sum(counts))))
        top, rest = order[:SHOWN], order[SHOWN:]
        rows = [{"text": place.texts[i], "p": p[i], "count": counts[i]} for i in top]
        if rest:
            rows.append(
                {"rest": len(rest), "p": sum(p[i] for i in rest), "count": sum(counts[i] for i in rest)}
            )
        return rows

    return {
        "exhibit": key,
        "done": tally.fit_first.draws,
        "draws": draws,
        "first": {"bars": bars(place.p[0].tolist(), tally.first), "fit": _fit(tally.fit_first)},
        "second": {"bars": bars(place.second.tolist(), tally.second), "fit": _fit(tally.fit_second)},
    }


async def experiment(call: Call) -> AsyncIterator[str]:
    """Draw first and second tokens after the prefix with the chosen rule; histograms as they grow."""
    bus = Bus([])
    try:
        text = str(call.values["prefix"] or "")
        check_text(text)
        key = str(call.values["exhibit"])
        if key not in KEYS:
            raise InputError("acceptance", name=repr(key)[:40])
        draws = int(form.number("draws", call.values["draws"], 1, MOST_DRAWS, whole=True))
        heat = form.number("temperature", call.values["heat"], 0.1, 5.0)
        seed = int(form.number("seed", call.values["seed"], 0, 2**53, whole=True))
    except InputError as error:
        yield bus.error(say_error(call.lang, error)).text
        return

    def make(cancel: threading.Event) -> Iterator[dict[str, Any]]:
        engine = call.backend.loaded()
        params = SamplingParams(temperature=heat, top_k=TOP_K)
        ids = encode(engine.target, text, raw=True)
        # All layers but the last: close enough to p that a wrong rule has something to spoil.
        layers = max(1, engine.target.shape.layers - 1)
        place = lossless.prepare(engine.target, ids, params, layers, engine.pieces.text)
        exhibit = exhibits(place.texts)[key]
        for tally in lossless.sample(place, exhibit, draws, seed):
            yield tally_values(place, tally, key, draws)
            if cancel.is_set():
                return

    async for page in measured(call, bus, "lossless", make):
        yield page


async def parting(call: Call) -> AsyncIterator[str]:
    """The logit gap where the plain and the speculative text on show part."""
    bus = Bus([])
    try:
        wanted = json.loads(str(call.values["parting"]))
        prompt, raw = str(wanted["prompt"]), bool(wanted["raw"])
        common = [int(i) for i in wanted["common"]][:100_000]
        pair = int(wanted["plain"]), int(wanted["main"])
    except (ValueError, TypeError, KeyError, RecursionError):
        yield bus.status("done", "parting_none").text
        return

    def make(_: threading.Event) -> Iterator[dict[str, Any]]:
        target = call.backend.loaded().target
        ids = [*encode(target, prompt, raw), *common]
        size = target.shape.vocab
        if len(ids) > target.shape.context or not all(0 <= i < size for i in (*common, *pair)):
            raise InputError("prompt_too_long", tokens=len(ids), limit=target.shape.context)
        result = divergence(target, ids, *pair)
        yield {**asdict(result), "tie": result.tie, "at": len(common), "run": wanted.get("run")}

    async for page in measured(call, bus, "parting", make):
        yield page


async def both_rules(call: Call) -> AsyncIterator[str]:
    """The Live tab's prompt with its drafter, judged by each acceptance rule in turn."""
    bus = Bus([f"rule:{name}" for name in RULES])
    try:
        order = form.order(call.values, call.settings, [], call.backend.config.max_output)
        order = replace(order, server="", trace=False)
        call.backend.check(order)
    except InputError as error:
        yield Bus([]).error(say_error(call.lang, error)).text
        return
    for name in RULES:
        finished: Finished | None = None
        async for finished in live.one(call, f"rule:{name}", replace(order, rule=name), bus):  # noqa: B007
            yield bus.text
        if finished is None or finished.reason == "cancelled":
            return


ACTIONS = (
    Action("draw", experiment, primary=True),
    Action("measure_gap", parting),
    Action("both_rules", both_rules),
)
TAB = Tab("lossless", FIELDS, ACTIONS)
