"""The battery on an any-order schedule: is it serial decoding in its own orders, and does it make the calls it declares?

>>> from proofs_check import check_any_order
>>> from simulator.any_order import packed
>>> check_any_order(packed(3), declares=packed(3)).verdict
'EXACT'

It drives any object with init, request and absorb over the calls of `simulator.any_order` through the stages of
`proofs_check.stages.any_order`, in a child process with a wall limit. All comparisons are exact: no verdict is bad luck.
"""

from __future__ import annotations

from typing import Any

from proofs_check.any_order_system import AnyOrderSystem
from proofs_check.battery import ScheduleReport
from proofs_check.runner import run_battery
from proofs_check.stages.any_order import BASIS, STAGES
from simulator.any_order import Schedule
from simulator.errors import InvalidInput


def check_any_order(
    schedule: Any,
    declares: Schedule | None = None,
    *,
    seed: int = 0,
    limit: float = 20.0,
    name: str = "",
    source: str = "",
) -> ScheduleReport:
    """Run the battery on an any-order schedule.

    `declares` is the policy whose calls it must make, in the same order of positions, as in packed(W, order); None leaves the
    counts open. The others are as those of `check_schedule`. EXACT is said for greedy decoding and for sampling; an order that
    looks at drawn tokens, as `confidence`, fails the law of sampling alone.

    Raises InvalidInput for a negative seed.
    """
    shown = name or str(getattr(schedule, "name", None) or type(schedule).__name__)
    return check_any_order_system(AnyOrderSystem(schedule, declares, source=source, seed=seed, limit=limit), shown)


def check_any_order_system(system: AnyOrderSystem, name: str) -> ScheduleReport:
    """`check_any_order` for a decoder of which other parts are brought along."""
    if system.seed < 0:
        raise InvalidInput(f"the seed must be >= 0, got {system.seed}")
    report = run_battery(system, STAGES, BASIS, system.limit, name, system.declares.name if system.declares else None)
    return ScheduleReport(name, report.declares, report.stages, report.findings, system.seed, 0.0)
