"""``python -m specdemo``: serve, generate, bench, record, replay, fetch, cost, train."""

from __future__ import annotations

import argparse
import os
import sys

from .errors import InputError
from .events import RecordingError
from .hosting import prepare

prepare()  # before anything is imported that would look up a host by itself


def parser() -> argparse.ArgumentParser:
    """All commands. Their modules are imported when a command runs: ``replay`` needs no torch."""
    from . import cli

    top = argparse.ArgumentParser(
        prog="specdemo", description="See speculative decoding happen, from real runs."
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    cli.add_commands(commands)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Exit code: 0, 2 for bad input (one sentence on stderr), 130 when interrupted."""
    for stream in (sys.stdout, sys.stderr):
        # Text of a model may hold what the terminal's encoding lacks; that must not end a run.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    args = parser().parse_args(arguments)
    try:
        return int(args.run(args) or 0)
    except (InputError, RecordingError) as error:
        print(f"specdemo: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nspecdemo: stopped.", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output went away: nothing is wrong with the run.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


if __name__ == "__main__":
    sys.exit(main())
