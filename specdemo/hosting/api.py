"""The one endpoint for programs: ``/generate``, for ``gradio_client`` and plain HTTP.

It takes the same way as the page: the same checks, limits and queue. There are no deferred
annotations here: Gradio reads the types of the endpoint from the function itself.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import gradio as gr

from ..errors import InputError
from ..events import Event, Finished, Verified
from ..ui.backend import Backend, Order
from ..ui.views import form
from ..ui.views.live import Sessions, error_sentence

PAUSE = 0.05  # seconds between two looks at the run
LONG_PAUSE = 0.25  # seconds, while others are still ahead


def add(backend: Backend, sessions: Sessions) -> None:
    """Add the endpoint to the Blocks that are being built."""

    async def generate(  # type: ignore[misc]  # Gradio wants the type of what is yielded
        prompt: str,
        drafter: str,
        max_new_tokens: int,
        temperature: float,
        seed: int,
        settings: dict,
        request: gr.Request,
    ) -> dict:
        """Run one prompt. Streams the state of the run; the last one is whole.

        Args:
            prompt: what the model is to answer
            drafter: how tokens are proposed, such as none or ngram
            max_new_tokens: the longest answer
            temperature: 0 is greedy
            seed: of the run's own source of chance
            settings: the drafter's settings by name; may be empty
        Returns:
            state (waiting, running, done, stopped, error), ahead, expected_wait, text, token_ids,
            summary, message
        """
        values = {
            "prompt": prompt,
            "drafter": drafter,
            "length": max_new_tokens,
            "temperature": temperature,
            "top_p": 1.0,
            "seed": seed,
        }
        async for state in _states(backend, sessions, values, settings, request):
            yield state

    gr.api(
        generate,
        api_name="generate",
        concurrency_id="device",
        concurrency_limit=backend.config.queue,
    )


async def _states(
    backend: Backend, sessions: Sessions, values: Mapping[str, Any], settings: Any, request: Any
) -> AsyncIterator[dict[str, Any]]:
    """What the endpoint yields. Every error is a last state with one sentence."""
    state: dict[str, Any] = {"state": "waiting", "text": "", "token_ids": [], "message": ""}
    try:
        order = _order(values, settings, backend.config.max_output)
        backend.admit(request)
        backend.check(order)
        async for change in _run(backend, sessions, order, str(request.session_hash or "")):
            state = {**state, **change}
            yield state
    except InputError as error:
        yield {**state, "state": "error", "message": str(error)}


def _order(values: Mapping[str, Any], settings: Any, longest: int) -> Order:
    if not isinstance(values["prompt"], str) or not isinstance(values["drafter"], str):
        raise InputError("range", name="prompt", value="it", low="a text", high="nothing else")
    if not isinstance(settings, Mapping):
        settings = {}
    return form.order(values, {str(k): v for k, v in settings.items()}, [], longest)


async def _run(
    backend: Backend, sessions: Sessions, order: Order, session: str
) -> AsyncIterator[dict[str, Any]]:
    cancel = threading.Event()

    def make() -> Iterator[Event]:
        return backend.generate(order, cancel)

    worker = backend.worker_for(order)
    sessions.stop(session)  # a visitor has one run at a time: the new one ends the old
    job = worker.submit(make)
    sessions.put(session, job, cancel)
    text, ids = "", []
    try:
        while ahead := worker.ahead(job):
            wait = round(worker.expected_wait(job), 1)
            yield {"state": "waiting", "ahead": ahead, "expected_wait": wait}
            await asyncio.sleep(LONG_PAUSE)
        while True:
            done = job.done
            for event in job.drain():
                if isinstance(event, Verified):
                    text += "".join(token.text for token in event.tokens)
                    ids += [token.id for token in event.tokens]
                elif isinstance(event, Finished):
                    kind = "stopped" if event.reason == "cancelled" else "done"
                    yield {
                        "state": kind,
                        "text": event.text,
                        "token_ids": list(event.token_ids),
                        "summary": dict(event.summary),
                        "waited": round(job.waited, 3),
                        "message": event.message,
                    }
                    return
            if done:
                message = error_sentence(job.error, "en") if job.error else ""
                yield {"state": "error" if job.error else "stopped", "message": message}
                return
            yield {"state": "running", "ahead": 0, "expected_wait": 0.0, "text": text, "token_ids": ids}
            await asyncio.sleep(PAUSE)
    finally:
        cancel.set()
        job.cancel()
        sessions.drop(session, job)
