"""The coins of foreign code: new ones, arrays of them, addressed ones, draws, values at the edges."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from itertools import count
from typing import Any

import numpy as np
import pytest

from proofs_check import coins
from proofs_check.coins import LAST, Coins, Fixed, at_edges, definition, every_outcome, in_two_worlds
from proofs_check.system import Found, NotReached
from simulator import ContractError, enumerated, packed

HALF = Fraction(1, 2)


def fixed(*values: float) -> Coins:
    return Coins(Fixed(values))


def test_every_way_to_ask_gives_the_next_coin() -> None:
    given = fixed(0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    assert [given.random(), given.uniform(), given(), next(given)] == [0.0, 0.1, 0.2, 0.3]
    assert given.random(2).tolist() == [0.4, 0.5]
    assert next(iter(given)) == 0.6


def test_arrays_have_the_shape_asked_for_and_hold_different_coins() -> None:
    assert Coins(Fixed(count())).random((2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    [(weight, shape), *_] = enumerated(lambda chance: Coins(chance).random((2, 0)).shape)
    assert (weight, shape) == (1, (2, 0))
    outcomes = enumerated(lambda chance: tuple(Coins(chance).random(2) < HALF))
    assert sorted(outcomes) == [(HALF / 2, (a, b)) for a in (False, True) for b in (False, True)]


def test_an_addressed_coin_stays_the_same() -> None:
    given = fixed(0.25, 0.5, 0.75)
    assert [given.uniform("test", 3), given.uniform("test", 3), given(), given.uniform("draft", 3)] == [0.25, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(
    "weights", [[0, 1, 0, 3], [HALF, 0, HALF / 2], [0.5, 1.5], np.array([0, 2, 2]), np.array([1, 3], dtype=np.float32), [2]]
)
def test_choose_draws_in_proportion(weights: Any) -> None:
    law: dict[int, Fraction] = defaultdict(Fraction)
    for weight, index in enumerated(lambda chance: Coins(chance).choose(weights)):
        law[index] += weight
    exact = [Fraction(float(w)) for w in weights]
    assert law == {i: w / sum(exact) for i, w in enumerate(exact) if w}
    for u in (0.0, 0.5, LAST):
        assert weights[fixed(u).choose(weights)] > 0


@pytest.mark.parametrize("weights", [[], [0, 0], [1, -1], [math.nan, 1], [math.inf, 1], ["x"]])
def test_what_is_no_law_can_not_be_drawn_from(weights: Any) -> None:
    with pytest.raises(ValueError, match=r"no law has the weights|could not convert"):
        fixed(0.5).choose(weights)


def test_edges_are_all_sequences_of_values() -> None:
    """As many coins as the run asks for, which depends on their values."""

    def run(chance: Fixed) -> str:
        given = Coins(chance)
        return "a" if given() < 0.5 else "b" if given() < 0.5 else "c"

    assert sorted(at_edges(run, 0.0, LAST)) == [((0.0,), "a"), ((LAST, 0.0), "b"), ((LAST, LAST), "c")]


RUNS = count()


def instance() -> tuple[str, str]:
    return "instance", "program"


def asks_on(chance: Any) -> None:
    given = Coins(chance)
    while not given() < HALF:
        pass


@pytest.mark.parametrize(
    ("run", "symptom", "words"),
    [
        (lambda chance: 1 / 0, "contract", "ZeroDivisionError"),
        (lambda chance: Coins(chance)() < HALF / (1 + next(RUNS)), "determinism", "no pure function"),
    ],
)
def test_what_foreign_code_does_becomes_a_finding(run: Any, symptom: str, words: str) -> None:
    with pytest.raises(Found, match=words) as caught:
        every_outcome(run, instance)
    finding = caught.value.finding
    assert (finding.symptom, finding.counterexample, finding.program) == (symptom, "instance", "program")


@pytest.mark.parametrize(
    "run", [asks_on, lambda chance: float(Coins(chance)()), lambda chance: np.asarray([Coins(chance)()], float)]
)
def test_what_can_not_be_enumerated_is_not_reached(run: Any) -> None:
    with pytest.raises(NotReached, match=r"no finite tree|has no value"):
        every_outcome(run, instance)


def test_two_worlds_show_what_draws_on_global_generators() -> None:
    pairs = [in_two_worlds(lambda: np.random.randint(2), number) for number in range(20)]  # noqa: NPY002  # the fault itself
    assert any(a != b for a, b in pairs)
    assert all(a == b for a, b in (in_two_worlds(lambda: 1, number) for number in range(3)))


def test_a_definition_imports_what_can_be_imported() -> None:
    for subject in (packed, coins.Coins):
        names: dict[str, Any] = {}
        exec(definition(subject, "subject"), names)
        assert names["subject"] is subject
    for nameless in (lambda: 1, packed(3), coins.Coins.choose, np.float64(1)):
        assert definition(nameless, "subject") == ""


def test_a_coin_kept_for_later_is_told() -> None:
    kept: list[Any] = []

    def keeps(chance: Any) -> bool:
        kept.append(Coins(chance)())
        return bool(kept[0] < HALF)

    with pytest.raises(Found, match="compared after its call") as caught:
        every_outcome(keeps, instance)
    assert caught.value.finding.symptom == "determinism"
    assert isinstance(caught.value.__cause__ or caught.value.__context__, ContractError)
