"""The kernels of ``fast/``, compiled here when they are first wanted, kept in the cache folder.

They need Linux on x86-64 with AVX-512 VNNI and a C++ compiler (``$CXX``, ``g++`` or ``clang++``).
Without them, or with ``SPECDEMO_KERNELS=torch`` in the environment, torch's own kernels do the work:
slower, and other rounding."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from .. import cache as folders

SOURCES = Path(__file__).with_name("fast")
# No contraction of products and sums: the same text must give the same bits in every function. OpenMP
# is not linked: its names are found in the runtime that torch has loaded, whose threads are shared.
FLAGS = (
    "-O3",
    "-std=c++17",
    "-march=native",
    "-ffp-contract=off",
    "-fopenmp",
    "-fno-exceptions",
    "-fPIC",
)
NEEDED = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}
TIMEOUT = 120  # seconds


@cache
def library() -> ctypes.CDLL | None:
    """The kernels; None where they cannot be had. A second or a few the first time on a machine."""
    if os.environ.get("SPECDEMO_KERNELS") == "torch" or not processor_flags() >= NEEDED:
        return None
    try:
        found = ctypes.CDLL(str(_built()))
        found.run_layers.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32]
        found.run_product.argtypes = [ctypes.c_void_p] * 3 + [
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.c_int32,
        ]
        found.first_of_largest.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int64,
            ctypes.c_int64,
            ctypes.c_void_p,
            ctypes.c_int32,
        ]
        found.run_draft.argtypes = found.run_block.argtypes = [ctypes.c_void_p] * 3
        found.move_rows.argtypes = [
            *(ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
        ]
        found.run_fuse.argtypes = [
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p),
            *(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32),
        ]
        found.run_heads.argtypes = [
            *(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64),
            *([ctypes.c_void_p] * 5),
            *(ctypes.c_float, ctypes.c_float, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p),
            ctypes.c_int32,
        ]
        found.run_chain.argtypes = [
            *([ctypes.c_void_p] * 5),
            *(ctypes.c_int64, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p),
        ]
        found.run_heads.restype = found.run_chain.restype = ctypes.c_int64
        for name in (
            *("run_layers", "run_product", "first_of_largest"),
            *("run_block", "run_draft", "run_fuse", "move_rows"),
        ):
            getattr(found, name).restype = None
        return found
    except (OSError, AttributeError, subprocess.SubprocessError):
        return None


@cache
def processor_flags() -> frozenset[str]:
    """What the processor can do, by Linux's names; empty elsewhere."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return frozenset()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((x for x in lines if x.startswith("flags")), "").partition(":")[2].split())


def multiplies_bf16() -> bool:
    """Whether the kernels' bf16 products are there."""
    return "avx512_bf16" in processor_flags() and library() is not None


def largest(rows: Tensor) -> list[int]:
    """``rows.argmax(-1).tolist()`` of ``[T, V]``, the first of equal ones: a tenth of torch's time for
    the vocabulary of a language model."""
    found = library() if rows.is_cpu and rows.dtype == torch.float32 else None
    if found is None:
        return rows.argmax(-1).tolist()
    rows = rows if rows.is_contiguous() else rows.contiguous()
    count, size = rows.shape
    # Not a tensor: making one and reading it out took as long as the search.
    made = (ctypes.c_int64 * count)()
    found.first_of_largest(rows.data_ptr(), count, size, made, torch.get_num_threads())
    return rows.argmax(-1).tolist() if -1 in made else made[:]  # -1: a row of NaN


def _built() -> Path:
    """The compiled file, made now if it is not there. Raises ``OSError``, ``SubprocessError``."""
    sources = sorted(SOURCES.glob("*.*"))
    content = [*(source.read_bytes() for source in sources), " ".join(FLAGS).encode()]
    content += [torch.__version__.encode(), " ".join(sorted(processor_flags())).encode()]
    name = hashlib.sha256(b"\0".join(content)).hexdigest()[:16]
    place = folders.root() / "kernels" / f"{name}.so"
    if not place.exists():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _compile(place)
        except OSError:  # a cache folder that cannot be written
            place = Path(tempfile.mkdtemp(prefix="specdemo-kernels-")) / place.name
            _compile(place)
    return place


def _compile(place: Path) -> None:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if not compiler:
        raise FileNotFoundError("there is no C++ compiler")
    with tempfile.TemporaryDirectory(dir=place.parent) as folder:
        made, linked = Path(folder) / "layers.o", Path(folder) / "layers.so"
        quiet = {"check": True, "capture_output": True, "timeout": TIMEOUT}
        source = str(SOURCES / "layers.cpp")
        subprocess.run([compiler, *FLAGS, "-w", "-c", source, "-o", str(made)], **quiet)  # type: ignore[call-overload]
        link = [compiler, "-shared", str(made), "-o", str(linked), "-nodefaultlibs", "-lc", "-lm"]
        subprocess.run(link, **quiet)  # type: ignore[call-overload]
        os.replace(linked, place)
