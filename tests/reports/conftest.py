"""Results and traces for the tests of the report."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports.output import SCHEMA
from simulator import Limits, generate, linear, packed
from simulator.oracles import ThresholdModel
from simulator.trace import TracedRequest, trace_lines

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> **b** [x](javascript:1) | ``` </script> \x1b[31m \u202e @you"


def result(command: str, rows: list[Any], **arguments: Any) -> str:
    content = {
        "packedss": "1",
        "schema": SCHEMA,
        "command": command,
        "arguments": arguments,
        "environment": {"python": HOSTILE},
    }
    return json.dumps(content | {"replay": f"packedss {command}", "rows": rows})


def ledger_row(**changes: Any) -> dict[str, Any]:
    check = {
        "claim": "X",
        "statement": "s",
        "method": "exact",
        "bound": "b",
        "outcome": "holds",
        "detail": "7 of 7",
        "check": "c/x",
    }
    row = {"id": "THM3.2", "statement": "a claim", "verdict": "holds", "method": "exact", "checks": [check | {"seconds": 1.0}]}
    return row | changes


def requests(faulty: bool = False, name: str = "one") -> list[TracedRequest]:
    model = ThresholdModel([1, 2, 1, 4, 2, 3, 6, 5], truth=(1, 0, 1, 1, 0, 1, 0, 1))
    found = []
    for schedule in (linear(3), packed(3)):
        limits = Limits.of(8)
        run = generate(model, schedule, (), limits)
        if faulty and schedule.name == "packed":
            steps = list(run.steps)
            steps[2] = steps[2]._replace(accepted=steps[2].accepted + 1)
            run = run._replace(steps=tuple(steps))
        found.append(TracedRequest(name, schedule.name, (), limits, run, 3, "algorithm"))
    return found


def write_trace(file: Path, traced: list[TracedRequest]) -> None:
    file.write_text("".join(f"{line}\n" for line in trace_lines(traced)))


@pytest.fixture(scope="session")
def samples() -> SimpleNamespace:
    return SimpleNamespace(HOSTILE=HOSTILE, result=result, ledger_row=ledger_row, requests=requests, write_trace=write_trace)
