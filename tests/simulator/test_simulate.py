"""Counting calls over many drafters: sums by hand, aggregates, reproducible drafters."""

from __future__ import annotations

import pytest

from simulator import InvalidInput, linear, packed, quadratic
from simulator.simulate import count_calls, lag_drafters


def test_counts_by_hand() -> None:
    """A perfect drafter, one that is never right, and W = 3, L = 5: blocks of 4 tokens against one token a time."""
    drafters = [[0] * 5, [1, 2, 3, 4, 5]]
    two_calls, one_call, branching = count_calls([linear(3), packed(3), quadratic(3)], drafters, 5)
    assert [count.schedule for count in (two_calls, one_call, branching)] == ["linear", "packed", "quadratic"]
    assert two_calls.nfe == (4, 10)
    assert one_call.nfe == (3, 5)  # 1 + 3 + 1 tokens of the perfect drafter
    assert branching.nfe == (3, 5)
    assert [count.tokens for count in (two_calls, one_call, branching)] == [10, 10, 10]
    assert [count.rows for count in (two_calls, one_call, branching)] == [14 * 4, 8 * 8, 8 * 20]
    assert one_call.tokens_per_nfe == 10 / 8  # not the mean of 5/3 and 5/5


def test_nothing_to_count() -> None:
    (nothing,) = count_calls([packed(2)], [], 5)
    assert (nothing.tokens, nothing.nfe, nothing.rows, nothing.tokens_per_nfe) == (0, (), 0, 0)
    (single,) = count_calls([packed(2)], [[1]], 1)
    assert (single.nfe, single.tokens_per_nfe) == ((1,), 1)
    (no_tokens,) = count_calls([packed(2)], [[1]], 0)
    assert (no_tokens.tokens, no_tokens.nfe, no_tokens.tokens_per_nfe) == (0, (0,), 0)


def test_progress_sees_every_drafter() -> None:
    seen: list[list[int]] = []
    drafters = [[1], [0], [1]]
    count_calls([packed(2), linear(2)], drafters, 3, progress=lambda items: (seen.append(x) or x for x in items))
    assert seen == drafters


def test_a_threshold_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"c\*_2 must lie in 0 \.\. 2, got 3"):
        count_calls([packed(2)], [[1, 3]], 4)


def test_drafters_are_reproducible() -> None:
    drafters = lag_drafters(3, 20, 2.0, seed=4)
    assert drafters == lag_drafters(3, 20, 2.0, seed=4) != lag_drafters(3, 20, 2.0, seed=5)
    assert lag_drafters(3, 20, 2.0, seed=0) == lag_drafters(3, 20, 2.0, seed=0)
    assert [len(drafter) for drafter in drafters] == [20] * 3
    assert drafters[0] != drafters[1] != drafters[2]
    assert lag_drafters(5, 20, 2.0, seed=4)[:3] == drafters  # more runs leave the first ones as they were
    assert all(type(threshold) is int for threshold in drafters[0])


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(InvalidInput, match="seed must be >= 0, got -1"):
        lag_drafters(1, 4, 2.0, seed=-1)
