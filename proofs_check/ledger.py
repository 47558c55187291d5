"""The ledger: which claim was checked, how, to what bound, and what came out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from proofs_check.beyond import BEYOND
from spec.claims import CLAIMS, Claim

Budget: TypeAlias = Literal["quick", "full"]
Outcome: TypeAlias = Literal["holds", "violated", "not run"]
Method: TypeAlias = Literal["proved", "exact", "exhaustive", "SMT", "property", "statistical", "measured"]  # strongest first
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


@dataclass(frozen=True)
class Row:
    """A claim and what was found about it."""

    claim: Claim
    entries: tuple[Entry, ...]

    @property
    def verdict(self) -> Literal["holds", "violated", "not run", "open"]:
        """The worst of its checks; `open` without any."""
        outcomes = {entry.outcome for entry in self.entries}
        worst: tuple[Outcome, ...] = ("violated", "not run", "holds")
        return next((outcome for outcome in worst if outcome in outcomes), "open")

    @property
    def method(self) -> Method | None:
        """The strongest method among the checks that hold."""
        return min(
            (entry.method for entry in self.entries if entry.outcome == "holds"), key=get_args(Method).index, default=None
        )

    def plain(self) -> dict[str, Any]:
        """The row for JSON."""
        checks = [asdict(entry) for entry in self.entries]
        return {**self.claim._asdict(), "verdict": self.verdict, "method": self.method, "checks": checks}


def ledger(entries: Iterable[Entry], complete: bool = True) -> list[Row]:
    """One row per claim, in the paper's order and then our own; if `complete`, also the claims (kind C or B) nobody checked."""
    entries = list(entries)
    rows = [Row(claim, tuple(entry for entry in entries if entry.claim == id)) for id, claim in (CLAIMS | BEYOND).items()]
    return [row for row in rows if row.entries or (complete and row.claim.kind in "CB")]


def exit_code(entries: Iterable[Entry]) -> int:
    """0 when every check holds, 1 when a claim is violated, 2 when some check did not run or there was none."""
    outcomes = {entry.outcome for entry in entries}
    return 1 if "violated" in outcomes else 0 if outcomes == {"holds"} else 2
