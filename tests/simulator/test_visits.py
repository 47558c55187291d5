"""The chain visit by visit, what it sums to beyond the output law, and the same numbers without gmpy2."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import pytest

import simulator.chance
import simulator.exact
from simulator import Limits, RationalLaw, enumerated, exact_law, named, packed
from simulator.exact import Kind, summed, visits
from simulator.oracles import TabularModel, random_tables

COIN, BIASED = RationalLaw.weighted((1, 1)), RationalLaw.weighted((1, 2))
BY_HAND = TabularModel(lambda prefix: COIN, lambda prefix, j: BIASED)
NAMES = ["ar", "linear", "packed", "quadratic", "branches:0,2"]


def test_visits_by_hand() -> None:
    """W = L = 2: a start, 2 x 2 states of token and draft, 4 outputs. Probabilities of a layer and of outcomes sum to 1."""
    chain = list(visits(packed(2), BY_HAND, (), Limits.of(2)))
    assert [visit.calls for visit in chain] == [0, *[1] * 4, *[2] * 4]
    for calls in range(3):
        assert sum(visit.weight for visit in chain if visit.calls == calls) == 1
    for visit in chain[:5]:
        assert visit.call == packed(2).request(visit.state)
        assert visit.reply == BY_HAND(visit.call)
        assert sum(share for share, _ in visit.outcomes) == 1
    assert all((visit.call, visit.reply, visit.outcomes) == (None, None, ()) for visit in chain[5:])
    assert {visit.state.prefix: visit.weight for visit in chain[5:]} == {(x, y): Fraction(1, 4) for x in (0, 1) for y in (0, 1)}


def test_kinds_and_rows_by_hand() -> None:
    """Two calls of 3 + 3 rows. The draft is accepted with probability 5/6; then the limit cuts the bonus off."""
    law = exact_law(packed(2), BY_HAND, (), Limits.of(2))
    assert law.expected_rows == 12
    assert law.kinds == {
        Kind(verified=0, accepted=0, advance=1, committed=1, branch=0, retained=1, stop=None): 1,
        Kind(verified=1, accepted=1, advance=2, committed=1, branch=None, retained=0, stop="length"): Fraction(5, 6),
        Kind(verified=1, accepted=0, advance=1, committed=1, branch=None, retained=0, stop="length"): Fraction(1, 6),
    }


@pytest.mark.claim("METRICS")
@pytest.mark.parametrize("start", ["algorithm", "prompt"])
@pytest.mark.parametrize("name", NAMES)
def test_the_kinds_add_up(name: str, start: str) -> None:
    """Calls of all kinds are all calls, what they emit is the output, and rows are those of the steps."""
    rows: defaultdict[str, Fraction] = defaultdict(Fraction)
    chain = list(visits(named(name, 3, start), random_tables(3, 0), (), Limits.of(4, 2)))
    for visit in chain:
        for share, (_, step) in visit.outcomes:
            rows["rows"] += Fraction(int(visit.weight.numerator), int(visit.weight.denominator)) * share * step.rows
    law = summed(chain)
    assert sum(law.kinds.values()) == law.expected_nfe
    emitted = sum(kind.committed * weight for kind, weight in law.kinds.items())
    assert emitted == sum(len(tokens) * weight for tokens, weight in law.output.items())
    assert law.expected_rows == rows["rows"]


def test_every_number_is_a_fraction_of_python_integers() -> None:
    law = exact_law(packed(3), random_tables(3, 0), (), Limits.of(4))
    for number in (*law.output.values(), *law.nfe.values(), *law.kinds.values(), law.expected_rows, law.expected_nfe):
        assert type(number) is Fraction
        assert type(number.numerator) is type(number.denominator) is int
    assert all(type(weight) is Fraction for weight, _ in enumerated(lambda chance: chance.uniform("test", 1) < Fraction(1, 3)))


@pytest.mark.parametrize("name", NAMES)
def test_the_same_numbers_without_gmpy2(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def law() -> Any:
        return exact_law(named(name, 3), random_tables(3, 1), (), Limits.of(4, 2))

    fast = law()
    monkeypatch.setattr(simulator.chance, "rational", Fraction)
    monkeypatch.setattr(simulator.exact, "rational", Fraction)
    assert law() == fast


def test_gmpy2_that_is_missing_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(simulator.chance, "import_module", absent)
    assert simulator.chance._rational() is Fraction
