"""The ledger's rules: what the checks of a claim amount to, and which claims must have a verdict."""

from __future__ import annotations

import json

import pytest

from proofs_check.beyond import BEYOND
from proofs_check.checks import all_checks, run, select
from proofs_check.ledger import VERDICTS, Check, Entry, Method, Outcome, exit_code, ledger
from simulator.errors import InvalidInput
from spec.claims import CLAIMS


def entry(claim: str, outcome: Outcome = "holds", method: Method = "exact") -> Entry:
    return Entry(claim, "a statement", method, "a bound", outcome, "evidence")


def one_row(*entries: Entry) -> tuple[str, str | None]:
    [row] = ledger(entries, complete=False)
    return row.verdict, row.method


def test_the_worst_check_decides_and_the_strongest_that_holds_is_named() -> None:
    assert one_row(entry("STOP", method="property"), entry("STOP", method="SMT")) == ("holds", "SMT")
    assert one_row(entry("STOP", "not run"), entry("STOP", method="property")) == ("not run", "property")
    assert one_row(entry("STOP", "violated"), entry("STOP", "not run"), entry("STOP")) == ("violated", "exact")
    assert one_row(entry("STOP", "violated")) == ("violated", None)


def test_a_claim_without_evidence_is_open() -> None:
    rows = {row.claim.id: row for row in ledger([entry("STOP"), entry("EQ6")])}
    assert rows["STOP"].verdict == rows["EQ6"].verdict == "holds"  # a definition shows where something was checked
    assert {id for id, row in rows.items() if row.verdict == "open"} == {
        id for id, claim in (CLAIMS | BEYOND).items() if claim.kind in "CB" and id != "STOP"
    }
    assert list(rows) == [id for id in CLAIMS | BEYOND if id in rows]
    json.dumps([row.plain() for row in rows.values()])


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [(["holds"], 0), (["holds", "violated", "not run"], 1), (["holds", "not run"], 2), ([], 2)],
)
def test_exit_codes(outcomes: list[Outcome], code: int) -> None:
    assert exit_code([entry("STOP", outcome) for outcome in outcomes]) == code


def breaks(budget: str) -> list[Entry]:
    raise ZeroDivisionError("some fault")


def holds(budget: str) -> list[Entry]:
    return [entry("STOP"), entry("INIT")]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_check_that_breaks_did_not_run_and_the_others_did(workers: int) -> None:
    checks = [Check("bad", ("THM3.3", "LEMB3"), breaks), Check("good", ("STOP", "INIT"), holds)]
    found = [entry for entries, peak in run(checks, "quick", workers) for entry in entries if peak > 2**20]
    assert {(entry.check, entry.claim, entry.outcome) for entry in found} == {
        ("bad", "THM3.3", "not run"),
        ("bad", "LEMB3", "not run"),
        ("good", "STOP", "holds"),
        ("good", "INIT", "holds"),
    }
    assert "ZeroDivisionError: some fault" in found[0].detail or "ZeroDivisionError: some fault" in found[-1].detail


def test_names_are_unique_and_claims_exist() -> None:
    checks = all_checks()
    assert len({check.name for check in checks}) == len(checks)
    assert all(check.claims and set(check.claims) <= CLAIMS.keys() | BEYOND.keys() for check in checks)


def test_selection_is_by_name_and_by_claim() -> None:
    assert select() == all_checks()
    chain = select(["chain/*"])
    assert chain
    assert all(check.name.startswith("chain/") for check in chain)
    assert all("THM3.3" in check.claims for check in select(claims=["THM3.3"]))
    with pytest.raises(InvalidInput, match="chain/\\*"):
        select(["chain/nothing"])
    with pytest.raises(InvalidInput, match=r"THM3\.3"):
        select(claims=["THM0"])
    with pytest.raises(InvalidInput, match=r"no check called smt/\* is about INIT"):
        select(["smt/*"], ["INIT"])


WEAKER = {"property", "statistics"}  # groups of checks that sample


def test_every_claim_of_the_paper_has_a_check_that_decides() -> None:
    """At least one exact, exhaustive or SMT check each; there are no exceptions."""
    decided = {id for check in all_checks() if check.name.split("/")[0] not in WEAKER for id in check.claims}
    assert {claim.id for claim in (CLAIMS | BEYOND).values() if claim.kind in "CB"} <= decided


@pytest.mark.slow
def test_the_whole_quick_ledger_holds() -> None:
    """Every row holds, and every claim of kind C by a method that decides."""
    entries = [entry for found, _ in run(all_checks(), "quick", 2) for entry in found]
    assert [entry for entry in entries if entry.outcome != "holds"] == []
    for row in ledger(entries):
        assert row.verdict == "holds", row.claim.id
        assert row.claim.kind != "C" or any(entry.method in VERDICTS for entry in row.entries), row.claim.id
