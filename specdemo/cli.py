"""The commands' arguments. Nothing heavy is imported before a command runs (see ``commands``)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from . import commands

Commands = Any  # argparse names the type only privately


def add_commands(add: Commands) -> None:
    _generate(add.add_parser("generate", help="coloured tokens in the terminal"))
    _bench(add.add_parser("bench", help="measure drafters side by side on questions"))
    _record(add.add_parser("record", help="generate and write the run's events to a file"))
    _replay(add.add_parser("replay", help="show a recorded run again, without a model"))
    fetch = add.add_parser("fetch", help="download and convert the embedded model")
    fetch.set_defaults(run=commands.run_fetch)
    _cost(add.add_parser("cost", help="time of a target pass against rows verified"))
    _serve(add.add_parser("serve", help="the page in the browser"))
    _config(add.add_parser("config", help="the settings of serve, checked and without secrets"))
    from .train.cli import add_parser as add_train

    add_train(add)


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
    parser.set_defaults(run=commands.run_generate)


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
    parser.set_defaults(run=commands.run_bench)


def _record(parser: argparse.ArgumentParser) -> None:
    _add_run_arguments(parser)
    parser.add_argument("--out", type=Path, required=True, help="the recording (JSONL)")
    parser.set_defaults(run=commands.run_record, trace=True)  # a recording is for looking into


def _replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("recording", type=Path)
    parser.add_argument("--speed", type=float, default=1.0, help="1 is the recorded pace, 0 at once")
    parser.add_argument("--json", action="store_true", help="one event a line on standard output")
    parser.set_defaults(run=commands.run_replay)


def _cost(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--context", type=int, default=128, help="tokens in the cache")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=commands.run_cost)


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
