"""vLLM (``vllm serve``): a chunk of the stream is an engine step.

Read from vLLM 0.32 and checked against a real server. ``return_token_ids`` gives the ids,
``logprobs`` each token's text and probability. With ``--per-request-spec-decode-metrics detailed``
the last chunk carries this request's own counts; otherwise ``/metrics`` is looked at before and after.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .chunks import Chunk, Counters, count_of
from .client import Client, difference, metrics_of, openai_body, register
from .openai_chunk import OpenAIChunks
from .steps import ChunkSteps
from .transport import Request

_PREFIX, _SPEC = "vllm:", "spec_decode_"


@register
@dataclass
class VLLM(Client):
    kind = "vllm"
    note = (
        "Accepted tokens are inferred from the chunks of the stream, one chunk being one step; "
        "at the end they are compared with the server's own counts."
    )
    _chunks: OpenAIChunks = field(init=False)
    _before: dict[str, float] = field(default_factory=dict)
    _speculates: bool | None = None

    def __post_init__(self) -> None:
        self._chunks = OpenAIChunks(self.params.max_new_tokens)

    def request(self) -> Request:
        extra: dict[str, Any] = {"return_token_ids": True}
        if not self.plain:
            extra["logprobs"] = 0 if isinstance(self.prompt, str) else True
        return openai_body(self, extra)

    def before(self) -> None:
        shown = metrics_of(self.server, _PREFIX, self.limits)
        self._before = {name: n for name, n in shown.items() if name.startswith(_SPEC)}
        # The counters exist as soon as a drafter is configured. Metrics without them: no drafter.
        self._speculates = bool(self._before) if shown else None

    def attribution(self) -> ChunkSteps:
        # One counter for each draft position.
        positions = [
            n for n in self._before if n.startswith(f"{_SPEC}num_accepted_tokens_per_pos_total")
        ]
        return ChunkSteps(len(positions) or None, self._speculates)

    def parse(self, data: dict[str, Any]) -> Chunk:
        chunk, _ = self._chunks.parse(data)
        counters = _counters(data.get("metrics") or {})
        if counters is None:
            return chunk
        return Chunk(prompt_tokens=chunk.prompt_tokens, counters=counters)

    def after(self, own: Counters | None) -> Counters | None:
        if own is not None or not self._before:
            return own
        return difference(self._before, metrics_of(self.server, _PREFIX, self.limits))


def _counters(metrics: dict[str, Any]) -> Counters | None:
    spec = metrics.get("speculative_decoding")
    if not spec:
        return None
    accepted, drafted = spec.get("per_step_accepted") or [], spec.get("per_step_drafted") or []
    return Counters(
        "the request's own metrics",
        count_of(spec.get("num_accepted_draft_tokens")),
        count_of(spec.get("num_draft_tokens")),
        count_of(spec.get("num_spec_steps")),
        tuple((int(a), int(d)) for a, d in zip(accepted, drafted, strict=True)),
        tuple(int(n) for n in spec.get("acceptance_histogram") or []),
    )
