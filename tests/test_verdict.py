"""What a verdict says of the walk: judgements, thresholds, origins, and the lossy rule's rows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from specdemo.proposal import Proposal
from specdemo.rows import Dense, DenseRows
from specdemo.sampling import SamplingParams
from specdemo.verify import Exact, Typical, rule_rows, verify


class Fixed:
    """A chooser with its uniform numbers given."""

    def __init__(self, *draws: float) -> None:
        self.draws = list(draws)

    def accept(self, probability: float) -> tuple[bool, float | None]:
        draw = self.draws.pop(0)
        return draw < probability, draw

    def sample(self, probs: Tensor) -> int:
        return int(probs.argmax())


def test_verdict_of_a_tree() -> None:
    rows = DenseRows(torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8], [0.2, 0.2, 0.6], [0.3, 0.3, 0.4]]))
    q = torch.tensor([[0.8, 0.1, 0.1], [0.0, 1.0, 0.0], [0.5, 0.25, 0.25]])
    proposal = Proposal([0, 1, 0], [-1, -1, 1], q)
    verdict = verify(proposal, rows, Exact(), Fixed(0.9, 0.1, 0.99))
    assert [v.judgement for v in verdict.judgements] == ["rejected", "accepted", "rejected"]
    assert verdict.judgements[0].threshold == pytest.approx(0.5 / 0.8)
    # After the refusal p is normalise(max(0, p - q)) = (0, 2/3, 1/3).
    assert verdict.judgements[1].p == pytest.approx(2 / 3)
    assert verdict.judgements[2].p == pytest.approx(0.2)
    assert (verdict.path, verdict.origin, verdict.final, verdict.final_row) == ((1,), "corrected", 2, 2)
    assert isinstance(verdict.residual, Dense)


@pytest.mark.parametrize(
    ("tokens", "draws", "origin", "judged"),
    [([], [], "target", []), ([0], [0.0], "bonus", ["accepted"]), ([0, 1], [0.99], "corrected", None)],
)
def test_origins(tokens: list[int], draws: list[float], origin: str, judged: list[str] | None) -> None:
    rows = DenseRows(torch.full((3, 3), 1 / 3))
    verdict = verify(Proposal.chain(tokens), rows, Exact(), Fixed(*draws))
    assert verdict.origin == origin
    want = judged if judged is not None else ["rejected", "not_judged"]
    assert [v.judgement for v in verdict.judgements] == want


def test_typical_at_temperature_0_judges_by_the_plain_softmax() -> None:
    params = SamplingParams()
    logits = torch.tensor([[2.0, 1.9, -3.0], [0.0, 0.0, 1.0]])
    rows = rule_rows(Typical(), DenseRows(logits), logits, params)
    taken = verify(Proposal.chain([1]), rows, Typical(), Fixed(0.5))
    assert taken.path == (0,)  # not the argmax, but plausible
    assert taken.final == 2  # and then the argmax
    refused = verify(Proposal.chain([2]), rows, Typical(), Fixed(0.5))
    assert (refused.path, refused.final, refused.origin) == ((), 0, "corrected")
    others = DenseRows(logits)
    assert rule_rows(Exact(), others, logits, params) is others
