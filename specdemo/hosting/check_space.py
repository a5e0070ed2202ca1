"""Checks a checkout against what a Hugging Face Space needs, before it is pushed there.

    python -m specdemo.hosting.check_space [FOLDER] [--hardware cpu|gpu|zerogpu] [--by upload|git]

Prints one sentence for each thing that is missing and exits with 1; 0 when the folder can be pushed.
What a Space needs was read from its documentation and from the source of the package ``spaces``.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

LARGE = 10_000_000  # bytes from which the Hub takes a file only through Git LFS
WHOLE = 1_000_000_000  # bytes of a repository that a Space should not exceed
HARDWARE = ("cpu", "gpu", "zerogpu")
ZEROGPU_TORCH = ((2, 8), (2, 11))  # first and last minor version that ZeroGPU lists
PYTHONS = {"cpu": ("3.11", "3.12", "3.13"), "gpu": ("3.11", "3.12", "3.13"), "zerogpu": ("3.12",)}
COLOURS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")


def front_matter(readme: str) -> dict[str, Any] | None:
    """The YAML block at the beginning of the README, None where there is none that can be read."""
    found = re.match(r"---\n(.*?)\n---\n", readme, re.DOTALL)
    if not found:
        return None
    try:
        values = yaml.safe_load(found[1])
    except yaml.YAMLError:
        return None
    return values if isinstance(values, dict) else None


def pinned(requirements: str) -> dict[str, str]:
    """Versions by package name, of the lines ``name==version``."""
    found = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;#]+)", requirements, re.MULTILINE)
    return {name.lower().replace("_", "-"): version for name, version in found}


def check(folder: Path, hardware: str = "cpu", by: str = "upload") -> list[str]:
    """Sentences about what is wrong, empty when nothing is. ``by``: ``upload`` (``hf upload``, which
    sends large files by itself) or ``git`` (which needs Git LFS for them)."""
    wrong: list[str] = []
    readme = folder / "README.md"
    values = front_matter(readme.read_text(encoding="utf-8")) if readme.is_file() else None
    if values is None:
        return ["README.md does not begin with a front matter block that can be read."]
    requirements = folder / "requirements.txt"
    versions = pinned(requirements.read_text()) if requirements.is_file() else {}
    if not versions:
        wrong.append("requirements.txt is missing or pins nothing.")
    wrong += _fields(folder, values, versions, hardware)
    wrong += _versions(versions, hardware)
    wrong += _files(folder, by)
    return wrong


def _fields(
    folder: Path, values: dict[str, Any], versions: dict[str, str], hardware: str
) -> Iterable[str]:
    if values.get("sdk") != "gradio":
        yield f"sdk must be gradio, not {values.get('sdk')!r}."
    for name in ("title", "emoji", "license"):
        if not values.get(name):
            yield f"The front matter lacks {name}."
    for name in ("colorFrom", "colorTo"):
        if values.get(name) not in COLOURS:
            yield f"{name} must be one of {', '.join(COLOURS)}."
    file = values.get("app_file", "app.py")
    if not (folder / str(file)).is_file():
        yield f"app_file names {file}, which is not there."
    version = str(values.get("sdk_version", ""))
    if version != versions.get("gradio", version):
        yield f"sdk_version is {version}, but requirements.txt pins gradio {versions['gradio']}."
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        yield "sdk_version must be a whole version in quotes or plain, such as 6.31.0."
    python = str(values.get("python_version", ""))
    if ".".join(python.split(".")[:2]) not in PYTHONS[hardware]:
        known = ", ".join(PYTHONS[hardware])
        yield f"python_version must be {known} on {hardware} (the default of Spaces is too old)."
    preload = values.get("preload_from_hub", [])
    if not isinstance(preload, list) or not all(isinstance(entry, str) for entry in preload):
        yield "preload_from_hub must be a list of Hub ids."
    if len(str(values.get("short_description", ""))) > 60:
        yield "short_description may have 60 characters at most."


def _versions(versions: dict[str, str], hardware: str) -> Iterable[str]:
    torch = tuple(int(part) for part in versions.get("torch", "0.0").split(".")[:2])
    first, last = ZEROGPU_TORCH
    if hardware == "zerogpu" and not first <= torch <= last:
        listed = f"{first[0]}.{first[1]} to {last[0]}.{last[1]}"
        yield (
            f"ZeroGPU lists torch {listed}, but requirements.txt pins {versions.get('torch')}: "
            "copy requirements-zerogpu.txt over it."
        )
    if hardware != "zerogpu" and torch < (2, 8):
        yield f"torch {versions.get('torch')} is older than what this program was tested with."


def _files(folder: Path, by: str) -> Iterable[str]:
    lfs = _lfs_patterns(folder)
    files = _tracked(folder)
    total = 0
    for path in files:
        size = (folder / path).stat().st_size
        total += size
        by_lfs = any(fnmatch(path, pattern) or fnmatch(Path(path).name, pattern) for pattern in lfs)
        if by == "git" and size >= LARGE and not by_lfs:
            yield f"{path} has {size / 1e6:.0f} MB: add it to .gitattributes for Git LFS."
        if Path(path).suffix in (".pem", ".key") or Path(path).name in (".env", ".netrc"):
            yield f"{path} looks like a secret: a Space's files are public."
    if total > WHOLE:
        yield f"The files have {total / 1e9:.1f} GB together, too much for a Space."


def _tracked(folder: Path) -> list[str]:
    done = subprocess.run(["git", "-C", str(folder), "ls-files", "-z"], capture_output=True, text=True)
    if done.returncode == 0:
        return [path for path in done.stdout.split("\0") if path and (folder / path).is_file()]
    return [str(p.relative_to(folder)) for p in sorted(folder.rglob("*")) if p.is_file()]


def _lfs_patterns(folder: Path) -> list[str]:
    attributes = folder / ".gitattributes"
    lines = attributes.read_text().splitlines() if attributes.is_file() else []
    return [line.split()[0] for line in lines if "filter=lfs" in line]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a checkout against what a Space needs.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path.cwd())
    parser.add_argument("--hardware", choices=HARDWARE, default="cpu")
    parser.add_argument("--by", choices=("upload", "git"), default="upload", help="how it is pushed")
    options = parser.parse_args(arguments)
    wrong = check(options.folder, options.hardware, options.by)
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    if not wrong:
        print(f"The folder has what a Space on {options.hardware} needs.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
