"""B.1 on every threshold vector of small length: the golden sums, F, the lemmas, pathwise dominance."""

# ruff: noqa: SIM300 - P and Q are the paper's symbols here, no constants
from __future__ import annotations

import json
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from spec import SCHEDULES, Given, State, greedy
from spec.thresholds import F, threshold_model

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "threshold_sums.json").read_text())["rows"]
WIDTHS = range(1, 5)


@cache
def vectors(L: int) -> list[tuple[int, ...]]:
    """All c*_1..c*_L with 0 <= c*_k <= k."""
    return list(product(*(range(k + 1) for k in range(1, L + 1))))


def lengths(schedule: str, c_star: tuple[int, ...], W: int, L: int) -> list[int]:
    """The verified output length after each call of a run with start `algorithm` and no EOS, until it reaches L, by arithmetic.

    Its len() is the NFE. The last length may exceed L: B.1 compares lengths before truncation. For an EOS at output
    position e < L, pass e as L.
    """

    def is_right(k: int) -> bool:
        return k > len(c_star) or e >= c_star[k - 1]

    reached, c = [], 0
    e, end = 0, 0  # the draft in hand covers positions c + 1..end and was made from e verified tokens; at first it is empty
    while c < L:
        if schedule == "linear":
            reached.append(c)  # the drafting call
            e, end = c, c + W
        h = 0
        while c + h + 1 <= end and is_right(c + h + 1):
            h = h + 1
        if schedule == "packed":
            e, end = c, c + W  # Z_t is drafted from P_{t-1}, EQ3
        if schedule == "quadratic":
            e, end = c + h, c + h + W  # branch h knows the h accepted tokens too
        c = c + h + 1
        reached.append(c)
    return reached


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"L{row['L']}-W{row['W']}")
def test_golden_sums(row: dict[str, int]) -> None:
    L, W = row["L"], row["W"]
    nfe = {s: [len(lengths(s, c_star, W, L)) for c_star in vectors(L)] for s in ("linear", "packed", "quadratic")}
    assert len(vectors(L)) == row["instances"]
    assert {f"nfe_{s}": sum(counts) for s, counts in nfe.items()} == {key: row[key] for key in row if key.startswith("nfe")}
    assert sum(a == b for a, b in zip(nfe["packed"], nfe["linear"], strict=True)) == row["packed_equals_linear"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_arithmetic_is_the_greedy_run(schedule: Any) -> None:
    """Call by call, for all vectors up to L = 4: so the golden sums hold for Algorithm 1 too. The prompt changes nothing."""
    for L, W in product(range(5), WIDTHS):
        for c_star in vectors(L):
            run = greedy.run(schedule, Given((5, 5), W, L, *threshold_model(c_star, (5, 5))))
            assert run.P == (5, 5, *range(1, L + 1))
            assert [len(state.P) - 2 for state in run.states[1:]] == [min(c, L) for c in lengths(schedule, c_star, W, L)]


def test_golden_rows_are_all_here() -> None:
    assert [(row["L"], row["W"]) for row in GOLDEN] == list(product(range(1, 7), WIDTHS))


def test_F_by_hand() -> None:
    c_star = (1, 0, 3, 2, 1)
    assert [F(c, 2, c_star) for c in range(7)] == [1, 3, 3, 6, 7, 8, 9]
    assert [F(c, 1, c_star) for c in range(7)] == [1, 3, 3, 5, 6, 7, 8]


@pytest.mark.claim("LEMB1")
def test_F_is_nondecreasing() -> None:
    """LEMB1, first half."""
    for c_star, W in product(vectors(5), WIDTHS):
        values = [F(c, W, c_star) for c in range(8)]
        assert values == sorted(values)


@pytest.mark.claim("LEMB1")
def test_F_is_fresh_draft_and_verify() -> None:
    """LEMB1, second half, through the calls of Linear-SS: from every context c, not only those a run visits."""
    for c_star, W in product(vectors(4), WIDTHS):
        given = Given((), W, 99, *threshold_model(c_star))
        for c in range(6):
            drafted, _ = greedy.call("linear", State(tuple(range(1, c + 1)), (), (), "draft"), given)
            verified, _ = greedy.call("linear", drafted, given)
            assert len(verified.P) == F(c, W, c_star)


@pytest.mark.claim("LEMB2")
def test_two_packed_passes_reach_F() -> None:
    """LEMB2, from the start and from every later call."""
    for c_star, W in product(vectors(5), WIDTHS):
        c = [0, *lengths("packed", c_star, W, 8)]
        assert all(c[t + 2] >= F(c[t], W, c_star) for t in range(len(c) - 2))


@pytest.mark.claim("THM3.2")
def test_packed_is_never_behind_linear() -> None:
    """THM3.2: after 2t calls Packed-SS is at least where t iterations of Linear-SS are; so it needs no more calls."""
    ahead = 0
    for c_star, W in product(vectors(5), WIDTHS):
        packed, linear = ([0, *lengths(s, c_star, W, 20)] for s in ("packed", "linear"))
        assert all(packed[2 * t] >= linear[2 * t] for t in range((len(packed) + 1) // 2))
        assert len(packed) <= len(linear)
        ahead += len(packed) < len(linear)
    assert ahead > 0


@pytest.mark.claim("EQ5")
def test_the_bound_holds_with_eos_and_limit() -> None:
    """THM3.2 with stops, and EQ5, on Algorithm 1 itself."""
    for c_star, W in product(vectors(4), (1, 2, 3)):
        for eos, L in [(1, 4), (2, 4), (3, 4), (4, 2), (9, 0)]:
            given = Given((), W, L, *threshold_model(c_star), {eos})
            packed, linear = greedy.run("packed", given), greedy.run("linear", given)
            assert packed.P == linear.P == tuple(range(1, min(eos, L) + 1))
            assert packed.NFE <= linear.NFE == len(lengths("linear", c_star, W, min(eos, L)))


def test_without_monotonicity_the_bound_can_fail() -> None:
    """ASM3.1 is needed. Packed-SS jumps over context 3, the one from which this drafter sees far. The output stays right."""
    right = {0: {2, 3}, 1: {2}, 3: set(range(4, 12))}
    p, _ = threshold_model(())
    given = Given((), 8, 12, p, lambda P, i: len(P) + i if len(P) + i in right.get(len(P), ()) else -1)
    packed, linear = greedy.run("packed", given), greedy.run("linear", given)
    assert [len(state.P) for state in linear.states[::2]] == [0, 1, 3, 12]
    assert [len(state.P) for state in packed.states] == [0, 1, *range(4, 13)]
    assert packed.P == linear.P
    assert packed.NFE > linear.NFE


@pytest.mark.parametrize(("c_star", "message"), [((0, 3), r"c\*_2 is 3: .* between 0 and .* 2"), ((-1,), r"c\*_1 is -1")])
def test_bad_thresholds(c_star: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        threshold_model(c_star)
