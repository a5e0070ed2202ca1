"""Proposals: trees that hold together, their prefixes, depths and masks."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdemo.proposal import ROOT, Proposal, depths, is_chain, tree_mask

#: Parents of a random tree: node i hangs below any earlier node or the root.
PARENTS = st.lists(st.integers(0, 10**6), max_size=12).map(
    lambda numbers: [number % (node + 1) - 1 for node, number in enumerate(numbers)]
)


def test_a_chain() -> None:
    chain = Proposal.chain([7, 8, 9])
    assert list(chain.parents) == [-1, 0, 1]
    assert chain.children == ((0,), (1,), (2,), ())
    assert chain.prefixes() == [[], [7], [7, 8], [7, 8, 9]]
    assert chain.ancestors(2) == [0, 1, 2]
    assert chain.ancestors(ROOT) == []
    assert len(chain) == 3
    assert len(Proposal()) == 0
    assert Proposal().prefixes() == [[]]


def test_a_tree() -> None:
    tree = Proposal([1, 2, 3, 4], [-1, -1, 0, 1])
    assert tree.children == ((0, 1), (2,), (3,), (), ())
    assert tree.prefixes() == [[], [1], [2], [1, 3], [2, 4]]
    assert tree.ancestors(3) == [1, 3]


@pytest.mark.parametrize("parents", [[0], [-2], [-1, 1], [-1, 2, 0], [5]], ids=str)
def test_a_parent_must_come_first(parents: list[int]) -> None:
    with pytest.raises(ValueError, match="parent"):
        Proposal(list(range(len(parents))), parents)


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="2 tokens but 1 parents"):
        Proposal([1, 2], [-1])
    with pytest.raises(ValueError, match="2 tokens but 1 rows"):
        Proposal.chain([1, 2], torch.ones(1, 5))


@given(parents=PARENTS)
def test_prefixes_and_ancestors_agree(parents: list[int]) -> None:
    tree = Proposal([10 + node for node in range(len(parents))], parents)
    for node, prefix in enumerate(tree.prefixes()[1:]):
        assert prefix == [tree.tokens[a] for a in tree.ancestors(node)]
    assert sorted(child for below in tree.children for child in below) == list(range(len(parents)))


@given(parents=PARENTS)
def test_mask_and_depths_of_any_tree(parents: list[int]) -> None:
    """Row i sees j exactly when j is i or an ancestor; the depth is the number of ancestors."""
    mask, deep = tree_mask(parents), depths(parents)
    for row in range(len(parents)):
        line, node = set(), row
        while node >= 0:
            line.add(node)
            node = parents[node]
        assert set(mask[row].nonzero().flatten().tolist()) == line
        assert deep[row] == len(line) - 1
    assert is_chain(parents) == (parents == list(range(-1, len(parents) - 1)))
    if is_chain(parents):
        assert torch.equal(mask, torch.ones_like(mask).tril())
