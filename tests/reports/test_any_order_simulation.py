"""`packedss simulate --any-order`: the same runs under every schedule and order, counted; bad input in one line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from reports import cli
from reports.any_order_simulation import Request, simulate
from simulator import Limits, generate
from simulator.any_order import named
from simulator.oracles.neighbours import Neighbours

REQUEST = Request("neighbours:need=2", ("ltr", "confidence"), ("linear", "packed", "native"), (3, 5), 20, 6, "prompt", 4)


def test_every_number_is_that_of_the_runs() -> None:
    results = simulate(REQUEST, iter)
    assert [(result.order, result.width) for result in results] == [
        ("ltr", 3),
        ("ltr", 5),
        ("confidence", 3),
        ("confidence", 5),
    ]
    rows = {(row["order"], row["width"], row["schedule"]): row for result in results for row in result.plain()}
    assert len(rows) == 12
    for (order, width, schedule), row in rows.items():
        runs = [
            generate(Neighbours(need=2).model(4, n, 20), named(schedule, width, order, "prompt"), (), Limits.of(20))
            for n in range(6)
        ]
        assert (row["runs"], row["tokens"], row["nfe"]) == (6, 120, sum(run.nfe for run in runs))
        assert row["rows"] == sum(step.rows for run in runs for step in run.steps)
        assert row["right"] == sum(run.tokens.count(0) for run in runs)
        assert sum(calls * count for calls, count in row["nfe_histogram"].items()) == row["nfe"]
        assert row["right"] == 120 or schedule == "native"
        linear = rows[order, width, "linear"]["nfe"]
        assert row["gain_over_linear"]["value"] == pytest.approx(linear / row["nfe"])
    assert rows["ltr", 5, "native"]["right"] < 120


def test_without_linear_there_is_nothing_to_compare_with() -> None:
    [result] = simulate(REQUEST._replace(schedules=("packed",), orders=("rtl",), widths=(2,)), iter)
    assert [row["gain_over_linear"] for row in result.plain()] == [None]


def command(monkeypatch: pytest.MonkeyPatch, line: str) -> int:
    monkeypatch.setattr(sys, "argv", ["packedss", *line.split()])
    with pytest.raises(SystemExit) as caught:
        cli.main()
    return int(caught.value.code or 0)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    file = tmp_path / "calls.json"
    line = f"simulate --any-order ltr --any-order random:2 --tokens 12 --runs 3 --width 3 --json {file}"
    assert command(monkeypatch, line) == 0
    out = capsys.readouterr().out
    assert "Model calls for 12 tokens in any order, 3 runs, drafter neighbours:need=3" in out
    content = json.loads(file.read_text())
    assert [(row["order"], row["schedule"]) for row in content["rows"]] == [
        (order, name) for order in ("ltr", "random:2") for name in ("linear", "packed", "quadratic", "native")
    ]
    assert content["arguments"]["drafter"] == "neighbours:need=3"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--any-order up", "unknown order 'up'"),
        ("--any-order ltr --schedule ar", "unknown any-order schedule 'ar'; allowed: serial, linear"),
        ("--any-order ltr --start wide", "unknown start 'wide' of an any-order schedule"),
        ("--any-order ltr --drafter barrier:rate=0.1", "unknown drafter family 'barrier'; allowed: neighbours"),
        ("--any-order ltr --eos-rate 0.1", "--any-order goes with neither"),
        ("--any-order ltr --width 0", "must be >= 1, got 0"),
        ("--any-order ltr --tokens 1000000", "--tokens times --runs times --width may be 100,000,000"),
    ],
)
def test_bad_input_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], options: str, said: str
) -> None:
    assert command(monkeypatch, f"simulate {options}") == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
