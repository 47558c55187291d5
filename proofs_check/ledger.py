"""The ledger: which claim was checked, how, to what bound, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Budget: TypeAlias = Literal["quick", "full"]
Outcome: TypeAlias = Literal["holds", "violated", "not run"]
Method: TypeAlias = Literal["proved", "exact", "exhaustive", "SMT", "property", "statistical", "measured"]
VERDICTS: tuple[Method, ...] = ("proved", "exact", "exhaustive", "SMT")  # the methods that decide, up to their bound


@dataclass(frozen=True)
class Entry:
    """One check of one claim."""

    claim: str  # id of the claim: in spec/claims.py, or of our own in proofs_check/beyond.py
    statement: str  # what was checked, one sentence
    method: Method
    bound: str  # the instances looked at
    outcome: Outcome
    detail: str  # evidence: counts, or the first counterexample, or which condition was not reached
    check: str = ""  # name of the Check it comes from; `run` fills it in
    seconds: float = 0.0  # its share of that check's time; `run` fills it in


@dataclass(frozen=True)
class Check:
    """A piece of work in one process and one thread that settles some claims; it can be run again by its name.

    `run` must be picklable (a module's function, or a partial of one). It never raises on a claim that fails.
    """

    name: str  # a path, as in chain/packed/wide
    claims: tuple[str, ...]  # the ids its entries are about
    run: Callable[[Budget], Iterable[Entry]]


def exit_code(entries: Iterable[Entry]) -> int:
    """0 when every check holds, 1 when a claim is violated, 2 when some check did not run or there was none."""
    outcomes = {entry.outcome for entry in entries}
    return 1 if "violated" in outcomes else 0 if outcomes == {"holds"} else 2
