"""Prompt lookup (n-gram): propose what followed the last tokens when they stood here before.

Saxena 2023; LLMA (Yang et al. 2023). Longest match first, most recent match; several different
continuations make a tree. No model, hence almost free."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from ..proposal import ROOT, Proposal
from ..verify import Verdict
from .base import Context, Drafter, control
from .none import EMPTY

LOOK_BACK = 32  # most recent matches tried for further branches; a loop in the text has thousands


@dataclass
class NGram(Drafter):
    """Drafts up to ``gamma`` tokens after a match of ``max_match`` down to ``min_match`` tokens.

    ``branches`` > 1 adds the continuations of older matches as further branches. ``adaptive`` stops
    proposing while proposals fail and shortens them when only their beginnings are taken, so that
    text that does not repeat costs nothing."""

    name: ClassVar[str] = "ngram"
    deterministic: ClassVar[bool] = True
    gamma: int = control(8, 1, 32)
    max_match: int = control(4, 1, 8)
    min_match: int = control(2, 1, 8)
    branches: int = control(1, 1, 4)
    adaptive: bool = control(True)

    _places: dict[tuple[int, ...], list[int]] = field(default_factory=dict, init=False, repr=False)
    _indexed: int = field(default=0, init=False, repr=False)
    _ids: list[int] = field(default_factory=list, init=False, repr=False)
    _length: float = field(default=0.0, init=False, repr=False)
    _pause: int = field(default=0, init=False, repr=False)
    _failures: int = field(default=0, init=False, repr=False)

    def propose(self, context: Context) -> Proposal:
        self._index(context)
        if self._pause > 0:
            self._pause -= 1
            return EMPTY
        depth = min(self.gamma, context.room)
        if self.adaptive and self._length:
            depth = min(depth, max(1, round(self._length)))
        if depth < 1:
            return EMPTY
        return self._merge(self._continuations(depth))

    def _index(self, context: Context) -> None:
        """Take up new tokens; every n-gram remembers where it ended, so a look-up is one hash."""
        self._ids.extend(context.prompt if not self._ids else [])
        self._ids.extend(context.output[len(self._ids) - len(context.prompt) :])
        # An n-gram is entered once a token follows it: the last tokens themselves are no match.
        for end in range(self._indexed + 1, len(self._ids)):
            for size in range(self.min_match, self.max_match + 1):
                if size <= end:
                    key = tuple(self._ids[end - size : end])
                    self._places.setdefault(key, []).append(end)
        self._indexed = max(self._indexed, len(self._ids) - 1)

    def _continuations(self, depth: int) -> list[list[int]]:
        """Different continuations, longest match first, most recent first."""
        found: list[list[int]] = []
        for size in range(min(self.max_match, len(self._ids)), self.min_match - 1, -1):
            places = self._places.get(tuple(self._ids[-size:]), [])
            for end in reversed(places[-LOOK_BACK:]):
                tokens = self._copy(end, depth)
                if not any(tokens == other[: len(tokens)] for other in found):
                    found.append(tokens)
                if len(found) == self.branches:
                    return found
        return found

    def _copy(self, start: int, depth: int) -> list[int]:
        """``depth`` tokens from ``start``; a match that runs into the end goes on in its own copy
        (text with a short period)."""
        tokens = self._ids[start : start + depth]
        period = len(self._ids) - start
        while len(tokens) < depth:
            tokens.append(tokens[len(tokens) - period])
        return tokens

    @staticmethod
    def _merge(continuations: list[list[int]]) -> Proposal:
        """A tree of the continuations, common beginnings shared."""
        tokens: list[int] = []
        parents: list[int] = []
        nodes: dict[tuple[int, int], int] = {}
        for continuation in continuations:
            parent = ROOT
            for token in continuation:
                if (parent, token) not in nodes:
                    nodes[parent, token] = len(tokens)
                    tokens.append(token)
                    parents.append(parent)
                parent = nodes[parent, token]
        return Proposal(tokens, parents)

    def observe(self, context: Context, proposal: Proposal, verdict: Verdict) -> None:
        """Lengthen after success, shorten after partial success, pause after failures in a row."""
        if not self.adaptive or not len(proposal):
            return
        taken = len(verdict.path)
        if taken == 0:
            self._failures += 1
            # A refused draft costs a wider pass; wait longer each time, at most 32 rounds.
            self._pause = min(32, 2**self._failures)
            self._length = 2.0
        else:
            self._failures = 0
            whole = taken >= max(1, round(self._length or self.gamma))
            self._length = min(self.gamma, taken * 2.0 if whole else taken + 1.0)


__all__ = ["NGram"]
