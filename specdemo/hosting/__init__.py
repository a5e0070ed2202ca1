"""What a host needs besides the page: limits, health, metrics, logs, headers, Spaces.

This module imports nothing heavy: ``prepare`` must come before everything else.
"""

from __future__ import annotations

import importlib
import os


def lent() -> bool:
    """Whether this is a ZeroGPU Space (the package ``spaces`` decides by the same variable)."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


def prepare() -> None:
    """Call first in a program: no telemetry, and on ZeroGPU ``spaces`` is there before torch."""
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if lent():
        importlib.import_module("spaces")
