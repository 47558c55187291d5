"""A matrix drafter is right where its matrix says so, and a threshold drafter is one of them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from simulator import InvalidInput, Limits, Point, generate, linear, packed
from simulator.oracles import MatrixModel, ThresholdModel


def test_it_is_right_exactly_where_the_matrix_says_so() -> None:
    rows, truth = ((1, 0, 1), (False, True), ()), (2, 0, 1, 1)
    model = MatrixModel(rows, truth, vocabulary=3, prompt_length=2)
    for c, k in itertools.combinations(range(6), 2):
        right = model.proposal((9, 9, *truth, 0, 0)[: 2 + c], k - c) == Point((*truth, 0)[k - 1])
        assert right == ((c, k) not in {(0, 2), (1, 2)})
        assert model.target((9, 9, *truth)[: 1 + k]) == Point((*truth, 0)[k - 1])


@pytest.mark.claim("ASM3.1")
def test_thresholds_are_matrices() -> None:
    for c_star in itertools.product(*(range(k + 1) for k in range(1, 5))):
        rows = [[c >= c_star[k - 1] for k in range(c + 1, 5)] for c in range(4)]
        for make in (linear, packed):
            ours, theirs = (generate(model, make(2), (), Limits.of(4)) for model in (MatrixModel(rows), ThresholdModel(c_star)))
            assert ours == theirs


@pytest.mark.parametrize("rows", [[[2]], [[0, 1], [-1]]])
def test_other_cells_are_refused(rows: Any) -> None:
    with pytest.raises(InvalidInput, match="cells 0"):
        MatrixModel(rows)
    with pytest.raises(InvalidInput, match="vocabulary"):
        MatrixModel([[0]], vocabulary=1)
