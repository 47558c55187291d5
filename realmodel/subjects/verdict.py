"""What an examination says, in a form to be tabled: the verdict, on what evidence, and what it could not have seen."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from proofs_check.findings import Report, Verdict


@dataclass(frozen=True)
class Examined:
    """The verdict on one subject, and how strong it is."""

    subject: str
    about: str
    model: str
    seed: int
    verdict: Verdict
    findings: tuple[str, ...] = ()  # one sentence each
    missing: tuple[str, ...] = ()  # what was not reached
    asked: int = 0  # output tokens asked for, where sampling was
    tokens: int = 0  # output tokens compared with the reference
    alpha: float | None = None  # false-alarm odds; None where nothing is random
    detectable: float | None = None  # the smallest mean total variation per token that a bet on it shows
    gap: float | None = None  # total variation between the enumerated joint law of the first tokens and plain generate's
    enumerated: int = 0  # runs of that enumeration
    blind: tuple[str, ...] = ()
    report: str = ""  # all that the checks said

    @property
    def exit_code(self) -> int:
        """0 nothing found, 1 something was, 2 a check did not run."""
        return {"NOT EXACT": 1, "EXACT, OTHER COUNTS": 1, "NOT RUN": 2}.get(self.verdict, 0)

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def told(report: Report) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The findings of a report and what it did not reach, in sentences."""
    findings = tuple(f"{finding.symptom}: {finding.statement}" for finding in report.findings)
    return findings, tuple(f"{stage.name}: {stage.detail}" for stage in report.stages if stage.outcome == "not run")
