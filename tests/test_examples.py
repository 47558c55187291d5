"""The examples run as they are shown, from the checkout's folder, and say what their texts promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def output(name: str, code: int = 0) -> str:
    run = subprocess.run(
        [sys.executable, f"examples/{name}.py"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == code, run.stderr
    return run.stdout


def test_my_schedule_is_exact_and_saves_rows() -> None:
    printed = output("my_schedule")
    assert "adaptive: EXACT" in printed
    rows = {line.split()[0]: int(line.split()[3]) for line in printed.splitlines() if " rows for " in line}
    assert rows["adaptive"] < min(rows["linear"], rows["packed"])


def test_broken_schedule_is_not_exact_and_its_program_shows_it() -> None:
    printed = output("broken_schedule")
    assert "LAW (" in printed
    assert "the output law is not the autoregressive one" in printed
    program = "\n".join(
        line.strip() for line in printed.split("this program shows it again:\n")[1].splitlines() if line.startswith("    ")
    )
    run = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "AssertionError" in run.stderr


def test_an_opaque_decoder_is_told_from_a_biased_one() -> None:
    right, biased = output("opaque_decoder").split("\nbiased: ")
    assert right.startswith("right: NOTHING FOUND")
    assert biased.startswith("NOT EXACT")


def test_logs_are_checked_both_ways() -> None:
    printed = output("check_logs")
    assert "outputs: NOTHING FOUND" in printed
    assert "trace: holds" in printed
    assert "ALG1.L10, expected retained 2, found retained 3" in printed
