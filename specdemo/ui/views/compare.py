"""The tab "Compare": one prompt through all drafters, in turn; plain decoding first and last."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from ... import drafters
from ...errors import InputError
from ...events import Finished
from ..backend import Order
from ..text import say_error
from . import form, live
from .bus import Bus
from .parts import Action, Call, Tab

AGAIN = "again"  # the slot of plain decoding's second run


async def compare(call: Call) -> AsyncIterator[str]:
    """Run the prompt of the Live tab with every drafter that works with this target, ``none`` first and
    once more at the end: a machine that was slow just then would make every drafter look fast.

    A drafter that cannot run (no heads, another tokenizer) is listed with its reason."""
    runs = [*((name, name) for name in drafters.REGISTRY), (AGAIN, "none")]
    bus = Bus([f"cmp:{slot}" for slot, _ in runs], windowed=True)
    try:
        order = form.order(call.values, call.settings, [], call.backend.config.max_output)
        call.backend.check(replace(order, server="", drafter="none", settings={}))
    except InputError as error:
        yield bus.error(say_error(call.lang, error)).text
        return
    async for _ in _all(call, order, runs, bus):
        yield bus.text
    yield bus.whole


async def _all(call: Call, order: Order, runs: list[tuple[str, str]], bus: Bus) -> AsyncIterator[None]:
    for number, (slot, name) in enumerate(runs):
        settings = call.settings if name == order.drafter else {}
        each = replace(order, drafter=name, settings=settings, server="", draft="", trace=False)
        bus.page("data", name="compare", value={"at": number, "of": len(runs), "name": name})
        finished: Finished | None = None
        async for finished in live.one(call, f"cmp:{slot}", each, bus):  # noqa: B007  # the last counts
            yield
        if finished is not None and finished.reason == "cancelled":
            return
        if finished is None and call.outcome.get("stopped"):
            return
    bus.page("data", name="compare", value={"at": len(runs), "of": len(runs), "name": ""})
    bus.status("done", "compare_done", count=len(drafters.REGISTRY))


TAB = Tab("compare", (), (Action("compare_all", compare, primary=True),), upload=True)
