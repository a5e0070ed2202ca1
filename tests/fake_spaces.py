"""The contract of the package ``spaces`` on ZeroGPU, as its source (0.51) keeps it, without a GPU.

The decorated generator runs in a process forked for the call; arguments and what it yields are
pickled; an exception comes back as the name of its class; closing the generator ends the call at its
next yield; async functions are refused; the duration may be computed from the arguments.
"""

from __future__ import annotations

import inspect
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from typing import Any

FORK = multiprocessing.get_context("fork")


class Calls:
    """What the tests look at: durations asked for, processes started, and the caller's context."""

    def __init__(self) -> None:
        self.durations: list[int] = []
        self.processes: list[Any] = []
        self.requests: list[Any] = []


calls = Calls()


class Error(Exception):
    pass


def GPU(task: Any = None, *, duration: Any = None) -> Any:
    if task is None:
        return lambda function: GPU(function, duration=duration)
    if inspect.iscoroutinefunction(task) or inspect.isasyncgenfunction(task):
        raise NotImplementedError
    return _wrapped(task, duration)


def _wrapped(task: Callable[..., Iterator[Any]], duration: Any) -> Callable[..., Iterator[Any]]:
    def handler(*args: Any, **kwargs: Any) -> Iterator[Any]:
        from gradio.context import LocalContext

        calls.requests.append(LocalContext.request.get(None))
        calls.durations.append(duration(*args, **kwargs) if callable(duration) else duration)
        sent = pickle.dumps((args, kwargs))
        results, stop = FORK.SimpleQueue(), FORK.Event()
        process = FORK.Process(target=_work, args=(task, sent, results, stop), daemon=True)
        calls.processes.append(process)
        process.start()
        try:
            while True:
                kind, value = pickle.loads(results.get())
                if kind == "end":
                    return
                if kind == "error":
                    raise Error(f"ZeroGPU worker error: {value}")
                yield value
        finally:
            stop.set()
            while kind not in ("end", "error"):
                kind, _ = pickle.loads(results.get())
            process.join(30)

    return handler


def _work(task: Callable[..., Iterator[Any]], sent: bytes, results: Any, stop: Any) -> None:
    args, kwargs = pickle.loads(sent)
    generator = task(*args, **kwargs)
    try:
        for value in generator:
            if stop.is_set():
                generator.close()
                break
            results.put(pickle.dumps(("value", value)))
    except Exception as error:
        results.put(pickle.dumps(("error", type(error).__name__)))
        return
    results.put(pickle.dumps(("end", None)))
