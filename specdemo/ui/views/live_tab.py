"""The Live tab as data: its form, and what Run does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from ...errors import InputError
from ..text import say_error
from . import form, live
from .bus import Bus
from .parts import Action, Call, Field

MAIN_FIELDS = (
    Field(
        "mode",
        "choice",
        "single",
        choices=(("mode_single", "single"), ("mode_chat", "chat"), ("mode_raw", "raw")),
    ),
    Field("length", "slider", 128, options={"minimum": 8, "maximum": form.LONGEST, "step": 8}),
    Field("temperature", "slider", 0.0, options={"minimum": 0, "maximum": 2, "step": 0.05}),
)
MORE_FIELDS = (
    Field("top_p", "slider", 1.0, options={"minimum": 0.05, "maximum": 1, "step": 0.05}),
    Field("top_k", "number", 0, options={"precision": 0}),
    Field("seed", "number", 0, options={"precision": 0}),
    Field(
        "baseline",
        "choice",
        "before",
        choices=(("baseline_before", "before"), ("baseline_after", "after"), ("baseline_off", "off")),
    ),
    Field("size", "hidden", "", from_page="promptSize"),
    Field("rule", "choice", "exact", choices=(("rule_exact", "exact"), ("rule_typical", "typical"))),
)


def main_fields(longest: int) -> list[Field]:
    """``MAIN_FIELDS`` with the host's limit on the answer, in tokens."""
    fields = {each.name: each for each in MAIN_FIELDS}
    length = fields["length"]
    options = {**length.options, "maximum": longest, "minimum": 8 if longest > 8 else 1}
    fields["length"] = replace(length, value=min(length.value, longest), options=options)
    return list(fields.values())


async def start(call: Call) -> AsyncIterator[str]:
    """Measure plain decoding and the drafter, as the form asks for it."""
    try:
        longest = call.backend.config.max_output
        order = form.order(call.values, call.settings, call.turns, longest)
    except InputError as error:
        yield Bus([]).error(say_error(call.lang, error)).text
        return
    baseline = str(call.values.get("baseline", "before"))
    async for text in live.run(call, order, baseline):
        yield text


RUN = Action("run", start, primary=True)
