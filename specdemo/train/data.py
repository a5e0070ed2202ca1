"""The training data on disk: corpus shards (token ids) and feature shards (target states).

A corpus shard ``NAME.npz`` holds ``ids`` uint16 ``[N]``, ``offsets`` int32 ``[R + 1]`` (row starts
and the end), ``response_start`` int32 ``[R]`` (within each row) and ``greedy`` bool. A feature shard
``NAME.npy`` holds float16 ``[N, L, H]``: the target's ``hidden_states`` of L layers at the same
places. ``features.json`` beside them says which layers of which model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Row:
    """One conversation: ``ids`` int64 ``[T]``, where the answer starts, whether it was greedy."""

    ids: Tensor
    response_start: int
    greedy: bool


@dataclass(frozen=True, slots=True)
class Shard:
    name: str
    rows: tuple[Row, ...]
    starts: tuple[int, ...]  # row starts within the feature file

    @property
    def tokens(self) -> int:
        return sum(len(r.ids) for r in self.rows)


def shard_paths(corpus: Path) -> list[Path]:
    """Shards of a corpus folder in the order of their names. Raises ``FileNotFoundError``."""
    paths = sorted(corpus.glob("*.npz"))
    if not paths:
        raise FileNotFoundError(f"There are no corpus shards (*.npz) in {corpus}.")
    return paths


def read_shard(path: Path) -> Shard:
    """Read one corpus shard."""
    with np.load(path, allow_pickle=False) as data:
        ids = torch.from_numpy(data["ids"].astype(np.int64))
        offsets, responses = data["offsets"].tolist(), data["response_start"].tolist()
        greedy = bool(data["greedy"])
    rows = tuple(
        Row(ids[start:end], response, greedy)
        for start, end, response in zip(offsets[:-1], offsets[1:], responses, strict=True)
    )
    return Shard(path.stem, rows, tuple(offsets[:-1]))


def write_shard(path: Path, rows: Sequence[Row], greedy: bool) -> None:
    """Write a corpus shard whole or not at all."""
    lengths = [len(r.ids) for r in rows]
    temporary = path.with_name(f".{path.stem}.tmp.npz")
    np.savez_compressed(
        temporary,
        ids=torch.cat([r.ids for r in rows]).numpy().astype(np.uint16),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32),
        response_start=np.array([r.response_start for r in rows], np.int32),
        greedy=np.bool_(greedy),
    )
    os.replace(temporary, path)


@dataclass(frozen=True, slots=True)
class FeatureInfo:
    """What ``features.json`` says: the captured ``hidden_states`` indices and the model's sizes."""

    model: str
    layers: tuple[int, ...]
    hidden: int
    vocab: int

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({k: getattr(self, k) for k in self.__slots__}, indent=2)
        (folder / "features.json").write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> FeatureInfo:
        data = json.loads((folder / "features.json").read_text(encoding="utf-8"))
        return cls(data["model"], tuple(data["layers"]), data["hidden"], data["vocab"])


@dataclass(frozen=True, slots=True)
class Sample:
    """A row with its features ``[T, L, H]`` float16 (a view of the file on disk)."""

    row: Row
    features: np.ndarray


class FeatureStore:
    """Corpus and features together, split into training and held-out rows by row number (a row's
    number counts the rows of all shards, so that the split is the same whatever has been extracted).

    Shards whose features are not there yet are left out, so training may start while extraction
    goes on; ``refresh`` looks again."""

    def __init__(self, corpus: Path, features: Path, held_out_every: int = 25) -> None:
        self.corpus, self.folder = corpus, features
        self.info = FeatureInfo.read(features)
        self.train: list[Sample] = []
        self.held_out: list[Sample] = []
        self._every = held_out_every
        self._seen: set[str] = set()
        self._sizes: dict[str, int] = {}
        self.refresh()

    def refresh(self) -> int:
        """Add shards that have become ready; the number of new ones."""
        new, number = 0, 0
        for path in shard_paths(self.corpus):
            file = self.folder / f"{path.stem}.npy"
            if path.stem not in self._sizes:
                self._sizes[path.stem] = len(read_shard(path).rows)
            first, number = number, number + self._sizes[path.stem]
            if path.stem in self._seen or not file.exists():
                continue
            self._seen.add(path.stem)
            new += 1
            shard, states = read_shard(path), np.load(file, mmap_mode="r")
            for at, (row, start) in enumerate(zip(shard.rows, shard.starts, strict=True)):
                sample = Sample(row, states[start : start + len(row.ids)])
                held = (first + at) % self._every == 0
                (self.held_out if held else self.train).append(sample)
        return new

    @property
    def tokens(self) -> int:
        return sum(len(s.row.ids) for s in self.train)


def batches(samples: Sequence[Sample], tokens: int, order: Sequence[int]) -> Iterator[list[Sample]]:
    """Groups of about ``tokens`` tokens in the given order, never empty."""
    group: list[Sample] = []
    size = 0
    for index in order:
        group.append(samples[index])
        size += len(samples[index].row.ids)
        if size >= tokens:
            yield group
            group, size = [], 0
    if group:
        yield group


def draft_vocabulary(corpus: Path, vocab: int, size: int, extra: Sequence[int] = ()) -> Tensor:
    """The ``size`` most frequent ids of the answers, sorted, int64; ``extra`` ids are always in."""
    counts = torch.zeros(vocab, dtype=torch.float64)
    for path in shard_paths(corpus):
        for row in read_shard(path).rows:
            counts += torch.bincount(row.ids[row.response_start :], minlength=vocab)
    counts[list(extra)] = torch.inf
    return counts.topk(size).indices.sort().values
