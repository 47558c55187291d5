"""Tables and threshold drafters answer as they say: which context every row sees, and when a drafter is right."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from simulator import Call, InvalidInput, Point
from simulator.laws import argmax
from simulator.oracles import TabularModel, ThresholdModel, random_lags, random_tables


def test_every_row_sees_its_own_context() -> None:
    """Verifier row i: prefix + draft[:i]. Proposal j of branch b: prefix + draft[:b] and j alone; none for b > |draft|."""
    seen: list[tuple[tuple[int, ...], int]] = []

    def p(prefix: tuple[int, ...]) -> Point:
        seen.append((prefix, 0))
        return Point(len(seen))

    def q(prefix: tuple[int, ...], j: int) -> Point:
        seen.append((prefix, j))
        return Point(len(seen))

    reply = TabularModel(p, q)(Call((7,), (1, 2), True, (0, 2, 3), 2))
    assert seen == [((7,), 0), ((7, 1), 0), ((7, 1, 2), 0), ((7,), 1), ((7,), 2), ((7, 1, 2), 1), ((7, 1, 2), 2)]
    assert reply.target == (Point(1), Point(2), Point(3))
    assert reply.proposals == ((Point(4), Point(5)), (Point(6), Point(7)), None)
    assert reply.rows == 3 + 3 * 3


def test_a_call_gets_what_it_asks_for_and_no_more() -> None:
    model = random_tables(3, 0)
    draft_only, verify_only = model(Call((), (1,), False, (0,), 4)), model(Call((), (1,), True, (), 4))
    assert (draft_only.target, len(draft_only.proposals[0] or ())) == ((), 4)
    assert (len(verify_only.target), verify_only.proposals) == (2, ())


@pytest.mark.claim("ASM3.1")
@pytest.mark.parametrize("prompt", [(), (1, 1)])
def test_a_threshold_drafter_is_right_exactly_from_its_threshold_on(prompt: tuple[int, ...]) -> None:
    """For all positions k <= 5 and contexts c < k, and beyond the vector; a wrong draft is a token, but never the right one."""
    thresholds, truth = (1, 0, 3, 2, 5), (2, 0, 1, 2, 1, 0, 2)
    model = ThresholdModel(thresholds, truth, vocabulary=3, prompt_length=len(prompt))
    for k, c in itertools.product(range(1, 8), range(7)):
        if c < k:
            right = k > 5 or c >= thresholds[k - 1]
            proposal = model.proposal(prompt + truth[:c], k - c)
            assert (proposal == Point(truth[k - 1])) == right
            assert proposal.token in range(3)
            assert model.target(prompt + truth[: k - 1]) == Point(truth[k - 1])
    assert model.target(prompt + (0,) * 7) == Point(0)  # the continuation goes on with zeros


def test_tables_at_temperature_0() -> None:
    tables = random_tables(4, 1)
    greedy = tables.greedy()
    for prefix in [(), (0,), (3, 1)]:
        assert greedy.target(prefix) == argmax(tables.target(prefix))
        assert greedy.proposal(prefix, 2) == argmax(tables.proposal(prefix, 2))


def test_random_tables_depend_on_seed_prefix_offset_and_side() -> None:
    """And on nothing else: the same from another object. Zeros are frequent on both sides, point masses are not the rule."""
    first, again, other = random_tables(3, 5), random_tables(3, 5), random_tables(3, 6)
    prefixes = [prefix for length in range(4) for prefix in itertools.product(range(3), repeat=length)]
    targets = [first.target(prefix) for prefix in prefixes]
    proposals = [first.proposal(prefix, j) for prefix in prefixes for j in (1, 2, 3)]
    assert [again.target(prefix) for prefix in prefixes] == targets
    assert [again.proposal(prefix, j) for prefix in prefixes for j in (1, 2, 3)] == proposals
    assert sum(law == other.target(prefix) for law, prefix in zip(targets, prefixes, strict=True)) < 8
    assert len(set(targets)) > 20
    assert len({first.proposal((1, 2), j) for j in range(1, 9)}) > 4
    assert sum(first.target(prefix) == first.proposal(prefix, 1) for prefix in prefixes) < 8
    for laws in (targets, proposals):
        assert all(len(law.probabilities) == 3 for law in laws)
        assert 0.2 < sum(len(law.support) < 3 for law in laws) / len(laws) < 0.7
        assert sum(law.certain is not None for law in laws) < len(laws) / 4


def test_a_table_of_zeros_becomes_a_point_mass() -> None:
    assert {random_tables(3, 0, top_weight=0).target(prefix).certain for prefix in [(x,) for x in range(20)]} == {0, 1, 2}


def test_random_lags_are_thresholds() -> None:
    """0 <= c*_k <= k. With lag 0 every position is drafted too early; 4000 geometric lags have the mean asked for, by a test
    whose false-alarm odds for a fresh seed are 2e-6."""
    rng = np.random.default_rng(0)
    assert random_lags(5, 0, rng).tolist() == [1, 2, 3, 4, 5]
    assert random_lags(0, 3, rng).tolist() == []
    thresholds = random_lags(4000, 3.0, rng)
    positions = np.arange(1, 4001)
    assert ((thresholds >= 0) & (thresholds <= positions)).all()
    assert thresholds[:5].min() == random_lags(50, 1e6, rng).max() == 0  # lags beyond the prompt's end are cut off
    lags = (positions - thresholds)[100:]  # none of these is
    assert abs(lags.mean() - 3) < 4.9 * np.sqrt(3 * 4 / 3900)
    assert (lags == 0).mean() == pytest.approx(1 / 4, abs=4.9 * np.sqrt(3 / 16 / 3900))


@pytest.mark.parametrize("mean", [-0.5, float("inf"), float("nan")])
def test_a_mean_lag_out_of_range_is_refused(mean: float) -> None:
    with pytest.raises(InvalidInput, match="mean lag must be >= 0 and finite"):
        random_lags(4, mean, np.random.default_rng(0))
