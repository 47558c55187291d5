"""The battery: is a schedule exact, and does it make the calls its declared policy makes?

>>> from proofs_check import check_schedule
>>> from simulator import packed
>>> report = check_schedule(packed(3), declares=packed(3))
>>> report.verdict
'EXACT'

It drives any object with init, request and absorb through the stages of `proofs_check.stages`, in a child process with a wall
limit: what raises, hangs, exits or eats memory gets a finding. Laws are compared as rationals, tokens and counts as integers,
under seeded tables and coins: no verdict is bad luck. The one exception is the law of a schedule that cannot be enumerated,
which is sampled; the report states its false-alarm odds.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofs_check.findings import Report, Verdict
from proofs_check.runner import run_battery
from proofs_check.stages import BASIS, STAGES
from proofs_check.stages.law import ALPHA
from proofs_check.system import System
from simulator.decode import Policy
from simulator.errors import InvalidInput
from simulator.schedule import Schedule


@dataclass(frozen=True)
class ScheduleReport(Report):
    """What the battery says of a schedule."""

    seed: int = 0  # of tables, drafters and coins
    alpha: float = 0.0  # the probability that a right schedule gets a finding; 0 where all comparisons were exact

    @property
    def verdict(self) -> Verdict:
        """EXACT is said of laws that were enumerated; of sampled ones NOTHING FOUND."""
        verdict = super().verdict
        return "NOTHING FOUND" if verdict == "EXACT" and self.alpha else verdict

    def __str__(self) -> str:
        odds = f"{self.alpha:g}, of the sampled law" if self.alpha else "0, every comparison is exact"
        return f"{super().__str__()}\n\nseed {self.seed}, false-alarm odds {odds}"


def check_schedule(
    schedule: Policy,
    declares: Schedule | None = None,
    *,
    seed: int = 0,
    limit: float = 20.0,
    name: str = "",
    source: str = "",
) -> ScheduleReport:
    """Run the battery on a schedule.

    `declares` is the policy whose calls it must make, as in packed(W); None leaves the counts open. `seed` picks the tables,
    drafters and coins of every stage. `limit` is the wall time in seconds that one stage may take. `name` is how the report
    calls it, and `source` is Python that defines `schedule`, for programs that show a finding again.

    EXACT speaks of the instances looked at, small tables and widths; of a model, its cache and its floats it says nothing.

    Raises InvalidInput for a negative seed.
    """
    return check_system(System(schedule, declares, source=source, seed=seed, limit=limit), name or _name(schedule))


def assert_exact(schedule: Policy, declares: Schedule | None = None, *, seed: int = 0, limit: float = 20.0) -> None:
    """For pytest: raises AssertionError with the whole report unless `check_schedule` finds nothing and ran everything."""
    report = check_schedule(schedule, declares, seed=seed, limit=limit)
    assert report.exit_code == 0, f"\n{report}"


def check_system(system: System, name: str) -> ScheduleReport:
    """`check_schedule` for a decoder of which other parts are brought along."""
    if system.seed < 0:
        raise InvalidInput(f"the seed must be >= 0, got {system.seed}")
    report = run_battery(system, STAGES, BASIS, system.limit, name, system.declares.name if system.declares else None)
    [law] = [stage for stage in report.stages if stage.name == "law"]
    alpha = ALPHA if "sampled" in law.detail else 0.0
    return ScheduleReport(name, report.declares, report.stages, report.findings, system.seed, alpha)


def _name(schedule: Policy) -> str:
    return str(getattr(schedule, "name", None) or type(schedule).__name__)
