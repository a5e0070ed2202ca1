"""What each command runs. Imports of weight are made where they are needed: ``replay`` has no torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .errors import InputError
from .events import Event

if TYPE_CHECKING:
    from .drafters import Drafter
    from .sampling import SamplingParams
    from .target import Target
    from .verify import AcceptanceRule


def load(args: argparse.Namespace) -> Target:
    """The target that the arguments name, with progress on stderr."""
    import torch

    from .catalog import DEFAULT
    from .embedded import terminal_progress
    from .loading import load_target

    if args.threads:
        torch.set_num_threads(args.threads)
    return load_target(args.model or DEFAULT, args.dtype, args.device, terminal_progress())


def settings_of(drafter: str, gamma: int | None, pairs: list[str]) -> dict[str, Any]:
    """Drafter settings from ``--gamma`` and ``NAME=VALUE`` or ``DRAFTER.NAME=VALUE`` pairs."""
    from .drafters import REGISTRY, controls

    known = controls(REGISTRY[drafter]) if drafter in REGISTRY else {}
    result: dict[str, Any] = {}
    if gamma is not None:
        for name in ("gamma", "depth"):
            if name in known:
                result[name] = gamma
    for pair in pairs:
        name, _, value = pair.partition("=")
        owner, _, own = name.rpartition(".")
        if owner and owner != drafter:
            continue
        result[own] = _value(value, known[own].default if own in known else "")
    return result


def _value(text: str, like: Any) -> Any:
    """A setting's text as the type of its default; what cannot be read stays text and is refused."""
    if isinstance(like, bool):
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), text)
    for kind in (int, float):
        if isinstance(like, (int, float)):
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def params_of(args: argparse.Namespace) -> SamplingParams:
    from .sampling import SamplingParams

    return SamplingParams(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        presence_penalty=args.presence_penalty,
        max_new_tokens=args.max_new_tokens,
        seed=args.seed,
        stop=tuple(args.stop),
    )


def _rule(args: argparse.Namespace) -> AcceptanceRule:
    from .verify import Exact, Typical

    if args.acceptance not in ("exact", "typical"):
        raise InputError("acceptance", name=repr(args.acceptance)[:40])
    return Exact() if args.acceptance == "exact" else Typical(args.epsilon, args.delta)


def _events(args: argparse.Namespace) -> Iterator[Event]:
    """The run that the arguments ask for. What can be refused is refused before a model is loaded."""
    from .drafters import REGISTRY, check_settings, create
    from .engine import Engine
    from .prompt import check_text
    from .resources import resources

    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    check_text(prompt)
    params, rule = params_of(args), _rule(args)
    if args.drafter not in REGISTRY:
        known = ", ".join(REGISTRY)
        raise InputError("unknown_drafter", name=repr(args.drafter)[:40], known=known)
    settings = settings_of(args.drafter, args.gamma, args.set)
    check_settings(REGISTRY[args.drafter], settings)
    target = load(args)
    engine = Engine.measured(target)

    def drafter() -> Drafter:
        return create(args.drafter, target, settings, **resources(target, args.drafter, args.draft))

    made = drafter()
    if not args.no_warm_up:
        engine.warm_up(drafter())
    yield from engine.generate(prompt, made, params, rule=rule, raw=args.raw, trace=args.trace)


def _show(events: Iterator[Event], as_json: bool) -> int:
    from .events import Finished, to_json
    from .terminal import show

    if not as_json:
        return show(events)
    for event in events:
        print(to_json(event), flush=True)
        if isinstance(event, Finished) and event.reason in ("error", "cut"):
            print(f"specdemo: {event.message}", file=sys.stderr)
            return 1
    return 0


def run_generate(args: argparse.Namespace) -> int:
    if args.server:
        from .remote.cli import run_generate

        return run_generate(args)
    return _show(_events(args), args.json)


def run_record(args: argparse.Namespace) -> int:
    from .recording import record

    return _show(record(_events(args), args.out), False)


def run_replay(args: argparse.Namespace) -> int:
    from .recording import load as load_recording
    from .recording import paced

    events = load_recording(args.recording)
    return _show(paced(events, args.speed) if args.speed > 0 else iter(events), args.json)


def run_bench(args: argparse.Namespace) -> int:
    if args.server:
        from .remote.cli import run_bench

        return run_bench(args)
    if args.questions is None:
        raise InputError("questions", path="", why="give --questions or --server")
    from .bench import run

    return run(args)


def run_fetch(args: argparse.Namespace) -> int:
    from .embedded import fetch_command

    return fetch_command(args)


def run_cost(args: argparse.Namespace) -> int:
    from .cost import cost_command

    return cost_command(args)
