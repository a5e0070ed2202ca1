"""The lesson's experiment: the exact rule reproduces p, every exhibit of the museum does not."""

from __future__ import annotations

import itertools

import pytest
import torch
from helpers import Enumerator

from specdemo.lesson.lossless import Position, draw, sample
from specdemo.lesson.statistics import fit
from specdemo.museum import KEYS, exhibits

SIZE = 4


def position(seed: int = 5) -> Position:
    """Distributions over a tiny vocabulary; q is its raw form sharpened, as a temperature would."""
    generator = torch.Generator().manual_seed(seed)

    def rows(power: float) -> torch.Tensor:
        values = torch.rand(SIZE + 1, SIZE, generator=generator, dtype=torch.float64) ** power
        return values / values.sum(-1, keepdim=True)

    p, raw = rows(1.0), rows(1.0)
    q = raw**2 / (raw**2).sum(-1, keepdim=True)
    return Position((" the", "The", "cat", "dog"), p, q, raw)


def joint(key: str, place: Position) -> torch.Tensor:
    """The exact joint distribution of first and second token, by enumerating every chance."""
    table = torch.zeros(SIZE, SIZE, dtype=torch.float64)
    exhibit = exhibits(place.texts)[key]
    every = Enumerator()
    for (first, second), weight in every.outcomes(lambda: draw(place, exhibit, every)):
        table[first, second] += weight
    return table


def test_exact_rule_gives_exactly_the_targets_first_and_second_tokens() -> None:
    place = position()
    wanted = place.p[0][:, None] * place.p[1:]
    assert torch.allclose(joint("exact", place), wanted, atol=1e-12)
    assert torch.allclose(wanted.sum(0), place.second, atol=1e-12)


@pytest.mark.parametrize("key", [key for key in KEYS if key != "exact"])
def test_every_other_exhibit_changes_the_distribution(key: str) -> None:
    place = position()
    table = joint(key, place)
    assert float(table.sum()) == pytest.approx(1.0, abs=1e-12)
    assert float((table.sum(1) - place.p[0]).abs().sum() / 2) > 0.01


def test_samples_of_the_exact_rule_pass_the_test_and_those_of_bugs_fail() -> None:
    place = position()
    every = exhibits(place.texts)
    *_, good = sample(place, every["exact"], 1500, seed=0)
    assert sum(good.first) == sum(good.second) == 1500
    assert not good.fit_first.differs and not good.fit_second.differs
    *_, bad = sample(place, every["no_residual"], 1500, seed=0)
    assert bad.fit_first.differs


def test_fit_knows_true_draws_from_false_ones() -> None:
    probs = [0.5, 0.3, 0.15, 0.05]
    generator = torch.Generator().manual_seed(1)
    draws = torch.multinomial(torch.tensor(probs), 4000, replacement=True, generator=generator)
    right = fit(torch.bincount(draws, minlength=4).tolist(), probs)
    assert right.p_value > 0.001 and right.distance < 3 * right.expected_distance
    wrong = fit(torch.bincount(draws, minlength=4).tolist(), [0.4, 0.4, 0.15, 0.05])
    assert wrong.differs and wrong.distance == pytest.approx(0.1, abs=0.02)


def test_fit_of_nothing_of_the_impossible_and_of_rare_tokens() -> None:
    assert fit([0, 0], [0.5, 0.5]).p_value == 1.0
    assert fit([1, 99], [0.0, 1.0]).p_value == 0.0
    many_rare = [0.98] + [0.02 / 50] * 50
    assert fit([980] + [1] * 20 + [0] * 30, many_rare).degrees == 1


def test_p_values_of_true_draws_are_spread_evenly() -> None:
    probs = torch.tensor([0.4, 0.3, 0.2, 0.1])
    generator = torch.Generator().manual_seed(7)
    values = sorted(
        fit(
            torch.bincount(
                torch.multinomial(probs, 500, True, generator=generator), minlength=4
            ).tolist(),
            probs.tolist(),
        ).p_value
        for _ in range(300)
    )
    gaps = [abs(value - (i + 0.5) / 300) for i, value in enumerate(values)]
    assert max(gaps) < 0.1  # Kolmogorov-Smirnov at about the 0.5 % level


def test_position_rows_line_up() -> None:
    place = position()
    assert place.p.shape == place.q.shape == (SIZE + 1, SIZE)
    assert len(list(itertools.islice(sample(place, exhibits(place.texts)["exact"], 10, 0), 3))) == 1
