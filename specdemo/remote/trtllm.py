"""TensorRT-LLM (``trtllm-serve``): chunks, and the mean of tokens per iteration as the check.

Written after its source and documentation; no real server was tried. That a chunk is one iteration
is not documented, so every token's origin is marked as inferred.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .chunks import Chunk, Counters
from .client import Client, openai_body, register
from .openai_chunk import OpenAIChunks
from .steps import ChunkSteps
from .transport import Request


@register
@dataclass
class TensorRTLLM(Client):
    kind = "trtllm"
    note = (
        "Inferred: each chunk of the stream is taken for one iteration, which TensorRT-LLM does not "
        "promise. The client follows its documentation; it was not run against a real server."
    )
    _chunks: OpenAIChunks = field(init=False)
    _mean: float | None = None

    def __post_init__(self) -> None:
        self._chunks = OpenAIChunks(self.params.max_new_tokens)

    def request(self) -> Request:
        if self.plain:
            return openai_body(self, {})
        return openai_body(self, {"logprobs": 1 if isinstance(self.prompt, str) else True})

    def attribution(self) -> ChunkSteps:
        return ChunkSteps(sure=False)

    def parse(self, data: dict[str, Any]) -> Chunk:
        chunk, choice = self._chunks.parse(data)
        mean = choice.get("avg_decoded_tokens_per_iter")
        if mean is not None:
            self._mean = float(mean)
        return chunk

    def after(self, own: Counters | None) -> Counters | None:
        if self._mean is None or not 0.0 < self._mean < 1e6:
            return None
        return Counters("avg_decoded_tokens_per_iter", mean_length=self._mean)
