"""Speculation with a draft model (Leviathan et al. 2022; Chen et al. 2023): a small causal LM drafts
a chain, sampled from its own q after the same processing as p."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ..errors import InputError
from ..lean.session import LeanSession
from ..loading import check_tokenizers
from ..proposal import Proposal
from ..rows import Dense
from ..target import Session, Target
from ..verify import Verdict
from . import shortlist
from .adaptive import RunningRate, best_depth
from .base import Context, Drafter, check_settings, control
from .none import EMPTY


@dataclass
class DraftModel(Drafter):
    """Drafts ``gamma`` tokens with ``model``. ``confidence`` > 0 ends a draft early when the draft's
    own probability of its token falls below it (the token is still proposed: dropping it because of
    what it is would make sampling inexact). ``adaptive``: the depth with the best expected speed-up,
    by how often drafts were accepted in this run; no draft while none is worth it."""

    name: ClassVar[str] = "draft_model"
    gamma: int = control(4, 1, 16)
    confidence: float = control(0.0, 0.0, 1.0, 0.05)
    adaptive: bool = control(False)

    model: Target | None = field(default=None, repr=False)
    ids: Tensor | None = field(default=None, repr=False)  # what the logits are for; None: all tokens
    step_cost: float = field(default=0.0, repr=False)  # of a draft step, in one-row target passes
    _rate: RunningRate = field(default_factory=lambda: RunningRate(0.6), init=False, repr=False)
    _session: Session | None = field(default=None, init=False, repr=False)
    _named: Tensor | None = field(default=None, init=False, repr=False)  # ``ids`` of this run
    _cached: list[int] = field(default_factory=list, init=False, repr=False)

    @classmethod
    def build(
        cls,
        target: Target,
        settings: dict[str, Any],
        draft: Target | None = None,
        ids: Tensor | None = None,
        **resources: Any,
    ) -> DraftModel:
        """``draft``: the loaded draft model; ``ids``: the tokens its logits are for, where it is
        restricted to some. Raises ``InputError`` without one, or when its tokenizer is another than
        the target's (a padded vocabulary is not another)."""
        if draft is None:
            raise InputError(
                "needs", drafter=cls.name, model=target.name, why="no draft model is configured for it"
            )
        check_tokenizers(target, draft)
        made = cls(**check_settings(cls, settings), model=draft, ids=ids)
        made.step_cost = shortlist.step_cost(draft, target) if made.adaptive else 0.0
        return made

    def start(self, context: Context) -> None:
        assert self.model is not None
        limit = min(self.model.shape.context, context.session.capacity)
        model, self._named = shortlist.extended(self.model, self.ids, context.prompt)
        self._session = model.open(limit + self.gamma + 1)
        if len(context.prompt) < self.model.shape.context:
            self._catch_up(context.prompt[:-1])

    def propose(self, context: Context) -> Proposal:
        assert self._session is not None and self.model is not None
        ids = context.ids
        depth = min(self.gamma, context.room, self.model.shape.context - len(ids))
        if self.adaptive and depth > 0:
            depth = best_depth(self._rate.value, depth, context.pass_cost, self.step_cost)
            if depth == 0:
                self._rate.forget()
        if depth < 1:
            return EMPTY
        self._crop(ids)
        pending = ids[len(self._cached) :]  # committed ids that the cache has not seen
        return self._chain(context, pending, depth) or self._sampled(context, pending, depth)

    def _chain(self, context: Context, pending: Sequence[int], depth: int) -> Proposal | None:
        """Greedy drafts in one call, where there are kernels for it: in a tiny model what lies between
        its passes takes longer than they do."""
        session, width = self._session, context.target.shape.vocab
        if not context.params.greedy or context.params.penalised or not isinstance(session, LeanSession):
            return None
        assert self.model is not None
        columns = min(len(self.model.tokenizer), width) if self._named is None else len(self._named)
        tokens = session.chain(pending, depth, self._named, columns, self.confidence)
        if tokens is None:
            return None
        self._cached += [*pending, *tokens[:-1]]
        return Proposal.chain(tokens)

    def _sampled(self, context: Context, pending: Sequence[int], depth: int) -> Proposal:
        """Each token drawn from its own q."""
        width = context.target.shape.vocab
        tokens: list[int] = []
        rows: list[Tensor] = []
        for _ in range(depth):
            logits = self._over_vocabulary(self._step(pending)[-1:], width)  # [1, V]
            q = context.distributions(logits, [tokens]).row(0)
            token = q.draw(context.chooser)
            tokens.append(token)
            if isinstance(q, Dense):
                rows.append(q.probs)
            if self.confidence and self._probability(q.prob(token), logits, token) < self.confidence:
                break
            pending = [token]
        return Proposal.chain(tokens, torch.stack(rows) if rows else None)

    def _over_vocabulary(self, logits: Tensor, width: int) -> Tensor:
        """Logits ``[1, width]`` in the target's numbering."""
        assert self.model is not None
        if self._named is None:
            return fit(logits[:, : len(self.model.tokenizer)], width)
        full = logits.new_full((1, width), -torch.inf)
        full[:, self._named] = logits
        return full

    def observe(self, context: Context, proposal: Proposal, verdict: Verdict) -> None:
        """Learn how often this draft model is right."""
        if len(proposal):
            self._rate.update(len(verdict.path), int(verdict.origin == "corrected"))

    @staticmethod
    def _probability(q: float, logits: Tensor, token: int) -> float:
        """Greedy q is one-hot; its confidence is the plain softmax."""
        return float(logits[0].float().softmax(-1)[token]) if q == 1.0 else q

    def _step(self, tokens: Sequence[int]) -> Tensor:
        """Feed tokens, keep them all. ``[T, V]``."""
        assert self._session is not None
        logits = self._session.forward(tokens, range(-1, len(tokens) - 1))
        self._session.keep(range(len(tokens)))
        self._cached.extend(tokens)
        return logits

    def _crop(self, ids: list[int]) -> None:
        """Roll back to the longest common prefix with the committed ids, at least one row short of
        them: the last id must be fed again for its logits."""
        assert self._session is not None
        common, most = 0, min(len(self._cached), len(ids) - 1)
        while common < most and self._cached[common] == ids[common]:
            common += 1
        del self._cached[common:]
        self._session.crop(common)

    def _catch_up(self, ids: Sequence[int]) -> None:
        assert self._session is not None
        self._session.prefill(ids)
        self._cached.extend(ids)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def fit(logits: Tensor, width: int) -> Tensor:
    """Logits ``[T, V]`` cut or padded with -inf to ``width`` columns: models of one family pad their
    vocabularies differently."""
    missing = width - logits.shape[-1]
    if missing <= 0:
        return logits[..., :width]
    return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
