"""Pictures say what the data says, explain themselves, and come out the same every time."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from reports import plots
from simulator import InvalidInput
from simulator.maps import calls_by_position, cost_map, set_map
from simulator.nfe import simulate
from simulator.nfe.cost import affine, throughput
from simulator.nfe.laws import Chain, acceptance, law_of
from simulator.oracles.families import parse
from simulator.schedules import ar, branches, linear, named, packed, quadratic
from simulator.sweep import Cell, Grid, Result, compute

GRID = Grid(
    ("mixture:rate=0.05,rho=0.7", "mixture:rate=0.1,rho=0.7", "mixture:rate=0.3,rho=0.7"),
    ("ar", "linear", "packed", "branches:0,2"),
    widths=(3, 9),
    lengths=(60,),
    seeds=(0, 1),
    runs=64,
)
MIXTURE = parse("mixture:rate=0.1,rho=0.7")
SCHEDULES = [named(name, 5) for name in ("ar", "linear", "packed", "quadratic")]


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return compute(GRID.cells())


def texts(figure: Any) -> str:
    """Everything written in it."""
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


def flat(figure: Any) -> str:
    return " ".join(texts(figure).split())


def difficulty(results: list[Result]) -> Any:
    return plots.difficulty(results)


def histogram(results: list[Result]) -> Any:
    tally = simulate(MIXTURE, SCHEDULES, 300, 60)
    exact = plots.exact_nfe(MIXTURE, SCHEDULES, 60)
    return plots.nfe_histogram(tally.schedules, tally.histograms, exact, f"Drafter {MIXTURE}, W = 5, L = 60, 300 runs")


def positions(results: list[Result]) -> Any:
    law = law_of(MIXTURE, 6)
    exact = {schedule.name: Chain(schedule, law).expected_nfe(40) for schedule in SCHEDULES}
    return plots.calls_per_position(calls_by_position(MIXTURE, SCHEDULES, 64, 40), "W = 5, 64 runs", exact)


def winners(results: list[Result]) -> Any:
    costs = cost_map(acceptance, np.linspace(0.1, 0.95, 8).tolist(), np.geomspace(1, 1e4, 8).tolist(), (1, 4))
    return plots.winner_map(costs, "acceptance", "Independent acceptance")


def sets(results: list[Result]) -> Any:
    found = set_map(acceptance, np.linspace(0.1, 0.95, 8).tolist(), np.geomspace(1, 1e4, 8).tolist(), 4)
    return plots.best_set(found, "acceptance", "Independent acceptance")


PICTURES = [difficulty, histogram, positions, winners, sets]


@pytest.mark.parametrize("draw", PICTURES)
def test_a_picture_is_whole_labelled_and_the_same_every_time(
    draw: Callable[[Any], Any], results: list[Result], tmp_path: Path
) -> None:
    matplotlib = pytest.importorskip("matplotlib", reason="pip install 'packedss[report]'")
    figure = draw(results)
    plots.save(figure, tmp_path / "one.svg")
    plots.save(figure, tmp_path / "one.png")
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "lines.linewidth": 9}):  # a user's own taste
        again = draw(results)
        plots.save(again, tmp_path / "two.svg")
        plots.save(again, tmp_path / "two.png")
    for kind in ("svg", "png"):
        assert (tmp_path / f"one.{kind}").read_bytes() == (tmp_path / f"two.{kind}").read_bytes()
    ElementTree.parse(tmp_path / "one.svg")
    assert "<dc:date>" not in (tmp_path / "one.svg").read_text()
    words = flat(figure)
    assert "Exact, in the long run" in words or ("95 %" in words and "exact law" in words.lower())
    assert re.search(r"\((tokens|per token|calls per run)\)|in rows", words)  # units


def test_difficulty_shows_every_figure_with_its_band(results: list[Result]) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'packedss[report]'")
    figure = plots.difficulty(results)
    assert [axis.get_title() for axis in figure.axes] == ["W = 3", "W = 9"]
    for axis, width in zip(figure.axes, (3, 9), strict=True):
        for schedule in ("linear", "packed", "branches:0,2"):
            [trend] = [t for t in plots.trends(results) if t.schedule == schedule and ("width", width) in t.setting]
            assert [x for x, _ in trend.points] == [0.05, 0.1, 0.3]
            drawn = [list(line.get_ydata()) for line in axis.lines]
            assert trend.values in [pytest.approx(ys) for ys in drawn if len(ys) == 3]
        assert len(axis.collections) == 3  # bands
    words = flat(figure)
    assert "rho = 0.7" in words
    assert "L = 60" in words
    assert "128 runs a point" in words  # seeds are pooled


def test_exact_markers_are_the_law(results: list[Result]) -> None:
    result = next(r for r in results if r.cell.schedule == "packed")
    exact = plots._exact_rate(result)
    assert exact is not None
    assert result.tokens_per_nfe.low - 0.1 < exact < result.tokens_per_nfe.high + 0.1
    assert plots._exact_rate(replace(result, cell=replace(result.cell, drafter="drift:early=9,late=1,turn=9"))) is None
    assert plots._exact_rate(replace(result, cell=replace(result.cell, length=10**9))) is None


def test_trends_along_what_varies(results: list[Result]) -> None:
    found = plots.trends(results, "width")
    assert {trend.parameter for trend in found} == {"width"}
    assert [x for x, _ in found[0].points] == [3, 9]
    assert "ar" not in {trend.schedule for trend in found}
    with pytest.raises(InvalidInput, match=r"no numeric parameter 'mean'; allowed: noise, rate, rho, width, length"):
        plots.trends(results, "mean")
    with pytest.raises(InvalidInput, match="nothing to draw along"):
        plots.trends(results[:4])
    many = compute(
        [Cell(f"barrier:rate=0.{n}", length, 4, 0, "algorithm", 2, "packed") for n in (1, 2) for length in range(1, 14)]
    )
    pytest.importorskip("matplotlib", reason="pip install 'packedss[report]'")
    with pytest.raises(InvalidInput, match="13 panels, at most 12 can be read"):
        plots.difficulty(many)


def test_histogram_states_simulated_and_exact_means() -> None:
    pytest.importorskip("matplotlib", reason="pip install 'packedss[report]'")
    words = texts(histogram([]))
    exact = float(Chain(packed(5), law_of(MIXTURE, 6)).expected_nfe(60)[60])
    assert f"exact mean {exact:.5g}" in words
    assert "Wilson" in words
    nothing = plots.nfe_histogram(["packed"], [{9: 1}], [None], "One run")
    assert "No exact law here" in flat(nothing)
    assert "(one run)" in flat(nothing)
    for schedules, histograms in ((["packed"], [{}]), (["ar"], [{9: 1}])):
        with pytest.raises(InvalidInput, match="a histogram needs at least 1"):
            plots.nfe_histogram(schedules, histograms, [None], "")
    assert plots.exact_nfe(parse("drift:early=9,late=1,turn=9"), [ar(), packed(3)], 10) == [None, None]


def test_wide_histograms_are_binned() -> None:
    """Every run is in some bar, every mass under some dot."""
    pytest.importorskip("matplotlib", reason="pip install 'packedss[report]'")
    law = [0.0] * 10 + [1 / 200] * 200
    figure = plots.nfe_histogram(["packed"], [dict.fromkeys(range(10, 210), 5)], [law], "Wide")
    [axis] = figure.axes
    assert sum(bar.get_height() for bar in axis.patches) == pytest.approx(1)
    assert sum(axis.lines[0].get_ydata()) == pytest.approx(1)
    assert "bins of up to 4 calls" in flat(figure)


def test_calls_by_position_add_up_and_hold_the_law() -> None:
    """Bands of 95 % on 40 x 3 windows; all within twice the band and 0.02: far beyond 5 standard deviations each."""
    found = calls_by_position(MIXTURE, SCHEDULES, 2000, 40, seed=3, windows=1000)
    assert found.edges == tuple(range(41))
    tally = simulate(MIXTURE, SCHEDULES, 2000, 40, seed=3)
    law = law_of(MIXTURE, 6)
    for index, schedule in enumerate(SCHEDULES):
        calls = [window.value for window in found.calls[index]]
        assert sum(calls) * 2000 == pytest.approx(tally.sums[index + 1])
        expected = np.diff(Chain(schedule, law).expected_nfe(40))
        for window, exact in zip(found.calls[index], expected, strict=True):
            assert abs(window.value - exact) <= 2 * window.half + 0.02
    assert all(window.exact for window in found.calls[0])
    for change, message in (
        ({"runs": 1}, "runs must lie in 2 .. "),
        ({"length": 0}, "length must lie in 1 .. "),
        ({"windows": 0}, "windows must lie in 1 .. 1024, got 0"),
        ({"runs": 2**28}, "runs x schedules x windows must be <="),
    ):
        with pytest.raises(InvalidInput, match=message):
            calls_by_position(MIXTURE, SCHEDULES, **{"runs": 10, "length": 40, **change})


def test_maps_are_of_the_best() -> None:
    costs = cost_map(acceptance, (0.3, 0.9), (1, 100), (2, 4))
    sets = set_map(acceptance, (0.3, 0.9), (1, 100), 4)
    for row, ratio in enumerate((1, 100)):
        for column, rate in enumerate((0.3, 0.9)):
            law, price = acceptance(rate), affine(ratio, 1)
            contest = costs.contests[row][column]
            assert contest.ar == 1 / (ratio + 1)
            assert contest.linear.throughput == pytest.approx(max(throughput(linear(w), law, price) for w in (2, 4)))
            assert contest.quadratic.throughput >= max(throughput(quadratic(w), law, price) for w in (2, 4)) - 1e-12
            best = throughput(branches(sets.sets[row][column], 4), law, price)
            assert best >= max(throughput(branches(s, 4), law, price) for s in ((0,), (0, 2), (0, 1, 2, 3))) - 1e-12
    assert not sets.greedy


def test_regions_are_named_where_there_is_room() -> None:
    pytest.importorskip("matplotlib", reason="pip install 'packedss[report]'")
    words = texts(winners([]))
    assert "Packed-SS" in words
    assert "tau + delta n" in flat(winners([]))
    assert "{0}" in texts(sets([]))


def test_sparklines() -> None:
    assert plots.sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert plots.sparkline([3, 3]) == "▁▁"
    assert plots.sparkline([1, nan, 2, inf]) == "▁ █ "
    assert plots.sparkline([nan]) == " "
    assert plots.sparkline([]) == ""
    assert plots.sparkline([5, -5, 20], 0, 10) == "▄▁█"


def test_the_terminal_shows_every_figure_with_its_interval(
    results: list[Result], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    plots.print_sweep(results, 3, [Path("out/[bad].json")])
    shown = capsys.readouterr().out
    assert shown.count("1 exact") == 6
    assert len(re.findall(r"\d ± 0\.\d", shown)) == 6 * 4 + 2 * 3 * 2  # three schedules and a gain; ends of trends
    assert re.search("█.?▁", shown)
    assert f"{len(results)} cells: 3 computed, {len(results) - 3} found finished" in shown
    assert "damaged, computed again: out/[bad].json" in shown
    plots.print_sweep(results, 0, [], limit=1)
    assert "6 rows: only how they move" in capsys.readouterr().out
    plots.print_sweep(results[:1], 0, [])
    assert "1 exact" in capsys.readouterr().out


def test_files_are_svg_or_png_in_a_folder_that_exists(tmp_path: Path, results: list[Result]) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'packedss[report]'")
    figure = sets([])
    with pytest.raises(InvalidInput, match=r"must end in \.svg or \.png, got"):
        plots.save(figure, tmp_path / "picture.pdf")
    with pytest.raises(InvalidInput, match="cannot write"):
        plots.save(figure, tmp_path / "missing" / "picture.svg")


def test_without_matplotlib_pictures_say_what_to_install(results: list[Result], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    for draw in PICTURES:
        with pytest.raises(InvalidInput, match=r"not installed: pip install 'packedss\[report\]'"):
            draw(results)


def test_importing_plots_loads_no_matplotlib() -> None:
    code = "import sys, reports.plots; sys.exit('matplotlib' in sys.modules or 'scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2]).returncode == 0
