"""``LeanTarget``: a Llama-like model behind the ``Target`` interface, on the lean forward."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import InputError
from ..target import Shape, Target, eos_ids
from .kernels import MOST_ROWS, HalfMatrix, good_rows, key_step
from .plan import plan_of, supports
from .session import LeanSession
from .weights import take_apart

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

CUDA_KEY_STEP = 256
CUDA_WIDTHS = (1, 2, 4, 8, 16, 32, 64)
FEWEST_SCORE_ROWS = 6  # fp32 products of fewer rows than this sum in another order (MKL)


class LeanTarget(Target):
    """Takes ``model`` apart (it must not be used afterwards unless ``keep_model``).

    ``dtype_name``: "fp32", "bf16" or "q4" (then ``gguf`` names the file with the 4-bit blocks).
    ``graphs``: record CUDA graphs of the passes; without effect on a CPU.
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
    ) -> None:
        if not supports(model):
            raise InputError("unsupported_model", name=name, why="it is not a plain Llama-like model")
        self.tokenizer, self.name, self.dtype_name = tokenizer, name, dtype_name
        self.device = model.device
        self.graphs = graphs and self.device.type == "cuda"
        self.eos_ids = eos_ids(model, tokenizer)
        self.plan = plan_of(model)
        with torch.inference_mode():
            self.weights = take_apart(model, self.plan, dtype_name, gguf, keep_model)
        self.shape = Shape(self.plan.vocab, self.plan.hidden, self.plan.layers, self.plan.context)
        # Passes are made for a multiple of this many keys: one serves that many steps.
        self.key_step = CUDA_KEY_STEP
        if self.device.type == "cpu":
            rows = FEWEST_SCORE_ROWS + self.plan.group
            self.key_step = key_step(self.plan.kv_heads, rows, self.plan.head_dim)
        self._halves = isinstance(self.weights.layers[0].down, HalfMatrix) or isinstance(
            self.weights.head, HalfMatrix
        )

    def open(self, capacity: int, hidden_layers: Sequence[int] = ()) -> LeanSession:
        return LeanSession(self, capacity, hidden_layers)

    def embedding(self) -> Tensor:
        return self.weights.table

    @torch.inference_mode()
    def head(self, hidden: Tensor) -> Tensor:
        matrix, count = self.weights.head, hidden.shape[0]
        x = torch.zeros(self.width(count), self.plan.hidden, dtype=matrix.dtype, device=self.device)
        x[:count] = hidden
        out = torch.empty(x.shape[0], matrix.shape[0], dtype=matrix.dtype, device=self.device)
        return matrix.apply(x, out)[:count]

    def width(self, rows: int) -> int:
        """The number of rows a pass for ``rows`` rows is run with: enough more for the kernels to
        give every row the same bits as in any other pass, or for a recorded graph to fit."""
        if self.device.type == "cuda":
            return next((w for w in CUDA_WIDTHS if w >= rows), -(-rows // MOST_ROWS) * MOST_ROWS)
        if self.dtype_name == "fp32":
            return rows
        rows = max(rows, -(-FEWEST_SCORE_ROWS // self.plan.group))
        if not self._halves:
            return rows
        return good_rows()[rows] if rows <= MOST_ROWS else -(-rows // 12) * 12
