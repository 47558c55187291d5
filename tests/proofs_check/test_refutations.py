"""The refutations hold for the faults they name, and are violated by anything that is not refuted in the stated manner."""

from __future__ import annotations

from fractions import Fraction

import pytest

import proofs_check.refutations as refutations
from proofs_check.ledger import exit_code
from proofs_check.refutations import CHECKS, FAULTS, OneEarly, OneLate, make, refuted
from simulator import Limits, Schedule, autoregressive_law, exact_law, packed
from simulator.oracles import random_tables


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refutations, "SIZES", {"quick": (3, 2), "full": (4, 3)})


@pytest.mark.claim("THM3.3")
@pytest.mark.claim("LEMB4")
@pytest.mark.claim("DRAFTLEN")
@pytest.mark.parametrize("name", FAULTS)
def test_each_is_refuted_in_its_manner(name: str) -> None:
    (entry,) = refuted(name, "quick")
    _, claim, manner, what = FAULTS[name]
    assert (entry.outcome, entry.claim, entry.method) == ("holds", claim, "exact")
    assert what in entry.statement
    assert entry.detail.startswith("law differs" if manner == "law" else "law exact in all")
    assert entry.bound.startswith("L<=3, W<=2")


def test_the_checks() -> None:
    assert [check.name for check in CHECKS] == [f"refuted/{name}" for name in FAULTS]
    assert {claim for check in CHECKS for claim in check.claims} == {"THM3.3", "LEMB4", "DRAFTLEN"}


@pytest.mark.parametrize("manner", ["law", "calls"])
def test_a_schedule_that_is_right_survives(manner: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAULTS, "none", (Schedule, "THM3.3", manner, "nothing changed"))
    (entry,) = refuted("none", "quick")
    assert (entry.outcome, entry.detail) == ("violated", "the fault survives: no instance shows it")
    assert exit_code([entry]) == 1


def test_the_other_manner_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    fault, claim, _, what = FAULTS["fresh-laws"]
    monkeypatch.setitem(FAULTS, "fresh-laws", (fault, claim, "calls", what))
    monkeypatch.setitem(FAULTS, "one-late", (OneLate, "DRAFTLEN", "law", "the draft kept one position late"))
    for name in ("fresh-laws", "one-late"):
        (entry,) = refuted(name, "quick")
        assert entry.outcome == "violated"


@pytest.mark.parametrize(("fault", "length"), [(OneLate, -1), (OneEarly, 1)])
def test_misplaced_drafts_are_what_they_say(fault: type[Schedule], length: int) -> None:
    """The kept laws are those from one position later or earlier, the law stays exact and the retained count is told."""
    tables, limits = random_tables(3, 0), Limits.of(5)
    seen: set[int] = set()
    schedule = make(fault, 3)
    law = exact_law(schedule, tables, (), limits, observe=lambda step: seen.add(step.retained))
    assert law.output == autoregressive_law(tables.target, (), limits)
    right: set[int] = set()
    exact_law(packed(3), tables, (), limits, observe=lambda step: right.add(step.retained))
    assert max(seen) == max(right) + length == 2 + length
    assert sum(law.kinds.values()) == law.expected_nfe != Fraction(0)
