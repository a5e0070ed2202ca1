"""What every training shares: averaged weights, checkpoints that can be resumed, a progress line."""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


class Stopped(Exception):
    """A clock ended a training or an extraction; what is on disk can be gone on with."""


@dataclass
class Progress:
    """A line that says how far the work is; one line a report where the output is not a terminal."""

    total: int
    unit: str = "tokens"
    every: float = 5.0
    _started: float = field(default_factory=time.monotonic, init=False)
    _shown: float = field(default=0.0, init=False)
    _offset: int | None = field(default=None, init=False)

    def show(self, done: int, words: str = "", force: bool = False) -> None:
        """``done`` of ``total``; at most once in ``every`` seconds unless ``force``."""
        now = time.monotonic()
        if self._offset is None:
            self._offset = done
        if not force and now - self._shown < self.every:
            return
        self._shown = now
        rate = (done - self._offset) / max(now - self._started, 1e-9)
        filled = int(20 * min(done / max(self.total, 1), 1.0))
        bar = "#" * filled + "." * (20 - filled)
        end = "\r" if sys.stderr.isatty() and not force else "\n"
        line = f"[{bar}] {done:,}/{self.total:,} {self.unit}, {rate:,.0f}/s {words}"
        print(line, end=end, file=sys.stderr, flush=True)


class Averaged:
    """Exponential moving average of a module's trained parameters: the weights that are shipped.

    It stands in for a falling learning rate, so a training may be stopped at any time."""

    def __init__(self, module: nn.Module, decay: float) -> None:
        self.decay, self.count = decay, 0
        self.values = {n: p.detach().clone() for n, p in module.named_parameters() if p.requires_grad}

    @torch.no_grad()
    def update(self, module: nn.Module) -> None:
        """Young averages forget faster: the start must not weigh on them for long."""
        self.count += 1
        decay = min(self.decay, self.count / (self.count + 9.0))
        named = {n: p for n, p in module.named_parameters() if p.requires_grad}
        torch._foreach_lerp_(list(self.values.values()), [named[n] for n in self.values], 1.0 - decay)

    def swap(self, module: nn.Module) -> None:
        """Exchange the module's weights and the averages (call again to go back)."""
        for name, parameter in module.named_parameters():
            if name in self.values:
                kept = parameter.detach().clone()
                parameter.data.copy_(self.values[name])
                self.values[name].copy_(kept)


@dataclass
class Checkpoint:
    """One file with everything a training needs to go on, replaced whole; a JSON log beside it."""

    folder: Path

    @property
    def file(self) -> Path:
        return self.folder / "checkpoint.pt"

    def save(
        self,
        module: nn.Module,
        optimiser: torch.optim.Optimizer,
        average: Averaged,
        state: dict[str, Any],
    ) -> None:
        """``state``: plain numbers and tensors."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.file.with_suffix(".tmp")
        content = {
            "module": module.state_dict(),
            "optimiser": optimiser.state_dict(),
            "average": average.values,
            "count": average.count,
            "state": state,
        }
        torch.save(content, temporary)
        os.replace(temporary, self.file)

    def load(
        self, module: nn.Module, optimiser: torch.optim.Optimizer, average: Averaged
    ) -> dict[str, Any] | None:
        """Restore and return ``state``; None when there is nothing to resume."""
        if not self.file.exists():
            return None
        content = torch.load(self.file, map_location="cpu", weights_only=True)
        module.load_state_dict(content["module"])
        optimiser.load_state_dict(content["optimiser"])
        for name, value in content["average"].items():
            average.values[name].copy_(value)
        average.count = int(content["count"])
        state: dict[str, Any] = content["state"]
        return state

    def log(self, **values: Any) -> None:
        """Append one line of figures to ``log.jsonl``."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")


def pad(rows: list[Tensor], length: int) -> Tensor:
    """Rows ``[t, ...]`` of different lengths to ``[B, length, ...]``, zeros after the end."""
    out = rows[0].new_zeros(len(rows), length, *rows[0].shape[1:])
    for index, row in enumerate(rows):
        out[index, : len(row)] = row[:length]
    return out
