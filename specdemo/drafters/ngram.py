"""Prompt lookup (n-gram): propose what followed the last tokens when they stood here before.

Saxena 2023; LLMA (Yang et al. 2023). Longest match first, most recent match; several different
continuations make a tree. No model, hence almost free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ..proposal import ROOT, Proposal
from ..verify import Verdict
from .adaptive import RunningRate, best_depth
from .base import Context, Drafter, control
from .none import EMPTY

LOOK_BACK = 32  # most recent matches tried for further branches; a loop in the text has thousands


@dataclass
class NGram(Drafter):
    """Drafts up to ``gamma`` tokens after a match of ``max_match`` down to ``min_match`` tokens.

    ``branches`` > 1 adds the continuations of older matches as further branches. ``adaptive`` chooses
    the depth with the best expected speed-up, and none while proposals fail, so that text that does
    not repeat costs nothing; what is not proposed is still compared with what comes, and taken up again
    when it would have been right."""

    name: ClassVar[str] = "ngram"
    deterministic: ClassVar[bool] = True
    gamma: int = control(12, 1, 32)
    max_match: int = control(4, 1, 8)
    min_match: int = control(1, 1, 8)
    branches: int = control(1, 1, 4)
    adaptive: bool = control(True)

    _places: dict[tuple[int, ...], list[int]] = field(default_factory=dict, init=False, repr=False)
    _indexed: int = field(default=0, init=False, repr=False)
    _ids: list[int] = field(default_factory=list, init=False, repr=False)
    _rates: dict[int, RunningRate] = field(default_factory=dict, init=False, repr=False)
    _matched: int = field(default=0, init=False, repr=False)
    _held_back: list[int] = field(default_factory=list, init=False, repr=False)

    def start(self, context: Context) -> None:
        self._index(context)

    def propose(self, context: Context) -> Proposal:
        self._index(context)
        self._held_back = []
        limit = min(self.gamma, context.room)
        if limit < 1:
            return EMPTY
        found = self._continuations(limit)
        if not found or not self.adaptive:
            return self._merge(found)
        depth = best_depth(self._rate().value, limit, context.pass_cost)
        if depth == 0:
            self._held_back = found[0]
        return self._merge([tokens[:depth] for tokens in found] if depth else [])

    def rate(self) -> float:
        """How often tokens drafted after a match like the last one are accepted, as estimated."""
        return self._rate().value

    def _rate(self) -> RunningRate:
        """The acceptance of drafts after a match of this length: longer matches deserve more trust (the
        priors are about what was seen on Spec-Bench)."""
        if self._matched not in self._rates:
            self._rates[self._matched] = RunningRate(prior=min(0.9, 0.1 + 0.2 * self._matched))
        return self._rates[self._matched]

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
        self._matched = 0
        for size in range(min(self.max_match, len(self._ids)), self.min_match - 1, -1):
            places = self._places.get(tuple(self._ids[-size:]), [])
            for end in reversed(places[-LOOK_BACK:]):
                tokens = self._copy(end, depth)
                self._matched = self._matched or size
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
        """Learn how often drafts after a match of this length are accepted."""
        if self.adaptive and len(proposal):
            self._rate().update(len(verdict.path), int(verdict.origin == "corrected"))
        elif self.adaptive:
            self.compare(self._held_back, [verdict.final])

    def compare(self, copied: Sequence[int], committed: Sequence[int]) -> None:
        """Learn from what was committed where ``copied`` might have been drafted, drafted or not."""
        right = 0
        while right < min(len(copied), len(committed)) and copied[right] == committed[right]:
            right += 1
        if copied:
            self._rate().update(right, int(right < min(len(copied), len(committed))))
