"""What a drafter is: ``propose(context) -> Proposal``. A method is one file and one registry line."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from torch import Tensor

from ..errors import InputError
from ..proposal import Proposal
from ..rows import Chooser, DenseRows, PeakRows
from ..sampling import SamplingParams, distributions
from ..target import Session, Target
from ..verify import Verdict
from .adaptive import PassCost, free_pass


@dataclass(slots=True)
class Context:
    """What a drafter may look at in a round.

    ``prompt`` and ``output``: committed ids. ``room``: the deepest useful draft this round (0: none),
    from the tokens still wanted and the context left. ``session``: the target's cache, which holds
    all committed ids but the last; its ``hidden`` are the captured states of the last pass (after
    prefill: all prompt rows but the last; then: the last pass's rows, ``kept`` the kept ones of them).
    ``pass_cost(rows)``: time of a verify pass of so many rows, in one-row passes, as measured here.
    """

    target: Target
    session: Session
    params: SamplingParams
    chooser: Chooser
    prompt: list[int]
    output: list[int] = field(default_factory=list)
    room: int = 0
    kept: Sequence[int] = ()
    pass_cost: PassCost = free_pass

    @property
    def ids(self) -> list[int]:
        """Prompt and output (a new list: prefer ``last`` and ``length`` in hot paths)."""
        return self.prompt + self.output

    @property
    def last(self) -> int:
        return self.output[-1] if self.output else self.prompt[-1]

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.output)

    def distributions(
        self, logits: Tensor, prefixes: Sequence[Sequence[int]] | None = None
    ) -> PeakRows | DenseRows:
        """Draft logits ``[T, V]`` processed exactly as the target's are; ``prefixes[i]``: the draft
        tokens before row i. The drafter must sample its tokens from these rows."""
        return distributions(logits, self.params, self.prompt, self.output, prefixes)


def control(default: Any, low: float | None = None, high: float | None = None, step: float = 1) -> Any:
    """A dataclass field that the page and the command line offer as a control. Strings, booleans
    and whole numbers are told apart by the default's type."""
    return field(default=default, metadata={"control": True, "low": low, "high": high, "step": step})


@dataclass
class Drafter(ABC):
    """Base of all drafters. A drafter lives for one run; what is heavy (weights) is passed in.

    A subclass is a dataclass whose ``control(...)`` fields are its settings. ``hidden_layers``: the
    target states it needs. It keeps its own cache and crops it to the longest common prefix with
    the committed tokens."""

    name: ClassVar[str]
    lossless: ClassVar[bool] = True
    deterministic: ClassVar[bool] = False  # proposes with q = None even when sampling

    @classmethod
    def build(cls, target: Target, settings: dict[str, Any], **resources: Any) -> Drafter:
        """From checked settings. ``resources``: ``draft`` (a ``Target``) and the like.
        Raises ``InputError`` when the drafter cannot work with this target."""
        return cls(**check_settings(cls, settings))

    @property
    def hidden_layers(self) -> tuple[int, ...]:
        return ()

    def settings(self) -> dict[str, Any]:
        """The controls' values, as plain values for recordings."""
        return {name: getattr(self, name) for name in controls(type(self))}

    def start(self, context: Context) -> None:  # noqa: B027 (optional)
        """Called once after the prompt's prefill, outside the decode time."""

    @abstractmethod
    def propose(self, context: Context) -> Proposal:
        """The draft for this round, no deeper than ``context.room``; empty when nothing is worth it."""

    def observe(  # noqa: B027 (optional)
        self, context: Context, proposal: Proposal, verdict: Verdict
    ) -> None:
        """What became of the proposal, after its tokens were committed (adaptive drafters)."""

    def close(self) -> None:  # noqa: B027 (optional)
        """Free what the run held."""


def controls(kind: type[Drafter]) -> dict[str, dataclasses.Field[Any]]:
    """The drafter's settings by name, in order of definition."""
    return {f.name: f for f in dataclasses.fields(kind) if f.metadata.get("control")}


def check_settings(kind: type[Drafter], settings: dict[str, Any]) -> dict[str, Any]:
    """Settings with their types and ranges checked. Raises ``InputError`` with one sentence."""
    known = controls(kind)
    result: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in known:
            names = ", ".join(known) or "none"
            raise InputError("unknown_setting", drafter=kind.name, name=name, known=names)
        result[name] = _checked(known[name], value)
    return result


def _checked(f: dataclasses.Field[Any], value: Any) -> Any:
    low, high = f.metadata["low"], f.metadata["high"]
    kind: Any = type(f.default)
    if kind is bool or kind is str:
        good = isinstance(value, kind)
    else:
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        good = good and low <= value <= high and (kind is float or value == int(value))
    if not good:
        raise InputError("range", name=f.name, value=repr(value)[:40], low=low, high=high)
    return value if kind in (bool, str) else kind(value)
