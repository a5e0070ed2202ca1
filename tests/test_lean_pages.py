"""Huge pages are a request about private memory only, and never an error."""

from __future__ import annotations

from typing import Any

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
