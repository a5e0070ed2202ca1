"""``LeanTarget``: a Llama-like model behind the ``Target`` interface, on the lean forward."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import InputError
from ..graphs import Capture, record
from ..target import Shape, Target, eos_ids
from . import fast_pass
from .kernels import KEY_UNIT, MOST_ROWS, key_step
from .pages import use_huge_pages
from .panels import PanelMatrix
from .plan import plan_of, supports
from .session import Arena, LeanSession
from .weights import take_apart

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LARGE = 64 * 2**20  # bytes of weights; smaller ones stay in the processor's own memory
CUDA_KEY_STEP = 256
CUDA_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
FEWEST_SCORE_ROWS = 6  # fp32 products of fewer rows than this sum in another order (MKL)


class LeanTarget(Target):
    """Takes ``model`` apart (it must not be used afterwards unless ``keep_model``).

    ``dtype_name``: "fp32", "bf16" or "q4" (then ``gguf`` names the file with the 4-bit blocks).
    ``graphs``: record CUDA graphs of the passes; without effect on a CPU. ``capture``: how (tests
    replace it).
    Raises ``InputError``: ``unsupported_model`` if ``supports(model)`` is false, ``dtype``."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        name: str,
        dtype_name: str = "fp32",
        gguf: Path | None = None,
        keep_model: bool = False,
        graphs: bool = True,
        capture: Capture | None = None,
    ) -> None:
        if not supports(model):
            raise InputError("unsupported_model", name=name, why="it is not a plain Llama-like model")
        self.tokenizer, self.name, self.dtype_name = tokenizer, name, dtype_name
        self.device = model.device
        self.capture = capture or (record if graphs and self.device.type == "cuda" else None)
        self._free: Arena | None = None
        self._settling: threading.Thread | None = None
        self.eos_ids = eos_ids(model, tokenizer)
        self.plan = plan_of(model)
        with torch.inference_mode():
            self.weights = take_apart(model, self.plan, dtype_name, gguf, keep_model)
        if self.device.type == "cpu" and self.weights.resident() >= LARGE:
            # Beside the start, not in front of it: it takes some tenths of a second.
            self._settling = threading.Thread(target=use_huge_pages, daemon=True)
            self._settling.start()
        if isinstance(self.weights.head, PanelMatrix):
            self.kernels = "own"
        self.shape = Shape(self.plan.vocab, self.plan.hidden, self.plan.layers, self.plan.context)
        # Passes are made for a multiple of this many keys: one serves that many steps.
        self.key_step = CUDA_KEY_STEP
        self.fast: fast_pass.Layers | None = None
        if fast_pass.possible(self.weights):
            self.fast = fast_pass.Layers(self.weights.layers)
        elif self.device.type == "cpu":
            rows = FEWEST_SCORE_ROWS + self.plan.group
            self.key_step = key_step(self.plan.kv_heads, rows, self.plan.head_dim)

    def open(self, capacity: int, hidden_layers: Sequence[int] = ()) -> LeanSession:
        return LeanSession(self, capacity, hidden_layers)

    def settle(self) -> None:
        if self._settling is not None:
            self._settling.join()

    def arena(self, rows: int) -> Arena:
        """A cache of at least ``rows`` rows. Where graphs are recorded the last one freed is given
        again: a graph is bound to the memory it was recorded with."""
        free, self._free = self._free, None
        if free is not None and free.rows >= rows:
            return free
        if self.capture is not None:  # sizes that later sessions will find large enough
            rows = max(2 * self.key_step, 1 << (rows - 1).bit_length())
        return Arena(self, rows)

    def release(self, arena: Arena) -> None:
        """Take back a cache that a session is done with."""
        if self.capture is not None and (self._free is None or self._free.rows <= arena.rows):
            self._free = arena

    def embedding(self) -> Tensor:
        return self.weights.table

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        matrix, count = self.weights.head, hidden.shape[0]
        x = torch.zeros(matrix.rows(count), self.plan.hidden, dtype=matrix.dtype, device=self.device)
        x[:count] = hidden
        out = torch.empty(x.shape[0], matrix.shape[0], dtype=matrix.dtype, device=self.device)
        return matrix.apply(x, out)[:count]

    def width(self, rows: int) -> int:
        """The number of rows a pass for ``rows`` rows is run with: enough more for the kernels to
        give every row the same bits as in any other pass, or for a recorded graph to fit."""
        if self.device.type == "cuda":
            return next((w for w in CUDA_WIDTHS if w >= rows), -(-rows // MOST_ROWS) * MOST_ROWS)
        layer = self.weights.layers[0]
        while True:
            wider = max(m.rows(rows) for m in (layer.qkv, layer.output, layer.gate_up, layer.down))
            if wider == rows:
                return rows
            rows = wider

    def score_rows(self) -> int:
        """The fewest rows that attention is run with: a tiny product alone, and cheap to widen."""
        return 0 if self.device.type == "cuda" else -(-FEWEST_SCORE_ROWS // self.plan.group)

    def keys(self, count: int) -> int:
        """The number of keys a pass over ``count`` keys is run with, and the size of caches."""
        unit = KEY_UNIT if self.device.type == "cpu" and count <= self.key_step else self.key_step
        return -(-count // unit) * unit
