"""Traces for the step explorer: requests with their calls, and of each the first step that no rule explains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from proofs_check.trace_check import RULES, check_trace
from reports.output import shown
from reports.report.gather import Result
from simulator.errors import InvalidInput
from simulator.records import Step
from simulator.trace import EndLine, RequestLine, StepLine, bounded_lines, read_trace

MOST_CALLS = 50_000  # on one page
MOST_REQUESTS = 5_000
MOST_NUMBERS = 2_000_000  # ids and positions
FIELDS = Step._fields


@dataclass
class Explored:
    """What the page's explorer is given."""

    requests: list[dict[str, Any]]
    left_out: int  # requests that would not fit
    verdicts: list[tuple[str, str, str]]  # file, verdict of the replay, in words
    skipped: list[tuple[str, str]]


def explore(folder: Path, files: tuple[Path, ...], results: tuple[Result, ...] = ()) -> Explored:
    """Read and replay the traces, and the runs that findings of results come with.

    Requests with a fault come first; what does not fit on a page is left out, but for the calls of the first request.
    """
    found = Explored([], 0, [], [])
    for name, subject, opened in (*_files(folder, files), *_findings(results)):
        try:
            with opened() as lines:
                requests = _requests(lines, name)
            with opened() as lines:
                report = check_trace(lines)
        except (InvalidInput, OSError) as error:
            found.skipped.append((name, shown(str(error), 300)))
            continue
        for violation in report.violations:
            if requests[violation.request].get("fault", {}).get("call"):
                continue  # the writer's own finding, which names a call, says more than the nearest rule
            requests[violation.request]["fault"] = {
                "call": violation.call,
                "rule": f"{violation.rule}: {RULES[violation.rule]}",
                "expected": shown(violation.expected, 500),
                "found": shown(violation.found, 500),
            }
        if subject:  # a counterexample, whose verdict is its report's: rules that it keeps clear it of nothing
            found.requests += [request | {"name": name, "schedule": shown(subject, 60)} for request in requests]
            continue
        words = f"{report.requests:,} requests, {report.calls:,} calls, {report.violated:,} with a step that no rule explains"
        found.verdicts.append((name, report.verdict, words))
        found.requests += requests
    found.requests.sort(key=lambda request: "fault" not in request)
    fitting: list[dict[str, Any]] = []
    calls = numbers = 0
    for request in found.requests:
        calls += len(request["steps"])
        numbers += sum(len(value) for step in request["steps"] for value in step if isinstance(value, tuple))
        if len(fitting) == MOST_REQUESTS or numbers > MOST_NUMBERS or (calls > MOST_CALLS and fitting):
            break
        fitting.append(request)
    found.left_out = len(found.requests) - len(fitting)
    found.requests = fitting
    return found


Opener: TypeAlias = Callable[[], AbstractContextManager[Iterable[str]]]


def _files(folder: Path, files: tuple[Path, ...]) -> Iterator[tuple[str, str, Opener]]:
    for path in files:
        yield shown(path.relative_to(folder).as_posix(), 300), "", partial(_lines, path)


@contextmanager
def _lines(path: Path) -> Iterator[Iterable[str]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        yield bounded_lines(file)


def _given(run: list[str]) -> AbstractContextManager[Iterable[str]]:
    return nullcontext(run)


def _findings(results: tuple[Result, ...]) -> Iterator[tuple[str, str, Opener]]:
    """The runs of findings, each by the number of its finding; what is no list of lines is none."""
    for result in results:
        reports = [row for row in result.rows if isinstance(row, dict) and isinstance(row.get("findings"), list)]
        findings = ((str(report.get("subject") or "undeclared"), each) for report in reports for each in report["findings"])
        for number, (subject, finding) in enumerate(findings, start=1):
            run = finding.get("run") if isinstance(finding, dict) else None
            if run and isinstance(run, list) and all(isinstance(line, str) for line in run):
                yield f"{result.file}, finding {number}", subject, partial(_given, run)


def _requests(lines: Iterable[str], name: str) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = []
    for _, line in read_trace(lines):
        if isinstance(line, RequestLine):
            requests.append(
                {
                    "file": name,
                    "number": line.number,
                    "name": shown(line.name or f"request {line.number}", 120),
                    "schedule": shown(line.schedule or "undeclared", 60),
                    "width": line.width,
                    "start": shown(line.start or "", 20),
                    "model": shown(line.model or "", 80),
                    "prompt": len(line.prompt) if line.prompt is not None else None,
                    "steps": [],
                }
            )
            if line.finding:
                requests[-1]["fault"] = {"call": line.finding.call, "finding": shown(line.finding.text, 500)}
        elif isinstance(line, StepLine):
            requests[-1]["steps"].append([line.fields.get(field) for field in FIELDS])
        elif isinstance(line, EndLine):
            requests[-1]["stop"] = line.stop
    return requests
