"""The model behind the page: loaded while the page is already served, then asked for runs.

``Backend`` is what the handlers see. Loading happens in the worker thread, so that the device has one
user from the first moment on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .. import catalog, drafters, remote
from ..config import Config
from ..engine import Engine
from ..errors import InputError
from ..events import Event
from ..loading import load_target
from ..prompt import Turns, check_text, last_text
from ..remote import Server
from ..resources import resources
from ..sampling import SamplingParams
from ..verify import AcceptanceRule, Exact, Typical
from .worker import Job, Worker

RULES: dict[str, type[AcceptanceRule]] = {"exact": Exact, "typical": Typical}


@dataclass(frozen=True, slots=True)
class Order:
    """One run as the page asks for it. ``prompt``: a text or chat turns. ``draft``: "target" lets a
    draft model be the target itself. ``server``: a configured serving engine instead of this one."""

    prompt: Turns
    drafter: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    params: SamplingParams = field(default_factory=SamplingParams)
    draft: str = ""
    rule: str = "exact"
    raw: bool = False
    trace: bool = True
    server: str = ""


Progress = Callable[[float | None, str], None]


class Backend:
    """Loads an engine in the background; ``generate`` runs in the worker thread.

    ``load(progress)`` gives the engine; ``servers`` are the serving engines a visitor may choose."""

    def __init__(
        self,
        load: Callable[[Progress], Engine],
        servers: Iterable[Server] = (),
        config: Config | None = None,
    ) -> None:
        self._load = load
        self.config = config or Config()
        self.worker = Worker()
        self.state = "loading"
        self.progress: float | None = None
        self.message = ""
        self.engine: Engine | None = None
        self.servers = {server.name: server for server in servers}
        self.network = Worker("specdemo-servers")
        self.ready = threading.Event()

    def start(self) -> Job[None]:
        """Begin loading; returns at once."""
        return self.worker.submit(self._loading)

    def _loading(self) -> Iterator[None]:
        try:
            self.engine = self._load(self._report)
            self.state, self.message = "live", ""
        except InputError as error:
            self.state, self.message = "failed", str(error)
        except Exception as error:
            self.state, self.message = "failed", f"{type(error).__name__}: {error}"[:300]
            raise
        finally:
            self.ready.set()
        yield from ()

    def _report(self, fraction: float | None, message: str) -> None:
        self.progress, self.message = fraction, message

    def status(self) -> dict[str, Any]:
        """The state of the model as plain values, for the page."""
        engine = self.engine
        return {
            "state": self.state,
            "progress": self.progress,
            "message": self.message,
            "model": engine.target.name if engine else None,
            "device": engine.target.device.type if engine else None,
            "dtype": engine.target.dtype_name if engine else None,
            "promise": engine.promise if engine else None,
        }

    def worker_for(self, order: Order) -> Worker:
        """Runs on a server do not wait for the device of this machine."""
        return self.network if order.server else self.worker

    def server(self, name: str) -> Server:
        """The configured server of that name. Raises ``InputError``."""
        if name not in self.servers:
            known = ", ".join(self.servers) or "none"
            raise InputError("unknown_server", name=repr(name)[:40], known=known)
        return self.servers[name]

    def admit(self, request: Any) -> None:
        """Called before a run is taken up, with who asks. A host may refuse: see ``hosting``."""

    def check(self, order: Order) -> None:
        """What can be refused before a run waits for the device. Raises ``InputError``."""
        check_text(last_text(order.prompt))
        if order.server:
            self.server(order.server)
            return
        if self.state == "failed":
            raise InputError("not_loaded", why=self.message)
        kind = drafters.REGISTRY.get(order.drafter)
        if kind is None:
            known = ", ".join(drafters.REGISTRY)
            raise InputError("unknown_drafter", name=repr(order.drafter)[:40], known=known)
        drafters.check_settings(kind, dict(order.settings))

    def generate(self, order: Order, cancel: threading.Event | None = None) -> Iterator[Event]:
        """Events of one run (worker thread only). Raises ``InputError`` for bad input."""
        if order.server:
            server = self.servers[order.server]
            if order.drafter == "none":
                server = server.without_speculation() or server
            yield from remote.generate(server, order.prompt, order.params, raw=order.raw, cancel=cancel)
            return
        engine = self.loaded()
        extra = resources(engine.target, order.drafter, order.draft)
        drafter = drafters.create(order.drafter, engine.target, dict(order.settings), **extra)
        rule = RULES[order.rule]()
        yield from engine.generate(
            order.prompt,
            drafter,
            order.params,
            rule=rule,
            raw=order.raw,
            trace=order.trace,
            cancel=cancel,
        )

    def loaded(self) -> Engine:
        """The engine. Raises ``InputError`` when loading failed."""
        if self.engine is None:
            raise InputError("not_loaded", why=self.message)
        return self.engine


def default_loader(
    model: str = "", dtype: str = "auto", device: str = "auto", threads: int = 0, warm: bool = True
) -> Callable[[Progress], Engine]:
    """Loads the target by its catalogue name and, if ``warm``, runs it once; see ``load_target``."""

    def load(progress: Progress) -> Engine:
        import torch

        if threads:
            torch.set_num_threads(threads)
        engine = Engine.measured(load_target(model or catalog.DEFAULT, dtype, device, progress))
        if warm:
            engine.warm_up()
        return engine

    return load
