"""The ledger: which claim was checked, how, to what bound, and what came out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["holds", "violated", "not run"]


@dataclass(frozen=True)
class Entry:
    """One check of one claim."""

    claim: str  # id of the paper's claim, as in THM3.3
    statement: str
    method: str  # exact, exhaustive, ...
    bound: str  # the instances looked at
    outcome: Outcome
    detail: str  # evidence: counts, or the first counterexample, or which condition was not reached
    seconds: float


def exit_code(entries: list[Entry]) -> int:
    """0 when every check holds, 1 when a claim is violated, 2 when some check did not run or there was none."""
    outcomes = {entry.outcome for entry in entries}
    return 1 if "violated" in outcomes else 0 if outcomes == {"holds"} else 2
