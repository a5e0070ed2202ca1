"""A causal language model with a KV cache that can be rolled back: what every method runs on.

``Target`` is the loaded model, ``Session`` one generation's cache. Two implementations stand behind
the same interface: ``hf`` (any transformers causal LM) and ``lean`` (Llama-like models, faster).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes that drafters need. ``vocab``: rows of the output head (a padded vocabulary
    included); ``context``: most tokens the positions allow."""

    vocab: int
    hidden: int
    layers: int
    context: int


class Target(ABC):
    """A loaded model. Sessions of one target share weights and nothing else."""

    name: str
    tokenizer: PreTrainedTokenizerBase
    shape: Shape
    device: torch.device
    dtype_name: str  # "bf16", "fp32", "q4"
    eos_ids: frozenset[int]

    @abstractmethod
    def open(self, capacity: int, hidden_layers: Sequence[int] = ()) -> Session:
        """A new cache for at most ``capacity`` rows, draft rows included.

        ``hidden_layers``: which of Hugging Face's ``hidden_states`` (0 = embeddings, i = output of
        layer i, the last one after the final norm) each pass shall leave in ``Session.hidden``."""

    @abstractmethod
    def embedding(self) -> Tensor:
        """Input embeddings ``[V, H]`` in the compute dtype (for drafters that share them)."""

    @abstractmethod
    def head(self, hidden: Tensor) -> Tensor:
        """Logits ``[T, V]`` of final-normed hidden states ``[T, H]``: the model's own output head."""

    #: Whose kernels multiply: "torch", or "own" for those of ``lean/fast``.
    kernels = "torch"

    def settle(self) -> None:
        """Wait for what goes on beside the start; called before passes are timed."""
        self.synchronize()

    @cached_property
    def _queues(self) -> bool:
        """Whether the device works on while the program goes on (kept: asked six times a round)."""
        return self.device.type == "cuda"

    def synchronize(self) -> None:
        """Wait for the device: called at the borders of timed phases."""
        if self._queues:
            torch.cuda.synchronize(self.device)


def eos_ids(model: Any, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Every id that ends an answer: generation config, model config and tokenizer together."""
    found: set[int] = set()
    for source in (model.generation_config, model.config, tokenizer):
        value = getattr(source, "eos_token_id", None)
        found |= set(value if isinstance(value, (list, tuple)) else [] if value is None else [value])
    return frozenset(found)


class Session(ABC):
    """One generation's KV cache. ``length`` rows are kept; ``forward`` adds rows for the time until
    ``keep`` says which of them stay.

    The engine keeps every committed token but the last in the cache: a pass takes that token as
    row 0 and the draft below it, so that row 0's logits judge the root's children.
    """

    length: int
    capacity: int
    hidden: dict[int, Tensor]  # layer -> [T, H] of the last prefill or forward

    @abstractmethod
    def prefill(self, ids: Sequence[int]) -> None:
        """Append ``ids`` and keep them (in chunks); no logits. ``hidden`` then holds all of them."""

    @abstractmethod
    def forward(self, tokens: Sequence[int], parents: Sequence[int]) -> Tensor:
        """Logits ``[T, V]`` of a block of rows. ``parents[i]`` is a row of this block that row i
        hangs below, -1 for the cached prefix; a row's position is ``length`` + its depth, and it
        sees the prefix, its ancestors and itself. Rows of an earlier ``forward`` not kept are
        overwritten. ``hidden`` holds the block's captured states."""

    @abstractmethod
    def early(self, tokens: Sequence[int], parents: Sequence[int], layers: int) -> Tensor:
        """Logits ``[T, V]`` through the first ``layers`` layers, final norm and head only, on the
        same cache (self-speculation). The rows written are scratch: a later ``forward`` overwrites
        them. Rows are given anew from the prefix on, as for ``forward``."""

    @abstractmethod
    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows of the last ``forward``, in order (root first, a path); drop the others."""

    @abstractmethod
    def crop(self, length: int) -> None:
        """Roll back to the first ``length`` rows. Raises ``ValueError`` above the current length."""

    def close(self) -> None:  # noqa: B027 (optional)
        """Free the cache; the session must not be used afterwards."""
