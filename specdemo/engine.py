"""The round loop: draft, verify, keep. Every method runs through it; plain decoding is the drafter
``none``. Generation is a generator of events: closing it frees the cache."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict

import torch

from . import environment, events
from .detokenize import Pieces
from .drafters import Context, Drafter
from .drafters.adaptive import PassCost, free_pass
from .drafters.none import NoDraft
from .errors import InputError
from .metrics import summarise
from .pass_cost import pass_cost
from .probe import promise_of
from .prompt import Turns, encode, last_text
from .report import Reporter, Stopwatch
from .rows import Chooser, TorchChooser
from .sampling import SamplingParams, penalise, rows_of
from .target import Session, Target
from .verify import AcceptanceRule, Exact, rule_rows, verify

SPARE_ROWS = 130  # of the cache, for the draft rows of one round


class Engine:
    """Runs prompts on one target. Holds no state of a run: two generations cannot meet."""

    def __init__(self, target: Target, pass_cost: PassCost = free_pass, promise: str = "") -> None:
        """``pass_cost``: see ``Context``; adaptive drafters choose their length by it. ``promise``:
        see ``probe``, empty where nobody looked."""
        self.target, self.pass_cost, self.promise = target, pass_cost, promise
        self.pieces = Pieces(target.tokenizer)

    @classmethod
    def measured(cls, target: Target) -> Engine:
        """An engine whose adaptive drafters know what a wider pass costs on this device, and whose
        runs say which promise holds here."""
        return cls(target, pass_cost(target), promise_of(target).key)

    def generate(
        self,
        prompt: Turns,
        drafter: Drafter,
        params: SamplingParams,
        *,
        rule: AcceptanceRule | None = None,
        raw: bool = False,
        trace: bool = False,
        cancel: threading.Event | None = None,
        shown: str | None = None,
        chooser: Chooser | None = None,
    ) -> Iterator[events.Event]:
        """Events of one run.

        ``prompt``: a text or chat turns; ``raw``: without the chat template. ``trace``: likeliest
        alternatives and plain probabilities with every token. ``cancel``: checked once a round.
        ``shown``: the prompt as the events carry it (default: the last turn's text). ``chooser``: the
        source of chance (default: a generator of the run's own, from ``params.seed``).

        Raises ``InputError`` (one sentence) for bad input or when the device has no memory left."""
        rule = rule or Exact()
        ids = encode(self.target, prompt, raw)
        context_left = self.target.shape.context - len(ids)
        capacity = len(ids) + min(params.max_new_tokens, context_left) + SPARE_ROWS
        session: Session | None = None
        try:
            session = self.target.open(capacity, drafter.hidden_layers)
            chooser = chooser or TorchChooser(params.seed)
            context = Context(self.target, session, params, chooser, ids, pass_cost=self._cost(capacity))
            reporter = Reporter(self, context, rule, trace, context_left)
            yield self._started(shown or last_text(prompt), context, drafter, rule)
            yield from self._rounds(context, drafter, rule, reporter, cancel)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            raise InputError("no_memory") from error
        finally:
            drafter.close()
            if session is not None:
                session.close()

    def _cost(self, capacity: int) -> PassCost:
        """What passes cost behind as many tokens as a run with this cache will mostly have."""
        at = getattr(self.pass_cost, "at", None)
        cost: PassCost = self.pass_cost if at is None else at(capacity - SPARE_ROWS)
        return cost

    def _rounds(
        self,
        context: Context,
        drafter: Drafter,
        rule: AcceptanceRule,
        reporter: Reporter,
        cancel: threading.Event | None,
    ) -> Iterator[events.Event]:
        session, params = context.session, context.params
        watch = Stopwatch(self.target.synchronize)
        session.prefill(context.prompt[:-1])
        drafter.start(context)
        prefill_ms, spill_ms = watch.lap(), 0.0
        while reporter.reason is None and not (cancel and cancel.is_set()):
            context.room = reporter.room
            proposal = drafter.propose(context)
            draft_ms = watch.lap()
            # Row 0 is the last committed token, row i+1 the draft's node i.
            tokens = [context.last, *proposal.tokens]
            parents = [-1, *(parent + 1 for parent in proposal.parents)]
            logits = session.forward(tokens, parents)  # [1 + nodes, V]
            target_ms = watch.lap()
            scores = logits
            if params.penalised:
                scores = penalise(logits, params, context.prompt, context.output, proposal.prefixes())
            p = rows_of(scores, params)
            verdict = verify(proposal, rule_rows(rule, p, scores, params), rule, context.chooser)
            context.kept = [0, *(node + 1 for node in verdict.path)]
            session.keep(context.kept)
            verify_ms = watch.lap()
            reporter.commit(proposal, verdict, p, scores)
            drafter.observe(context, proposal, verdict)
            overhead_ms = watch.lap() + spill_ms
            reporter.annotate(p, logits)
            watch.lap()  # what only the lesson needs is not a part of decoding
            ready = reporter.ready(draft_ms, target_ms, target_ms + verify_ms, overhead_ms)
            spill_ms = watch.lap()  # building the events counts in the next round
            yield from watch.outside(ready)
        yield from reporter.flush()
        reason = reporter.reason or "cancelled"
        yield self._finished(reporter, reason, prefill_ms)

    def _started(
        self, shown: str, context: Context, drafter: Drafter, rule: AcceptanceRule
    ) -> events.Started:
        params = asdict(context.params)
        own = {f"draft_{k}" if k in params else k: v for k, v in drafter.settings().items()}
        settings = {**params, **own, "acceptance": rule.name}
        settings["stop"] = list(context.params.stop)  # as JSON gives it back
        if not rule.lossless:
            settings |= asdict(rule)  # type: ignore[call-overload]  # rules are dataclasses
        return events.Started(
            version=events.SCHEMA_VERSION,
            model=self.target.name,
            drafter=drafter.name,
            prompt=shown,
            prompt_tokens=len(context.prompt),
            settings=settings,
            device=self.target.device.type,
            dtype=self.target.dtype_name,
            seed=context.params.seed,
            lossless=rule.lossless and drafter.lossless,
            environment=environment.describe(self.target.device)
            | {"kernels": self.target.kernels}
            | ({"promise": self.promise} if self.promise else {}),
        )

    def _finished(self, reporter: Reporter, reason: events.Reason, prefill_ms: float) -> events.Finished:
        output = reporter.output
        summary = {**summarise(reporter.run, prefill_ms), **reporter.extra()}
        return events.Finished(reason, output.text, tuple(output.ids), summary)

    def warm_up(self, *drafters: Drafter) -> None:
        """One short run each, plain and with these drafters, so that the first measured run does not
        pay for what is done once."""
        params = SamplingParams(max_new_tokens=12, ignore_eos=True)
        for drafter in (NoDraft(), *drafters):
            for _ in self.generate("one two one two one two", drafter, params, raw=True):
                pass


def out_of_memory(error: BaseException) -> bool:
    """Whether the device, or the machine, had no memory left (torch reports both in its own way)."""
    if isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError)):
        return True
    text = str(error).lower()
    return any(words in text for words in ("not enough memory", "allocate memory", "out of memory"))


__all__ = ["Engine", "out_of_memory"]
