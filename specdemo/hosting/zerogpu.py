"""Hugging Face ZeroGPU: a GPU lent for the length of one call, in a forked process.

Its contract, from the source of the package ``spaces``: that package is imported before torch; the
model is put on ``cuda`` while the program starts, before the page; the decorated function's
arguments and what it yields are pickled; async functions are refused; an exception reaches us as the
name of its class alone; closing the generator ends the call at its next yield. Whose quota is used
follows from the context of the visitor's request, which a ``Job`` carries.

No CUDA graphs and no compiling are used there: a forked process lives for a call only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import Event as Flag
from typing import Any

from ..config import Config
from ..errors import InputError
from ..events import Event
from ..remote import Server
from ..target import Target
from ..ui.backend import Backend, Order, Progress, default_loader
from ..ui.worker import Job
from .backend import HostedBackend

START = 15.0  # seconds to move the weights and to read the prompt
PER_TOKEN = 0.06  # seconds, a slow round of an 8B target

Answer = Event | tuple[str, dict[str, Any]]


def seconds(order: Order) -> int:
    """How long a GPU is asked for: by the length of the answer. Shorter requests wait less."""
    return round(START + PER_TOKEN * order.params.max_new_tokens)


class LentBackend(HostedBackend):
    """Runs each order in the process that holds the GPU. ``load``: for tests."""

    def __init__(
        self,
        config: Config,
        servers: Iterable[Server] = (),
        load: Callable[[Progress], Any] | None = None,
    ) -> None:
        import spaces

        if load is None:
            load = default_loader(config.model, _dtype(config.dtype), "cuda", config.threads, False)
        super().__init__(load, servers, config)

        def call(order: Order) -> Iterator[Answer]:
            # An error's sentence would be lost on the way: it travels as a value.
            try:
                yield from Backend.generate(self, order)
            except InputError as error:
                yield error.key, error.values

        self._call: Callable[[Order], Iterator[Answer]] = spaces.GPU(duration=seconds)(call)

    def start(self) -> Job[None]:
        """Load in this thread, now: the tensors on ``cuda`` must be there before the page is."""
        job: Job[None] = Job(self._loading)
        job.run()
        if self.engine is not None:
            without_graphs(self.engine.target)
        return job

    def events(self, order: Order, cancel: Flag | None) -> Iterator[Event]:
        """Events of one run. Raises ``InputError``; ``lent_gpu`` when no GPU was to be had."""
        if order.server:
            yield from super().events(order, cancel)
            return
        answers = self._call(order)
        try:
            for answer in answers:
                if isinstance(answer, tuple):
                    raise InputError(answer[0], **answer[1])
                yield answer
                if cancel is not None and cancel.is_set():
                    return
        except InputError:
            raise
        except Exception as error:  # of the quota, or of the process that held the GPU
            raise InputError("lent_gpu", why=str(error)[:200].rstrip(".")) from error
        finally:
            close = getattr(answers, "close", None)
            if close is not None:
                close()


def without_graphs(target: Target) -> None:
    """A target that records CUDA graphs must not do so in a process that lives for a call."""
    if hasattr(target, "capture"):
        target.capture = None


def _dtype(name: str) -> str:
    return "bf16" if name == "auto" else name
