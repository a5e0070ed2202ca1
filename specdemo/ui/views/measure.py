"""Work for the device that is no run of events: its values go to the page as they come."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from ...errors import InputError
from ..text import say_error
from ..worker import Worker
from .bus import Bus
from .live import PAUSE, error_sentence, queueing
from .parts import Call


async def measured(
    call: Call,
    bus: Bus,
    name: str,
    make: Callable[[threading.Event], Iterable[Any]],
    worker: Worker | None = None,
) -> AsyncIterator[str]:
    """Run ``make(cancel)`` in ``worker``'s thread (default: the device's); each value it gives becomes
    the page's ``name``.

    Only the newest value of an update is sent: the others would be overwritten at once."""
    cancel = threading.Event()
    worker = worker or call.backend.worker
    try:
        job = worker.submit(lambda: make(cancel))
    except InputError as error:  # too many wait already
        yield bus.error(say_error(call.lang, error)).text
        return
    call.sessions.put(call.session, job, cancel)
    try:
        async for _ in queueing(call.backend, worker, job, bus):
            yield bus.text
        bus.status("running", "status_measuring")
        while True:
            done = job.done
            values = job.drain()
            if values:
                bus.page("data", name=name, value=values[-1])
            if done and job.error is not None:
                bus.error(error_sentence(job.error, call.lang))
            elif done:
                bus.status("done", "status_measured" if not job.cancelled else "status_stopped")
            yield bus.text
            if done:
                return
            await asyncio.sleep(PAUSE)
    finally:
        cancel.set()
        job.cancel()
        call.sessions.drop(call.session, job)
