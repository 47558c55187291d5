"""A pytest plugin: the battery on a schedule as a fixture.

    import pytest
    from simulator import packed

    @pytest.mark.parametrize("packedss_report", [(MySchedule(), packed(4)), MyOther()], indirect=True)
    def test_my_schedules_are_exact(packedss_report):
        assert packedss_report.verdict == "EXACT", str(packedss_report)

It is on wherever packedss is installed, and loads nothing of it before the fixture is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from proofs_check.findings import Report


@pytest.fixture
def packedss_report(request: pytest.FixtureRequest) -> Report:
    """The battery's `Report` on the parameter: a schedule, or (schedule, the policy whose calls it must make)."""
    from proofs_check import check_schedule

    try:
        parameter = request.param
    except AttributeError:
        raise pytest.UsageError(
            "packedss_report needs a schedule: @pytest.mark.parametrize('packedss_report', [schedule], indirect=True)"
        ) from None
    return check_schedule(*parameter) if isinstance(parameter, tuple) else check_schedule(parameter)
