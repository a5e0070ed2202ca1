"""Averaged weights and checkpoints that can be resumed."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn


class Optimiser(Protocol):
    """What a training needs of an optimiser: torch's own and ``optimiser.Muon`` have it."""

    @property
    def param_groups(self) -> Any: ...

    def zero_grad(self, set_to_none: bool = True) -> None: ...

    def step(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


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
        optimiser: Optimiser,
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

    def load(self, module: nn.Module, optimiser: Optimiser, average: Averaged) -> dict[str, Any] | None:
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
