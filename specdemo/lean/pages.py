"""Huge pages for the weights: every pass reads them all, and with pages of 4 KB the look-up of
addresses takes a good part of that time (in virtual machines above all).

Linux only, and only a request: where the kernel does not grant it, nothing changes.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torch import Tensor

SIZE = 2 * 2**20
_HUGEPAGE, _COLLAPSE = 14, 25  # madvise(2)
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)
_ANONYMOUS = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p \S+ 00:00 0\s*(\S*)$")


def roomy(tensor: Tensor) -> Tensor:
    """The same tensor; if it is large, fresh and on a Linux CPU, its memory will be huge pages."""
    if tensor.nbytes < 2 * SIZE or tensor.device.type != "cpu":
        return tensor
    with suppress(OSError, AttributeError, ValueError):
        start = -(-tensor.untyped_storage().data_ptr() // SIZE) * SIZE
        _advise(start, tensor.untyped_storage().nbytes() // SIZE * SIZE - SIZE, _HUGEPAGE)
    return tensor


@contextmanager
def own_mappings() -> Iterator[None]:
    """Inside, every block of a quarter megabyte or more gets memory of its own, which goes back to the
    system when it is freed: what weights are packed from leaves no holes. Afterwards the C library
    has the limits that its own adjustment leads to. Linux with glibc only."""
    limits = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform.startswith("linux") else None
    if limits is None:
        yield
        return
    limits(_MMAP_THRESHOLD, 2**18)
    try:
        yield
    finally:
        limits(_MMAP_THRESHOLD, 32 * 2**20)
        limits(_TRIM_THRESHOLD, 64 * 2**20)


def use_huge_pages() -> int:
    """Ask that this process's private memory be kept in huge pages, now and where it grows. Call it
    when the weights are in memory and what they were made of is freed. Returns the bytes asked for.

    All private memory, because the packed matrices of some kernels do not tell their address."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)  # give back freed memory first, or it would be filled up
        total = 0
        for start, size in _regions(Path("/proc/self/maps").read_text()):
            if _advise(start, size, _HUGEPAGE):
                _advise(start, size, _COLLAPSE)  # may be refused for a part: the rest is done
                total += size
        return total
    except (OSError, AttributeError, ValueError):
        return 0


def _advise(start: int, size: int, advice: int) -> bool:
    """Whether ``madvise`` took the advice."""
    if not sys.platform.startswith("linux"):
        return False
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return bool(madvise(start, size, advice) == 0)


def _regions(maps: str) -> Iterator[tuple[int, int]]:
    """Start and size of the anonymous regions, cut to whole huge pages."""
    for line in maps.splitlines():
        match = _ANONYMOUS.match(line)
        if match is None or match[3] not in ("", "[heap]"):
            continue
        start = -(-int(match[1], 16) // SIZE) * SIZE
        end = int(match[2], 16) // SIZE * SIZE
        if end > start:
            yield start, end - start
