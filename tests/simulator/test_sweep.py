"""Sweeps: the right numbers, the same ones wherever they are computed, and none computed twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from simulator import InvalidInput, engines
from simulator import sweep as module
from simulator.nfe import simulate
from simulator.nfe.laws import law_of, tokens_per_nfe
from simulator.oracles.families import parse
from simulator.sweep import Cell, Grid, Interval, compute, gain, load, pooled, sweep

SMALL = Grid(
    drafters=("mixture:rate=0.1,rho=0.7", "geometric:mean=3"),
    schedules=("ar", "linear", "packed", "branches:0,2"),
    widths=(3, 9),
    lengths=(40, 90),
    starts=("algorithm", "wide"),
    seeds=(0, 5),
    runs=70,
)
CHILD = """
import sys
from pathlib import Path
from simulator.sweep import Grid, sweep

if __name__ == "__main__":
    sweep({grid!r}, Path(sys.argv[1]), workers=2)
"""
# Enough work for a second, in cells so large that every one is a task of its own.
CHILD_GRID = Grid(
    ("markov:easy=9,hard=1,easy_run=40,hard_run=20",), ("packed",), (4,), (1000,), seeds=tuple(range(24)), runs=8_000
)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("sweep")
    return folder, sweep(SMALL, folder)


def test_a_grid_is_every_combination_once() -> None:
    cells = SMALL.cells()
    assert len(cells) == len(set(cells)) == 2 * 2 * 2 * (1 + 3 * 2 * 2)  # AR knows neither width nor the start wide
    assert len({cell.name for cell in cells}) == len(cells)
    assert len(Grid(("barrier:rate=0.1", "barrier:rate=.10"), ("packed", "packed"), (4, 4)).cells()) == 1
    assert [cell.start for cell in Grid(("barrier:rate=0.1",), ("ar",), starts=("prompt", "wide")).cells()] == [
        "prompt",
        "algorithm",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"drafters": ()}, "drafters: a sweep needs at least 1"),
        ({"drafters": ("mixture:rate=0.1,rho=1.5",)}, "mixture: rho must be in 0 .. 1, got 1.5"),
        ({"drafters": ("oracle",)}, "unknown drafter family 'oracle'; allowed: geometric,"),
        ({"schedules": ("parallel",)}, "unknown schedule 'parallel'; allowed: ar, linear,"),
        ({"schedules": ("branches:0,9",)}, "branches need accepted counts between 0 and W = 8"),
        ({"widths": (4, 0)}, "widths must be integers in 1 .. 1024, got 0"),
        ({"widths": (True,)}, "widths must be integers in 1 .. 1024, got True"),
        ({"lengths": (0,)}, "lengths must be integers in 1 .. "),
        ({"starts": ("cold",)}, "starts: unknown start 'cold'; allowed: algorithm, wide,"),
        ({"seeds": (-1,)}, "seeds must be integers in 0 .. 18446744073709551615, got -1"),
        ({"runs": 1}, "runs must be integers in 2 .. 1073741824, got 1: one run has no interval"),
        ({"seeds": tuple(range(1001)), "lengths": tuple(range(1, 1001))}, "may have 1000000 cells, this one has 4004000"),
    ],
)
def test_a_bad_grid_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Grid(**{"drafters": ("geometric:mean=3",), **change})
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "workers", "address", "message"),
    [
        ("slurm", 1, None, "unknown engine 'slurm'; allowed: local, dask, ray"),
        ("local", 0, None, "workers must lie in 1 .. 4096, got 0"),
        ("local", 2, "tcp://there:8786", "an address is that of a cluster"),
        ("ray", 2, "there:6379", "the address of a Ray cluster must be auto"),
    ],
)
def test_a_bad_engine_is_refused_before_anything_is_computed(
    engine: str, workers: int, address: str | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidInput, match=message):
        sweep(SMALL, tmp_path / "new", engine, workers, address)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("engine", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_an_engine_that_is_not_installed_says_how_to_get_it(engine: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InvalidInput, match=rf"not installed: pip install 'packedss\[{engine}\]'"):
        engines.run(len, [[]], engine)


def test_a_running_cluster_can_be_used() -> None:
    distributed = pytest.importorskip("distributed", reason="pip install 'packedss[dask]'")
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        assert sorted(engines.run(abs, [-1, 2, -3], "dask", address=cluster.scheduler_address)) == [1, 2, 3]
    with pytest.raises(InvalidInput, match="no Dask scheduler at 'nonsense'"):
        list(engines.run(abs, [1], "dask", address="nonsense"))


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot use the folder"):
        sweep(SMALL, tmp_path / "file")


def test_a_cell_counts_what_simulate_counts(swept: tuple[Path, Any]) -> None:
    _, (results, computed, damaged) = swept
    assert [result.cell for result in results] == SMALL.cells()
    assert (computed, damaged) == (len(results), [])
    for result in results:
        cell = result.cell
        tally = simulate(parse(cell.drafter), [cell.made()], cell.runs, cell.length, cell.seed)
        assert (sum(result.tokens), sum(result.calls)) == tally.sums
        assert dict(result.histogram) == tally.histograms[0]
        assert result.tokens_per_nfe.value == tally.tokens_per_nfe(0).value
        assert len(result.calls) == module.BATCHES


def test_runs_are_batched_in_order() -> None:
    """Also where the engine takes them in blocks that do not end where batches do."""
    cell = Cell("geometric:mean=3.0", 200, 9000, 1, "algorithm", 5, "packed")
    [result] = compute([cell])
    parts = [simulate(parse(cell.drafter), [cell.made()], 281, 200, 1, first_run=first) for first in (0, 281)]  # 9000 / 32
    assert result.calls[:2] == tuple(part.sums[1] for part in parts)
    assert sum(result.tokens) == 9000 * 200


def test_cells_computed_alone_are_the_same(swept: tuple[Path, Any]) -> None:
    """Together they share lags, counted up to the largest width among them."""
    _, (results, *_) = swept
    for result in results[::7]:
        assert compute([result.cell]) == [result]


def test_numbers_are_those_of_these_semantics() -> None:
    """If this fails by intent, SEMANTICS has to grow: old files would be taken for new ones."""
    texts = (
        "geometric:mean=3.0",
        "histogram:weights=5.0:3.0:1.0",
        "barrier:rate=0.1",
        "mixture:rate=0.1,rho=0.7,noise=0.05",
        "markov:easy=12.0,hard=1.0,easy_run=40.0,hard_run=20.0",
        "drift:early=12.0,late=2.0,turn=100.0",
    )
    cells = [Cell(text, 300, 64, 7, "wide", 9, schedule) for text in texts for schedule in ("linear", "packed", "quadratic")]
    assert module.SEMANTICS == 1
    assert [sum(result.calls) for result in compute(cells)] == PINNED
    assert cells[0].name == PINNED_NAME


PINNED = [15986, 11271, 10218, 25806, 17488, 17313, 6132, 5736, 4920, 7188, 5561, 4744, 13836, 9587, 8596, 17100, 11775, 10869]
PINNED_NAME = "9c33ec3cbf0be6f9a506c9875294acd4.json"


def test_intervals_hold_what_they_promise() -> None:
    """95 % intervals on 400 seeds against the exact law: within 4 standard deviations of binomial(400, 0.95), a false alarm in
    15,000 if seeds were drawn anew."""
    cells = [Cell("mixture:rate=0.1,rho=0.7", 100, 200, seed, "algorithm", 8, "packed") for seed in range(400)]
    exact = float(tokens_per_nfe(cells[0].made(), law_of(parse(cells[0].drafter), 9), 100))
    found = [result.tokens_per_nfe for result in compute(cells)]
    assert abs(sum(interval.low <= exact <= interval.high for interval in found) - 380) <= 17
    assert all(0 < interval.half < 0.2 for interval in found)


def test_figures_say_how_sure_they_are(swept: tuple[Path, Any]) -> None:
    _, (results, *_) = swept
    ar, *others = results[:4]
    assert ar.tokens_per_nfe == Interval(1, 1, 1, True)
    assert str(ar.tokens_per_nfe) == "1 exact"
    assert all(" ± " in str(result.tokens_per_nfe) for result in others)
    assert all({"low", "high", "exact"} < set(result.plain()["tokens_per_nfe"]) for result in results)
    json.dumps([result.plain() for result in results], allow_nan=False)


def test_gains_are_paired() -> None:
    base = Cell("mixture:rate=0.1,rho=0.7", 100, 3200, 0, "algorithm", 8, "linear")
    linear, packed, elsewhere = compute([base, replace(base, schedule="packed"), replace(base, seed=1)])
    same = gain(packed, linear)
    assert same.value == sum(linear.calls) / sum(packed.calls)
    apart = packed.tokens_per_nfe.half / packed.tokens_per_nfe.value + linear.tokens_per_nfe.half / linear.tokens_per_nfe.value
    assert same.half / same.value < apart / 2
    assert gain(linear, linear) == Interval(1, 1, 1)
    with pytest.raises(InvalidInput, match="not the same requests and start"):
        gain(packed, elsewhere)
    with pytest.raises(InvalidInput, match="not the same requests and start"):
        gain(packed, replace(linear, cell=replace(base, start="prompt")))
    assert gain(packed, compute([Cell(base.drafter, 100, 3200, 0, "algorithm", 0, "ar")])[0]).value > 1


def test_seeds_pool(swept: tuple[Path, Any]) -> None:
    _, (results, *_) = swept
    together = pooled(results)
    assert len(together) == len(results) // 2
    one, other = (r for r in results if replace(r.cell, seed=0) == replace(together[3].cell, runs=70, seed=0))
    assert together[3].calls == one.calls + other.calls
    assert sum(runs for _, runs in together[3].histogram) == together[3].cell.runs == 140
    assert together[3].tokens_per_nfe.half < one.tokens_per_nfe.half + other.tokens_per_nfe.half


def test_nothing_is_computed_twice(swept: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, first = swept
    before = files(folder)
    monkeypatch.setattr(module, "compute", None)
    again = sweep(SMALL, folder)
    assert again == first._replace(computed=0)
    assert files(folder) == before
    assert load(folder)[0] == sorted(first.results, key=lambda result: result.cell)
    part = sweep(replace(SMALL, widths=(9,), seeds=(5,)), folder)
    assert part.computed == 0
    with pytest.raises(InvalidInput, match="no sweep in"):
        load(tmp_path)


def test_damaged_files_are_reported_and_computed_again(tmp_path: Path) -> None:
    grid = replace(SMALL, starts=("algorithm",), seeds=(0,), lengths=(40,))
    first = sweep(grid, tmp_path)
    before = files(tmp_path)
    names = [cell.name for cell in grid.cells()]
    whole = before[names[1]]
    digit = whole.index(b'"tokens":[') + len(b'"tokens":[')
    damage = {
        names[0]: b"",
        names[1]: whole[:digit] + bytes([whole[digit] ^ 1]) + whole[digit + 1 :],
        names[2]: before[names[2]][:-20],
        names[3]: before[names[4]],  # whole, but of another cell
        names[5]: b"[" * 100_000,
        names[6]: b'{"sha256": null}',
        names[7]: b"\xff\xfe[]",
    }
    for name, data in damage.items():
        (tmp_path / name).write_bytes(data)
    assert {file.name for file in load(tmp_path)[1]} == set(damage) - {names[3]}
    seen: list[int] = []

    def progress(results: Any, total: int) -> Any:
        for result in results:
            seen.append(total)
            yield result

    again = sweep(grid, tmp_path, progress=progress)
    assert again.results == first.results
    assert again.computed == len(damage)
    assert seen == [len(damage)] * len(damage)
    assert {file.name for file in again.damaged} == set(damage)
    assert files(tmp_path) == before


def test_other_semantics_are_other_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = Grid(("barrier:rate=0.1",), ("packed",), runs=2)
    sweep(grid, tmp_path)
    monkeypatch.setattr(module, "SEMANTICS", 10**6)
    assert sweep(grid, tmp_path).computed == 1
    assert len(files(tmp_path)) == 2
    assert [len(found) for found in load(tmp_path)] == [1, 1]


def test_tasks_are_neither_small_nor_large() -> None:
    cells = Grid(tuple(f"barrier:rate=0.{n}" for n in range(10, 90)), ("packed",), (4, 8), (1000,), runs=1000).cells()
    tasks = module._tasks(cells)
    assert sorted(cell for task in tasks for cell in task) == sorted(cells)
    assert {len(task) for task in tasks[:-1]} == {20}
    large = Grid(("barrier:rate=0.1",), ("linear", "packed"), (4,), (10_000,), runs=10_000).cells()
    assert [len(task) for task in module._tasks(large)] == [1, 1]
    assert max(len(task) for task in module._tasks(SMALL.cells())) == 64


@pytest.mark.parametrize(("engine", "package"), [("local", "joblib"), ("dask", "distributed"), ("ray", "ray")])
def test_two_workers_find_the_same(
    engine: str, package: str, swept: tuple[Path, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real cluster of two processes; with small tasks, so that both have several."""
    pytest.importorskip(package, reason=f"pip install 'packedss[{engine}]'")
    monkeypatch.setattr(module, "_TASK_CELLS", 9)
    folder, first = swept
    assert sweep(SMALL, tmp_path, engine, workers=2) == first
    assert files(tmp_path) == files(folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_half_way_it_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    (tmp_path / "child.py").write_text(CHILD.format(grid=CHILD_GRID))
    folder = tmp_path / "cells"
    # A test run in the background has SIGINT ignored, and so would its children.
    heeding = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    command = [sys.executable, "child.py", folder]
    child = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, preexec_fn=heeding)
    total = len(CHILD_GRID.cells())
    while len(list(folder.glob("*.json"))) < 5 and child.poll() is None:
        time.sleep(0.01)
    child.send_signal(number)
    child.communicate(timeout=60)
    assert child.returncode != 0
    before = {file: file.stat().st_mtime_ns for file in folder.glob("*.json")}
    assert 5 <= len(before) < total
    again = sweep(CHILD_GRID, folder)
    assert again.computed == total - len(before)
    assert again.damaged == []
    assert {file: file.stat().st_mtime_ns for file in before} == before
    assert len(list(folder.glob("*.json"))) == total
