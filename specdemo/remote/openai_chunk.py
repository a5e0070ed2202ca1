"""Parsing of the OpenAI streaming protocol as vLLM and TensorRT-LLM speak it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..events import Reason
from .chunks import UNKNOWN_ID, ByteText, Chunk, count_of, ids_of, probability, text_of


@dataclass(slots=True)
class OpenAIChunks:
    """``parse`` one JSON object of ``/v1/completions`` or ``/v1/chat/completions``.

    Where ids are not reported, ``usage.completion_tokens`` tells how many tokens a chunk holds."""

    wanted: int  # max_tokens of the request
    _bytes: ByteText = field(default_factory=ByteText)
    _counted: int = 0

    def parse(self, data: dict[str, Any]) -> tuple[Chunk, dict[str, Any]]:
        """The chunk, and the choice it came from (empty for a chunk that has none)."""
        usage = data.get("usage") or {}
        prompt_tokens = count_of(usage.get("prompt_tokens"))
        total = count_of(usage.get("completion_tokens"))
        if not data["choices"]:
            return Chunk(prompt_tokens=prompt_tokens), {}
        choice = data["choices"][0]
        prompt_ids = choice.get("prompt_token_ids") or data.get("prompt_token_ids")
        if prompt_tokens is None and prompt_ids:
            prompt_tokens = len(ids_of(prompt_ids))
        delta = choice.get("delta")
        text = text_of(choice.get("text") if delta is None else self._content(delta))
        pieces, probs = self._logprobs(choice.get("logprobs") or {})
        ids, counted = ids_of(choice.get("token_ids")), True
        if not ids:
            count = (total - self._counted) if total is not None else len(pieces)
            if not 0 <= count <= 100_000:
                raise ValueError("a count of tokens that cannot be")
            counted = total is not None or bool(pieces) or not text
            ids = (UNKNOWN_ID,) * (count if counted else 1)
        self._counted += len(ids)
        if len(pieces) != len(ids):
            pieces, probs = (), ()
        reason = self._reason(choice, self._counted)
        model = str(data.get("model") or "")
        return Chunk(
            ids, text, pieces, probs, None, prompt_tokens, reason, model=model, counted=counted
        ), choice

    @staticmethod
    def _content(delta: dict[str, Any]) -> str:
        # A server with a reasoning parser sends the model's thoughts beside the answer.
        thoughts = delta.get("reasoning_content") or delta.get("reasoning")
        return text_of(thoughts) + text_of(delta.get("content"))

    def _logprobs(self, logprobs: Any) -> tuple[tuple[str | None, ...], tuple[float | None, ...]]:
        if "content" in logprobs:  # chat
            entries = logprobs["content"] or []
            pieces = tuple(self._bytes.piece(entry.get("bytes")) for entry in entries)
            return pieces, tuple(probability(entry.get("logprob")) for entry in entries)
        tokens = [text_of(token) for token in logprobs.get("tokens") or []]
        # A replacement character stands for bytes of a character that is not complete yet.
        known = tuple(None if "\ufffd" in token else token for token in tokens)
        return known, tuple(probability(value) for value in logprobs.get("token_logprobs") or [])

    def _reason(self, choice: dict[str, Any], count: int) -> Reason | None:
        reason = choice.get("finish_reason")
        if reason is None:
            return None
        if reason == "length":
            return "length" if count >= self.wanted else "context"
        if reason == "stop":
            matched = choice.get("stop_reason") or choice.get("matched_stop")  # SGLang's name
            return "stop" if isinstance(matched, str) else "eos"
        raise ValueError(f"the end {str(reason)[:30]!r}")
