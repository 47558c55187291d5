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

from proofs_check.findings import Report
from proofs_check.runner import run_battery
from proofs_check.stages import BASIS, STAGES
from proofs_check.system import System
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
    return run_battery(system, STAGES, BASIS, limit, name, system.declares.name if system.declares else None)


def _name(schedule: Policy) -> str:
    return str(getattr(schedule, "name", None) or type(schedule).__name__)
