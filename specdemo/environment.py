"""What a figure was measured on: device, threads, versions. Goes into every recording and result."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch


def describe(device: torch.device | str) -> dict[str, Any]:
    """Device name, threads and library versions as plain values; nothing that names the machine."""
    kind = torch.device(device).type
    return {
        "device_name": device_name(torch.device(device)),
        "threads": torch.get_num_threads() if kind == "cpu" else None,
        "capability": torch.backends.cpu.get_cpu_capability() if kind == "cpu" else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": _version("transformers"),
        "specdemo": _version("specdemo"),
    }


def device_name(device: torch.device) -> str:
    """The processor's or the GPU's marketing name, as far as the system tells."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    if name == "specdemo":
        from . import __version__

        return __version__
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"
