"""The likeliest tokens at a position, as p, q and residual: what a token opened on the page shows."""

from __future__ import annotations

import torch
from torch import Tensor

from .detokenize import Pieces
from .events import Alternative, Token
from .proposal import Proposal
from .rows import Dense, Rows
from .verify import Verdict

TOP = 5


def alternatives(
    token: Token,
    proposal: Proposal,
    verdict: Verdict,
    p: Rows,
    logits: Tensor,
    pieces: Pieces,
) -> tuple[float, tuple[Alternative, ...]]:
    """Plain softmax probability of a committed token and the top tokens at its position with p, q
    and residual.

    Greedy p is one-hot and says nothing about the rivals, so p is then the plain softmax. q is that
    of the first child tested there; the residual is given where the final token was corrected."""
    row = verdict.final_row if token.node is None else proposal.parents[token.node] + 1
    plain = logits[row].float().softmax(-1)  # [V]
    judged = p.row(row)
    shown = judged.probs if isinstance(judged, Dense) else plain
    children = proposal.children[row]
    q = proposal.q[children[0]] if children and proposal.q is not None else None
    corrected = verdict.origin == "corrected" and row == verdict.final_row
    residual = verdict.residual if corrected and isinstance(verdict.residual, Dense) else None

    wanted = shown.topk(min(TOP, shown.numel())).indices
    if q is not None:
        wanted = torch.cat([wanted, q.topk(2).indices])
    tried = torch.tensor([token.id, *(proposal.tokens[c] for c in children)], device=wanted.device)
    ids = torch.unique(torch.cat([wanted, tried]))
    columns = [shown[ids].tolist()]
    columns.append([None] * len(ids) if q is None else q[ids].tolist())
    columns.append([None] * len(ids) if residual is None else residual.probs[ids].tolist())
    items = [
        Alternative(id_, pieces.text(id_), pp, qq, rr)
        for id_, pp, qq, rr in zip(ids.tolist(), *columns, strict=True)
    ]
    tested = set(tried.tolist())  # what was decided here stays, however unlikely
    items.sort(key=lambda item: (item.id not in tested, -item.p))
    return float(plain[token.id]), tuple(sorted(items[: max(TOP + 4, len(tested))], key=lambda i: -i.p))
