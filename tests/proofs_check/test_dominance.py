"""The exhaustive checks of THM3.2 and its lemmas: hold on ours, are violated where they must be, and are not run on nothing."""

from __future__ import annotations

import itertools
import json
import time
from math import factorial
from pathlib import Path
from typing import Any

import pytest

import proofs_check.dominance as dominance
from proofs_check.dominance import check_dominance
from proofs_check.ledger import Entry, exit_code
from simulator import Schedule, ar, linear, packed
from spec.thresholds import F

CLAIMS = ("LEMB1", "LEMB2", "THM3.2", "DRAFTLEN")


def outcomes(entries: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.outcome for entry in entries}


@pytest.mark.claim("THM3.2")
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_it_holds_on_every_vector(length: int) -> None:
    """As many strictly better runs as the golden sums say."""
    begun = time.perf_counter()
    golden = json.loads((Path(__file__).parents[1] / "golden" / "threshold_sums.json").read_text())["rows"]
    rows = [row for row in golden if row["L"] == length and row["W"] <= length]
    strict = sum(row["instances"] - row["packed_equals_linear"] for row in rows)
    entries = check_dominance(length)
    assert outcomes(entries) == dict.fromkeys(CLAIMS, "holds")
    assert exit_code(entries) == 0
    assert 0 < sum(entry.seconds for entry in entries) <= time.perf_counter() - begun
    for entry in entries:
        assert entry.method == "exhaustive"
        assert entry.bound == f"all {factorial(length + 1):,} threshold vectors, L={length}, W=1..{length}"
        assert entry.detail == (
            f"{factorial(length + 1) * length:,} runs of each schedule, Packed-SS strictly fewer calls in {strict:,}"
        )


def test_a_one_call_schedule_that_forgets_its_draft_violates_all_but_the_first_lemma(monkeypatch: pytest.MonkeyPatch) -> None:
    """AR in the place of Packed-SS: as many calls as tokens, too many under a good drafter."""
    monkeypatch.setattr(dominance, "packed", lambda width: ar())
    entries = check_dominance(4)
    assert outcomes(entries) == {"LEMB1": "holds", "LEMB2": "violated", "THM3.2": "violated", "DRAFTLEN": "violated"}
    details = {entry.claim: entry.detail for entry in entries}
    # The first vector, all zeros, is a perfect drafter: with W = 2 Linear-SS emits 3 tokens in 2 calls, here 4 in 4.
    assert details["LEMB2"] == "two passes of Packed-SS fall short of F for c* = (0, 0, 0, 0), W = 2"
    assert details["DRAFTLEN"] == "a draft of another length than W - A for c* = (0, 0, 0, 0), W = 2"
    assert details["THM3.2"] == "Packed-SS 4, Linear-SS 2 calls for c* = (0, 0, 0, 0), W = 3"
    assert exit_code(entries) == 1


def test_a_two_call_schedule_that_drafts_too_little_violates_the_first_lemma(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dominance, "linear", lambda width: linear(max(1, width - 1)))
    entries = check_dominance(3)
    assert outcomes(entries) == {**dict.fromkeys(CLAIMS, "holds"), "LEMB1": "violated"}
    assert entries[0].detail == "Linear-SS does not advance by F for c* = (0, 0, 0), W = 2"


def test_a_wrong_f_violates_the_lemmas_that_use_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def decreasing(c: int, width: int, c_star: Any) -> int:
        return F(c, width, c_star) if c < 2 else 0

    monkeypatch.setattr(dominance, "F", decreasing)
    entries = check_dominance(3)
    assert outcomes(entries)["LEMB1"] == "violated"
    assert entries[0].detail.startswith("F decreases: [")
    monkeypatch.setattr(dominance, "F", lambda c, width, c_star: F(c, width, c_star) + 1)
    assert outcomes(check_dominance(3)) == {"LEMB1": "violated", "LEMB2": "violated", "THM3.2": "holds", "DRAFTLEN": "holds"}


def test_the_last_iteration_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dominance, "F", lambda c, width, c_star: min(2, F(c, width, c_star)))
    entries = check_dominance(3)
    assert outcomes(entries) == {**dict.fromkeys(CLAIMS, "holds"), "LEMB1": "violated"}
    assert entries[0].detail.startswith("Linear-SS does not advance by F")


def test_a_vector_left_out_is_not_exhaustive(monkeypatch: pytest.MonkeyPatch) -> None:
    product = itertools.product
    monkeypatch.setattr(itertools, "product", lambda *ranges: list(product(*ranges))[1:])
    assert outcomes(check_dominance(3)) == dict.fromkeys(CLAIMS, "not run")


def test_a_draft_one_token_short_is_seen_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(Schedule):
        def absorb(self, *arguments: Any) -> Any:
            after, step = super().absorb(*arguments)
            draft = after.draft._replace(tokens=after.draft.tokens[:-1], laws=after.draft.laws[:-1])
            return after._replace(draft=draft), step._replace(retained=len(draft.tokens))

    monkeypatch.setattr(dominance, "packed", lambda width: Short("short", (), packed(width).cycle))
    assert outcomes(check_dominance(3))["DRAFTLEN"] == "violated"


def test_two_schedules_that_never_differ_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Linear-SS in both places no run is strictly better: what is not violated is not run."""
    monkeypatch.setattr(dominance, "packed", linear)
    entries = check_dominance(3)
    assert outcomes(entries)["THM3.2"] == "not run"
    assert outcomes(entries)["LEMB1"] == "not run"
    monkeypatch.undo()
    assert outcomes(check_dominance(0)) == dict.fromkeys(CLAIMS, "not run")
    assert exit_code(check_dominance(0)) == 2


def entry(outcome: Any) -> Entry:
    return Entry("THM3.2", "", "exact", "", outcome, "", 0.0)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        (["holds"], 0),
        (["holds", "holds"], 0),
        (["holds", "violated"], 1),
        (["violated", "not run"], 1),
        (["not run", "violated", "holds"], 1),
        (["holds", "not run"], 2),
        (["not run"], 2),
        ([], 2),  # nothing was checked
    ],
)
def test_exit_codes(results: list[str], code: int) -> None:
    """0 holds, 1 violated, 2 not run; a violation outweighs a check that did not run."""
    assert exit_code([entry(outcome) for outcome in results]) == code
