"""From chunks to verify steps: which tokens of a server's stream were accepted drafts.

Two ways. ``ChunkSteps``: one chunk is one engine step, so k tokens are k - 1 accepted and one from
the target (vLLM, SGLang, TensorRT-LLM). ``CounterSteps``: the server counts drafted and accepted
tokens as it goes, so steps are known exactly (llama.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ..events import Origin, Token
from .chunks import Chunk, Counters, Splitter


@dataclass(slots=True)
class Step:
    """One engine step: its tokens and when they came (seconds since the request). ``accepted`` and
    ``drafted`` are the step's counts where the server reports them live, None otherwise."""

    at: float
    tokens: list[Token] = field(default_factory=list)
    accepted: int | None = None
    drafted: int | None = None
    sure: bool = True


class Attribution(Protocol):
    """``feed`` gives the steps that a chunk completes; ``finish`` the rest, once the counts are in."""

    merged: int  # chunks seen to hold more than one step

    def feed(self, at: float, chunk: Chunk) -> list[Step]: ...
    def finish(self, counters: Counters | None) -> list[Step]: ...


@dataclass(slots=True)
class ChunkSteps:
    """``most``: the longest draft of the server, None if unknown. ``speculates``: False when the
    server is known not to, so that a chunk of several plain steps is not taken for a draft.
    ``sure``: False marks every token as inferred."""

    most: int | None = None
    speculates: bool | None = None
    sure: bool = True
    merged: int = 0
    accepted: int = 0  # accepted tokens given out so far
    _first: bool = True
    _held: tuple[float, list[Token]] | None = None
    _text: Splitter = field(default_factory=Splitter)
    _late: str = ""

    def feed(self, at: float, chunk: Chunk) -> list[Step]:
        text = self._late + chunk.text
        if not chunk.ids:  # text without tokens waits for the next one
            self._late = text
            return []
        self._late = ""
        pieces = chunk.pieces or (None,) * len(chunk.ids)
        probs = chunk.probs or (None,) * len(chunk.ids)
        parts = self._text.split(text, pieces)
        tokens = [
            Token(id_, part, "target", prob=prob, certain=self.sure and chunk.counted)
            for id_, part, prob in zip(chunk.ids, parts, probs, strict=True)
        ]
        done = self._release(None)
        # The last chunk may be a step cut short; only the counts tell, so it waits for them.
        self._held = (at, tokens)
        if chunk.reason is None:
            done += self._release(None)
        return done

    def finish(self, counters: Counters | None) -> list[Step]:
        if self._late and self._held is not None:
            tokens = self._held[1]
            tokens[-1] = _with(tokens[-1], text=tokens[-1].text + self._late)
        self._late = ""
        return self._release(counters)

    def _release(self, counters: Counters | None) -> list[Step]:
        if self._held is None:
            return []
        (at, tokens), self._held = self._held, None
        first, self._first = self._first, False
        if self.speculates is False:
            if len(tokens) > 1:
                self.merged += 1
            return [Step(at, tokens)]
        count, certain = len(tokens), tokens[0].certain
        accepted = 0 if first else count - 1
        if counters is not None and counters.own and counters.accepted is not None and not first:
            # More accepted than shown before: the step was cut, all that is visible was drafted.
            left = counters.accepted - self.accepted
            if left >= count:
                accepted = count
        if (self.most is not None and accepted > self.most) or (first and count > 1):
            self.merged += 1
            certain = False
        self.accepted += accepted
        marked = [
            _with(token, origin="accepted" if index < accepted else "target", certain=certain)
            for index, token in enumerate(tokens)
        ]
        return [Step(at, marked)]


@dataclass(slots=True)
class CounterSteps:
    """Steps from counts that run along with the tokens. A jump of the drafted count begins a step;
    with d the jump of the accepted count, the next d tokens are accepted and one more follows,
    corrected if d is less than was drafted, bonus if all was accepted.

    ``hold``: keep the last step back until the next one, because text that a possible stop text
    holds back may still come after the last token."""

    hold: bool = False
    merged: int = 0
    accepted: int = 0
    _ready: list[Step] = field(default_factory=list)
    _drafted: int = 0
    _counted: int = 0
    _open: Step | None = None
    _text: Splitter = field(default_factory=Splitter)
    _late: str = ""

    def feed(self, at: float, chunk: Chunk) -> list[Step]:
        text, count = self._late + chunk.text, len(chunk.ids)
        self._late = "" if count else text
        if not count:
            return []
        pieces = chunk.pieces or (None,) * count
        parts = self._text.split(text, pieces)
        tokens = [Token(i, t, "target") for i, t in zip(chunk.ids, parts, strict=True)]
        drafted, accepted = chunk.progress or (self._drafted, self._counted)
        new, good = drafted - self._drafted, accepted - self._counted
        if new < 0 or good < 0 or good > new:
            raise ValueError("counts that run backwards")
        self._drafted, self._counted = drafted, accepted
        sure = not (new and count > 1)
        self.merged += not sure
        if new:
            # Tokens of an unfinished step come first; the last one of the chunk is of the new step.
            while self._open is not None and len(tokens) > 1:
                self._place(at, tokens.pop(0), False)
            self._close()
            self._open = Step(at, accepted=good, drafted=new, sure=sure)
        for token in tokens:
            self._place(at, token, sure)
        ready, self._ready = self._ready, []
        if self.hold and ready:
            self._ready.append(ready.pop())
        return ready

    def finish(self, counters: Counters | None) -> list[Step]:
        self._close()
        if self._late and self._ready:
            last = self._ready[-1].tokens
            last[-1] = _with(last[-1], text=last[-1].text + self._late)
        done, self._ready, self._late = self._ready, [], ""
        return done

    def _place(self, at: float, token: Token, sure: bool) -> None:
        step = self._open
        if step is None:
            self._ready.append(Step(at, [_with(token, certain=sure)], accepted=0, drafted=0))
            return
        good, drafted = step.accepted or 0, step.drafted or 0
        origin: Origin = "accepted"
        if len(step.tokens) == good:
            origin = "bonus" if good == drafted else "corrected"
        else:
            self.accepted += 1
        step.tokens.append(_with(token, origin=origin, certain=sure and step.sure))
        if len(step.tokens) > good:
            self._close()

    def _close(self) -> None:
        if self._open is not None:
            self._ready.append(self._open)
            self._open = None


def _with(
    token: Token, text: str | None = None, origin: Origin | None = None, certain: bool | None = None
) -> Token:
    return Token(
        token.id,
        token.text if text is None else text,
        token.origin if origin is None else origin,
        prob=token.prob,
        certain=token.certain if certain is None else certain,
    )
