"""Sampling reduces to random matrices: exactly, on every table, and a schedule that does otherwise is seen."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from typing import Any

import pytest

from proofs_check import sampling_dominance as sampling
from proofs_check.joint import STARTS, Runs, Start
from proofs_check.sampling_dominance import (
    NAMES,
    calls_given_gamma,
    check_condition,
    check_grid,
    check_smallest,
    check_tables,
    gamma_of,
    no_later,
)
from simulator import Limits, State, ar, autoregressive_law, linear, packed
from simulator.oracles import random_tables
from simulator.schedule import Schedule

HALF = Fraction(1, 2)


@pytest.mark.parametrize("start", STARTS)
def test_certain_drafts_are_a_matrix(start: Start) -> None:
    """60 random matrices (seed 0), L = 1 .. 9: one number of calls, that of the production runs."""
    rng = random.Random(0)
    for _ in range(60):
        length, width = rng.randint(1, 9), rng.randint(1, 5)
        rows = tuple(tuple(rng.getrandbits(1) for _ in range(length - c)) for c in range(length))
        runs = Runs(rows, width, start)
        gamma = {(c, k): Fraction(rows[c][k - c - 1]) for k in range(1, length + 1) for c in range(k)}
        law = {name: calls_given_gamma(name, sampling.of_cells(gamma), length, width, start) for name in NAMES}
        assert law == {"packed": {runs.packed.nfe: 1}, "linear": {runs.linear.nfe: 1}}


def test_a_coin_for_every_draft() -> None:
    """Linear-SS needs a second iteration for 2 tokens if the first was drafted wrong, Packed-SS only goes token by token."""
    assert calls_given_gamma("linear", lambda c, k: HALF, 2, 3, "algorithm") == {2: HALF, 4: HALF}
    assert calls_given_gamma("packed", lambda c, k: HALF, 2, 3, "algorithm") == {2: 1}
    assert calls_given_gamma("packed", lambda c, k: HALF, 3, 3, "algorithm") == {2: HALF, 3: HALF}
    assert calls_given_gamma("packed", lambda c, k: HALF, 1, 3, "sampled") == {1: 1}


def test_gamma_is_the_share_of_the_emitted_token_that_comes_from_the_draft() -> None:
    model = random_tables(3, 0)
    path = next(path for path in autoregressive_law(model.target, (), Limits.of(3)) if path[2] == 1)
    p, q = model.target(path[:2]).probability(1), model.proposal(path[:1], 2).probability(1)
    assert gamma_of(model, path)(1, 3) == min(1, Fraction(q) / Fraction(p))


def test_stochastic_order() -> None:
    low, high = {2: HALF, 3: HALF}, {2: Fraction(1, 4), 3: Fraction(3, 4)}
    assert no_later(low, high)
    assert no_later(low, low)
    assert not no_later(high, low)
    assert not no_later({1: HALF, 4: HALF}, {3: Fraction(1)})  # a smaller mean is not enough
    assert not no_later({3: Fraction(1)}, {1: HALF, 4: HALF})


@pytest.mark.claim("DOM-SAMPLING")
@pytest.mark.parametrize("start", STARTS)
def test_it_holds(start: Start) -> None:
    for entry in [*check_tables(start, "quick"), *check_smallest(start, "quick")]:
        assert (entry.claim, entry.method, entry.outcome) == ("DOM-SAMPLING", "exact", "holds"), entry
    found = re.search(r"at L=([78]), W=4, .* E\[NFE\] is (\S+) under Packed-SS, (\S+) under", entry.detail)
    assert found
    assert found[1] == ("7" if start == "wide" else "8")
    assert float(found[2]) > float(found[3])


@pytest.mark.claim("DOM-SAMPLING")
def test_it_holds_on_the_grid_and_under_the_condition() -> None:
    for entry in [*check_grid("quick"), *check_condition("quick")]:
        assert entry.outcome == "holds", entry


class Late(Schedule):
    """F20: throws its last draft token away: the output law is untouched, only calls are lost."""

    def absorb(self, *arguments: Any) -> Any:
        after, step = super().absorb(*arguments)
        draft = after.draft._replace(tokens=after.draft.tokens[:-1], laws=after.draft.laws[:-1])
        return State(*after)._replace(draft=draft), step


def test_a_schedule_that_calls_more_than_its_policy_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "packed", lambda width, start: Late("late", *_tuples(packed(width, start))))
    reduction, _ = check_tables("algorithm", "quick")
    assert reduction.outcome == "violated"
    found = re.fullmatch(
        r"(random_tables.*): packed makes (\d) calls with probability (\S+), a random matrix says (\S+)", reduction.detail
    )
    assert found
    assert Fraction(found[3]) != Fraction(found[4])


def _tuples(schedule: Schedule) -> tuple[Any, Any]:
    return schedule.opening, schedule.cycle


def test_a_schedule_without_drafts_is_not_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "packed", lambda width, start: ar())
    reduction, order = check_tables("algorithm", "quick")
    assert (reduction.outcome, order.outcome) == ("violated", "violated")
    assert re.match(
        r"random_tables\(2, \d\), L=5, W=3, eos None: Packed-SS E\[NFE\] = 5, P\(NFE = n\) = 5: 1 against", order.detail
    )
    [grid] = check_grid("quick")
    assert grid.outcome == "violated"
    assert grid.detail.startswith("start algorithm, p(0) = 1/2, q(0) by (c, k) ")


def test_a_schedule_that_is_never_worse_violates_the_smallest_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "packed", linear)
    assert [entry.outcome for entry in check_smallest("algorithm", "quick")] == ["violated"]


def test_acceptance_that_falls_violates_the_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "sorted", lambda values: list(values), raising=False)
    [entry] = check_condition("quick")
    assert entry.outcome == "violated"
    assert re.match(r"start algorithm, L=[89], W=[45], gamma by \(c, k\) \{\(0, 1\): ", entry.detail)


def test_what_reached_nothing_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_violating", lambda *size: [])
    assert [entry.outcome for entry in check_smallest("algorithm", "quick")] == ["not run"]
    monkeypatch.undo()
    monkeypatch.setattr(sampling, "random_tables", lambda vocabulary, seed: random_tables(vocabulary, seed).greedy())
    assert next(check_tables("algorithm", "quick")).outcome == "not run"
    monkeypatch.setattr(sampling, "packed", linear)
    assert [entry.outcome for entry in check_tables("algorithm", "quick")][1] == "not run"
    monkeypatch.setattr(sampling, "in_order", lambda *arguments: True)
    assert [entry.outcome for entry in check_condition("quick")] == ["not run"]
