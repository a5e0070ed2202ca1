"""Folders in the user's cache that are whole or absent, also when processes race or are killed.

A folder is built beside its place, every file hashed into a manifest and flushed to the disk, then
renamed. Checking is cheap (sizes and times of change); a file whose time differs is hashed again.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .errors import InputError

Progress = Callable[[float | None, str], None]

MANIFEST = "manifest.json"
_FULL = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
_CLOSED = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST}


def root() -> Path:
    """The cache folder: ``SPECDEMO_CACHE``, else ``specdemo`` in the platform's place for caches."""
    named = os.environ.get("SPECDEMO_CACHE")
    if named:
        return Path(named).expanduser().absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = os.environ.get("XDG_CACHE_HOME") or "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "specdemo"


@dataclass(frozen=True, slots=True)
class Entry:
    """One cached folder. ``identity`` says what it was made from; another identity is another
    content, so the folder is rebuilt."""

    folder: Path
    identity: Mapping[str, Any]

    def valid(self, full: bool = False) -> bool:
        """Whether the folder is whole. ``full`` hashes every file, whatever its time of change."""
        try:
            manifest = json.loads((self.folder / MANIFEST).read_bytes())
            if manifest["identity"] != dict(self.identity) or not manifest["files"]:
                return False
            touched = False
            for name, known in manifest["files"].items():
                path = self.folder / name
                stat = path.stat()
                if stat.st_size != known["size"]:
                    return False
                if full or stat.st_mtime_ns != known["mtime_ns"]:
                    if sha256(path) != known["sha256"]:
                        return False
                    touched = touched or stat.st_mtime_ns != known["mtime_ns"]
                    known["mtime_ns"] = stat.st_mtime_ns
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False
        if touched:  # copied, but whole: spare the next start the hashing
            with suppress(OSError):
                _replace_text(self.folder / MANIFEST, json.dumps(manifest))
        return True

    def ensure(
        self, build: Callable[[Path], None], needed: int, progress: Progress, full: bool = False
    ) -> Path:
        """The folder, made by ``build(empty folder)`` unless it is whole already.

        ``needed``: bytes that must be free to begin. Raises ``InputError`` (``cache_unwritable``,
        ``disk_full``) and whatever ``build`` raises; then nothing is left behind."""
        if self.valid(full):
            return self.folder
        with _disk_errors(self.folder):
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.folder.with_name(self.folder.name + ".lock"), progress):
                if not self.valid(full):  # another process may have made it meanwhile
                    self._make(build, needed)
        return self.folder

    def _make(self, build: Callable[[Path], None], needed: int) -> None:
        parent, name = self.folder.parent, self.folder.name
        for left in parent.glob(f"{name}.partial-*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        if shutil.disk_usage(parent).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        work = Path(tempfile.mkdtemp(prefix=f"{name}.partial-", dir=parent))
        try:
            build(work)
            files = {p.name: _described(p) for p in sorted(work.iterdir())}
            manifest = json.dumps({"identity": dict(self.identity), "files": files})
            _replace_text(work / MANIFEST, manifest)
            _flush(work)
            work.chmod(0o755)
            if self.folder.exists() or self.folder.is_symlink():
                old = Path(tempfile.mkdtemp(prefix=f"{name}.partial-", dir=parent))
                self.folder.rename(old / "old")
                shutil.rmtree(old, ignore_errors=True)
            work.rename(self.folder)
            _flush(parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _described(path: Path) -> dict[str, Any]:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    path.chmod(0o644)  # some writers make files for their owner only; caches are shared
    stat = path.stat()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "sha256": sha256(path)}


def _replace_text(path: Path, text: str) -> None:
    fresh = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with fresh.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _flush(folder: Path) -> None:
    """Make the names in a folder durable, where the system allows to open folders."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _locked(path: Path, progress: Progress) -> Iterator[None]:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(None, "Waiting for another process that is preparing the model")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    """Turn the system's words for "full" and "not allowed" into one sentence each.

    Libraries in other languages report the number of the error in their text only."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        code = error.errno if isinstance(error, OSError) else None
        found = re.search(r"os error (\d+)", str(error))
        code = int(found[1]) if code is None and found else code
        if code in _FULL:
            raise InputError("disk_full", folder=folder.parent) from error
        if code in _CLOSED:
            raise InputError("cache_unwritable", folder=folder.parent) from error
        raise
