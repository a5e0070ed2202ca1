"""The Live tab on the server: plain decoding and the drafter's run, in turn, as JSON lines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

from ...errors import InputError
from ...events import Event, Finished
from ..backend import Backend, Order
from ..text import say_error
from ..worker import Job, Worker
from .bus import Bus
from .parts import Call

PAUSE = 1 / 20  # seconds between two updates of the page
# Gradio copies a component's value in the browser at every update, so a long text comes in fewer.
LONG, LONG_PAUSE = 60_000, 1 / 10  # characters, seconds
VERY_LONG, VERY_LONG_PAUSE = 400_000, 1 / 5


def pause(length: int) -> float:
    """Seconds until the next update of a text of that many characters."""
    if length < LONG:
        return PAUSE
    return LONG_PAUSE if length < VERY_LONG else VERY_LONG_PAUSE


class Sessions:
    """The runs of each open page, so that its Stop ends them and nobody else's."""

    def __init__(self) -> None:
        self._jobs: dict[str, list[tuple[Job[Any], threading.Event]]] = {}

    def put(self, session: str, job: Job[Any], cancel: threading.Event) -> None:
        running = [pair for pair in self._jobs.get(session, []) if not pair[0].done]
        self._jobs[session] = [*running, (job, cancel)]

    def stop(self, session: str) -> bool:
        """End the page's runs within a round; False when there is none."""
        running = [pair for pair in self._jobs.pop(session, []) if not pair[0].done]
        for job, cancel in running:
            cancel.set()  # a run under way ends by itself, with its last event
            job.skip()  # one that still waits never begins
        return bool(running)

    def drop(self, session: str, job: Job[Any]) -> None:
        """Forget a run that is over: pages come and go, this table must not grow."""
        left = [pair for pair in self._jobs.get(session, []) if pair[0] is not job]
        if left:
            self._jobs[session] = left
        else:
            self._jobs.pop(session, None)

    def __len__(self) -> int:
        return len(self._jobs)


def error_sentence(error: BaseException, lang: str) -> str:
    """One sentence for whatever went wrong in a run."""
    if not isinstance(error, InputError):
        error = InputError("internal", why=f"{type(error).__name__}: {error}"[:200])
    return say_error(lang, error)


def orders(order: Order, baseline: str, can_be_plain: bool = True) -> list[tuple[str, Order]]:
    """What to run, in order: slot and run. ``baseline``: before, after or off; ``can_be_plain``: a
    server without an endpoint that decodes plainly cannot be measured against itself."""
    plain = replace(order, drafter="none", settings={}, rule="exact", draft="", trace=False)
    runs = [("main", order)]
    if baseline != "off" and order.drafter != "none" and can_be_plain:
        runs.insert(0 if baseline == "before" else 1, ("plain", plain))
    return runs


async def run(call: Call, order: Order, baseline: str) -> AsyncIterator[str]:
    """The page's text while the runs go on; ends when they do. Errors become one sentence in it.

    ``call.outcome["text"]`` is the answer once the main run has finished."""
    turns = [] if isinstance(order.prompt, str) else [dict(turn) for turn in order.prompt[:-1]]
    about = {"kind": "live", "raw": order.raw, "chat": bool(turns), "turns": turns}
    bus = Bus(["main", "plain"], windowed=True, **about)
    try:
        call.backend.check(order)
    except InputError as error:
        # What was on show before stays: the sentence alone is new.
        yield Bus([]).error(say_error(call.lang, error)).text
        return
    async for _ in _runs(call, order, baseline, bus):
        yield bus.text
    yield bus.whole


async def _runs(call: Call, order: Order, baseline: str, bus: Bus) -> AsyncIterator[None]:
    server = call.backend.servers.get(order.server)
    can_be_plain = server is None or server.baseline is not None
    for slot, each in orders(order, baseline, can_be_plain):
        finished: Finished | None = None
        async for finished in one(call, slot, each, bus):  # noqa: B007  # the last one counts
            yield
        if finished is None or finished.reason in ("cancelled", "error", "cut"):
            stopped = call.outcome.get("stopped") or (finished and finished.reason == "cancelled")
            if slot == "plain" and server is not None and not stopped:
                continue  # the endpoint to compare with is another one: without it, no speed-up
            return
        if slot == "main":
            call.outcome["text"] = finished.text


async def one(call: Call, slot: str, order: Order, bus: Bus) -> AsyncIterator[Finished | None]:
    """One run into ``slot`` of ``bus``: yields at every update of the page, lastly the end of the
    run (None when there was none: an error, or it never began)."""
    cancel = threading.Event()

    def make() -> Iterator[Event]:
        return call.backend.generate(order, cancel)

    worker = call.backend.worker_for(order)
    try:
        job = worker.submit(make)
    except InputError as error:  # too many wait already
        bus.error(say_error(call.lang, error))
        yield None
        return
    call.sessions.put(call.session, job, cancel)
    finished: Finished | None = None
    try:
        async for _ in queueing(call.backend, worker, job, bus):
            yield None
        key = "status_plain" if slot == "plain" else "status_main"
        bus.status("running", key, drafter=order.server or order.drafter).page("open", slot=slot)
        while True:
            done = job.done  # asked first: what came until then is in this drain
            for event in job.drain():
                bus.event(event)
                if isinstance(event, Finished):
                    finished = event
                    closing(bus, event, call.lang)
            if done and job.error is not None:
                bus.error(error_sentence(job.error, call.lang))
            elif done and finished is None:
                call.outcome["stopped"] = True
                bus.status("stopped", "status_stopped")
            yield finished if done else None
            if done:
                return
            await asyncio.sleep(pause(len(bus.text)))
    finally:
        # Runs on the event loop when the page is closed: it may only set flags.
        cancel.set()
        job.cancel()
        call.sessions.drop(call.session, job)


async def queueing(backend: Backend, worker: Worker, job: Job[Any], bus: Bus) -> AsyncIterator[None]:
    """Until the job's turn: tells the page its place whenever that changes. Who is far back looks
    less often: hundreds may wait."""
    said = -1
    while (ahead := worker.ahead(job)) > 0:
        if ahead != said:
            said = ahead
            if backend.state == "loading":
                bus.status("waiting", "status_loading")
            else:
                seconds = round(worker.expected_wait(job))
                bus.status("waiting", "status_waiting", ahead=ahead, seconds=seconds)
            yield None
        await asyncio.sleep(PAUSE if ahead == 1 else 5 * PAUSE)


def closing(bus: Bus, event: Finished, lang: str) -> None:
    """The status line at the end of a run. What came before a server broke off stays on show."""
    error = event.summary.get("error")
    if error:
        bus.error(say_error(lang, InputError(error["key"], **error["values"])))
        return
    if event.reason == "cancelled":
        bus.status("stopped", "status_stopped")
        return
    figures = {name: event.summary.get(name) for name in ("tokens", "rounds")}
    bus.status("done", "status_done", reason=event.reason, **figures)
