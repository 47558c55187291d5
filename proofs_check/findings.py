"""What a battery of checks says: findings with evidence, stage by stage, and the verdict they come to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

Symptom: TypeAlias = Literal["contract", "progress", "determinism", "stop", "law", "order", "count"]
"""The kind of a finding:

    contract      it raises, changes a state it was given, or answers with nonsense
    progress      it makes calls without emitting tokens, or does not come back
    determinism   the same request under the same coins does not give the same tokens
    stop          the tokens are right, but the output ends in the wrong place or for the wrong reason
    law           the output is not that of AR: another token (greedy), another probability (sampling)
    order         a call asks about a context that is not the verified prefix
    count         the output is right, but not the number of calls, of rows, or of draft tokens accepted
"""


Verdict: TypeAlias = Literal["EXACT", "EXACT, OTHER COUNTS", "NOTHING FOUND", "NOT EXACT", "NOT RUN"]
"""NOTHING FOUND is as good as it gets where only tokens can be seen."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, with the smallest instance that shows it."""

    symptom: Symptom
    statement: str  # one sentence
    counterexample: str = ""  # the instance, for a person; several lines
    program: str = ""  # Python that shows it again; empty where the subject cannot be imported
    stage: str = ""  # the stage of the battery; `Report` fills it in
    run: tuple[str, ...] = ()  # a run that shows it, as the lines of a trace; empty where none does or a trace cannot hold it


@dataclass(frozen=True)
class Stage:
    """One stage of a battery."""

    name: str
    outcome: Literal["passed", "failed", "not run"]
    detail: str  # what was looked at, or why it was not
    seconds: float = 0.0


@dataclass(frozen=True)
class Report:
    """The result of a battery."""

    subject: str
    declares: str | None  # the policy whose counts it was compared with
    stages: tuple[Stage, ...]
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """Counts aside, it is exact only if every stage passed; the counts of an undeclared policy may stay open."""
        if any(finding.symptom != "count" for finding in self.findings):
            return "NOT EXACT"
        if any(stage.outcome == "not run" and not (stage.name == "counts" and self.declares is None) for stage in self.stages):
            return "NOT RUN"
        return "EXACT, OTHER COUNTS" if self.findings else "EXACT"

    @property
    def exit_code(self) -> int:
        """0 exact with the declared counts, 1 something was found, 2 some stage did not run."""
        return {"EXACT": 0, "NOTHING FOUND": 0, "NOT RUN": 2}.get(self.verdict, 1)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"verdict": self.verdict}

    def __str__(self) -> str:
        counted = f" (declares {self.declares})" if self.declares else ""
        lines = [f"{self.subject}{counted}: {self.verdict}"]
        lines += [f"  {stage.outcome:8} {stage.name:12} {stage.seconds:5.1f} s  {stage.detail}" for stage in self.stages]
        for finding in self.findings:
            lines += ["", f"{finding.symptom.upper()} ({finding.stage}): {finding.statement}"]
            lines += ["  " + line for line in finding.counterexample.splitlines()]
            if finding.program:
                lines += ["  this program shows it again:", *("    " + line for line in finding.program.splitlines())]
        return "\n".join(lines)


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings in the order of `Symptom`."""
    order = get_args(Symptom)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.symptom)))
