"""The kill matrix: which stage of which check finds which fault, how soon, and by how small an instance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from proofs_check.battery import check_system
from proofs_check.faults.outside import EOS, decoding
from proofs_check.faults.table import ROWS, Checker, Member, Row
from proofs_check.findings import Finding, Report, Symptom

ALPHA = 1e-3  # false-alarm odds of one run of a decoder; its seeds are fixed
_SHOWN = 72  # characters of a counterexample in one line of the matrix
PROMPTS = ((1, 2), (3, 4), (5,))


def _battery(system: Any, name: str) -> Report:
    return check_system(system, name)


def _any_order(system: Any, name: str) -> Report:
    from proofs_check.any_order_battery import check_any_order_system

    return check_any_order_system(system, name)


def _acceptance(subject: Any, name: str) -> Report:
    from proofs_check.acceptance import check_acceptance

    rule, one_hot = subject
    return check_acceptance(rule, one_hot=one_hot, name=name)


def _drafter(drafter: Any, name: str) -> Report:
    from proofs_check.drafter import check_drafter

    return check_drafter(drafter, name=name)


def _decoder(subject: Any, name: str) -> Report:
    from proofs_check.biases import Language
    from proofs_check.decoder import check_decoder

    asked, parts = subject
    language = Language(0)
    generate = decoding(language, asked, **parts)
    return check_decoder(generate, language, PROMPTS, processing=asked, eos=EOS, alpha=ALPHA, name=name)


CHECKERS: dict[Checker, Callable[[Any, str], Report]] = {
    "battery": _battery,
    "any-order": _any_order,
    "acceptance": _acceptance,
    "drafter": _drafter,
    "decoder": _decoder,
}


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

    def line(self) -> str:
        """One line: what was planted where, and what found it, by which symptom, after how long."""
        name = ", ".join(filter(None, (self.planted, self.member)))
        if self.control:
            return f"{self.id}  {'passes' if self.right else 'FLAGGED':8} {self.seconds:5.1f} s  {self.checker:10}  {name}"
        cell = self.first
        verdict = "killed" if self.right else "WRONG SYMPTOM" if cell else "SURVIVES"
        where = f"{self.checker}/{cell.stage}" if cell else self.checker
        instance = cell.counterexample.splitlines()[0] if cell and cell.counterexample else cell.statement if cell else ""
        instance = instance if len(instance) <= _SHOWN else instance[: _SHOWN - 3] + "..."
        symptoms = ", ".join(self.symptoms) or "-"
        return f"{self.id}  {verdict:8} {self.seconds:5.1f} s  {where:20} {symptoms:12} {name}: {instance}"

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


def judged(row: Row, member: Member, checkers: Mapping[Checker, Callable[[Any, str], Report]] = CHECKERS) -> Result:
    """What the member's check says of it."""
    begun = time.perf_counter()
    report = checkers[member.checker](member.subject(), member.name)
    taken = time.perf_counter() - begun
    cells = tuple(_cells(report))
    symptoms = tuple(sorted({finding.symptom for finding in report.findings}))
    right = report.exit_code == 0 if row.control else bool(symptoms) and set(symptoms) <= set(row.symptoms)
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


def lines(results: Iterable[Result]) -> Iterator[str]:
    """The matrix as text: a line for each member, then what is wrong with it, then the sums."""
    counts: dict[tuple[bool, bool], int] = {}
    ids: dict[bool, set[str]] = {True: set(), False: set()}
    slowest = 0.0
    for result in results:
        counts[result.control, result.right] = counts.get((result.control, result.right), 0) + 1
        ids[result.control].add(result.id)
        yield result.line()
        if not result.right:
            for cell in result.cells:
                if cell.outcome != "survived":
                    yield f"      {cell.outcome} {cell.stage}: {cell.symptom or ''} {cell.statement}".rstrip()
        if result.right and not result.control:
            slowest = max(slowest, result.seconds)
    killed, alive = counts.get((False, True), 0), counts.get((False, False), 0)
    passed, flagged = counts.get((True, True), 0), counts.get((True, False), 0)
    yield f"{killed} of {killed + alive} faults of {len(ids[False])} kinds killed, the last to show after {slowest:.1f} s"
    yield f"{passed} of {passed + flagged} controls of {len(ids[True])} kinds pass"


def exit_code(results: Iterable[Result]) -> int:
    """0 if every fault is killed by a symptom it must show and no control is flagged, else 1."""
    return int(not all(result.right for result in results))
