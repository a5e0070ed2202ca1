"""Huge pages are a request about private memory only, and never an error."""

from __future__ import annotations

import ctypes
import resource
import sys
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch

from specdemo.lean import pages

MAPS = """\
55d000000000-55d000001000 r--p 00000000 08:01 131 /usr/bin/python3
55d000200000-55d000900000 rw-p 00000000 00:00 0                          [heap]
7f0000100000-7f0000700000 rw-p 00000000 00:00 0
7f0001000000-7f0001100000 rw-p 00000000 00:00 0
7f0002000000-7f0003000000 rw-p 00000000 08:01 131 /usr/lib/libtorch.so
7f0004000000-7f0005000000 rw-s 00000000 00:05 9 /dev/shm/shared
7ffc00000000-7ffc00800000 rw-p 00000000 00:00 0                          [stack]
"""


def test_only_whole_pages_of_private_anonymous_memory() -> None:
    assert list(pages._regions(MAPS)) == [
        (0x55D000200000, 3 * pages.SIZE),
        (0x7F0000200000, 2 * pages.SIZE),
    ]


def test_contents_stay() -> None:
    data = torch.arange(4_000_000)
    assert pages.use_huge_pages() >= 0
    assert torch.equal(data, torch.arange(4_000_000))


def test_other_systems_are_left_alone(monkeypatch: Any) -> None:
    monkeypatch.setattr(pages.sys, "platform", "darwin")
    assert pages.use_huge_pages() == 0


def growths() -> tuple[int, int]:
    """How much memory stays with the process when every second block, a megabyte each, is freed
    between blocks that stay: with mappings of their own, and without."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def growth() -> int:
        before = resident()
        pairs = [(torch.ones(2**18), torch.ones(2**16)) for _ in range(40)]
        kept.append([small for _, small in pairs])
        pairs.clear()
        return resident() - before - 40 * 2**18

    kept: list[list[torch.Tensor]] = []
    growth()  # what a process needs once
    with pages.own_mappings():
        inside = growth()
    return inside, growth()


def test_freed_blocks_go_back_while_a_model_is_loaded() -> None:
    """Blocks between others: from the heap they would leave holes that stay with the process."""
    if not (sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "mallopt")):
        pytest.skip("glibc alone has mallopt")
    with get_context("spawn").Pool(1) as fresh:  # other tests' threads and holes would be counted too
        inside, outside = fresh.apply(growths)
    assert inside < 8 * 2**20 < 24 * 2**20 < outside


def test_large_fresh_memory_is_asked_to_be_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int, int]] = []
    monkeypatch.setattr(pages, "_advise", lambda *a: asked.append(a) or True)  # type: ignore[func-returns-value]
    small, large = torch.empty(1000), torch.empty(3 * pages.SIZE // 2, dtype=torch.float32)
    assert pages.roomy(small) is small and not asked
    assert pages.roomy(large) is large and len(asked) == 1
    start, size, _ = asked[0]
    assert start % pages.SIZE == 0 and size % pages.SIZE == 0
    inside = large.data_ptr() <= start and start + size <= large.data_ptr() + large.nbytes
    assert inside and size > 0
