"""The battery: is a schedule exact, and does it make the calls its declared policy makes?

>>> from proofs_check import check_schedule
>>> from simulator import packed
>>> report = check_schedule(packed(3), declares=packed(3))
>>> report.verdict
'EXACT'

It drives any object with init, request and absorb through the stages of `proofs_check.stages`, in a child process with a wall
limit: what raises, hangs, exits or eats memory gets a finding. Nothing in it is a sample whose verdict could be bad luck: laws
are compared as rationals, tokens and counts as integers, under fixed seeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from proofs_check.findings import Finding, Report, Stage, worst_first
from proofs_check.sandbox import ChildEnded, ChildStuck, in_child
from proofs_check.stages import BASIS, STAGES
from proofs_check.system import Found, NotReached, System
from simulator.decode import Policy
from simulator.schedule import Schedule


def check_schedule(
    schedule: Policy, declares: Schedule | None = None, *, limit: float = 20.0, name: str = "", source: str = ""
) -> Report:
    """Run the battery on a schedule.

    `declares` is the policy whose calls it must make, as in packed(W); None leaves the counts open. `limit` is the wall time in
    seconds that one stage may take. `name` is how the report calls it, and `source` is Python that defines `schedule`, for
    programs that show a finding again.
    """
    return check_system(System(schedule, declares, source=source), name or _name(schedule), limit)


def assert_exact(schedule: Policy, declares: Schedule | None = None, *, limit: float = 20.0) -> None:
    """For pytest: raises AssertionError with the whole report unless `check_schedule` finds nothing and ran everything."""
    report = check_schedule(schedule, declares, limit=limit)
    assert report.verdict == "EXACT", f"\n{report}"


def check_system(system: System, name: str, limit: float = 20.0) -> Report:
    """`check_schedule` for a decoder of which other parts are brought along."""
    stages: list[Stage] = []
    findings: list[Finding] = []
    for stage, finding in _run(system, limit):
        stages.append(stage)
        findings += [finding] if finding else []
    return Report(name, system.declares.name if system.declares else None, tuple(stages), worst_first(findings))


def _run(system: System, limit: float) -> Iterator[tuple[Stage, Finding | None]]:
    """Every stage in order. After a stage that ends its child the others go on in a new one, but not after one that hangs."""
    pending = list(STAGES)
    failed: list[str] = []
    reason = ""
    while pending and not reason:
        begun = time.monotonic()
        try:
            for stage, finding in in_child(partial(_stages, system, tuple(pending), tuple(failed)), limit):
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
    system: System, names: tuple[str, ...], before: tuple[str, ...], send: Callable[[tuple[Stage, Finding | None]], None]
) -> None:
    failed = list(before)
    for name in names:
        begun = time.perf_counter()
        stage, finding = _stage(system, name, [basis for basis in BASIS.get(name, ()) if basis in failed])
        failed += [name] if finding else []
        send((replace(stage, seconds=time.perf_counter() - begun), finding))


def _stage(system: System, name: str, spoilt: list[str]) -> tuple[Stage, Finding | None]:
    if spoilt:
        return Stage(name, "not run", f"its basis failed: {', '.join(spoilt)}"), None
    try:
        return Stage(name, "passed", STAGES[name](system)), None
    except NotReached as reason:
        return Stage(name, "not run", str(reason)), None
    except Found as found:
        finding = found.finding
    except Exception as error:
        finding = Finding("contract", f"it raises {type(error).__name__}: {error}")
    return Stage(name, "failed", finding.statement), replace(finding, stage=name)


def _name(schedule: Policy) -> str:
    return str(getattr(schedule, "name", None) or type(schedule).__name__)
