"""The plugin as its users meet it: in a test file of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
USERS = """
import pytest
from simulator import Schedule, linear, packed

@pytest.mark.parametrize("packedss_report", [packed(2), (packed(2), packed(2)), (packed(2), linear(2))], indirect=True)
def test_exact(packedss_report):
    assert packedss_report.verdict == "EXACT", str(packedss_report)

def test_without_a_schedule(packedss_report):
    pass
"""


def test_the_fixture_reports_on_its_parameter(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded by name here, so that it is this checkout's and not that of an installed packedss."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makepyfile(USERS)
    result = pytester.runpytest_subprocess("-p", "reports.pytest_plugin", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines(["*packedss_report needs a schedule*", "*COUNT (counts): *"])


def test_the_plugin_loads_nothing_of_the_package() -> None:
    script = (
        "import sys, reports.pytest_plugin\n"
        "heavy = {'numpy', 'numba', 'scipy', 'networkx', 'z3', 'torch', 'proofs_check', 'simulator'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
