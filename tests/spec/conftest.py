"""The table model that the golden E[NFE] were computed with."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache

import pytest

Law = tuple[Fraction, ...]
Model = tuple[Callable[[tuple[int, ...]], Law], Callable[[tuple[int, ...], int], Law]]


def normalised(weights: list[int]) -> Law:
    weights = weights if any(weights) else [1] * len(weights)
    return tuple(Fraction(w, sum(weights)) for w in weights)


@cache
def model(V: int) -> Model:
    @cache
    def p(prefix: tuple[int, ...]) -> Law:
        n = len(prefix)
        h = sum(7 * i * x for i, x in enumerate(prefix, 1)) + 2 * n
        return normalised([1 + (h + 3 * x) % 5 for x in range(V)])

    @cache
    def q(prefix: tuple[int, ...], j: int) -> Law:
        h = sum(3 * i * x for i, x in enumerate(prefix, 1)) + 3 * j
        return normalised([(h + 2 * x) % 4 for x in range(V)])

    return p, q


@pytest.fixture(scope="session")
def table_model() -> Callable[[int], Model]:
    """table_model(V): (p, q) of golden/expected_nfe.json on V tokens, exact. q has zero-mass tokens, p has none."""
    return model
