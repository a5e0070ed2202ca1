"""What ``serve`` and ``app.py`` take on the command line."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from ..cli import add_model_arguments
    add_model_arguments(parser)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=None, help="default: the first free one from 7860")
    parser.add_argument("--root-path", default=None, help="path of a proxy below which the page lives")
    if not any("--server" in action.option_strings for action in parser._actions):
        parser.add_argument(
            "--server",
            action="append",
            metavar="NAME=URL",
            help="a serving engine that visitors may choose; see specdemo/remote/servers.py",
        )
