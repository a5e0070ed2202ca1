"""``python -m specdemo train ...``: corpus, features, eagle3, medusa, draft-model, publish."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any


def add_parser(commands: Any) -> None:
    """Add ``train`` and its sub-commands. Nothing heavy is imported before a command runs."""
    parser = commands.add_parser("train", help="train the learned drafters of a target")
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    _corpus(kinds.add_parser("corpus", help="text that the target writes itself: the training data"))
    _features(kinds.add_parser("features", help="the target's states on a corpus, cached on disk"))
    _eagle3(kinds.add_parser("eagle3", help="an EAGLE-3 head on cached states"))
    _medusa(kinds.add_parser("medusa", help="Medusa heads on cached states"))
    _draft(kinds.add_parser("draft-model", help="a small Llama with the target's tokenizer"))


def add_common(parser: argparse.ArgumentParser, out: str) -> None:
    parser.add_argument("--model", default=None, help="catalogue key, Hub id or local folder")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument(
        "--dtype", default="auto", help="of the target: auto, bf16 or fp32 (default: auto)"
    )
    parser.add_argument("--threads", type=int, default=0, help="CPU threads (default: torch's choice)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", type=Path, default=None, help=f"where to write (default: {out} in the cache folder)"
    )


def _corpus(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "train/corpus")
    parser.add_argument("--tokens", type=int, default=500_000, help="tokens to write in all")
    parser.add_argument("--batch", type=int, default=32, help="conversations written side by side")
    parser.add_argument("--longest", type=int, default=320, help="longest answer in tokens")
    parser.add_argument(
        "--kinds", default="", help="free, summary, question, translation (default: all, in turns)"
    )
    parser.set_defaults(run=_run)


def _features(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "train/features")
    parser.add_argument("--corpus", type=Path, default=None, help="corpus folder")
    parser.add_argument(
        "--layers", default="", help="hidden_states to keep, comma separated; the final one is always in"
    )
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.set_defaults(run=_run)


def _data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", type=Path, default=None, help="corpus folder")
    parser.add_argument("--features", type=Path, default=None, help="features folder")
    parser.add_argument("--minutes", type=float, default=0.0, help="end after so long; 0: no clock")
    parser.add_argument("--export", type=Path, default=None, help="write the published format here")


def _start(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--start",
        type=Path,
        default=None,
        help="folder of a published head of these sizes to go on from",
    )


def _eagle3(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "train/eagle3")
    _data(parser)
    parser.add_argument("--tokens", type=int, default=2_000_000, help="rows to see in all")
    parser.add_argument("--layers", default="", help="fused hidden_states, three of the cached ones")
    parser.add_argument("--draft-vocab", type=int, default=4096)
    _start(parser)
    parser.add_argument("--rate", type=float, default=6e-4, help="learning rate")
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--evaluate-every", type=int, default=50_000)
    parser.set_defaults(run=_run)


def _medusa(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "train/medusa")
    _data(parser)
    parser.add_argument("--tokens", type=int, default=1_000_000, help="rows to see in all")
    parser.add_argument("--heads", type=int, default=3)
    _start(parser)
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate")
    parser.add_argument("--batch-tokens", type=int, default=512)
    parser.add_argument("--evaluate-every", type=int, default=50_000)
    parser.set_defaults(run=_run)


def _draft(parser: argparse.ArgumentParser) -> None:
    add_common(parser, "train/draft_model")
    _data(parser)
    parser.add_argument("--tokens", type=int, default=4_000_000, help="tokens to see in all")
    parser.add_argument("--hidden", type=int, default=192)
    _start(parser)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--frequent", type=int, default=4096, help="tokens that it names when drafting")
    parser.add_argument("--rate", type=float, default=5e-4, help="learning rate")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--evaluate-every", type=int, default=200_000)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    from . import commands

    return commands.run(args)
