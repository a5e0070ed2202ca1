"""SGLang: ``/generate`` with its cumulative ``completion_tokens``; chat turns through the OpenAI
endpoint, because ``/generate`` knows no chat template.

Written after SGLang's source; it does not run on a CPU from its packages, so no real server was
tried. ``stream_interval`` must be 1 on the server, or several steps come in one chunk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..events import Reason
from .chunks import UNKNOWN_ID, Chunk, Counters, count_of, ids_of, probability, text_of
from .client import Client, openai_body, register
from .failures import ServerError, clean
from .openai_chunk import OpenAIChunks
from .steps import ChunkSteps
from .transport import Request


@register
@dataclass
class SGLang(Client):
    kind = "sglang"
    note = (
        "Accepted tokens are inferred from how many tokens each chunk of the stream adds, one chunk "
        "being one step. The client follows SGLang's source; it was not run against a real server."
    )
    _chunks: OpenAIChunks = field(init=False)
    _text: str = ""
    _total: int = 0

    def __post_init__(self) -> None:
        self._chunks = OpenAIChunks(self.params.max_new_tokens)

    def request(self) -> Request:
        params = self.params
        if not isinstance(self.prompt, str):
            extra: dict[str, Any] = {} if self.plain else {"logprobs": True}
            return openai_body(self, extra | {"top_k": params.top_k or -1})
        body: dict[str, Any] = {
            "text": self.prompt,
            "sampling_params": {
                "max_new_tokens": params.max_new_tokens,
                "temperature": params.temperature,
                "top_p": params.top_p,
                "top_k": params.top_k or -1,
                "min_p": params.min_p,
                "repetition_penalty": params.repetition_penalty,
                "presence_penalty": params.presence_penalty,
                **({} if self.plain else {"sampling_seed": params.seed}),
                "ignore_eos": params.ignore_eos,
                **({"stop": list(params.stop)} if params.stop else {}),
            },
            "stream": True,
        }
        if not self.plain:
            body |= {"return_logprob": True, "return_text_in_logprobs": True}
        return Request("/generate", body)

    def attribution(self) -> ChunkSteps:
        return ChunkSteps()

    def parse(self, data: dict[str, Any]) -> Chunk:
        if "choices" in data:
            return self._chunks.parse(data)[0]
        meta = data["meta_info"]
        total = count_of(meta["completion_tokens"]) or 0
        count, self._total = total - self._total, total
        if not 0 <= count <= 100_000:
            raise ValueError("a count of tokens that cannot be")
        ids = ids_of(data.get("output_ids"))
        # All ids so far or this chunk's alone, as the server was told; the last ones are new.
        new = ids[-count:] if count and len(ids) >= count else (UNKNOWN_ID,) * count
        entries = (meta.get("output_token_logprobs") or [])[-count:] if count else []
        pieces: tuple[str | None, ...] = ()
        probs: tuple[float | None, ...] = ()
        if len(entries) == count and all(len(entry) >= 2 for entry in entries):
            pieces = tuple(_piece(entry) for entry in entries)
            probs = tuple(probability(entry[0]) for entry in entries)
            if UNKNOWN_ID in new:
                new = ids_of([entry[1] for entry in entries])
        reason = self._reason(meta.get("finish_reason"), total)
        counters = _counters(meta) if reason is not None else None
        prompt_tokens = count_of(meta.get("prompt_tokens"))
        return Chunk(
            new, self._added(text_of(data["text"])), pieces, probs, None, prompt_tokens, reason, counters
        )

    def _added(self, text: str) -> str:
        """What ``text``, all of the answer so far, adds. With incremental output it is all new."""
        if self._text.startswith(text):  # nothing, or less: a stop text was taken back
            return ""
        whole = text.startswith(self._text)
        added = text[len(self._text) :] if whole else text
        self._text = text if whole else self._text + text
        return added

    def _reason(self, finish: Any, total: int) -> Reason | None:
        if finish is None:
            return None
        if finish["type"] == "length":
            return "length" if total >= self.params.max_new_tokens else "context"
        if finish["type"] == "stop":
            return "stop" if isinstance(finish.get("matched"), str) else "eos"
        why = clean(self.server, finish.get("message") or finish["type"])
        code = count_of(finish.get("status_code")) or 500
        raise ServerError("server_failed", name=self.server.name, code=code, why=why)


def _piece(entry: list[Any]) -> str | None:
    text = text_of(entry[2]) if len(entry) > 2 and entry[2] is not None else None
    return None if text is None or "\ufffd" in text else text


def _counters(meta: dict[str, Any]) -> Counters | None:
    steps = count_of(meta.get("spec_verify_ct"))
    if not steps:
        return None
    histogram = tuple(int(n) for n in meta.get("spec_correct_drafts_histogram") or [])
    accepted = count_of(meta.get("spec_num_correct_drafts"))
    if accepted is None and histogram:
        accepted = sum(length * number for length, number in enumerate(histogram))
    drafted = count_of(meta.get("spec_num_proposed_drafts"))
    return Counters("the request's own spec_* fields", accepted, drafted, steps, histogram=histogram)
