"""Laws: the four questions a schedule asks, by hand; and the numpy backend gives the answers of the rational one."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from simulator import (
    ArrayLaw,
    Call,
    Draft,
    Limits,
    Point,
    RationalLaw,
    Reply,
    Sampled,
    Scripted,
    autoregressive_law,
    exact_law,
    generate,
    greedy,
    named,
    packed,
)
from simulator.acceptance import accept, acceptance_probability
from simulator.laws import argmax
from simulator.oracles import TabularModel, random_tables

TOP = 1 - 2.0**-53


def rational(*weights: int) -> RationalLaw:
    return RationalLaw.weighted(weights)


def array(law: RationalLaw) -> ArrayLaw:
    return ArrayLaw([float(p) for p in law.probabilities])


# --- the interface, by hand -------------------------------------------------------------------------------------------------

LAWS = {
    "point": Point(2),
    "rational point": rational(0, 0, 1),
    "array point": ArrayLaw([0, 0, 1]),
    "rational": rational(1, 0, 3),
    "array": ArrayLaw([0.25, 0, 0.75]),
}
each_law = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)


@each_law
def test_support_lists_the_possible_tokens_ascending(law: Any) -> None:
    assert tuple(law.support) == ((0, 2) if law.probability(0) else (2,))
    assert all(type(token) is int for token in law.support)


def test_certain_names_the_token_of_a_point_mass() -> None:
    """An array never claims to be one: to know would cost a pass over the vocabulary."""
    assert [law.certain for law in LAWS.values()] == [2, 2, None, None, None]


@each_law
def test_probability(law: Any) -> None:
    assert law.probability(0) + law.probability(2) == 1
    assert law.probability(0) in (0, Fraction(1, 4))
    assert law.probability(1) == 0


@each_law
@pytest.mark.parametrize("token", [-1, -3, 3, 10**9])
def test_a_token_outside_the_vocabulary_has_probability_0(law: Any, token: int) -> None:
    assert law.probability(token) == 0


def test_argmax_takes_the_lowest_id_among_equals() -> None:
    assert argmax(rational(1, 2, 0, 2)) == Point(1)
    assert argmax(ArrayLaw([0.2, 0.4, 0.0, 0.4])) == Point(1)
    assert argmax(rational(0, 0, 1, 1)) == Point(2)
    assert argmax(Point(4)) == Point(4)


@pytest.mark.parametrize(
    ("p", "q", "expected"),
    [
        (rational(2, 1, 1), rational(1, 1, 2), rational(1, 0, 0)),
        (rational(3, 3, 2), rational(0, 2, 6), rational(3, 1, 0)),
        (rational(1, 1, 2), rational(1, 1, 2), None),  # no mass left
        (rational(1, 1, 2), Point(2), rational(1, 1, 0)),  # C02: a one-hot proposal removes its token
        (rational(1, 1, 2), Point(5), rational(1, 1, 2)),  # a token outside the vocabulary removes nothing
        (Point(1), rational(1, 1), Point(1)),
        (Point(1), Point(0), Point(1)),
        (Point(1), Point(1), None),
        (Point(1), rational(0, 1), None),
    ],
)
def test_residual_is_the_normalised_positive_part(p: Any, q: Any, expected: Any) -> None:
    assert p.residual(q) == expected


def test_laws_are_values() -> None:
    """So that equal situations of an exact chain merge."""
    assert rational(1, 2) == RationalLaw([Fraction(1, 3), Fraction(2, 3)]) != rational(2, 1)
    assert len({rational(1, 2), rational(2, 4), rational(2, 1), Point(0), Point(0), Point(1)}) == 4
    assert rational(1, 0) != Point(0) != rational(1, 0)
    assert repr(rational(1, 2)) == "RationalLaw(1/3, 2/3)"


@pytest.mark.parametrize("bad", [[], [Fraction(1, 2)], [Fraction(3, 2), Fraction(-1, 2)], [0, 0], [1, 1], [Fraction(1, 3)] * 2])
def test_probabilities_that_are_no_law_are_refused(bad: Any) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        RationalLaw(bad)


@pytest.mark.parametrize("weights", [(), (0, 0), (2, -1)])
def test_weights_that_give_no_law_are_refused(weights: Any) -> None:
    with pytest.raises((ValueError, ZeroDivisionError)):
        RationalLaw.weighted(weights)


# --- acceptance -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("p", "q", "token", "alpha"),
    [
        (rational(1, 3), rational(3, 1), 0, Fraction(1, 3)),
        (rational(1, 3), rational(3, 1), 1, 1),
        (rational(1, 0), rational(1, 1), 1, 0),
        (Point(1), Point(1), 1, 1),
        (Point(1), Point(0), 0, 0),
        (rational(1, 3), Point(1), 1, Fraction(3, 4)),
        (rational(1, 3), Point(2), 2, 0),  # out of vocabulary
        (Point(1), rational(1, 3), 1, 1),
        (ArrayLaw([0.25, 0.75]), ArrayLaw([0.5, 0.5]), 0, 0.5),
        (ArrayLaw([0.25, 0.75]), Point(7), 7, 0),
        (rational(1, 1), rational(1, 0), 1, 1),  # a token that its own law can not draw: documented, no division by 0
        (rational(1, 0), rational(1, 0), 1, 0),
    ],
)
def test_acceptance_probability(p: Any, q: Any, token: int, alpha: Any) -> None:
    assert acceptance_probability(p, q, token) == alpha


def test_the_verdict_by_hand() -> None:
    """Two tests pass, the third fails at its own coin, and the correction comes from the residual at that place."""
    even, low = rational(1, 1, 0), rational(1, 3, 4)
    draft = Draft((0, 1, 2, 0), (even, even, rational(0, 1, 3), even))
    target = (even, rational(1, 1, 2), low, even, even)
    coins = {(1, "test", 6): 0.49, (1, "test", 7): Fraction(2, 3), (1, "correct", 7): 0.0}
    h, tokens, fallback = accept(draft, target, Scripted(coins).at(1), first_position=5)
    assert (h, tokens, fallback) == (2, (0, 1, 0), False)  # residual [1/8, 1/8, 0] at position 7
    coins[1, "correct", 7] = 0.5
    assert accept(draft, target, Scripted(coins).at(1), 5).tokens == (0, 1, 1)
    coins[1, "test", 7], coins[1, "correct", 9] = Fraction(2, 3) - Fraction(1, 10**9), 0.5
    assert accept(draft, target, Scripted(coins).at(1), 5) == (4, (0, 1, 2, 0, 1), False)  # a bonus


def test_an_empty_draft_yields_a_token_of_the_target() -> None:
    assert accept(Draft(), (rational(1, 1),), Scripted({(1, "correct", 3): 0.5}).at(1), 3) == (0, (1,), False)


def test_a_residual_that_rounds_to_nothing_falls_back_to_the_target() -> None:
    """F10: p is below q by one bit, so the test can fail while [p - q]+ is 0; the correction comes from p, as the Step says."""
    below = 0.5 - 2**-54
    p, q = ArrayLaw([0.5, below]), ArrayLaw([0.5, 0.5])
    assert p.residual(q) is None
    coins = Scripted({(2, "test", 2): TOP, (2, "correct", 2): 0.25}, otherwise=0.9)
    steps = generate(TabularModel(lambda prefix: p, lambda prefix, j: q), packed(3), (), Limits.of(2), coins).steps
    assert [step.fallback for step in steps] == [False, True]
    assert steps[1].accepted == 0
    assert steps[1].committed == (0,)


def test_a_fallback_is_reported_for_no_other_reason() -> None:
    """Not for ordinary rejections, not for full acceptance, and never with exact laws."""
    fallbacks: set[bool] = set()
    for name in ("packed", "linear"):  # calls that verify, and calls that only draft
        exact_law(named(name, 3), random_tables(3, 0), (), Limits.of(4), observe=lambda step: fallbacks.add(step.fallback))
    assert fallbacks == {False}


# --- the two backends agree -------------------------------------------------------------------------------------------------

# Every law on 3 tokens with probabilities in quarters: 15 of them, each exact in float64.
DYADIC = [rational(*w) for w in itertools.product(range(5), repeat=3) if sum(w) == 4]
EIGHTHS = [k / 8 for k in range(8)]  # every edge of a dyadic law, and a point between


@pytest.mark.parametrize("p", DYADIC, ids=repr)
def test_dyadic_laws_agree_in_every_answer(p: RationalLaw) -> None:
    """Draws at all edges and between; acceptance probabilities and residuals against every other law."""
    for u in (*EIGHTHS, TOP, *map(Fraction, EIGHTHS)):
        assert p.draw(u) == array(p).draw(u)
    assert list(p.support) == array(p).support
    assert argmax(p) == argmax(array(p))
    for q in DYADIC:
        residual, other = p.residual(q), array(p).residual(array(q))
        assert (residual is None) == (other is None)
        if residual and other:
            assert array(p).residual(q).probabilities.tolist() == other.probabilities.tolist()  # a rational proposal, too
            assert list(residual.support) == other.support
            assert np.abs(array(residual).probabilities - other.probabilities).max() <= 2**-53
        for token in (-1, 0, 1, 2, 3):
            ours, theirs = acceptance_probability(p, q, token), acceptance_probability(array(p), array(q), token)
            assert float(ours) == theirs


@pytest.mark.parametrize("p", DYADIC, ids=repr)
def test_dyadic_verdicts_agree_at_every_edge(p: RationalLaw) -> None:
    """The whole accept rule, one draft token, under all pairs of coins in eighths: alpha in halves, quarters and thirds."""
    last = rational(1, 2, 1)
    for q in DYADIC:
        for token in q.support:
            for test, correct in itertools.product(EIGHTHS, repeat=2):
                chance = Scripted({(1, "test", 1): test, (1, "correct", 1): correct, (1, "correct", 2): correct}).at(1)
                exact = accept(Draft((token,), (q,)), (p, last), chance, 1)
                assert exact == accept(Draft((token,), (array(q),)), (array(p), array(last)), chance, 1)


def away_from_edges(law: RationalLaw, u: float) -> bool:
    return all(abs(u - total) > 1e-9 for _, total in law.cumulative)


def test_other_laws_agree_away_from_edges() -> None:
    """Probabilities that float64 must round, coins at least 1e-9 from every edge."""
    rng = random.Random(1)
    tested = 0
    for _ in range(300):
        size = rng.randint(2, 9)
        p, q = (rational(*(rng.randint(0, 6) for _ in range(size - 1)), 1) for _ in range(2))
        laws = [(p, array(p)), (p.residual(q), array(p).residual(array(q)))]
        for exact, approximate in laws:
            assert (exact is None) == (approximate is None)
            for u in [rng.random() for _ in range(20)] if exact else ():
                if away_from_edges(exact, u):
                    assert exact.draw(u) == approximate.draw(u)
                    tested += 1
        token = rng.choice(q.support)
        alpha = acceptance_probability(p, q, token)
        assert acceptance_probability(array(p), array(q), token) == pytest.approx(float(alpha), abs=1e-15)
    assert tested > 10_000


def test_array_draw_survives_a_sum_below_the_coin() -> None:
    """Ten tenths add up to less than 1 in float64; the top coin takes the last token that has mass, not one past the end."""
    law = ArrayLaw([0.1] * 10 + [0.0])
    assert np.cumsum(law.probabilities)[-1] <= TOP
    for u in (TOP, np.float64(TOP), Fraction(TOP)):
        assert law.draw(u) == 9


def test_an_array_residual_against_a_proposal_of_another_vocabulary() -> None:
    """F40: what the proposal says outside the target's vocabulary removes nothing, as with rationals."""
    p = rational(1, 1, 2)
    for q in (rational(1, 0, 0, 3), rational(1, 1), Point(0), Point(9)):
        for proposal in (q, array(q)) if isinstance(q, RationalLaw) else (q,):
            exact, approximate = p.residual(q), array(p).residual(proposal)
            assert exact is not None
            assert approximate is not None
            assert approximate.probabilities == pytest.approx([float(x) for x in exact.probabilities], abs=1e-15)


def in_arrays(model: TabularModel) -> TabularModel:
    return TabularModel(lambda prefix: array(model.target(prefix)), lambda prefix, j: array(model.proposal(prefix, j)))


@pytest.mark.parametrize("name", ["ar", "linear", "packed", "quadratic", "branches:0,2"])
def test_whole_runs_agree_under_the_same_coins(name: str, table_model: Any) -> None:
    """Tokens and every Step. A sampled coin is within 1e-9 of one of the edges met here with odds below 1e-5."""
    for seed in range(20):
        model = table_model(3) if seed % 2 else random_tables(4, seed)
        exact, floats = (generate(m, named(name, 3), (1,), Limits.of(8, 2), Sampled(seed)) for m in (model, in_arrays(model)))
        assert exact.tokens == floats.tokens
        hidden = {"predictions": ()}  # an array never names its token
        assert [s._replace(**hidden) for s in exact.steps] == [s._replace(**hidden) for s in floats.steps]


def test_the_exact_law_of_the_float_code_on_dyadic_tables() -> None:
    """Enumerated coins run the float64 arithmetic too; where it does not round, it has the rational law."""
    p, q = rational(2, 1, 1), rational(1, 2, 1)  # the residual [1, 0, 0] and alpha 1/2 are exact in float64
    model = TabularModel(lambda prefix: p, lambda prefix, j: q)
    exact, floats = (exact_law(packed(3), m, (), Limits.of(3)) for m in (model, in_arrays(model)))
    assert exact.output == floats.output == autoregressive_law(in_arrays(model).target, (), Limits.of(3))
    assert exact.nfe == floats.nfe


# --- temperature 0 ----------------------------------------------------------------------------------------------------------


def test_greedy_processing_makes_points_of_every_law() -> None:
    laws = (rational(1, 2), ArrayLaw([0.5, 0.5]))
    reply = Reply(laws, (laws[:1], None), 7)
    seen: list[Call] = []
    call = Call((1,), (0,), True, (0, 2), 1)
    assert greedy(lambda c: seen.append(c) or reply)(call) == Reply((Point(1), Point(0)), ((Point(1),), None), 7)
    assert seen == [call]


def test_greedy_processing_and_greedy_tables_are_the_same_model(walk: Any) -> None:
    model = random_tables(3, 4)
    for schedule in (packed(3), named("quadratic", 2)):
        assert walk(greedy(model), schedule, (), Limits.of(6)) == walk(model.greedy(), schedule, (), Limits.of(6))
