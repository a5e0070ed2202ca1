"""A prompt on a serving engine, as the same events that the program's own engine gives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..events import SCHEMA_VERSION, Event, Finished, Reason, Started, Verified
from ..prompt import Turns, check_text, last_text
from ..run import Run
from . import failures
from .chunks import Chunk, Counters
from .client import CLIENTS, Client
from .failures import ServerError
from .servers import Server
from .steps import Attribution, Step
from .summary import summarise_server
from .transport import Arrival, Limits, Stream

if TYPE_CHECKING:  # needs torch
    from ..sampling import SamplingParams

NOT_REPORTED = "not reported by this server"
#: What reading a server's JSON may raise when it is not what the engine documents.
MALFORMED = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    ArithmeticError,
    RecursionError,
)


def generate(
    server: Server,
    prompt: Turns,
    params: SamplingParams,
    *,
    raw: bool = False,
    cancel: threading.Event | None = None,
    limits: Limits | None = None,
    shown: str | None = None,
) -> Iterator[Event]:
    """Events of one run: ``Started``, one ``Verified`` a step, ``Finished``.

    There is no ``Drafted``: no engine tells which tokens it drafted, only how many were accepted.
    ``Verified.ms`` is the time between arrivals; the first step comes with the prompt's pass, whose
    time is the summary's ``prefill_ms`` (time to first token: network and queue included).

    Raises ``InputError`` when the server cannot be used or refuses, before anything has come. What
    breaks later ends the run with the reason ``cut``: what has arrived is kept. Setting ``cancel``
    or closing the iterator closes the connection, which stops the server's work."""
    client = _client(server, prompt, params, raw, limits or Limits())
    text = shown or last_text(prompt)
    run = _Run(client, text)
    try:
        yield from run.events(cancel)
    finally:
        run.close()


def _client(server: Server, prompt: Turns, params: SamplingParams, raw: bool, limits: Limits) -> Client:
    turns = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else list(prompt)
    if not turns:
        raise InputError("empty_prompt")
    for turn in turns:
        if turn["role"] != "assistant":
            check_text(turn["content"])
    sent: str | Sequence[dict[str, str]] = [
        {"role": turn["role"], "content": turn["content"]} for turn in turns
    ]
    if raw:
        sent = prompt if isinstance(prompt, str) else "\n\n".join(t["content"] for t in turns)
    return CLIENTS[server.kind](server, sent, params, limits)


def with_model(client: Client) -> Server:
    """The server with a model's name: the configured one if the server offers it, else its first.

    Raises ``ServerError`` when the model is not offered: some engines would silently use another."""
    server = client.server
    offered = client.offered()
    if offered is None or server.model in offered:
        return server
    if server.model or not offered:
        raise ServerError("server_model", name=server.name, model=server.model or "?")
    return replace(server, model=failures.clean(server, offered[0]))


@dataclass
class _Run:
    client: Client
    shown: str
    run: Run = field(default_factory=Run)
    steps: list[Step] = field(default_factory=list)
    stream: Stream | None = None
    counters: Counters | None = None
    reason: Reason | None = None
    error: ServerError | None = None
    model: str = ""
    prompt_tokens: int = 0
    produced: int = 0

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()

    def events(self, cancel: threading.Event | None) -> Iterator[Event]:
        client = self.client
        if cancel is not None and cancel.is_set():
            self.reason = "cancelled"
            yield self._started()
            yield from self._end(client.attribution())
            return
        client.server = with_model(client)
        client.before()
        attribution = client.attribution()
        started = False
        try:
            for arrival, chunk in self._chunks(cancel):
                self._note(chunk)
                if not started:
                    started = True
                    yield self._started()
                for step in self._steps(attribution, arrival.at, chunk):
                    yield self._verified(step)
        except ServerError as error:
            if not started:
                raise
            # Once the server has said how the answer ended, only its counts can still be lost.
            if self.reason is None or error.key not in ("server_cut", "server_silent"):
                self.reason, self.error = "cut", error
        if self.stream is not None and self.stream.cancelled:
            self.reason = "cancelled"
        if self.reason is None:  # the stream ended, but the server did not say why
            cut = failures.cut(client.server)
            if not started:
                raise cut
            self.reason, self.error = "cut", cut
        if not started:
            yield self._started()
        self.close()
        yield from self._end(attribution)

    def _chunks(self, cancel: threading.Event | None) -> Iterator[tuple[Arrival, Chunk]]:
        """The stream's chunks. A server that refuses what is only nice to have is asked again."""
        while True:
            self.stream = Stream(self.client.server, self.client.request(), self.client.limits, cancel)
            try:
                for arrival in self.stream:
                    yield arrival, self._parse(arrival.data)
                return
            except ServerError as error:
                if error.status not in (400, 422) or self.client.plain or not self.client.optional:
                    raise
                self.stream.close()
                self.client.plain = True

    def _parse(self, text: str) -> Chunk:
        server = self.client.server
        try:
            data = json.loads(text)
            if not isinstance(data, dict):
                raise TypeError("no object")
            if data.get("error") or data.get("object") == "error":
                why = failures.clean(server, failures.message_of(text.encode("utf-8", "replace")))
                raise ServerError("server_failed", name=server.name, code="in the stream", why=why)
            return self.client.parse(data)
        except ServerError:
            raise
        except MALFORMED:
            raise failures.garbage(server, "an event of another form") from None

    def _steps(self, attribution: Attribution, at: float, chunk: Chunk) -> list[Step]:
        try:
            return attribution.feed(at, chunk)
        except MALFORMED:
            raise failures.garbage(self.client.server, "counts that do not fit") from None

    def _note(self, chunk: Chunk) -> None:
        self.produced += len(chunk.ids)
        if self.produced > self.client.params.max_new_tokens:
            wanted = self.client.params.max_new_tokens
            raise failures.too_much(self.client.server, f"more than the {wanted} tokens asked for")
        self.prompt_tokens = self.prompt_tokens or chunk.prompt_tokens or 0
        self.model = (
            self.model or failures.clean(self.client.server, chunk.model) if chunk.model else self.model
        )
        self.reason = self.reason or chunk.reason
        self.counters = chunk.counters or self.counters

    def _started(self) -> Started:
        client, server = self.client, self.client.server
        started = Started(
            version=SCHEMA_VERSION,
            model=server.model or self.model or "unknown",
            drafter=f"{client.engine} ({server.name})",
            prompt=self.shown,
            prompt_tokens=self.prompt_tokens,
            settings={**asdict(client.params), "stop": list(client.params.stop), "server": server.name},
            device=client.engine,
            dtype="precision not reported",
            seed=client.params.seed,
            lossless=True,
            environment={"server": server.name, "engine": client.engine, "lossless": NOT_REPORTED},
            note=client.note,
        )
        self.run.add(started)
        return started

    def _verified(self, step: Step) -> Verified:
        before = self.steps[-1].at if self.steps else step.at
        self.steps.append(step)
        ms = max(0.0, (step.at - before) * 1000.0)
        verified = Verified(len(self.steps) - 1, (), tuple(step.tokens), ms)
        self.run.add(verified)
        return verified

    def _end(self, attribution: Attribution) -> Iterator[Event]:
        finished = self.reason not in ("cut", "cancelled")
        for step in attribution.finish(self.counters if finished else None):
            yield self._verified(step)
        counters = self.client.after(self.counters) if finished else None
        summary: Mapping[str, Any] = summarise_server(
            self.run, self.steps, attribution, counters, finished
        )
        if self.error is not None:  # so that a page can say it in its own language
            summary = {**summary, "error": {"key": self.error.key, "values": self.error.values}}
        tokens = self.run.tokens
        ended = Finished(
            self.reason or "cut",
            self.run.text,
            tuple(token.id for token in tokens),
            summary,
            str(self.error or ""),
        )
        self.run.add(ended)
        yield ended
