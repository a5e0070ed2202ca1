"""The tab "Compare": one prompt through all drafters, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

from ... import drafters
from ...errors import InputError
from ...events import Finished
from ..text import say_error
from . import form, live
from .bus import Bus
from .parts import Action, Call, Tab


async def compare(call: Call) -> AsyncIterator[str]:
    """Run the prompt of the Live tab with every drafter that works with this target, ``none`` first.

    A drafter that cannot run (no heads, another tokenizer) is listed with its reason."""
    names = list(drafters.REGISTRY)
    bus = Bus([f"cmp:{name}" for name in names])
    try:
        order = form.order(call.values, call.settings, [], call.backend.config.max_output)
        call.backend.check(replace(order, server="", drafter="none", settings={}))
    except InputError as error:
        yield bus.error(say_error(call.lang, error)).text
        return
    for number, name in enumerate(names):
        settings = call.settings if name == order.drafter else {}
        each = replace(order, drafter=name, settings=settings, server="", draft="", trace=False)
        bus.page("data", name="compare", value={"at": number, "of": len(names), "name": name})
        finished: Finished | None = None
        async for finished in live.one(call, f"cmp:{name}", each, bus):  # noqa: B007  # the last counts
            yield bus.text
        if finished is not None and finished.reason == "cancelled":
            return
        if finished is None and call.outcome.get("stopped"):
            return
    bus.page("data", name="compare", value={"at": len(names), "of": len(names), "name": ""})
    bus.status("done", "compare_done", count=len(names))
    yield bus.text


TAB = Tab("compare", (), (Action("compare_all", compare, primary=True),), upload=True)
