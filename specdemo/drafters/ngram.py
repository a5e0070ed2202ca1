"""Prompt lookup (n-gram): propose what followed the last tokens when they stood here before.

Saxena 2023; LLMA (Yang et al. 2023). Longest match first, most recent match; several different
continuations make a tree. No model, hence almost free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ..proposal import ROOT, Proposal
from ..verify import Verdict
from .adaptive import RunningRate, best_depth
from .base import Context, Drafter, control
from .none import EMPTY

LOOK_BACK = 32  # most recent matches tried for further branches; a loop in the text has thousands
#: How often a token copied after a match of 1, 2, 3, 4 tokens was right on Spec-Bench, and how much less
#: often where the match's last two places went on differently.
PRIORS, DISPUTED = (0.3, 0.55, 0.65, 0.8), 0.45
MEMORY = 12.0
_TOKEN, _SIZE = 24, 4  # bits of a token and of a match's size in a key


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

    _places: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _earlier: dict[int, int] = field(default_factory=dict, init=False, repr=False)
    _indexed: int = field(default=0, init=False, repr=False)
    _ids: list[int] = field(default_factory=list, init=False, repr=False)
    _rates: dict[tuple[int, bool], RunningRate] = field(default_factory=dict, init=False, repr=False)
    _matched: tuple[int, bool] = field(default=(1, False), init=False, repr=False)
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
        """The acceptance of drafts after a match like the last one: of its length, disputed or not."""
        if self._matched not in self._rates:
            size, disputed = self._matched
            prior = PRIORS[min(size, len(PRIORS)) - 1] * (DISPUTED if disputed else 1.0)
            self._rates[self._matched] = RunningRate(prior, MEMORY)
        return self._rates[self._matched]

    def _index(self, context: Context) -> None:
        """Take up new tokens. An n-gram remembers where it ended last, and each such place the one
        before it, so a look-up is one hash."""
        self._ids.extend(context.prompt if not self._ids else [])
        self._ids.extend(context.output[len(self._ids) - len(context.prompt) :])
        # An n-gram is entered once a token follows it: the last tokens themselves are no match.
        for end in range(self._indexed + 1, len(self._ids)):
            for size, key in self._keys(end):
                place = self._places.get(key)
                if place is not None:
                    self._earlier[end << _SIZE | size] = place
                self._places[key] = end
        self._indexed = max(self._indexed, len(self._ids) - 1)

    def _keys(self, end: int) -> Iterator[tuple[int, int]]:
        """Size and key of the n-grams that end in front of ``end``, short ones first."""
        key = 0
        for size in range(1, min(self.max_match, end) + 1):
            key = key << _TOKEN | self._ids[end - size] + 1
            if size >= self.min_match:
                yield size, key

    def _continuations(self, depth: int) -> list[list[int]]:
        """Different continuations, longest match first, most recent first."""
        matches: list[tuple[int, int]] = []
        for size, key in self._keys(len(self._ids)):
            place = self._places.get(key)
            if place is None:
                break  # nor does a longer one stand anywhere
            matches.append((size, place))
        if matches:
            size, place = matches[-1]
            before = self._earlier.get(place << _SIZE | size)
            self._matched = size, before is not None and self._ids[before] != self._ids[place]
        found: list[list[int]] = []
        for size, latest in reversed(matches):
            at: int | None = latest
            for _ in range(LOOK_BACK):
                if at is None or len(found) == self.branches:
                    break
                tokens = self._copy(at, depth)
                if tokens not in found:
                    found.append(tokens)
                at = self._earlier.get(at << _SIZE | size)
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
        if len(continuations) == 1:
            return Proposal.chain(continuations[0])
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
