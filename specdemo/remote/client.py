"""What a client of an engine has to do. The rest (HTTP, steps, events, checks) is shared."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from . import failures
from .chunks import Chunk, Counters
from .failures import ServerError
from .servers import KINDS, Server
from .steps import Attribution
from .transport import Limits, Request, lookup, lookup_json

if TYPE_CHECKING:  # sampling needs torch, which no client needs
    from ..sampling import SamplingParams

Messages = Sequence[dict[str, str]]


@dataclass
class Client(ABC):
    """One run on one server. ``prompt``: chat turns, or a text that is continued as it stands."""

    server: Server
    prompt: str | Messages
    params: SamplingParams
    limits: Limits = field(default_factory=Limits)
    plain: bool = False  # leave out what is only nice to have: the server refused it

    kind: ClassVar[str]
    optional: ClassVar[bool] = True  # whether ``plain`` changes the request
    note: ClassVar[str]  # how the attribution is known, for the reader

    @abstractmethod
    def request(self) -> Request:
        """The streaming request. May look things up on the server."""

    @abstractmethod
    def parse(self, data: dict[str, Any]) -> Chunk:
        """One event's JSON. Raises ``TypeError``, ``KeyError``, ``ValueError`` or ``IndexError``
        when it is not what the engine sends."""

    @abstractmethod
    def attribution(self) -> Attribution:
        """How chunks become steps; called after ``before``."""

    def before(self) -> None:  # noqa: B027  # most clients have nothing to look at
        """Look at the server's counters before the run, where it has some."""

    def after(self, own: Counters | None) -> Counters | None:
        """The counts to check against: ``own`` came with the stream; None: not reported."""
        return own

    def offered(self) -> list[str] | None:
        """Names of the models the server offers, None when it does not say."""
        try:
            data = lookup_json(self.server, "/v1/models", limits=self.limits)
            return [str(model["id"]) for model in data["data"]]
        except ServerError as error:
            if error.status in (404, 405):
                return None
            raise
        except (TypeError, KeyError):
            raise failures.garbage(self.server, "the list of models") from None

    @property
    def engine(self) -> str:
        return KINDS[self.kind]


def metrics_of(server: Server, prefix: str, limits: Limits) -> dict[str, float]:
    """Counters of ``/metrics`` (Prometheus text) whose name begins with ``prefix``; labels other
    than the position of a draft token are summed over. Empty when the server offers none."""
    try:
        text = lookup(server, "/metrics", limits=limits).decode("utf-8", "replace")
    except ServerError:
        return {}
    values: dict[str, float] = {}
    for line in text.splitlines():
        match = re.fullmatch(r"([a-zA-Z_:][\w:]*)(\{.*\})?\s+([0-9.eE+-]+)", line)
        if match is None or not match[1].startswith(prefix):
            continue
        position = re.search(r'position="(\d+)"', match[2] or "")
        name = match[1].removeprefix(prefix) + (f"[{position[1]}]" if position else "")
        try:
            values[name] = values.get(name, 0.0) + float(match[3])
        except ValueError:
            continue
    return values


def difference(before: dict[str, float], after: dict[str, float]) -> Counters | None:
    """Counts of what happened between two looks at ``spec_decode`` counters."""

    def grown(name: str) -> int | None:
        return int(after[name] - before[name]) if name in before and name in after else None

    accepted = grown("spec_decode_num_accepted_tokens_total")
    if accepted is None or accepted < 0:  # negative: the server was started again meanwhile
        return None
    return Counters(
        "/metrics",
        accepted,
        grown("spec_decode_num_draft_tokens_total"),
        grown("spec_decode_num_drafts_total"),
        own=False,
    )


def openai_body(client: Client, extra: dict[str, Any]) -> Request:
    """A streaming request of the OpenAI protocol with the sampling parameters all engines share."""
    params = client.params
    body: dict[str, Any] = {
        "model": client.server.model,
        "max_tokens": params.max_new_tokens,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "top_k": params.top_k,
        "min_p": params.min_p,
        "repetition_penalty": params.repetition_penalty,
        "presence_penalty": params.presence_penalty,
        "seed": params.seed,
        "ignore_eos": params.ignore_eos,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        **({"stop": list(params.stop)} if params.stop else {}),
        **extra,
    }
    if isinstance(client.prompt, str):
        return Request("/v1/completions", body | {"prompt": client.prompt})
    return Request("/v1/chat/completions", body | {"messages": list(client.prompt)})


CLIENTS: dict[str, type[Client]] = {}


def register(client: type[Client]) -> type[Client]:
    """Class decorator: a new engine is one file."""
    CLIENTS[client.kind] = client
    return client
