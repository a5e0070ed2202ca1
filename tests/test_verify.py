"""Verification reproduces the target's distribution exactly: enumerated, not sampled.

Every test walks all outcomes of the real ``verify`` and compares the joint distribution of the first
two committed tokens with p(a) p(b|a). The museum of wrong rules shows that the check can fail."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from exact import Table, drafted, error, plain, speculative
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specdemo.proposal import Proposal
from specdemo.rows import Chooser, Row
from specdemo.sampling import SamplingParams
from specdemo.verify import Exact, Typical

EXACT = 1e-12
WRONG = 1e-3  # a wrong rule must be off by more than this

CHAIN1, CHAIN2, CHAIN3 = [-1], [-1, 0], [-1, 0, 1]
SIBLINGS2, SIBLINGS3 = [-1, -1], [-1, -1, -1]
TREE = [-1, -1, 0, 0]  # two children, the first with two of its own
BOTH = [-1, 0, -1, 2]  # two chains of two


@pytest.mark.parametrize("shape", [CHAIN1, CHAIN2, CHAIN3], ids=len)
@pytest.mark.parametrize("kind", ["iid", "deterministic"])
def test_chains(shape: list[int], kind: str) -> None:
    p, q = Table(1, 4), Table(2, 4)
    assert error(speculative(p, drafted(q, shape, kind)), plain(p)) < EXACT


@pytest.mark.parametrize("shape", [SIBLINGS2, SIBLINGS3, TREE, BOTH], ids=str)
@pytest.mark.parametrize("kind", ["iid", "without_replacement", "deterministic"])
def test_trees(shape: list[int], kind: str) -> None:
    p, q = Table(3, 3), Table(4, 3)
    assert error(speculative(p, drafted(q, shape, kind)), plain(p)) < EXACT


def test_larger_vocabulary() -> None:
    p, q = Table(5, 5), Table(6, 5)
    for kind in ("iid", "without_replacement"):
        assert error(speculative(p, drafted(q, SIBLINGS2, kind)), plain(p)) < EXACT


@settings(max_examples=25, deadline=None)
@given(
    seeds=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    shape=st.lists(st.integers(-1, 2), min_size=1, max_size=3),
    kind=st.sampled_from(["iid", "without_replacement", "deterministic"]),
    spread=st.sampled_from([0.3, 1.5, 6.0]),
)
def test_any_tree(seeds: tuple[int, int], shape: list[int], kind: str, spread: float) -> None:
    shape = [min(parent, node - 1) for node, parent in enumerate(shape)]
    p, q = Table(seeds[0], 3, spread=spread), Table(seeds[1], 3, spread=spread)
    assert error(speculative(p, drafted(q, shape, kind)), plain(p)) < EXACT


@pytest.mark.parametrize("shape", [CHAIN2, SIBLINGS2], ids=str)
@pytest.mark.parametrize(
    ("p_params", "q_params"),
    [({}, {"top_k": 2}), ({"top_k": 2}, {}), ({"top_k": 2}, {"top_k": 2}), ({"top_k": 1}, {"top_k": 1})],
    ids=["q has zeros", "p has zeros", "both", "one-hot"],
)
def test_zeros(shape: list[int], p_params: dict[str, int], q_params: dict[str, int]) -> None:
    p = Table(7, 4, SamplingParams(temperature=1.0, **p_params))
    q = Table(8, 4, SamplingParams(temperature=1.0, **q_params))
    for kind in ("iid", "without_replacement", "deterministic"):
        got = speculative(p, drafted(q, shape, kind))
        assert error(got, plain(p)) < EXACT
        assert all(weight > 0.0 or got.get(s, 0.0) == 0.0 for s, weight in plain(p).items())


@pytest.mark.parametrize("shape", [CHAIN3, SIBLINGS3], ids=str)
def test_a_perfect_draft(shape: list[int]) -> None:
    p = Table(9, 3)
    assert error(speculative(p, drafted(p, shape, "iid")), plain(p)) < EXACT
    assert error(speculative(p, drafted(p, shape, "without_replacement")), plain(p)) < EXACT


def test_a_perfect_draft_is_never_refused() -> None:
    p = Table(9, 3)

    class Never(Exact):
        def refuse(self, p: Row, token: int, q: Tensor | None) -> Row:
            raise AssertionError("refused")

    speculative(p, drafted(p, CHAIN2, "iid"), Never())


PROCESSORS = {
    "temperature": {"temperature": 0.6},
    "top-k": {"temperature": 0.9, "top_k": 2},
    "top-p": {"temperature": 1.2, "top_p": 0.7},
    "min-p": {"temperature": 1.0, "min_p": 0.3},
    "repetition": {"temperature": 1.0, "repetition_penalty": 1.8},
    "presence": {"temperature": 1.0, "presence_penalty": 1.1},
    "all": {
        "temperature": 0.8,
        "top_k": 3,
        "top_p": 0.95,
        "min_p": 0.05,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.7,
    },
}


@pytest.mark.parametrize("values", PROCESSORS.values(), ids=PROCESSORS)
@pytest.mark.parametrize(
    ("shape", "kind"),
    [(CHAIN2, "iid"), (TREE, "without_replacement"), (BOTH, "deterministic")],
    ids=["chain", "tree", "deterministic"],
)
def test_processors(values: dict[str, float], shape: list[int], kind: str) -> None:
    """The penalties see the draft prefix of each row, as plain decoding would at that position."""
    params = SamplingParams(**values)  # type: ignore[arg-type]
    p, q = Table(10, 4 if kind == "iid" else 3, params), Table(11, 4 if kind == "iid" else 3, params)
    assert error(speculative(p, drafted(q, shape, kind)), plain(p)) < EXACT


@pytest.mark.parametrize("shape", [CHAIN3, TREE], ids=str)
def test_greedy(shape: list[int]) -> None:
    """One-hot p takes no chance at all: one outcome, the argmax sequence."""
    for seed in range(6):
        p, q = Table(seed, 3, SamplingParams()), Table(seed + 1, 3, SamplingParams())
        got = speculative(p, drafted(q, shape, "deterministic"))
        assert list(got.values()) == [1.0]
        assert error(got, plain(p)) == 0.0


# The museum: each of these is a known mistake, and the same check must see it.


@dataclass(frozen=True, slots=True)
class NoResidual(Exact):
    """Draws the corrected token from p itself."""

    def refuse(self, p: Row, token: int, q: Tensor | None) -> Row:
        return p


@dataclass(frozen=True, slots=True)
class RatioOnly(Exact):
    """Takes whatever the target finds likely, as a threshold on p alone does."""

    def threshold(self, p: Row, token: int, q: float) -> float:
        return 1.0 if p.prob(token) > 0.3 else 0.0


@pytest.mark.parametrize("kind", ["iid", "deterministic"])
def test_museum_no_residual(kind: str) -> None:
    p, q = Table(1, 4), Table(2, 4)
    assert error(speculative(p, drafted(q, CHAIN1, kind), NoResidual()), plain(p)) > WRONG


def test_museum_threshold_on_p_alone() -> None:
    p, q = Table(1, 4), Table(2, 4)
    assert error(speculative(p, drafted(q, CHAIN1, "iid"), RatioOnly()), plain(p)) > WRONG


def test_museum_typical_is_lossy_and_says_so() -> None:
    p, q = Table(1, 4), Table(2, 4)
    assert error(speculative(p, drafted(q, CHAIN2, "iid"), Typical()), plain(p)) > WRONG
    assert not Typical.lossless
    assert Exact.lossless


@pytest.mark.parametrize("values", [{"temperature": 0.5}, {"temperature": 1.0, "top_k": 2}], ids=str)
def test_museum_q_before_the_processing(values: dict[str, float]) -> None:
    """Samples from the processed draft, but hands over its plain softmax as q."""
    params = SamplingParams(**values)  # type: ignore[arg-type]
    p, q, raw = Table(1, 4, params), Table(2, 4, params), Table(2, 4)

    def propose(chooser: Chooser) -> Proposal:
        return Proposal.chain([chooser.sample(q.row(()))], raw.row(())[None])

    assert error(speculative(p, propose), plain(p)) > WRONG


def test_museum_pruning_sampled_children() -> None:
    """Draws two children, keeps the likelier, and still claims it was drawn from q."""
    p, q = Table(1, 4), Table(2, 4)

    def propose(chooser: Chooser) -> Proposal:
        row = q.row(())
        pair = [chooser.sample(row), chooser.sample(row)]
        return Proposal.chain([max(pair, key=lambda token: float(row[token]))], row[None])

    assert error(speculative(p, propose), plain(p)) > WRONG


def test_museum_greedy_draft_with_a_softmax_q() -> None:
    p, q = Table(1, 4), Table(2, 4)

    def propose(chooser: Chooser) -> Proposal:
        row = q.row(())
        return Proposal.chain([int(row.argmax())], row[None])

    assert error(speculative(p, propose), plain(p)) > WRONG


def test_museum_without_replacement_but_q_unchanged() -> None:
    p, q = Table(3, 3), Table(4, 3)
    honest = drafted(q, SIBLINGS2, "without_replacement")

    def propose(chooser: Chooser) -> Proposal:
        made = honest(chooser)
        return Proposal(made.tokens, made.parents, q.row(())[None].expand(2, -1))

    assert error(speculative(p, propose), plain(p)) > WRONG
