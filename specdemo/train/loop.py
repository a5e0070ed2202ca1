"""What every training shares: the loop over the data, its learning rate, a progress line."""

from __future__ import annotations

import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .checkpoint import Averaged, Checkpoint, Optimiser
from .data import FeatureStore, Sample, batches

FALL = 0.5  # share of a training after which the learning rate falls
LEAST = 0.05  # what it falls to, of its full height
BUCKET = 16  # batches whose rows are sorted by length together, so that little is padded


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


class Settings(Protocol):
    """What the loop needs to know of a plan. ``minutes``: of this call; 0 for no clock."""

    tokens: int
    batch_tokens: int
    rate: float
    warm_up: int
    evaluate_every: int
    minutes: float
    seed: int


class Training(ABC):
    """One training: its data, weights, optimiser and checkpoint, and the loop over them.

    A subclass sets the fields and says what the loss is and how held-out acceptance is measured."""

    store: FeatureStore
    plan: Any  # as ``Settings``
    device: torch.device
    module: nn.Module
    optimiser: Optimiser
    average: Averaged
    checkpoint: Checkpoint
    clip = 0.5

    def __init__(self) -> None:
        self.seen, self.random = 0, random.Random()

    @abstractmethod
    def loss(self, group: Sequence[Sample]) -> Tensor:
        """Weighted mean over the positions of a batch."""

    @abstractmethod
    def evaluate(self) -> dict[str, Any]:
        """Held-out acceptance of the averaged weights."""

    @abstractmethod
    def save(self) -> None:
        """Write the checkpoint."""

    @staticmethod
    @abstractmethod
    def short(figures: dict[str, Any]) -> str:
        """Held-out figures for the progress line."""

    def run(self, tick: Callable[[], None] = lambda: None) -> dict[str, Any]:
        """Train until ``plan.tokens`` tokens are seen or ``plan.minutes`` are over; returns the last
        held-out figures. ``tick`` is called after every step and may raise to end the training."""
        plan, progress = self.plan, Progress(self.plan.tokens)
        figures = self.evaluate()
        self.checkpoint.log(seen=self.seen, **figures)
        started, looked = time.monotonic(), self.seen
        first = self.seen
        while (done := share_done(plan, self.seen, first, time.monotonic() - started)) < 1.0:
            self.store.refresh()
            for group in self._groups():
                loss = self.step(group, done)
                self.seen += sum(len(s.row.ids) for s in group)
                progress.show(self.seen, f"loss {loss:.3f} {self.short(figures)}")
                tick()
                done = share_done(plan, self.seen, first, time.monotonic() - started)
                if self.seen >= looked + plan.evaluate_every or done >= 1.0:
                    looked = self.seen
                    figures = self.evaluate()
                    seconds = round(time.monotonic() - started)
                    self.checkpoint.log(seen=self.seen, loss=loss, seconds=seconds, **figures)
                    self.save()
                    progress.show(self.seen, self.short(figures), force=True)
                    if done >= 1.0 or self.store.refresh():
                        break  # a new round over the data, with what has come in
        return figures

    def step(self, group: Sequence[Sample], done: float = 0.0) -> float:
        """One update at the share ``done`` of the training; the loss."""
        warm = min(1.0, (self.average.count + 1) / self.plan.warm_up)
        for settings in self.optimiser.param_groups:
            settings["lr"] = settings.get("full_rate", self.plan.rate) * warm * fall(done)
        loss = self.loss(group)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.clip)
        self.optimiser.step()
        self.average.update(self.module)
        return float(loss.detach())

    def _groups(self) -> Iterator[list[Sample]]:
        """One round over the data: batches of rows of like length, in random order."""
        samples, size = self.store.train, self.plan.batch_tokens
        order = list(range(len(samples)))
        self.random.shuffle(order)
        mean = max(1, self.store.tokens // max(1, len(samples)))
        window = max(1, BUCKET * size // mean)
        for start in range(0, len(order), window):
            part = sorted(order[start : start + window], key=lambda i: len(samples[i].row.ids))
            groups = list(batches(samples, size, part))
            self.random.shuffle(groups)
            yield from groups


def share_done(plan: Settings, seen: int, first: int, seconds: float) -> float:
    """How much of this call's training is over, by tokens or by the clock."""
    by_tokens = (seen - first) / max(plan.tokens - first, 1) if seen < plan.tokens else 1.0
    return max(by_tokens, seconds / (60.0 * plan.minutes) if plan.minutes else 0.0)


def fall(done: float) -> float:
    """The learning rate's height: full at first, falling in a straight line from ``FALL`` on."""
    rest = (1.0 - min(done, 1.0)) / (1.0 - FALL)
    return LEAST + (1.0 - LEAST) * min(1.0, rest)


def pad(rows: list[Tensor], length: int) -> Tensor:
    """Rows ``[t, ...]`` of different lengths to ``[B, length, ...]``, zeros after the end."""
    out = rows[0].new_zeros(len(rows), length, *rows[0].shape[1:])
    for index, row in enumerate(rows):
        out[index, : len(row)] = row[:length]
    return out
