"""llama.cpp's server: its own ``/completion``, which reports ids, and counts with every token.

Read from its source and checked against a real server. Chat turns are rendered by the server
(``/apply-template``), so that both ways of prompting report the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..events import Reason
from . import failures
from .chunks import UNKNOWN_ID, Chunk, Counters, count_of, ids_of, text_of
from .client import Client, register
from .steps import CounterSteps
from .transport import Request, lookup_json


@register
@dataclass
class LlamaCpp(Client):
    kind = "llamacpp"
    optional = False
    note = "The server counts drafted and accepted tokens as it goes: every step is known exactly."
    _counted: int = 0

    def request(self) -> Request:
        params, prompt = self.params, self.prompt
        if not isinstance(prompt, str):
            body = {"messages": list(prompt)}
            rendered = lookup_json(self.server, "/apply-template", body, self.limits)
            if not isinstance(rendered, dict) or not isinstance(rendered.get("prompt"), str):
                raise failures.garbage(self.server, "the rendered prompt")
            prompt = rendered["prompt"]
        return Request(
            "/completion",
            {
                "model": self.server.model,
                "prompt": prompt,
                "n_predict": params.max_new_tokens,
                # Penalties, then temperature, then the filters: the order this program uses.
                "samplers": ["penalties", "temperature", "top_k", "top_p", "min_p"],
                "temperature": params.temperature,
                "top_k": params.top_k,
                "top_p": params.top_p,
                "min_p": params.min_p,
                "repeat_penalty": params.repetition_penalty,
                # How far back it looks, and memory it allocates; prompt and answer lie within.
                "repeat_last_n": 32768 if params.penalised else 0,
                "presence_penalty": params.presence_penalty,
                "seed": params.seed % (2**32 - 1),  # 2**32 - 1 asks for a random one
                "stop": list(params.stop),
                "ignore_eos": params.ignore_eos,
                "stream": True,
                "timings_per_token": True,
                "return_tokens": True,
                "cache_prompt": False,  # a prompt read from the cache would hide the prefill
            },
        )

    def attribution(self) -> CounterSteps:
        return CounterSteps(hold=bool(self.params.stop))

    def parse(self, data: dict[str, Any]) -> Chunk:
        timings = data.get("timings") or {}
        drafted = count_of(timings.get("draft_n")) or 0
        accepted = count_of(timings.get("draft_n_accepted")) or 0
        total = count_of(data.get("tokens_predicted")) or 0
        count = total - self._counted
        if not 0 <= count <= 10_000:
            raise ValueError("a count of tokens that cannot be")
        self._counted = total
        # A chunk whose character took several tokens names only the last one.
        ids = ids_of(data.get("tokens"))[-count:] if count else ()
        ids = (UNKNOWN_ID,) * (count - len(ids)) + ids
        text = text_of(data["content"])
        pieces = ("",) * (count - 1) + (text,) if count else ()
        prompt_tokens = count_of(data.get("tokens_evaluated"))
        if not data["stop"]:
            return Chunk(ids, text, pieces, (), (drafted, accepted), prompt_tokens)
        counters = Counters("the final timings", accepted, drafted)
        return Chunk(
            ids,
            text,
            pieces,
            (),
            (drafted, accepted),
            prompt_tokens,
            self._reason(data, total),
            counters,
            str(data.get("model") or ""),
        )

    def _reason(self, data: dict[str, Any], total: int) -> Reason:
        reasons: dict[str, Reason] = {"eos": "eos", "word": "stop", "limit": "length"}
        reason = reasons[data["stop_type"]]
        return "context" if reason == "length" and total < self.params.max_new_tokens else reason
