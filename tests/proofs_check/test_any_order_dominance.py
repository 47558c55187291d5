"""Calls in other orders: the exhaustive tier holds, its smallest counterexample is a true one, and faults are seen."""

from __future__ import annotations

from typing import Any

import pytest

import proofs_check.any_order_dominance as check
from proofs_check.any_order import every
from proofs_check.any_order_dominance import Drafter, check_adaptive, check_fixed, compared
from simulator import Limits, generate
from simulator.any_order import Known, Schedule, left_to_right, named
from simulator.oracles.any_order import by_accepted


@pytest.mark.claim("DOM-FIXED-ORDER", "DOM-ADAPTIVE-ORDER")
@pytest.mark.parametrize("run", [check_fixed, check_adaptive])
def test_it_holds(run: Any) -> None:
    assert {entry.outcome for entry in run("quick")} == {"holds"}, run("quick")


@pytest.mark.slow
@pytest.mark.claim("DOM-FIXED-ORDER", "DOM-ADAPTIVE-ORDER")
@pytest.mark.parametrize("run", [check_fixed, check_adaptive])
def test_it_holds_at_full_budget(run: Any) -> None:
    assert {entry.outcome for entry in run("full")} == {"holds"}, run("full")


@pytest.mark.claim("DOM-ADAPTIVE-ORDER")
def test_the_smallest_counterexample_by_hand() -> None:
    """1 and 2 are drafted right from the start, 3 never. Linear-SS takes all three in its two calls. Packed-SS takes 1, then
    begins with 3, and needs a call for 2."""

    def order(known: Known) -> tuple[int, ...]:
        return (3, 2) if known.accepted == ((1, 0),) else known.window

    model = by_accepted([0, 0, 0], lambda accepted, j: j < 3)
    runs = {name: generate(model, named(name, 3, order), (), Limits.of(3)) for name in ("linear", "packed", "quadratic")}
    assert {name: run.nfe for name, run in runs.items()} == {"linear": 2, "packed": 3, "quadratic": 3}
    assert [step.order[: step.advance] for step in runs["packed"].steps] == [(1,), (3,), (2,)]


@pytest.mark.claim("DOM-ADAPTIVE-ORDER")
def test_a_window_that_slides_over_a_permutation_is_an_order_that_changes() -> None:
    """As soon as 1 is accepted, 4 is in the window and goes before 2 and 3; Linear-SS has taken 2 by then."""
    model = by_accepted([0] * 5, lambda accepted, j: j == 1 or (j in (3, 4) and {1, 2} <= accepted))
    runs = {name: generate(model, named(name, 3, "1,4,2,3,5"), (), Limits.of(5)) for name in ("linear", "packed", "quadratic")}
    assert {name: run.nfe for name, run in runs.items()} == {"linear": 4, "packed": 5, "quadratic": 5}
    assert [step.order[0] for step in runs["packed"].steps] == [1, 4, 2, 3, 5]
    whole = [generate(model, named(name, 5, "1,4,2,3,5"), (), Limits.of(5)).nfe for name in ("linear", "packed")]
    assert whole[1] <= whole[0]


def test_drafters_are_monotone_and_all_there() -> None:
    """On two positions: the monotone functions of one other position, 3 for each j, all found when all is asked."""

    def asked(choose: Any) -> Any:
        drafter = Drafter(2, choose)
        places = [(frozenset(others), j) for j in (1, 2) for others in ((), (3 - j,))]
        return tuple(drafter.correct(accepted, j) for accepted, j in places)

    leaves = {leaf for leaf, _ in every(asked)}
    assert len(leaves) == 9
    assert all(small <= large for a, b, c, d in leaves for small, large in ((a, b), (c, d)))


def test_a_slower_packed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(Schedule):
        def absorb(self, *arguments: Any) -> Any:
            after, step = super().absorb(*arguments)
            return after._replace(draft=()), step

    def made(name: str, *arguments: Any) -> Any:
        policy = named(name, *arguments)
        assert isinstance(policy, Schedule)
        forgets = name == "packed"
        return Forgetful(policy.name, policy.width, policy.order, (), policy.cycle) if forgets else policy

    monkeypatch.setattr(check, "named", made)
    [entry] = check_fixed("quick")
    assert entry.outcome == "violated"
    assert entry.detail.startswith("L=3, W=3")


def test_what_shows_nothing_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = compared([(2, 1, left_to_right)])
    assert found.reached == {check.FEWER}
    monkeypatch.setattr(check, "compared", lambda cases: found)
    [entry] = check_fixed("quick")
    assert entry.outcome == "not run"
    assert check.KEPT in entry.detail
    assert {entry.outcome for entry in check_adaptive("quick")} == {"violated"}  # no such run
