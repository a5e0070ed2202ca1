"""What the engine tells of a round: events, held back only as long as a stop text may take them back."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .detokenize import Detokenizer, Pieces
from .drafters import Context
from .drift import Drift
from .events import Drafted, DraftNode, Event, Reason, Token, Verified
from .output import Output
from .proposal import Proposal, depths
from .rows import Rows
from .run import Run
from .trace import alternatives
from .verify import NOT_JUDGED, AcceptanceRule, Verdict

if TYPE_CHECKING:
    from .engine import Engine


class Stopwatch:
    """Laps in milliseconds, the device waited for at each; time spent outside (the consumer of the
    events) does not count."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self._synchronize = synchronize
        self._since = time.perf_counter()

    def lap(self) -> float:
        self._synchronize()
        now = time.perf_counter()
        passed, self._since = now - self._since, now
        return passed * 1000.0

    def outside(self, items: Iterable[Event]) -> Iterator[Event]:
        """Yield the items; the time until the consumer comes back is left out."""
        for item in items:
            before = time.perf_counter()
            yield item
            self._since += time.perf_counter() - before


@dataclass(slots=True)
class _Pending:
    """A round whose events are not out yet."""

    proposal: Proposal
    verdict: Verdict
    first: int  # index of its first token in the output
    tokens: list[Token]
    times: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class Reporter:
    """Turns verdicts into committed output and events; keeps the run's figures.

    ``context_left``: tokens the model's context holds after the prompt."""

    engine: Engine
    context: Context
    rule: AcceptanceRule
    trace: bool
    context_left: int
    run: Run = field(default_factory=Run)
    output: Output = field(init=False)
    _pending: deque[_Pending] = field(default_factory=deque)
    _rounds: int = 0
    _detokenizer: Detokenizer = field(init=False)
    _drift: Drift | None = field(init=False)

    def __post_init__(self) -> None:
        params = self.context.params
        eos = frozenset[int]() if params.ignore_eos else self.engine.target.eos_ids
        self.output = Output(eos, params.stop, params.max_new_tokens, self.context_left)
        self._detokenizer = Detokenizer(self.engine.target.tokenizer, self.pieces.whole)
        self._drift = None if self.rule.lossless else Drift(params.greedy)

    @property
    def pieces(self) -> Pieces:
        return self.engine.pieces

    @property
    def reason(self) -> Reason | None:
        return self.output.reason

    @property
    def room(self) -> int:
        """Deepest useful draft: one token of the round always comes from the target itself."""
        done = len(self.output.ids)
        return max(0, min(self.context.params.max_new_tokens, self.context_left) - done - 1)

    def commit(self, proposal: Proposal, verdict: Verdict, p: Rows, logits: Tensor) -> None:
        """Commit a round's tokens, up to the end of the run if it lies among them."""
        first, tokens = len(self.output.ids), list[Token]()
        for node in (*verdict.path, None):
            id_ = verdict.final if node is None else proposal.tokens[node]
            row = verdict.final_row if node is None else proposal.parents[node] + 1
            before = len(self.output.ids)
            self.output.push(id_, self._detokenizer.push(id_))
            if self._drift is not None:
                taken = None if node is None else p.row(row).prob(id_)
                self._drift.add(logits[row], id_, taken)
            if len(self.output.ids) > before:
                with_q = node is not None and proposal.q is not None
                tokens.append(
                    Token(
                        id=id_,
                        text=self.output.texts[-1],
                        origin=verdict.origin if node is None else "accepted",
                        p=p.row(row).prob(id_),
                        q=float(proposal.q[node][id_]) if with_q else None,  # type: ignore[index]
                        node=node,
                    )
                )
            if self.output.reason is not None:
                break
        self.context.output.extend(token.id for token in tokens)
        self._pending.append(_Pending(proposal, verdict, first, tokens))

    def annotate(self, p: Rows, logits: Tensor) -> None:
        """Add plain probabilities and alternatives to the newest round's tokens (traced runs)."""
        if not self.trace:
            return
        newest = self._pending[-1]
        for index, token in enumerate(newest.tokens):
            prob, likeliest = alternatives(
                token, newest.proposal, newest.verdict, p, logits, self.pieces
            )
            newest.tokens[index] = replace(token, prob=prob, alternatives=likeliest)

    def ready(self, *times: float) -> list[Event]:
        """Events whose text no stop can take back any more. ``times`` of the newest round in
        milliseconds: draft, target pass, verification with the target pass, overhead."""
        self._pending[-1].times = times  # type: ignore[assignment]  # four floats
        if self.output.reason is not None:
            self._align()
        result: list[Event] = []
        while self._pending and self._is_settled(self._pending[0]):
            result += self._events(self._pending.popleft())
        return result

    def _is_settled(self, pending: _Pending) -> bool:
        return pending.first + len(pending.tokens) <= self.output.settled

    def flush(self) -> list[Event]:
        """The events still held back, once the run has ended."""
        return [event for pending in self._pending for event in self._events(pending)]

    def _align(self) -> None:
        """Bring pending rounds in line with what a stop text cut away, before any of them is out."""
        for pending in self._pending:
            left = max(0, len(self.output.ids) - pending.first)
            texts = self.output.texts[pending.first :]
            pending.tokens = [
                replace(token, text=text)
                for token, text in zip(pending.tokens[:left], texts, strict=False)
            ]

    def _events(self, pending: _Pending) -> list[Event]:
        draft_ms, target_ms, verify_ms, overhead_ms = pending.times
        proposal, count = pending.proposal, len(pending.tokens)
        # The walk may have gone on behind the end of the run: that decided nothing.
        verdicts = tuple(
            verdict if depth < count else NOT_JUDGED
            for verdict, depth in zip(pending.verdict.judgements, depths(proposal.parents), strict=True)
        )
        drafted = Drafted(self._rounds, self._nodes(proposal), draft_ms, proposal.source)
        verified = Verified(
            self._rounds, verdicts, tuple(pending.tokens), verify_ms, overhead_ms, target_ms
        )
        self._rounds += 1
        self.run.add(drafted)
        self.run.add(verified)
        return [drafted, verified]

    def _nodes(self, proposal: Proposal) -> tuple[DraftNode, ...]:
        q = proposal.q
        return tuple(
            DraftNode(
                token,
                self.pieces.text(token),
                parent,
                None if q is None else float(q[node][token]),
            )
            for node, (token, parent) in enumerate(zip(proposal.tokens, proposal.parents, strict=True))
        )

    def extra(self) -> dict[str, Any]:
        """Figures of the run beyond the common ones."""
        return {} if self._drift is None else {"drift": self._drift.summary()}
