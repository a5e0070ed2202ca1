"""What the speed benchmarks share: arguments, environment, prompts, priority, writing results."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from specdemo import environment

RESULTS = Path(__file__).resolve().parent.parent / "assets" / "results"
PROMPTS = (
    "Explain how rain forms, and why some clouds give none.",
    "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
    "Summarise: The old harbour, the old market and the old mill were rebuilt after the flood. The "
    "old harbour took ten years, the old market five, and the old mill three.",
)


def arguments(about: str, **options: Any) -> argparse.Namespace:
    """Parsed command line: ``--realtime``, ``--json`` and one option for each keyword."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="run the timed parts before all other processes (Linux, needs the right to)",
    )
    parser.add_argument("--json", type=Path, help="write the results here")
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    return parser.parse_args()


def priority(on: bool) -> None:
    """First-in-first-out scheduling for every thread of this process, or the usual one again. On a
    machine with other work this is the difference between measuring us and measuring them."""
    kind, level = (os.SCHED_FIFO, 10) if on else (os.SCHED_OTHER, 0)
    for task in os.listdir("/proc/self/task"):
        os.sched_setscheduler(int(task), kind, os.sched_param(level))


def finish(args: argparse.Namespace, result: dict[str, Any]) -> None:
    """Print the result, and write it with the environment where ``--json`` says."""
    about = {**environment.describe("cpu"), "realtime": args.realtime}
    text = json.dumps({"environment": about, **result}, indent=1)
    print(text)
    if args.json:
        args.json.write_text(text + "\n", encoding="utf-8")
