"""Coins: Sampled is reproducible, addressed and uniform; Scripted says what is missing; Enumerated is exact."""

from __future__ import annotations

import copy
import doctest
import math
import pickle
from bisect import bisect
from collections import defaultdict
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

import simulator.chance
from simulator import Address, ContractError, InvalidInput, Point, RationalLaw, Sampled, Scripted, enumerated
from simulator.chance import draw, draw_block, leading, rational
from simulator.laws import ArrayLaw

PURPOSES = ("draft", "test", "correct")
TOP = 1 - 2.0**-53  # the largest coin of Sampled
PINNED = [0.4566078059539863, 0.6524861596551432, 0.6595551643663717]
PINNED_LATE = 0.9931137188926508
HALF, THIRD, QUARTER = Fraction(1, 2), Fraction(1, 3), Fraction(1, 4)


def coin(source: Any, call: int, purpose: Any, position: int) -> Any:
    return source.at(call).uniform(purpose, position)


def law_of(run: Callable[[Any], Any]) -> dict[Any, Fraction]:
    law: dict[Any, Fraction] = defaultdict(Fraction)
    for weight, value in enumerated(run):
        law[value] += weight
    return dict(law)


# --- Sampled ----------------------------------------------------------------------------------------------------------------


def test_a_sampled_coin_is_a_function_of_seed_request_and_address() -> None:
    """Asked again, in another order, from another object, after other coins: the same coins."""
    addresses = [(call, purpose, position) for call in (1, 2, 9) for purpose in PURPOSES for position in (1, 2, 300)]
    first, second = Sampled(7, 3), Sampled(7, 3)
    coins = {address: coin(first, *address) for address in addresses}
    assert {address: coin(second, *address) for address in reversed(addresses)} == coins
    assert [coin(first, *address) for address in addresses] == list(coins.values())
    at_2 = first.at(2)
    assert [at_2.uniform("test", 300), at_2.uniform("test", 300)] == [coins[2, "test", 300]] * 2


def test_every_part_of_the_address_and_of_the_key_counts() -> None:
    coins = [
        coin(Sampled(seed, request), call, purpose, position)
        for seed in (0, 1, 2**64 - 1)
        for request in (0, 1, 2**64 - 1)
        for call in (1, 2, 3)
        for purpose in PURPOSES
        for position in (1, 2, 3)
    ]
    assert len(set(coins)) == len(coins) == 243


def test_sampled_coins_do_not_change_between_versions() -> None:
    """Pinned: a recorded run can be replayed from its seed by a later release."""
    assert [coin(Sampled(0), 1, purpose, 1) for purpose in PURPOSES] == PINNED
    assert coin(Sampled(2**64 - 1, 5), 40, "correct", 1000) == PINNED_LATE


def test_sampled_coins_are_53_bit_numbers_below_1() -> None:
    coins = [coin(Sampled(11), 1, "draft", position) for position in range(1, 2001)]
    assert all(type(u) is float and 0 <= u < 1 for u in coins)
    bits = [int(u * 2**53) for u in coins]
    assert [b * 2.0**-53 for b in bits] == coins
    ones = [sum(b >> i & 1 for b in bits) for i in range(53)]
    assert all(750 < n < 1250 for n in ones)  # 53 binomials (2000, 1/2), 11 standard deviations


def test_sampled_coins_are_uniform_and_independent_along_every_part_of_the_address() -> None:
    """Chi-square of one coin in 32 cells and of neighbouring pairs in 8 x 8 cells. n = 8000 for each; false-alarm odds for a
    fresh seed 1e-6 a test, 7e-6 in all; 32 cells that are off by 10 % in turn are seen in 9 of 10 seeds."""
    n = 8000
    streams = {
        "position": [coin(Sampled(5), 1, "test", i) for i in range(1, n + 1)],
        "call": [coin(Sampled(5), i, "test", 1) for i in range(1, n + 1)],
        "request": [coin(Sampled(5, i), 1, "test", 1) for i in range(n)],
    }
    cells = {f"one coin by {name}": (np.array(u) * 32 // 1).astype(int) for name, u in streams.items()}
    for name, u in streams.items():
        octet = (np.array(u) * 8 // 1).astype(int)
        cells[f"pairs by {name}"] = octet[:-1] * 8 + octet[1:]
    purposes = [[coin(Sampled(5), i, purpose, 1) for i in range(1, n // 2)] for purpose in ("test", "correct")]
    cells["test and correct of one address"] = ((np.array(purposes) * 8 // 1).astype(int) * [[8], [1]]).sum(axis=0)
    for name, observed in cells.items():
        count = np.bincount(observed, minlength=64 if "one coin" not in name else 32)
        expected = len(observed) / len(count)
        statistic = ((count - expected) ** 2 / expected).sum()
        assert chi2.sf(statistic, len(count) - 1) > 1e-6, name


@pytest.mark.parametrize(("seed", "request_number"), [(-1, 0), (2**64, 0), (0, -1), (0, 2**64)])
def test_a_seed_or_request_that_does_not_fit_is_refused(seed: int, request_number: int) -> None:
    with pytest.raises(InvalidInput, match=r"0 \.\. 2\^64 - 1"):
        Sampled(seed, request_number)


# --- Scripted ---------------------------------------------------------------------------------------------------------------


def test_a_script_gives_its_coins_and_remembers_what_was_asked() -> None:
    script = Scripted({(2, "test", 3): 0.25, Address(1, "draft", 1): QUARTER}, otherwise=0.5)
    assert coin(script, 2, "test", 3) == 0.25
    assert coin(script, 1, "draft", 1) == QUARTER
    assert coin(script, 3, "test", 3) == 0.5
    assert script.asked == {(2, "test", 3), (1, "draft", 1), (3, "test", 3)}


def test_a_scripted_zero_is_a_coin() -> None:
    assert coin(Scripted({(1, "test", 1): 0}, otherwise=0.5), 1, "test", 1) == 0
    assert coin(Scripted({}, otherwise=0), 1, "test", 1) == 0


@pytest.mark.parametrize("address", [(1, "test", 3), (2, "draft", 3), (2, "test", 4)])
def test_a_missing_coin_is_named(address: Any) -> None:
    with pytest.raises(ContractError, match=rf"call={address[0]}, purpose='{address[1]}', position={address[2]}"):
        coin(Scripted({(2, "test", 3): 0.25}), *address)


# --- enumerated -------------------------------------------------------------------------------------------------------------


def test_code_without_coins_has_one_outcome() -> None:
    assert enumerated(lambda chance: "x") == [(1, "x")]


def test_nested_comparisons_split_what_is_left() -> None:
    def run(chance: Any) -> str:
        u = chance.uniform("test", 1)
        return ("a" if u < QUARTER else "b") if u < HALF else "c" if u < Fraction(3, 4) else "d"

    assert law_of(run) == {"a": QUARTER, "b": QUARTER, "c": QUARTER, "d": QUARTER}


def test_a_coin_asked_for_again_is_the_same_coin() -> None:
    """It keeps its interval, by address, within a call: below 1/3 it is below 1/2 too."""

    def run(chance: Any) -> tuple[bool, bool]:
        return chance.uniform("test", 1) < THIRD, chance.uniform("test", 1) < HALF

    assert law_of(run) == {(True, True): THIRD, (False, True): HALF - THIRD, (False, False): HALF}


def test_coins_of_other_addresses_are_independent() -> None:
    def run(chance: Any) -> tuple[bool, bool, bool]:
        return chance.uniform("test", 1) < THIRD, chance.uniform("test", 2) < THIRD, chance.uniform("draft", 1) < THIRD

    law = law_of(run)
    assert len(law) == 8
    assert all(p == THIRD ** sum(value) * (1 - THIRD) ** (3 - sum(value)) for value, p in law.items())


def test_a_shared_coin_gives_the_comonotone_law() -> None:
    """Two draws by inverse CDF with one coin: the mass of (x, y) is the overlap of their intervals, not the product."""
    p, q = RationalLaw([HALF, QUARTER, QUARTER]), RationalLaw([QUARTER, HALF, QUARTER])

    def run(chance: Any) -> tuple[int, int]:
        u = chance.uniform("draft", 1)
        return p.draw(u), q.draw(u)

    assert law_of(run) == {(0, 0): QUARTER, (0, 1): QUARTER, (1, 1): QUARTER, (2, 2): QUARTER}


def test_all_comparisons_with_a_coin_agree() -> None:
    """<, <=, >, >= from either side, with rationals and floats: single values have no mass, so <= is < and >= is >."""
    for x in (QUARTER, 0.25, np.float64(0.25)):
        for below in (lambda u, x=x: u < x, lambda u, x=x: u <= x, lambda u, x=x: x > u, lambda u, x=x: x >= u):
            assert law_of(lambda chance, f=below: f(chance.uniform("test", 1))) == {True: QUARTER, False: 1 - QUARTER}
        for above in (lambda u, x=x: u > x, lambda u, x=x: u >= x, lambda u, x=x: x < u, lambda u, x=x: x <= u):
            assert law_of(lambda chance, f=above: f(chance.uniform("test", 1))) == {False: QUARTER, True: 1 - QUARTER}


def test_a_float_is_compared_at_its_exact_value() -> None:
    """0.1 is a dyadic rational a little above 1/10; both weights are exact."""
    assert law_of(lambda chance: chance.uniform("test", 1) < 0.1) == {True: Fraction(0.1), False: 1 - Fraction(0.1)}


def test_the_examples_in_the_docstrings() -> None:
    results = doctest.testmod(simulator.chance)
    assert results == (0, 2)


def test_an_equal_value_is_never_met_and_certainties_do_not_fork() -> None:
    assert enumerated(lambda chance: chance.uniform("test", 1) == HALF) == [(1, False)]
    assert enumerated(lambda chance: chance.uniform("test", 1) <= 0) == [(1, False)]
    assert enumerated(lambda chance: chance.uniform("test", 1) < 1) == [(1, True)]
    assert enumerated(lambda chance: chance.uniform("test", 1) >= 1) == [(1, False)]


BELOW_A_QUARTER = {
    "a multiple": lambda u: u * Fraction(3, 4) < Fraction(3, 16),
    "a multiple, number first": lambda u: np.float64(0.75) * u < np.float64(3 / 16),
    "a quotient": lambda u: u / 2 <= 0.125,
    "a sum": lambda u: 1 + u < 1.25,
    "one minus it": lambda u: 1 - u > HALF + QUARTER,
    "one minus it, from numpy": lambda u: np.int64(1) - u >= 0.75,
    "its negative": lambda u: -u > -0.25,
    "all of it": lambda u: 3 - 2 * (u + u) / 4 > 2.75,
    "rationals of the chain": lambda u: rational(3) / 4 * u < rational(3) / 16,
    "numpy float32": lambda u: u < np.float32(0.25),
    "numpy float64 first": lambda u: np.float64(0.25) > u,
    "itself on both sides": lambda u: u < 1 - 3 * u,
    "the smaller of two": lambda u: min(u, HALF) < QUARTER,
    "a number in an array": lambda u: np.array(0.25) > u,
    "elements of two arrays": lambda u: (np.asarray([0.25, 1.0]) > np.asarray([u, u], dtype=object))[0],
    "an array against it": lambda u: (np.array([0.25, 1.0]) >= u)[0],
    "it against an array": lambda u: (u < np.array([0.25, 1.0]))[0],
    "arithmetic of arrays": lambda u: (np.array([u, 1 - u]) * np.array([0.5, 0.5]) - 0.5 < -0.375)[0],
    "the smaller in an array": lambda u: np.minimum([0.5, 0.6], u)[0] < 0.25,
    "a cumulative sum": lambda u: np.argmax(np.cumsum([0.25, 0.75]) > u) == 0,
    "a sorted search": lambda u: np.searchsorted(np.array([0.25, 0.5]), u, side="right") == 0,
    "a bisection": lambda u: bisect([0.25, 0.5], u) == 0,
    "a copy": lambda u: copy.deepcopy([u])[0] < QUARTER,
}


@pytest.mark.parametrize("code", BELOW_A_QUARTER.values(), ids=BELOW_A_QUARTER)
def test_code_may_scale_and_shift_a_coin_before_it_compares(code: Callable[[Any], Any]) -> None:
    assert law_of(lambda chance: bool(code(chance.uniform("test", 1)))) == {True: QUARTER, False: 1 - QUARTER}


def test_what_is_made_of_a_coin_narrows_it() -> None:
    """1 - u < 2/3 says that u is above 1/3: a fault that uses a coin twice does not hide behind arithmetic."""

    def run(chance: Any) -> tuple[bool, bool, bool]:
        u = chance.uniform("test", 1)
        return 1 - u < 1 - THIRD, u < HALF, np.float64(2) * u < 0.5

    assert law_of(run) == {
        (False, True, True): QUARTER,
        (False, True, False): THIRD - QUARTER,
        (True, True, False): HALF - THIRD,
    } | {(True, False, False): HALF}


def test_comparisons_without_mass_and_beyond_all_numbers() -> None:
    """Sure ones, without a fork: of a coin with itself, with NaN and infinity, and of what arithmetic made a number of."""

    def run(chance: Any) -> tuple[list[bool], Any]:
        u = chance.uniform("test", 1)
        true = [u <= u, u >= u, u == u, 1 - (1 - u) == u, u < np.inf, u > -np.inf, 2 * u < np.inf, u * 0 < QUARTER, 2 * u != u]
        false = [u < u, u > u, u != u, 1 - u == u, u == HALF, u < np.nan, u >= np.nan, u > np.nan, 2 * u <= np.nan, -u > np.nan]
        return [bool(x) for x in (*true, *(not x for x in false))], u - u

    assert enumerated(run) == [(1, ([True] * 19, 0))]


NO_VALUE = {
    "float": float,
    "int": int,
    "bool": bool,
    "round": round,
    "floor": math.floor,
    "log": math.log,
    "numpy's log": np.log,
    "log of an array": lambda u: np.log(np.array([u, u])),
    "a key": lambda u: {u},
    "an index": lambda u: range(5)[u],
    "indexing": lambda u: u[0],
    "iteration": list,
    "length": len,
    "square": lambda u: u * u,
    "power": lambda u: u**2,
    "reciprocal": lambda u: 1 / u,
    "a cell": lambda u: u * 3 // 1,
    "remainder": lambda u: u % HALF,
    "infinity": lambda u: u * np.inf,
    "a pickle": pickle.dumps,
    "another coin": lambda u, v: u < v,
    "another coin, scaled": lambda u, v: 2 * u >= v,
    "a sum of two": lambda u, v: u + v < 1,
    "a product of two": lambda u, v: u * v < HALF,
}


@pytest.mark.parametrize("code", NO_VALUE.values(), ids=NO_VALUE)
def test_what_needs_the_value_of_a_coin_is_refused_in_one_sentence(code: Callable[..., Any]) -> None:
    coins = [("test", 1), ("test", 2)][: 2 if code in list(NO_VALUE.values())[-4:] else 1]
    with pytest.raises(ContractError, match="an enumerated coin has no value: it can be multiplied by numbers"):
        enumerated(lambda chance: code(*(chance.uniform(*address) for address in coins)))


def test_a_coin_in_a_float_array_and_beside_what_is_no_number() -> None:
    """numpy and Python have their own words for these."""
    for code, error in ((lambda u: np.asarray([u], dtype=float), ValueError), (lambda u: u < None, TypeError)):
        with pytest.raises(error):
            enumerated(lambda chance, f=code: f(chance.uniform("test", 1)))


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(*(st.fractions(-2, 2, max_denominator=5),) * 3, st.sampled_from("<>")), max_size=5))
def test_any_program_of_affine_comparisons_gets_its_law(program: list[tuple[Fraction, Fraction, Fraction, str]]) -> None:
    """Against the values at the midpoints of the cells between all the cuts, as numbers."""

    def answers(u: Any) -> tuple[bool, ...]:
        return tuple(bool(a * u + b < x if sign == "<" else u * a + b > x) for a, b, x, sign in program)

    cuts = sorted({Fraction(0), Fraction(1), *(c for a, b, x, _ in program if a and 0 < (c := (x - b) / a) < 1)})
    expected: dict[Any, Fraction] = defaultdict(Fraction)
    for low, high in pairwise(cuts):
        expected[answers((low + high) / 2)] += high - low
    assert law_of(lambda chance: answers(chance.uniform("test", 1))) == expected


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.fractions(0, 1, max_denominator=9)), max_size=6))
def test_any_program_of_comparisons_gets_its_law(program: list[tuple[int, Fraction]]) -> None:
    """Against the volume of each cell of the cube of coins, computed without the interpreter. Outcomes are distinct, so each
    is run once, and probabilities sum to 1."""

    def run(chance: Any) -> tuple[bool, ...]:
        return tuple(chance.uniform("test", position) < x for position, x in program)

    outcomes = enumerated(run)
    assert sum(weight for weight, _ in outcomes) == 1
    assert len({value for _, value in outcomes}) == len(outcomes)
    for weight, value in outcomes:
        volume = Fraction(1)
        for position in (1, 2, 3):
            cuts = [(x, below) for (where, x), below in zip(program, value, strict=True) if where == position]
            high = min([x for x, below in cuts if below], default=Fraction(1))
            low = max([x for x, below in cuts if not below], default=Fraction(0))
            volume *= min(high, 1) - max(low, 0)
        assert weight == volume > 0


@pytest.mark.parametrize("weights", [(1, 2, 3), (0, 1, 0, 2), (5,), (1, 0), (1, 1, 1, 1, 1)])
def test_a_draw_has_the_law_it_is_drawn_from(weights: tuple[int, ...]) -> None:
    law = RationalLaw.weighted(weights)
    expected = {token: law.probability(token) for token in law.support}
    assert law_of(lambda chance: draw(law, chance, "draft", 1)) == expected


def test_a_block_is_drawn_from_independent_coins_at_consecutive_positions() -> None:
    p, q = RationalLaw([THIRD, 1 - THIRD]), RationalLaw([QUARTER, 1 - QUARTER])
    law = law_of(lambda chance: draw_block((p, q), chance, 4))
    assert law == {(x, y): p.probability(x) * q.probability(y) for x in (0, 1) for y in (0, 1)}
    script = Scripted({}, otherwise=0)
    draw_block((p, Point(0), q), script.at(2), 4)
    assert script.asked == {(2, "draft", 4), (2, "draft", 6)}


# --- helpers at the edges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alphas", "coins", "accepted"),
    [
        ([], [], 0),
        ([HALF, HALF, HALF], [0, 0, 0], 3),
        ([HALF, HALF, HALF], [0, HALF, 0], 1),  # u = alpha fails: the test is u < alpha
        ([HALF, HALF, HALF], [0, 0.5 - 2**-53, HALF], 2),
        ([HALF, HALF], [HALF, 0], 0),  # what follows a failure does not count
        ([0], [0], 0),  # alpha = 0 fails at u = 0
        ([0.0, 1.0], [0.0, 0.0], 0),
        ([1], [TOP], 1),  # alpha = 1 passes at the largest coin
        ([1.0, Fraction(1), 1 - 2.0**-53], [TOP, TOP, TOP], 2),
        ([-HALF], [0], 0),
        ([Fraction(3, 2)], [TOP], 1),
    ],
)
def test_leading_counts_the_tests_passed_before_the_first_failure(alphas: Any, coins: Any, accepted: int) -> None:
    assert leading(alphas, coins.__getitem__) == accepted


@pytest.mark.parametrize(("alphas", "asked"), [([0, 1, HALF], []), ([1, HALF, 0, HALF], [1]), ([HALF, HALF], [0, 1])])
def test_certain_tests_need_no_coin(alphas: Any, asked: list[int]) -> None:
    indices: list[int] = []
    leading(alphas, lambda index: indices.append(index) or 0)
    assert indices == asked


LAWS = [RationalLaw([0, QUARTER, 0, HALF, QUARTER, 0]), ArrayLaw([0, 0.25, 0, 0.5, 0.25, 0])]


@pytest.mark.parametrize("law", LAWS, ids=["rational", "array"])
@pytest.mark.parametrize(
    ("u", "token"),
    [
        (0, 1),
        (0.0, 1),
        (0.25 - 2**-54, 1),
        (QUARTER, 3),
        (0.25, 3),
        (0.75 - 2**-53, 3),
        (0.75, 4),
        (Fraction(3, 4), 4),
        (TOP, 4),
    ],
)
def test_draw_takes_the_first_token_whose_cumulative_probability_exceeds_the_coin(law: Any, u: Any, token: int) -> None:
    """Tokens 0, 2 and 5 have no mass and are never drawn, not at a boundary, not at 0, not at the top."""
    assert draw(law, Scripted({}, otherwise=u).at(1), "draft", 1) == token


def test_a_point_mass_needs_no_coin() -> None:
    for law in (Point(3), RationalLaw([0, 0, 0, 1])):
        assert draw(law, Scripted({}).at(1), "correct", 1) == 3


def test_the_generator_is_the_one_spec_md_names() -> None:
    """R-RANDOM-6's own examples."""
    assert Sampled(7, request=3).at(3).uniform("test", 2) == 0.2752854179142613
    assert Sampled(0).at(1).uniform("correct", 1) == 0.6595551643663717


def test_code_that_is_no_function_of_its_coins_has_no_law() -> None:
    """A coin kept for a later run, and a run that changes from replay to replay."""
    kept: list[Any] = []

    def keeps(chance: Any) -> bool:
        kept.append(chance.uniform("test", 1))
        return bool(kept[0] < Fraction(1, 2))

    with pytest.raises(ContractError, match="compared after its call"):
        enumerated(keeps)
    runs = iter(range(100))
    with pytest.raises(ContractError, match="no pure function"):
        enumerated(lambda chance: chance.uniform("test", 1) < Fraction(1, 2 + next(runs)))
