"""Running the stages of a battery on a subject in a child process: what raises, hangs, exits or eats memory gets a finding."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from proofs_check.findings import Finding, Report, Stage, worst_first
from proofs_check.sandbox import ChildEnded, ChildStuck, in_child
from proofs_check.system import Found, NotReached

Stages: TypeAlias = Mapping[str, Callable[[Any], str]]
"""By name. Each returns what it looked at, raises Found with what is wrong, or NotReached when it could say nothing."""
Basis: TypeAlias = Mapping[str, Sequence[str]]
"""By stage, those earlier ones whose findings it would only say again under another name: after one of them it is not run."""


def run_battery(subject: Any, stages: Stages, basis: Basis, limit: float, name: str, declares: str | None = None) -> Report:
    """Run every stage on the subject, in order; `limit` is the wall time in seconds that one stage may take."""
    done: list[Stage] = []
    findings: list[Finding] = []
    for stage, finding in _run(subject, stages, basis, limit):
        done.append(stage)
        findings += [finding] if finding else []
    return Report(name, declares, tuple(done), worst_first(findings))


def _run(subject: Any, stages: Stages, basis: Basis, limit: float) -> Iterator[tuple[Stage, Finding | None]]:
    """Every stage in order. After a stage that ends its child the others go on in a new one, but not after one that hangs."""
    pending = list(stages)
    failed: list[str] = []
    reason = ""
    while pending and not reason:
        begun = time.monotonic()
        try:
            for stage, finding in in_child(partial(_stages, subject, stages, basis, tuple(pending), tuple(failed)), limit):
                pending.remove(stage.name)
                failed += [stage.name] if stage.outcome == "failed" else []
                begun = time.monotonic()
                yield stage, finding
        except ChildEnded as ended:
            name = pending.pop(0)
            failed.append(name)
            reason = f"the stage {name!r} did not come back" if isinstance(ended, ChildStuck) else ""
            finding = Finding("progress", f"in the stage {name!r} {ended}", stage=name)
            yield Stage(name, "failed", str(ended), time.monotonic() - begun), finding
    for name in pending:
        yield Stage(name, "not run", reason), None


def _stages(
    subject: Any,
    stages: Stages,
    basis: Basis,
    names: tuple[str, ...],
    before: tuple[str, ...],
    send: Callable[[tuple[Stage, Finding | None]], None],
) -> None:
    failed = list(before)
    for name in names:
        begun = time.perf_counter()
        stage, finding = _stage(subject, stages, name, [earlier for earlier in basis.get(name, ()) if earlier in failed])
        failed += [name] if finding else []
        send((replace(stage, seconds=time.perf_counter() - begun), finding))


def _stage(subject: Any, stages: Stages, name: str, spoilt: list[str]) -> tuple[Stage, Finding | None]:
    if spoilt:
        return Stage(name, "not run", f"its basis failed: {', '.join(spoilt)}"), None
    try:
        return Stage(name, "passed", stages[name](subject)), None
    except NotReached as reason:
        return Stage(name, "not run", str(reason)), None
    except Found as found:
        finding = found.finding
    except Exception as error:
        finding = Finding("contract", f"it raises {type(error).__name__}: {error}")
    return Stage(name, "failed", finding.statement), replace(finding, stage=name)
