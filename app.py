"""Starts the page: ``python app.py`` (also the entry of a Hugging Face Space)."""

from __future__ import annotations

import argparse
import sys

from specdemo.hosting import prepare

prepare()  # before anything imports torch


def main(arguments: list[str] | None = None) -> int:
    from specdemo.cli import add_serve_arguments, run_serve
    from specdemo.errors import InputError

    parser = argparse.ArgumentParser(description="See speculative decoding happen, in the browser.")
    add_serve_arguments(parser)
    try:
        return run_serve(parser.parse_args(arguments))
    except InputError as error:
        print(f"specdemo: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
