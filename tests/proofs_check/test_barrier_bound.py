"""The bound by the barrier index: it holds, and an index too small by one is a violation with a true counterexample."""

from __future__ import annotations

import re
from ast import literal_eval

import pytest

from proofs_check import barrier_bound
from simulator import Limits, generate, linear, packed
from simulator.nfe.calibrate import Index
from simulator.oracles import ThresholdModel


@pytest.mark.claim("BARRIER-INDEX")
def test_it_holds_on_every_vector() -> None:
    [entry] = barrier_bound.check_barrier_bound("quick")
    assert entry.outcome == "holds"
    assert entry.detail.startswith("4,166 pairs")  # sum of L (L + 1)! for L = 1 .. 5, L widths each


def test_an_index_too_small_is_violated(monkeypatch: pytest.MonkeyPatch) -> None:
    right = barrier_bound.barrier_index

    def wrong(*arguments: object) -> Index:
        index = right(*arguments)  # type: ignore[arg-type]
        return index._replace(stale=max(0, index.stale - 1))

    monkeypatch.setattr(barrier_bound, "barrier_index", wrong)
    [entry] = barrier_bound.check_barrier_bound("quick")
    assert entry.outcome == "violated"
    found = re.fullmatch(r"c\* = (\(.*\)), W = (\d+): Packed-SS (\d+) calls, Linear-SS (\d+), T \+ S = (\d+)", entry.detail)
    assert found
    thresholds, width, one_call, two_call, bound = map(literal_eval, found.groups())
    limits = Limits.of(len(thresholds))
    assert generate(ThresholdModel(thresholds), packed(width), (), limits).nfe == one_call > bound
    assert generate(ThresholdModel(thresholds), linear(width), (), limits).nfe == two_call


def test_without_a_sharper_case_it_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(barrier_bound.LENGTHS, "quick", 1)
    [entry] = barrier_bound.check_barrier_bound("quick")
    assert entry.outcome == "not run"
