"""The synthetic any-order drafter: right where its text says, monotone, the same for the same run."""

from __future__ import annotations

from itertools import combinations
from random import Random

import pytest

from simulator import InvalidInput, Limits, generate
from simulator.any_order import named
from simulator.laws import Peak
from simulator.oracles.families import read
from simulator.oracles.neighbours import NeighbourModel, Neighbours


def test_right_once_enough_neighbours_are_accepted() -> None:
    model = NeighbourModel(2, 0.5, [0, 0, 1, 2, 2.5, 99], [(0.9, 0.1)] * 6, [Peak(0, 1.0)] * 6)

    def right(j: int, *accepted: int) -> bool:
        return model.drafted(model.bits(list(accepted)), j).token == 0

    assert right(1)
    assert right(2)  # the prompt stands one place before position 1
    assert not right(3)
    assert right(3, 1, 2)
    assert right(3, 2, 4, 5)  # 1 + 2 / 2
    assert not right(3, 2, 4)
    assert right(4, 2, 3, 5)
    assert not right(4, 2, 3)
    assert not right(5, 1, 2, 3, 4)
    assert model.drafted(model.bits([]), 3).confidence == 0.1


def test_correctness_is_monotone_in_the_accepted_set() -> None:
    model = Neighbours(need=2, reach=3, after=0.5).model(0, 0, 5)
    sets = [list(chosen) for n in range(6) for chosen in combinations(range(1, 6), n)]
    for j in range(1, 6):
        right = {tuple(accepted): model.drafted(model.bits(accepted), j).token == 0 for accepted in sets}
        assert all(right[tuple(sorted({*accepted, i}))] >= right[tuple(accepted)] for accepted in sets for i in range(1, 6))


def test_a_run_is_the_same_whatever_its_length() -> None:
    family = Neighbours(need=3)
    short, long = family.model(1, 2, 5), family.model(1, 2, 9)
    assert short.drafts == long.drafts[:6]
    assert family.model(1, 3, 5).drafts != short.drafts


def test_sure_drafts_are_right_as_often_as_they_should_be() -> None:
    """Of honest drafters a probability over 1/2 tells all; 2,000 positions."""
    model = Neighbours(need=2, honest=1).model(0, 0, 2000)
    assert all(right.confidence >= 0.5 > wrong.confidence for _, right, wrong in model.drafts[1:])
    model = Neighbours(need=2, honest=0).model(0, 0, 2000)
    assert all(right.confidence == wrong.confidence for _, right, wrong in model.drafts[1:])


@pytest.mark.parametrize("order", ["ltr", "rtl", "confidence", "random:3"])
def test_schedules_run_on_it(order: str) -> None:
    seen = set()
    for run in range(4):
        model = Neighbours(need=1.5, after=Random(run).random()).model(0, run, 30)
        for name in ("serial", "linear", "packed", "quadratic"):
            ran = generate(model, named(name, 6, order), (), Limits.of(30))
            assert ran.tokens == (0,) * 30
            seen |= {name for step in ran.steps if 1 < step.accepted < len(step.verified)}
    assert seen == {"linear", "packed", "quadratic"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("neighbours", "neighbours needs need, mean number of accepted neighbours that a position needs, in 0 .. 1000"),
        ("neighbours:need=-1", "need must be in 0 .. 1000, got -1"),
        ("neighbours:need=1,reach=0", "reach must be a whole number in 1 .. 64, got 0"),
        ("neighbours:need=1,reach=1.5", "reach must be a whole number in 1 .. 64, got 1.5"),
        ("neighbours:need=1,far=2", "neighbours has no parameter 'far'; allowed: need, reach, after, honest"),
        ("geometric:mean=3", "unknown drafter family 'geometric'; allowed: neighbours"),
    ],
)
def test_bad_input_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read(text, {"neighbours": Neighbours})
