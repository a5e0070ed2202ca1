"""HTTP to a serving engine: streams that can be cancelled at any moment, and small look-ups.

The connection lives in a thread with an event loop of its own, so that cancelling works while it
waits: for the connection, the queue of the server, the prompt or the next token. Closing the
connection is what tells every engine to stop generating. Arrival times are taken in that thread:
a slow consumer does not change what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from . import failures
from .failures import ServerError
from .servers import Server
from .sse import Decoder, StreamError


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds to wait, and how often a request is tried again before its first token."""

    connect: float = 5.0
    first: float = 180.0  # queueing and the prompt included
    between: float = 60.0
    total: float = 1800.0
    lookup: float = 20.0  # a full server answers late
    tries: int = 3
    pause: float = 0.5  # before the second try; doubled for the next


@dataclass(frozen=True, slots=True)
class Request:
    """A streaming POST: ``path`` below the base URL and the JSON ``body``."""

    path: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Arrival:
    """The data of one event and when it came, in seconds since the request was sent."""

    at: float
    data: str


def headers(server: Server) -> dict[str, str]:
    # "identity": compressed answers could unpack to any size.
    plain = {"accept": "text/event-stream, application/json", "accept-encoding": "identity"}
    return plain | ({"authorization": f"Bearer {server.api_key}"} if server.api_key else {})


class Stream:
    """One streaming request. Iterate to get ``Arrival``s; ``close`` stops the server's work.

    Iterating raises ``ServerError`` when the server cannot be reached, refuses or breaks off, and
    ends early, with ``cancelled`` set, once the event ``cancel`` is set."""

    def __init__(
        self,
        server: Server,
        request: Request,
        limits: Limits | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        self._server, self._request = server, request
        self._limits, self._cancel = limits or Limits(), cancel
        self._queue: queue.SimpleQueue[Arrival | ServerError | None] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._guarded())
        self.cancelled = False
        self.tries = 0
        self._thread = threading.Thread(target=self._work, name=f"stream-{server.name}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()
        self._queue.put(None)

    def __iter__(self) -> Iterator[Arrival]:
        while True:
            try:
                item = self._queue.get(timeout=0.05)
            except queue.Empty:
                if self._cancel is not None and self._cancel.is_set():
                    self.cancelled = True
                    return
                continue
            if item is None:
                return
            if isinstance(item, ServerError):
                raise item
            yield item
            if self._cancel is not None and self._cancel.is_set():
                self.cancelled = True
                return

    def close(self) -> None:
        """Close the connection, whatever it is waiting for, and wait for the thread to end."""
        with contextlib.suppress(RuntimeError):  # the loop may just have closed
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    async def _guarded(self) -> None:
        try:
            async with asyncio.timeout(self._limits.total):
                await self._attempts()
        except ServerError as error:
            self._queue.put(error)
        except TimeoutError:
            self._queue.put(failures.silent(self._server, self._limits.total))

    async def _attempts(self) -> None:
        limits, pause = self._limits, self._limits.pause
        timeout = httpx.Timeout(connect=limits.connect, read=None, write=limits.first, pool=None)
        # trust_env off: no proxy and no .netrc decides where a key goes.
        async with httpx.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=False) as client:
            while True:
                self.tries += 1
                try:
                    return await self._once(client)
                except ServerError as error:
                    if not error.again or self.tries >= limits.tries:
                        raise
                await asyncio.sleep(pause)
                pause *= 2

    async def _once(self, client: httpx.AsyncClient) -> None:
        server, began = self._server, time.perf_counter()
        url = server.base_url + self._request.path
        begun = False
        try:
            sent = client.build_request("POST", url, json=self._request.body, headers=headers(server))
            async with asyncio.timeout(self._limits.first):
                response = await client.send(sent, stream=True)
            try:
                await self._check(response)
                begun = True
                await self._read(response, began)
            finally:
                await response.aclose()
        except TimeoutError:
            raise failures.silent(server, self._limits.first) from None
        except (httpx.HTTPError, OSError) as error:
            raise failures.from_exception(server, error, begun) from None

    async def _check(self, response: httpx.Response) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip()
        if response.status_code == 200 and kind == "text/event-stream":
            return
        body = await self._body(response)
        if response.status_code != 200:
            raise failures.from_status(self._server, response.status_code, body)
        raise failures.garbage(self._server, f"the content type {failures.clean(self._server, kind)!r}")

    async def _body(self, response: httpx.Response) -> bytes:
        body = b""
        with contextlib.suppress(TimeoutError, httpx.HTTPError):
            async with asyncio.timeout(self._limits.lookup):
                async for chunk in response.aiter_raw():
                    body += chunk
                    if len(body) > 2**16:
                        break
        return body[: 2**16]

    async def _read(self, response: httpx.Response, began: float) -> None:
        decoder, chunks = Decoder(), response.aiter_raw()
        wait = self._limits.first
        while True:
            try:
                async with asyncio.timeout(wait):
                    chunk = await anext(chunks)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise failures.silent(self._server, wait) from None
            at = time.perf_counter() - began
            try:
                for data in decoder.feed(chunk):
                    if data.strip() == "[DONE]":
                        return
                    self._queue.put(Arrival(at, data))
                    wait = self._limits.between
            except StreamError as error:
                if "MiB" in str(error):
                    raise failures.too_much(self._server, str(error)) from None
                raise failures.garbage(self._server, str(error)) from None


def lookup(
    server: Server, path: str, body: Any = None, limits: Limits | None = None, most: int = 8 * 2**20
) -> bytes:
    """A small GET, or POST when there is a ``body``. Raises ``ServerError``."""
    limits = limits or Limits()
    timeout = httpx.Timeout(limits.lookup, connect=limits.connect)
    method, url = ("GET" if body is None else "POST"), server.base_url + path
    try:
        with (
            httpx.Client(timeout=timeout, follow_redirects=False, trust_env=False) as client,
            client.stream(method, url, json=body, headers=headers(server)) as response,
        ):
            received, ends = b"", time.monotonic() + limits.lookup
            for chunk in response.iter_raw():
                received += chunk
                if len(received) > most:
                    raise failures.too_much(server, f"more than {most // 2**20} MiB")
                if time.monotonic() > ends:
                    raise failures.silent(server, limits.lookup)
            if response.status_code != 200:
                raise failures.from_status(server, response.status_code, received)
            return received
    except httpx.TimeoutException as error:
        if isinstance(error, httpx.ConnectTimeout):
            raise failures.from_exception(server, error, False) from None
        raise failures.silent(server, limits.lookup) from None
    except (httpx.HTTPError, OSError) as error:
        raise failures.from_exception(server, error, False) from None


def lookup_json(server: Server, path: str, body: Any = None, limits: Limits | None = None) -> Any:
    """The same, parsed. Raises ``ServerError``."""
    answer = lookup(server, path, body, limits)
    try:
        return json.loads(answer)
    except (ValueError, RecursionError):
        raise failures.garbage(server, f"the answer of {path}") from None
