"""The commands' arguments and what each command runs. Nothing heavy is imported before it is needed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import InputError
from .events import Event

if TYPE_CHECKING:
    from .drafters import Drafter
    from .sampling import SamplingParams
    from .target import Target
    from .verify import AcceptanceRule

Commands = Any  # argparse names the type only privately


def add_commands(commands: Commands) -> None:
    _generate(commands.add_parser("generate", help="coloured tokens in the terminal"))
    _bench(commands.add_parser("bench", help="measure drafters side by side on questions"))
    _record(commands.add_parser("record", help="generate and write the run's events to a file"))
    _replay(commands.add_parser("replay", help="show a recorded run again, without a model"))
    fetch = commands.add_parser("fetch", help="download and convert the embedded model")
    fetch.set_defaults(run=_run_fetch)
    _cost(commands.add_parser("cost", help="time of a target pass against rows verified"))
    _serve(commands.add_parser("serve", help="the page in the browser"))
    _config(commands.add_parser("config", help="the settings of serve, checked and without secrets"))
    from .train.cli import add_parser as add_train

    add_train(commands)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=None, help="catalogue key, Hub id or local folder")
    parser.add_argument("--dtype", default="auto", help="auto, bf16, fp32 or q4 (default: auto)")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: torch's choice)")


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("prompt", help="the prompt; - reads it from standard input")
    add_model_arguments(parser)
    parser.add_argument("--drafter", default="none", help="how tokens are proposed (default: none)")
    parser.add_argument("--gamma", type=int, help="maximum draft length or depth")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="another drafter setting"
    )
    parser.add_argument("--draft", default="", help="draft model: key, Hub id, folder, or 'target'")
    parser.add_argument("--acceptance", default="exact", help="exact (lossless) or typical (lossy)")
    parser.add_argument("--epsilon", type=float, default=0.09, help="of typical acceptance")
    parser.add_argument("--delta", type=float, default=0.3, help="of typical acceptance")
    for name, default in (
        ("temperature", 0.0),
        ("top-p", 1.0),
        ("min-p", 0.0),
        ("repetition-penalty", 1.0),
        ("presence-penalty", 0.0),
    ):
        parser.add_argument(f"--{name}", type=float, default=default)
    parser.add_argument("--top-k", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT")
    parser.add_argument("--raw", action="store_true", help="continue the text, without chat template")
    parser.add_argument("--trace", action="store_true", help="likeliest alternatives in the events")
    parser.add_argument("--no-warm-up", action="store_true", help="time the first run as it comes")


def _generate(parser: argparse.ArgumentParser) -> None:
    _add_run_arguments(parser)
    parser.add_argument("--json", action="store_true", help="one event a line on standard output")
    from .remote.cli import add_server_arguments

    add_server_arguments(parser)
    parser.set_defaults(run=_run_generate)


def _bench(parser: argparse.ArgumentParser) -> None:
    from .remote.cli import add_server_arguments

    add_model_arguments(parser)
    parser.add_argument(
        "--questions", type=Path, help="rows as in Spec-Bench (JSONL); --server has some of its own"
    )
    parser.add_argument("--drafters", default="ngram", help="comma separated (none is always run)")
    parser.add_argument("--limit", type=int, default=0, help="questions per category (0: all)")
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gamma", type=int, help="for the drafters that have it")
    parser.add_argument("--set", action="append", default=[], metavar="DRAFTER.NAME=VALUE")
    parser.add_argument("--draft", default="", help="draft model for draft_model and hf-assisted")
    parser.add_argument("--peers", action="store_true", help="add Hugging Face generate")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the results as JSON")
    add_server_arguments(parser, concurrency=True)
    parser.set_defaults(run=_run_bench)


def _record(parser: argparse.ArgumentParser) -> None:
    _add_run_arguments(parser)
    parser.add_argument("--out", type=Path, required=True, help="the recording (JSONL)")
    parser.set_defaults(run=_run_record, trace=True)  # a recording is for looking into


def _replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path)
    parser.add_argument("--speed", type=float, default=1.0, help="1 is the recorded pace, 0 at once")
    parser.add_argument("--json", action="store_true", help="one event a line on standard output")
    parser.set_defaults(run=_run_replay)


def _cost(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--context", type=int, default=128, help="tokens in the cache")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=_run_cost)


def _serve(parser: argparse.ArgumentParser) -> None:
    add_serve_arguments(parser)
    parser.set_defaults(run=run_serve)


def _config(parser: argparse.ArgumentParser) -> None:
    from .config import add_arguments, config_command

    add_arguments(parser)
    parser.set_defaults(run=config_command)


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    from .config import add_arguments

    add_arguments(parser)


def run_serve(args: argparse.Namespace) -> int:
    from .config import load as check

    check(None, args)  # what is wrong is said before anything heavy is imported
    from .hosting.start import serve

    return serve(args)


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


def _run_generate(args: argparse.Namespace) -> int:
    if args.server:
        from .remote.cli import run_generate

        return run_generate(args)
    return _show(_events(args), args.json)


def _run_record(args: argparse.Namespace) -> int:
    from .recording import record

    return _show(record(_events(args), args.out), False)


def _run_replay(args: argparse.Namespace) -> int:
    from .recording import load as load_recording
    from .recording import paced

    events = load_recording(args.recording)
    return _show(paced(events, args.speed) if args.speed > 0 else iter(events), args.json)


def _run_bench(args: argparse.Namespace) -> int:
    if args.server:
        from .remote.cli import run_bench

        return run_bench(args)
    if args.questions is None:
        raise InputError("questions", path="", why="give --questions or --server")
    from .bench import run

    return run(args)


def _run_fetch(args: argparse.Namespace) -> int:
    from .embedded import fetch_command

    return fetch_command(args)


def _run_cost(args: argparse.Namespace) -> int:
    from .cost import cost_command

    return cost_command(args)
