"""The kill matrix: which stage of which check finds which fault, how soon, and by how small an instance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from proofs_check.battery import check_system
from proofs_check.faults.table import ROWS, Checker, Member, Row
from proofs_check.findings import Finding, Report, Symptom

CHECKERS: dict[Checker, Callable[[Any, str], Report]] = {"battery": lambda system, name: check_system(system, name)}


@dataclass(frozen=True)
class Cell:
    """One stage on one member."""

    stage: str
    outcome: Literal["killed", "survived", "not run"]
    seconds: float
    symptom: Symptom | None = None
    statement: str = ""
    counterexample: str = ""


@dataclass(frozen=True)
class Result:
    """One member of a row."""

    id: str
    member: str
    checker: str
    planted: str
    control: bool
    right: bool  # a fault was killed by the symptoms it must show and no other; a control was not flagged
    symptoms: tuple[Symptom, ...]
    seconds: float  # to the first finding; of the whole run where there is none
    cells: tuple[Cell, ...]

    @property
    def first(self) -> Cell | None:
        """The first stage that killed it."""
        return next((cell for cell in self.cells if cell.outcome == "killed"), None)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def run_member(identifier: str, index: int) -> Result:
    """One member of one row."""
    row = ROWS[identifier]
    return judged(row, row.members[index])


def judged(row: Row, member: Member) -> Result:
    """What the member's check says of it."""
    begun = time.perf_counter()
    report = CHECKERS[member.checker](member.subject(), member.name)
    taken = time.perf_counter() - begun
    cells = tuple(_cells(report))
    symptoms = tuple(sorted({finding.symptom for finding in report.findings}))
    right = report.verdict == "EXACT" if row.control else bool(symptoms) and set(symptoms) <= set(row.symptoms)
    return Result(row.id, member.name, member.checker, row.planted, row.control, right, symptoms, _first(cells, taken), cells)


def _cells(report: Report) -> Iterator[Cell]:
    findings: dict[str, Finding] = {finding.stage: finding for finding in report.findings}
    for stage in report.stages:
        finding = findings.get(stage.name)
        if finding:
            yield Cell(stage.name, "killed", stage.seconds, finding.symptom, finding.statement, finding.counterexample)
        else:
            yield Cell(stage.name, "not run" if stage.outcome == "not run" else "survived", stage.seconds)


def _first(cells: tuple[Cell, ...], taken: float) -> float:
    seconds = 0.0
    for cell in cells:
        seconds += cell.seconds
        if cell.outcome == "killed":
            return seconds
    return taken


def kill_matrix(ids: Iterable[str] = (), workers: int = 2) -> Iterator[Result]:
    """Every member of these rows, or of all, in the order of the table, as they get done.

    Raises InvalidInput for an unknown id.
    """
    from joblib import Parallel, delayed

    from simulator.errors import InvalidInput

    wanted = list(ids) or list(ROWS)
    unknown = [identifier for identifier in wanted if identifier not in ROWS]
    if unknown:
        raise InvalidInput(f"unknown row {unknown[0]!r}; allowed: {', '.join(ROWS)}")
    tasks = [(identifier, index) for identifier in wanted for index in range(len(ROWS[identifier].members))]
    yield from Parallel(n_jobs=workers, return_as="generator")(delayed(run_member)(*task) for task in tasks)
