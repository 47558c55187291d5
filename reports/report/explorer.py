"""Traces for the step explorer: requests with their calls, and of each the first step that no rule explains."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proofs_check.trace_check import RULES, check_trace
from reports.output import shown
from simulator.errors import InvalidInput
from simulator.records import Step
from simulator.trace import EndLine, RequestLine, StepLine, bounded_lines, read_trace

MOST_CALLS = 50_000  # on one page
FIELDS = Step._fields


@dataclass
class Explored:
    """What the page's explorer is given."""

    requests: list[dict[str, Any]]
    left_out: int  # requests beyond MOST_CALLS
    verdicts: list[tuple[str, str, str]]  # file, verdict of the replay, in words
    skipped: list[tuple[str, str]]


def explore(folder: Path, files: tuple[Path, ...]) -> Explored:
    """Read and replay the traces. Requests with an unexplained step come first; calls beyond MOST_CALLS are left out."""
    found = Explored([], 0, [], [])
    for path in files:
        name = path.relative_to(folder).as_posix()
        try:
            requests = _requests(path, name)
            with path.open(encoding="utf-8", errors="replace") as lines:
                report = check_trace(bounded_lines(lines))
        except (InvalidInput, OSError) as error:
            found.skipped.append((name, shown(str(error), 300)))
            continue
        for violation in report.violations:
            requests[violation.request]["fault"] = {
                "call": violation.call,
                "rule": f"{violation.rule}: {RULES[violation.rule]}",
                "expected": shown(violation.expected, 500),
                "found": shown(violation.found, 500),
            }
        words = f"{report.requests:,} requests, {report.calls:,} calls, {report.violated:,} with a step that no rule explains"
        found.verdicts.append((name, report.verdict, words))
        found.requests += requests
    found.requests.sort(key=lambda request: "fault" not in request)
    calls = 0
    for index, request in enumerate(found.requests):
        calls += len(request["steps"])
        if calls > MOST_CALLS and index:
            found.left_out = len(found.requests) - index
            del found.requests[index:]
            break
    return found


def _requests(path: Path, name: str) -> list[dict[str, Any]]:
    requests: list[dict[str, Any]] = []
    with path.open(encoding="utf-8", errors="replace") as lines:
        for _, line in read_trace(bounded_lines(lines)):
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
            elif isinstance(line, StepLine):
                requests[-1]["steps"].append([line.fields.get(field) for field in FIELDS])
            elif isinstance(line, EndLine):
                requests[-1]["stop"] = line.stop
    return requests
