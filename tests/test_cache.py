"""Cached folders are whole or absent: damaged, copied, left half-written, not writable."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from specdemo import cache, embedded
from specdemo.errors import InputError


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != cache.MANIFEST}


def test_a_warm_start_makes_nothing(own_gguf: Path) -> None:
    folder = embedded.ensure()
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    seen: list[str] = []
    assert embedded.ensure(lambda _, message: seen.append(message)) == folder
    assert embedded.ensure(lambda _, message: seen.append(message), full=True) == folder
    assert seen == []
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    "damage", ["flip", "shorten", "remove", "manifest", "no_manifest", "empty", "file"]
)
def test_a_damaged_cache_is_rebuilt(own_gguf: Path, damage: str) -> None:
    folder = embedded.ensure()
    whole = contents(folder)
    weights, manifest = folder / "model.safetensors", folder / cache.MANIFEST
    data = weights.read_bytes()
    match damage:
        case "flip":
            weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        case "shorten":
            weights.write_bytes(data[: len(data) // 2])
        case "remove":
            (folder / "config.json").unlink()
        case "manifest":
            manifest.write_text('{"identity": {}, "files": [1')
        case "no_manifest":
            manifest.unlink()
        case "empty":
            shutil.rmtree(folder)
            folder.mkdir()
        case "file":
            shutil.rmtree(folder)
            folder.write_text("not a folder")
    assert embedded.ensure() == folder
    assert contents(folder) == whole
    assert sorted(path.name for path in own_gguf.iterdir()) == [folder.name, f"{folder.name}.lock"]


def test_silent_damage_is_found_by_the_full_check(own_gguf: Path) -> None:
    folder = embedded.ensure()
    whole, weights = contents(folder), folder / "model.safetensors"
    stat, data = weights.stat(), weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(weights, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    embedded.ensure(full=True)
    assert contents(folder) == whole


def test_a_copied_cache_is_kept(own_gguf: Path) -> None:
    folder = embedded.ensure()
    for path in folder.iterdir():
        os.utime(path, ns=(1, 1))
    entry = embedded._entry(Path(os.environ["SPECDEMO_GGUF"]).resolve())
    assert entry.valid()
    files = json.loads((folder / cache.MANIFEST).read_text())["files"]
    assert {known["mtime_ns"] for known in files.values()} == {1}  # hashed once, not at every start


def test_what_a_killed_process_left_is_removed(own_gguf: Path) -> None:
    folder = embedded.ensure()
    shutil.rmtree(folder)
    left = own_gguf / f"{folder.name}.partial-xyz"
    left.mkdir()
    (left / "model.safetensors").write_bytes(b"half")
    embedded.ensure()
    assert not left.exists()


def test_a_cache_that_cannot_be_written(own_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_gguf.parent.mkdir(exist_ok=True)
    blocker = own_gguf.parent / "file"
    blocker.write_text("")
    monkeypatch.setenv("SPECDEMO_CACHE", str(blocker / "cache"))
    with pytest.raises(InputError) as caught:
        embedded.ensure()
    assert caught.value.key == "cache_unwritable"


@pytest.mark.skipif(os.name != "posix", reason="permissions as of POSIX")
def test_a_read_only_cache(own_gguf: Path) -> None:
    folder = embedded.ensure()
    user = os.geteuid()
    own_gguf.chmod(0o555)
    try:
        if user == 0:  # permissions do not bind root
            own_gguf.parent.chmod(0o755)
            os.seteuid(65534)
        else:  # what is whole is used as it is
            assert embedded.ensure() == folder
        other = cache.Entry(own_gguf / "other", {"a": 1})
        with pytest.raises(InputError) as caught:
            other.ensure(lambda _: pytest.fail("built"), 0, lambda *_: None)
    finally:
        os.seteuid(user)
        own_gguf.chmod(0o755)
    assert caught.value.key == "cache_unwritable"
    assert folder.is_dir()


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.delenv("SPECDEMO_CACHE", raising=False)
    if sys.platform != "win32":
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache.root() == tmp_path / "specdemo"
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "own"))
    assert cache.root() == tmp_path / "own"
