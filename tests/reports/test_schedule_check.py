"""`packedss check` on any-order schedules and order policies, by name and of the user's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reports import cli

MINE = """
from simulator.any_order import Schedule, packed

def outside_in(known):
    return sorted(known.window, key=lambda j: (min(j - known.window[0], known.window[-1] - j), j))

class Forgetful(Schedule):
    def absorb(self, state, call, reply, chance):
        after, step = super().absorb(state, call, reply, chance)
        return after._replace(draft=()), step

right = packed(3, outside_in)
forgetful = Forgetful(right.name, right.width, right.order, right.opening, right.cycle)
"""
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    Path("my_any_order.py").write_text(MINE)

    def run(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["packedss", *line.split()])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return run


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("check any-order:packed --order rtl", 0, "any-order:packed (declares packed): EXACT"),
        ("check any-order:my_any_order:right --declares packed --order my_any_order:outside_in", 0, "(declares packed): EXACT"),
        ("check any-order:my_any_order:forgetful --declares packed --order my_any_order:outside_in", 1, "COUNT (counts)"),
        ("check any-order:packed --order confidence", 1, "LAW (law)"),
        ("check order:peak", 0, "order:peak: EXACT"),
        ("check order:my_any_order:outside_in", 0, "EXACT"),
        ("check order:confidence", 1, "it looks at which draft tokens were drawn"),
    ],
)
def test_what_is_said(run: Run, line: str, code: int, said: str) -> None:
    got, out, err = run(f"{line} --json result.json")
    assert got == code, out + err
    assert said in out
    [row] = json.loads(Path("result.json").read_text())["rows"]
    assert row["verdict"] == ("EXACT" if code == 0 else "EXACT, OTHER COUNTS" if "COUNT" in said else "NOT EXACT")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("check any-order:fast", "unknown any-order schedule 'fast'; allowed: serial, linear"),
        ("check any-order:packed --order up", "unknown order 'up'; allowed: ltr"),
        ("check any-order:packed --width 0", "must be >= 1, got 0"),
        ("check any-order:nowhere:at_all", "cannot load 'nowhere:at_all'"),
        ("check packed --order ltr", "--order is for any-order schedules"),
        ("check order:peak --declares packed", "leave out --declares"),
        ("check order:peak --limit 0", "--limit must be > 0 seconds"),
    ],
)
def test_bad_input_is_one_line(run: Run, line: str, said: str) -> None:
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1
