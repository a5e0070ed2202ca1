"""The museum of bugs: wrong ways to judge a draft that were found in real programs.

Each exhibit runs through the real verification walk (``verify.verify``); only the mistake differs, so
that what it does to the output distribution can be seen. None of them is offered for real runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from .rows import Dense, Row
from .verify import AcceptanceRule, Exact, Typical


@dataclass(frozen=True, slots=True)
class NoResidual:
    """Bug: after a refusal the token is drawn from p again instead of the residual, so what the
    draft likes gets a second chance."""

    name: ClassVar[str] = "no_residual"
    lossless: ClassVar[bool] = False

    def threshold(self, p: Row, token: int, q: float) -> float:
        return Exact().threshold(p, token, q)

    def refuse(self, p: Row, token: int, q: Tensor | None) -> Row:
        return p


@dataclass(frozen=True, slots=True)
class SameText:
    """Bug: the draft is taken when its text equals that of the target's likeliest token, blanks and
    case aside: strings compared where distributions should be. ``texts``: the vocabulary's texts."""

    name: ClassVar[str] = "strings"
    lossless: ClassVar[bool] = False
    texts: Sequence[str]

    def threshold(self, p: Row, token: int, q: float) -> float:
        assert isinstance(p, Dense)
        return float(self._plain(token) == self._plain(int(p.probs.argmax())))

    def refuse(self, p: Row, token: int, q: Tensor | None) -> Row:
        return p

    def _plain(self, token: int) -> str:
        return self.texts[token].strip().lower()


Draft = Literal["sample", "argmax"]
Claim = Literal["q", "raw_q"]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A way to draft and judge. ``draft``: how the program picks its tokens from q; ``claim``: which
    distribution it tells the verification that they were drawn from."""

    key: str
    rule: AcceptanceRule
    draft: Draft = "sample"
    claim: Claim = "q"
    bug: bool = True


def exhibits(texts: Sequence[str]) -> dict[str, Exhibit]:
    """All of them by key, the correct rule first. ``texts``: the vocabulary's texts by id."""
    every = (
        Exhibit("exact", Exact(), bug=False),
        Exhibit("no_residual", NoResidual()),
        Exhibit("greedy_as_sampled", Exact(), draft="argmax"),
        Exhibit("strings", SameText(texts)),
        Exhibit("q_before_temperature", Exact(), claim="raw_q"),
        Exhibit("typical", Typical(), bug=False),
    )
    return {exhibit.key: exhibit for exhibit in every}


KEYS = tuple(exhibits(()))
