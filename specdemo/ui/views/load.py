"""The tab "When a server fills": how the speed-up of a serving engine falls as it fills.

Only where the host has configured servers. The measurement runs beside the device: it waits for nobody
on this machine, and nobody here waits for it.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from ...errors import InputError
from ...remote import Server
from ...remote.load import PROMPTS, by_concurrency, levels_up_to
from ...sampling import SamplingParams
from ..text import say_error
from .bus import Bus
from .form import number
from .measure import measured
from .parts import Action, Call, Field, Tab

MOST, LONGEST = 16, 128  # requests at once, tokens an answer
SHOWN = (
    "concurrency",
    "requests",
    "failed",
    "tokens_per_second",
    "each_tokens_per_second",
    "first_token_ms",
    "mean_accepted_length",
    "checks",
    "speedup",
)


def tab(servers: Iterable[Server]) -> Tab:
    """The reader chooses the server by its name, and how far to fill it."""
    names = tuple((server.name, server.name) for server in servers)
    fields = (
        Field("load_server", "choice", names[0][1], choices=names),
        Field("load_most", "slider", 8, options={"minimum": 1, "maximum": MOST, "step": 1}),
        Field("load_length", "slider", 32, options={"minimum": 8, "maximum": LONGEST, "step": 8}),
    )
    return Tab("load", fields, (ACTION,))


async def fill(call: Call) -> AsyncIterator[str]:
    """1, 2, 4 ... requests at once on the chosen server and on its baseline; a row a level."""
    bus = Bus([])
    try:
        most = int(number("load_most", call.values.get("load_most"), 1, MOST, whole=True))
        length = int(number("load_length", call.values.get("load_length"), 8, LONGEST, whole=True))
        server = call.backend.server(str(call.values.get("load_server")))
    except InputError as error:
        yield bus.error(say_error(call.lang, error)).text
        return
    levels = levels_up_to(most)
    params = SamplingParams(max_new_tokens=length)

    def rows(cancel: threading.Event) -> Iterator[dict[str, Any]]:
        done: list[dict[str, Any]] = []
        told = {"server": server.name, "of": len(levels), "baseline": server.baseline is not None}
        yield {**told, "rows": []}
        for row in by_concurrency(server, PROMPTS[: max(4, most)], params, levels, cancel):
            plain = row["baseline"]
            shown = {key: row[key] for key in SHOWN}
            done.append({**shown, "plain_tokens_per_second": plain and plain["tokens_per_second"]})
            yield {**told, "rows": list(done)}

    async for text in measured(call, bus, "load", rows, call.backend.network):
        yield text


ACTION = Action("load_run", fill, primary=True)
