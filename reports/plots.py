"""Pictures of sweeps, laws and costs, as SVG or PNG, and what of them fits into a terminal.

Every band, bar and colour is explained in the picture. Colours are those of Okabe and Ito, told apart in every kind of colour
blindness; schedules differ in marker and line, regions of maps carry their names. The same data gives the same file.

matplotlib, the extra `report`, is loaded when the first picture is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from math import ceil, isfinite, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from simulator.errors import InvalidInput
from simulator.maps import CostMap, Positions, SetMap
from simulator.sweep import Result, gain, pooled

if TYPE_CHECKING:
    from simulator.oracles.families import Family
    from simulator.schedule import Schedule

Figure: TypeAlias = Any  # matplotlib.figure.Figure
P = ParamSpec("P")
R = TypeVar("R")

FORMATS = (".svg", ".png")
MAX_PANELS = 12
EXACT_LENGTH = 4096  # laws of longer answers take longer than the picture is worth
_Z = 1.959963984540054
_OTHER = "other branches"
_STYLES = {  # colour, marker, line, hatch
    "ar": ("#000000", "x", ":", "...."),
    "linear": ("#0072B2", "o", "-", "////"),
    "packed": ("#D55E00", "s", "-", ""),
    "quadratic": ("#009E73", "^", "-", "\\\\\\\\"),
    _OTHER: ("#CC79A7", "D", "--", "xx"),
}
_MORE = ("#CC79A7", "#E69F00", "#56B4E9", "#F0E442")  # for branch sets, in order
_TITLES = {"ar": "AR", "linear": "Linear-SS", "packed": "Packed-SS", "quadratic": "Quadratic-SS", _OTHER: "another Branches(S)"}
_UNITS = {
    "rate": "surprise rate (per token)",
    "rho": "rho, share predictable behind a surprise",
    "mean": "mean lag (tokens)",
    "easy": "mean lag in easy stretches (tokens)",
    "hard": "mean lag in hard stretches (tokens)",
    "easy_run": "length of easy stretches (tokens)",
    "hard_run": "length of hard stretches (tokens)",
    "early": "mean lag at the first position (tokens)",
    "late": "mean lag at the end (tokens)",
    "turn": "length of the change (tokens)",
    "noise": "share of drafts flipped",
    "width": "width W (tokens)",
    "length": "answer length L (tokens)",
}


@contextmanager
def _style() -> Iterator[None]:
    """matplotlib's own defaults, whatever the user's are, and ours. Raises InvalidInput without matplotlib."""
    try:
        import matplotlib.style
    except ImportError:
        raise InvalidInput("pictures need matplotlib, which is not installed: pip install 'packedss[report]'") from None
    ours = {
        "svg.hashsalt": "packedss",
        "font.size": 9,
        "axes.titlesize": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": "#dddddd",
        "grid.linewidth": 0.6,
        "axes.axisbelow": True,
        "legend.frameon": False,
        "hatch.linewidth": 0.4,
        "lines.markersize": 4,
    }
    with matplotlib.style.context(["default", ours], after_reset=True):
        yield


def _styled(draw: Callable[P, R]) -> Callable[P, R]:
    @wraps(draw)
    def styled(*args: P.args, **kwargs: P.kwargs) -> R:
        with _style():
            return draw(*args, **kwargs)

    return styled


def save(figure: Figure, file: Path) -> None:
    """As SVG or PNG, by the name's end; the same figure gives the same bytes. Raises InvalidInput for another end."""
    if file.suffix not in FORMATS:
        raise InvalidInput(f"a picture's file must end in {' or '.join(FORMATS)}, got {str(file)!r}")
    kinds: dict[str, dict[str, Any]] = {
        ".svg": {"metadata": {"Date": None}},
        ".png": {"metadata": {"Software": None}, "dpi": 160},
    }
    try:
        with _style():
            figure.savefig(file, **kinds[file.suffix])
    except OSError as error:
        raise InvalidInput(f"cannot write {str(file)!r}: {error.strerror}") from error


@dataclass(frozen=True)
class Trend:
    """One schedule along one parameter, everything else the same; cells that differ in the seed are pooled."""

    parameter: str
    setting: tuple[tuple[str, Any], ...]  # what else the cells say: family, its other parameters, L, start, W
    schedule: str
    points: tuple[tuple[float, Result], ...]  # the parameter ascending

    @property
    def values(self) -> list[float]:
        """tokens/NFE."""
        return [result.tokens_per_nfe.value for _, result in self.points]


def trends(results: Sequence[Result], parameter: str | None = None) -> list[Trend]:
    """The results along `parameter`, of the drafters, `width` or `length`; by default the first of these that varies.

    AR is left out: it commits one token a call. Raises InvalidInput where `parameter` is none that the results have, or nothing
    varies.
    """
    from dataclasses import fields

    from simulator.oracles.families import parse

    kept = [result for result in pooled(results) if result.cell.schedule != "ar"]
    described = []
    for result in kept:
        family, cell = parse(result.cell.drafter), result.cell
        own = {field.name: getattr(family, field.name) for field in fields(family)}
        described.append({"family": family.name, **own, "length": cell.length, "start": cell.start, "width": cell.width})
    numeric = [
        name
        for name in dict.fromkeys(name for one in described for name in one if name not in ("length", "width"))
        if all(isinstance(one.get(name, 0), int | float) for one in described)
    ]
    allowed = [*numeric, "width", "length"]
    if parameter is None:
        varying = [
            name
            for name in allowed
            if len({(one["family"], one[name]) for one in described if name in one})
            > len({one["family"] for one in described if name in one})
        ]
        if not varying:
            raise InvalidInput("no parameter of the drafters, width or length varies: nothing to draw along")
        parameter = next((name for name in varying if name not in ("noise",)), varying[0])
    if parameter not in allowed:
        raise InvalidInput(f"the results have no numeric parameter {parameter!r}; allowed: {', '.join(allowed)}")
    groups: dict[tuple[Any, ...], list[tuple[float, Result]]] = {}
    for one, result in zip(described, kept, strict=True):
        if parameter in one:
            setting = tuple((name, value) for name, value in one.items() if name != parameter)
            groups.setdefault((setting, result.cell.schedule), []).append((one[parameter], result))
    return [
        Trend(parameter, setting, schedule, tuple(sorted(points, key=lambda point: point[0])))
        for (setting, schedule), points in groups.items()
    ]


@_styled
def difficulty(results: Sequence[Result], parameter: str | None = None) -> Figure:
    """tokens/NFE of every schedule along a parameter (`trends`), a panel for each setting of the others.

    Raises InvalidInput for more than 12 panels, and what `trends` raises.
    """
    found = trends(results, parameter)
    panels: dict[tuple[Any, ...], list[Trend]] = {}
    for trend in found:
        panels.setdefault(trend.setting, []).append(trend)
    if len(panels) > MAX_PANELS:
        raise InvalidInput(
            f"{len(panels)} panels, at most {MAX_PANELS} can be read: fewer drafters, widths, lengths or starts?"
        )
    shared = _shared(found)
    figure, axes = _grid(len(panels))
    exact_seen = False
    names = list(dict.fromkeys(trend.schedule for trend in found))
    for axis, (setting, group) in zip(axes, panels.items(), strict=True):
        axis.axhline(1, color=_look("ar", names)[0], linestyle=":", linewidth=1)
        for trend in group:
            colour, marker, line, _ = _look(trend.schedule, names)
            xs = [x for x, _ in trend.points]
            rates = [result.tokens_per_nfe for _, result in trend.points]
            axis.plot(xs, trend.values, color=colour, linestyle=line, marker=marker, markersize=2.5, linewidth=1.2)
            axis.fill_between(xs, [r.low for r in rates], [r.high for r in rates], color=colour, alpha=0.3, linewidth=0)
            exact = [(x, _exact_rate(result)) for x, result in trend.points]
            points = [(x, y) for x, y in exact if y is not None]
            if points:
                exact_seen = True
                axis.plot(*zip(*points, strict=True), marker, color=colour, markerfacecolor="white", markersize=5.5, zorder=1.9)
        axis.set_title(_words(item for item in setting if item not in shared))
        axis.set_ylim(bottom=0)
    widest = max(r.half / r.value for trend in found for r in (result.tokens_per_nfe for _, result in trend.points))
    caption = (
        f"Lines: simulated; bands: 95 % intervals (batch means, Student's t), at most ± {widest:.1%}"
        + (", mostly narrower than the markers" if widest < 0.03 else "")
        + ". "
        + ("Open markers: exact law. " if exact_seen else "")
        + f"Dotted: AR, one token a call. {_words(shared)}; {_size(found)} runs a point."
    )
    entries = [(_look(name, names), _title(name)) for name in names]
    return _finish(
        figure,
        axes,
        "Tokens per model call",
        _UNITS.get(found[0].parameter, found[0].parameter),
        "tokens / NFE",
        caption,
        entries,
    )


def _exact_rate(result: Result) -> float | None:
    """tokens/NFE by the exact law, if the family has one and the answer is short."""
    from simulator.nfe.laws import law_of, tokens_per_nfe
    from simulator.oracles.families import parse

    cell = result.cell
    if cell.length > EXACT_LENGTH:
        return None
    try:
        return float(tokens_per_nfe(cell.made(), law_of(parse(cell.drafter), cell.width + 1), cell.length))
    except InvalidInput:
        return None


def exact_nfe(family: Family, schedules: Sequence[Schedule], length: int) -> list[Sequence[float] | None]:
    """P(NFE(length) = n), n = 0, 1, .., by schedule; None where the family has no law or the answer is too long."""
    from simulator.nfe.laws import Chain, law_of

    try:
        cap = max(ask.width for schedule in schedules for ask in (*schedule.opening, *schedule.cycle)) + 1
        law = law_of(family, cap)
    except InvalidInput:
        return [None] * len(schedules)
    if length > EXACT_LENGTH // 4:
        return [None] * len(schedules)
    return [Chain(schedule, law).nfe_law(length).tolist() for schedule in schedules]


@_styled
def nfe_histogram(
    schedules: Sequence[str],
    histograms: Sequence[Mapping[int, int]],
    exact: Sequence[Sequence[float] | None],
    setting: str,
) -> Figure:
    """How many calls a run takes: simulated runs {NFE: runs} as bars, the exact law P(NFE = n) over them.

    Without AR, which takes a call for each token. `setting` says in words what was simulated.
    Raises InvalidInput for nothing to draw.
    """
    if not all(sum(histogram.values()) for histogram in histograms):
        raise InvalidInput("a histogram needs at least 1 run")
    shown = [i for i, name in enumerate(schedules) if name != "ar"]
    if not shown:
        raise InvalidInput("a histogram needs at least 1 schedule besides AR, which takes a call for each token")
    figure, axes = _grid(len(shown), columns=1, height=1.5, sharex=True)
    for axis, i in zip(axes, shown, strict=True):
        histogram, law = histograms[i], exact[i]
        colour, *_ = _look(schedules[i], schedules)
        runs = sum(histogram.values())
        low, high = min(histogram), max(histogram)
        bin_width = max(1, ceil((high - low + 1) / 60))
        begins = np.arange(low, high + 1, bin_width)
        shares = np.zeros(len(begins))
        for calls, number in histogram.items():
            shares[(calls - low) // bin_width] += number / runs
        weight = 1 + _Z**2 / runs
        centre = (shares + _Z**2 / (2 * runs)) / weight
        half = _Z * np.sqrt(shares * (1 - shares) / runs + _Z**2 / (4 * runs**2)) / weight
        middle = begins + (bin_width - 1) / 2
        axis.bar(middle, shares, bin_width * 0.9, color=colour, alpha=0.35)
        seen = shares > 0
        axis.vlines(middle[seen], (centre - half)[seen], (centre + half)[seen], color=colour, linewidth=1.2)
        mean = sum(calls * number for calls, number in histogram.items()) / runs
        spread = sqrt(sum((calls - mean) ** 2 * number for calls, number in histogram.items()) / max(1, runs - 1) / runs)
        text = f"{_title(schedules[i])}\nmean {mean:.5g}" + (f" ± {_Z * spread:.2g}" if runs > 1 else " (one run)")
        if law is not None:
            masses = np.zeros(len(begins))
            for calls, mass in enumerate(law):
                if low <= calls < low + len(begins) * bin_width:
                    masses[(calls - low) // bin_width] += mass
            axis.plot(middle[masses > 0], masses[masses > 0], ".", color="black", markersize=3.5)
            text += f"\nexact mean {sum(n * mass for n, mass in enumerate(law)):.5g}"
        axis.text(0.99, 0.92, text, transform=axis.transAxes, ha="right", va="top")
        axis.grid(axis="x", visible=False)
        axis.margins(y=0.15)
        axis.set_ylim(bottom=0)
    widths = {max(1, ceil((max(histograms[i]) - min(histograms[i]) + 1) / 60)) for i in shown}
    caption = (
        "Bars: share of simulated runs"
        + (f" (bins of up to {max(widths)} calls)" if max(widths) > 1 else "")
        + "; strokes on them: 95 % interval of the share (Wilson)."
        + (" Black dots: exact law." if any(exact[i] is not None for i in shown) else " No exact law here.")
        + f" Means with normal 95 % intervals. {setting}."
    )
    return _finish(figure, axes, "Model calls a run takes", "NFE (calls per run)", "share of runs", caption, [])


@_styled
def by_width(figures: Sequence[tuple[str, int, Mapping[str, Any]]]) -> Figure:
    """Tokens per call and per second of a real model: (schedule, W, its measured figures with intervals)."""
    names = list(dict.fromkeys(name for name, _, _ in figures))
    _, axes = drawn = _grid(2, columns=2)
    labels = (("tokens_per_nfe", "tokens / NFE"), ("throughput", "tokens / s"))
    for axis, (key, label) in zip(axes, labels, strict=True):
        for name in names:
            colour, marker, line, _ = _look(name, names)
            points = sorted((width, found[key]) for schedule, width, found in figures if schedule == name)
            xs, ys = [width for width, _ in points], [each["estimate"] for _, each in points]
            axis.plot(xs, ys, color=colour, marker=marker, linestyle=line)
            for x, each in points:
                if each["low"] is not None:
                    axis.vlines(x, each["low"], each["high"], color=colour, linewidth=1.2)
        axis.set_title(label)
        axis.set_ylim(bottom=0)
    entries = [(_look(name, names), _title(name)) for name in names]
    caption = "Strokes: 95 % paired bootstrap over prompts."
    return _finish(drawn[0], axes, "A real model", "width W (tokens)", "measured", caption, entries)


@_styled
def calls_per_position(positions: Positions, setting: str, exact: Mapping[str, Sequence[float]] | None = None) -> Figure:
    """Calls a token takes along the answer, with bands. `exact`: E[NFE(l)], l = 0 .. L, by schedule, where there is a law."""
    figure, [axis] = _grid(1, width=6.4, height=3.2)
    names = positions.schedules
    edges = np.array(positions.edges)
    for name, calls in zip(names, positions.calls, strict=True):
        colour, _, line, _ = _look(name, names)
        axis.stairs([c.value for c in calls], edges + 0.5, color=colour, linestyle=line, linewidth=1.3, baseline=None)
        low, high = ([getattr(c, end) for c in calls] for end in ("low", "high"))
        axis.stairs(high, edges + 0.5, baseline=low, fill=True, color=colour, alpha=0.3, linewidth=0)
        if exact and name in exact and name != "ar":
            expected = np.array(exact[name], dtype=float)[edges]
            middle = (edges[:-1] + edges[1:] + 1) / 2
            axis.plot(middle, np.diff(expected) / np.diff(edges), "o", color=colour, mec="black", mew=0.5, markersize=2.8)
    axis.set_ylim(bottom=0)
    size = int(np.diff(edges).max())
    caption = (
        f"(NFE(end) - NFE(begin)) / tokens over windows of {'one token' if size == 1 else f'up to {size} tokens'}; "
        "bands: 95 % intervals (batch means, Student's t)." + (" Dots: exact law." if exact else "") + f" {setting}."
    )
    entries = [((colour, "", line, ""), _title(name)) for name in names for colour, _, line, _ in [_look(name, names)]]
    return _finish(
        figure, [axis], "Where in the answer calls go", "position in the answer (tokens)", "calls per token", caption, entries
    )


@_styled
def winner_map(costs: CostMap, x_label: str, setting: str) -> Figure:
    """Which schedule gives the most tokens per unit of time, over the drafter and tau/delta; lines: how many times AR's."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    kinds = list(_STYLES)
    winners = np.array(
        [[kinds.index(c.winner if c.winner in kinds else _OTHER) for c in row] for row in costs.contests], dtype=int
    )
    best = np.array(
        [
            [
                max(c.ar, c.linear.throughput, c.packed.throughput, c.quadratic.throughput, c.branches.throughput) / c.ar
                for c in row
            ]
            for row in costs.contests
        ]
    )
    figure, [axis] = _grid(1, width=6.4, height=4.2)
    colours = [_light(_STYLES[kind][0]) for kind in kinds]
    x, y = np.array(costs.xs), np.array(costs.ratios)
    axis.set_yscale("log")
    axis.pcolormesh(
        _borders(x),
        _borders(y, True),
        winners,
        cmap=ListedColormap(colours),
        norm=BoundaryNorm(range(len(kinds) + 1), len(kinds)),
        rasterized=True,
    )
    if best.max() > 1.05 and min(best.shape) > 1:
        levels = [level for level in (1.1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16) if best.min() < level < best.max()]
        if levels:
            lines = axis.contour(x, y, best, levels, colors="black", linewidths=0.7)
            axis.clabel(lines, fmt=lambda level: f"{level:g}×", fontsize=7)
    axis.grid(visible=False)
    for kind in np.unique(winners):
        _name_region(axis, x, y, winners == kind, _title(kinds[kind]))
    widths = ", ".join(map(str, costs.widths))
    sets = sorted(
        {c.branches.schedule.name.removeprefix("branches:") for row in costs.contests for c in row if c.winner not in kinds},
        key=lambda text: (len(text), text),
    )
    caption = (
        "Exact, in the long run. A call of n rows costs tau + delta n; rows are padded (TAB2). "
        f"Each kind at its best W of {widths}. "
        "Colour: the most tokens per unit of time; lines: how many times AR's. "
        + (
            f"Another Branches(S): neither Packed-SS's S = {{0}} nor Quadratic-SS, e.g. S = {{{sets[len(sets) // 2]}}}. "
            if sets
            else ""
        )
        + f"{setting}."
    )
    entries = [((_light(_STYLES[kinds[kind]][0]), None, "", ""), _title(kinds[kind])) for kind in np.unique(winners)]
    return _finish(
        figure, [axis], "Which schedule wins", x_label, "tau / delta: fixed cost of a call, in rows", caption, entries
    )


@_styled
def best_set(sets: SetMap, x_label: str, setting: str) -> Figure:
    """How many branches the best branch set of a width has, and which, over the drafter and tau/delta."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm

    sizes = np.array([[len(s) for s in row] for row in sets.sets])
    figure, [axis] = _grid(1, width=6.4, height=4.2)
    x, y = np.array(sets.xs), np.array(sets.ratios)
    most = sets.width
    colours = colormaps["cividis"].resampled(most)
    mesh = axis.pcolormesh(
        _borders(x), _borders(y, True), sizes, cmap=colours, norm=BoundaryNorm(np.arange(most + 1) + 0.5, most), rasterized=True
    )
    bar = figure.colorbar(mesh, ax=axis, label="branches |S|", ticks=range(1, most + 1, max(1, most // 8)))
    bar.ax.grid(visible=False)
    bar.ax.minorticks_off()
    axis.set_yscale("log")
    axis.grid(visible=False)
    for size in np.unique(sizes):
        where = sizes == size
        inside = [s for row, marks in zip(sets.sets, where, strict=True) for s, mark in zip(row, marks, strict=True) if mark]
        common = max(sorted(set(inside)), key=inside.count)
        text = "{" + ", ".join(map(str, common)) + "}" if size < sets.width or size == 1 else "all"
        _name_region(axis, x, y, where, text)
    caption = (
        f"Exact, in the long run, W = {sets.width}. A call of n rows costs tau + delta n; Branches(S) has (1 + |S|) (W + 1) "
        "rows. S: accepted counts whose continuations are drafted; {0} is Packed-SS, all is Quadratic-SS but for its last "
        "branch, which it never uses. "
        "Named: the commonest S of its size. "
        + ("Sets grown greedily. " if sets.greedy else "All sets compared. ")
        + f"{setting}."
    )
    return _finish(figure, [axis], "The best branch set", x_label, "tau / delta: fixed cost of a call, in rows", caption, [])


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """The values in eight heights from `low` to `high`, by default the least and the largest; a gap where not finite."""
    finite = [value for value in values if isfinite(value)]
    if not finite:
        return " " * len(values)
    low = min(finite) if low is None else low
    high = max(finite) if high is None else high
    scale = 7.999 / (high - low) if high > low else 0
    return "".join(_BARS[int(max(0, min(7.999, (v - low) * scale)))] if isfinite(v) else " " for v in values)


def print_sweep(results: Sequence[Result], computed: int, damaged: Sequence[Path], limit: int = 60) -> None:
    """A row for each requests, width and start, a column for each schedule; and how each moves along what varies first.

    Figures are tokens/NFE with 95 % intervals by batch means, or exact. Seeds are pooled. Beyond `limit` rows only trends.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    together = pooled(results)
    names = list(dict.fromkeys(result.cell.schedule for result in together))
    rows: dict[tuple[Any, ...], dict[str, Result]] = {}
    flat = {result.cell.requests + (result.cell.start,): result for result in together if result.cell.schedule == "ar"}
    for result in together:
        cell = result.cell
        if cell.schedule != "ar" or all(r.cell.schedule == "ar" for r in together):
            rows.setdefault((cell.drafter, cell.length, cell.start, cell.width, cell.runs, cell.seed), {})[cell.schedule] = (
                result
            )
    if len(rows) <= limit:
        table = Table(title="tokens/NFE, 95 % intervals (batch means, Student's t) or exact", title_justify="left")
        for column in ("drafter", "L", "start", "W"):
            table.add_column(column, justify="left" if column in ("drafter", "start") else "right")
        for name in names:
            table.add_column(_title(name), justify="right")
        if {"linear", "packed"} <= set(names):
            table.add_column("Packed / Linear", justify="right")
        for (drafter, length, start, width, runs, seed), by_name in rows.items():
            ar_start = start if start == "prompt" else "algorithm"
            ar = flat.get((drafter, length, runs, seed, ar_start))
            found = {**by_name, **({"ar": ar} if ar else {})}
            cells = [str(found[name].tokens_per_nfe) if name in found else "" for name in names]
            if {"linear", "packed"} <= set(found):
                cells.append(str(gain(found["packed"], found["linear"])))
            table.add_row(escape(drafter), f"{length:,}", start, str(width or ""), *cells)
        console.print(table)
    else:
        console.print(f"{len(rows)} rows: only how they move; all figures with --json.")
    try:
        moving = trends(results)
    except InvalidInput:
        moving = []
    if moving and max(len(trend.points) for trend in moving) > 1:
        shared = _shared(moving)
        title = f"tokens/NFE along {moving[0].parameter}, each row on a scale of its own; {escape(_words(shared))}"
        table = Table(title=title, title_justify="left")
        for column in ("setting", "schedule", moving[0].parameter, "", "from", "to"):
            table.add_column(column, justify="right" if column in ("from", "to") else "left", no_wrap=column == "")
        for trend in moving[:limit]:
            ends = [trend.points[0], trend.points[-1]]
            setting = _words(item for item in trend.setting if item not in shared)
            table.add_row(
                escape(setting),
                _title(trend.schedule),
                f"{ends[0][0]:g} .. {ends[1][0]:g}",
                sparkline(trend.values),
                *(str(result.tokens_per_nfe) for _, result in ends),
            )
        console.print(table)
        if len(moving) > limit:
            console.print(f"... and {len(moving) - limit} more.")
    console.print(f"{len(results):,} cells: {computed:,} computed, {len(results) - computed:,} found finished.")
    for file in damaged:
        console.print(f"damaged, computed again: {escape(str(file))}", style="yellow")


def _grid(
    panels: int, columns: int = 3, width: float = 3.1, height: float = 2.7, sharex: bool = False
) -> tuple[Figure, list[Any]]:
    from matplotlib.figure import Figure

    columns = 2 if panels == 4 and columns > 1 else min(columns, panels)
    rows = ceil(panels / columns)
    across = max(6.4, columns * width) if columns > 1 or panels > 1 else width
    figure = Figure(figsize=(max(across, 4.8), rows * height + 1.3), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharex=sharex).ravel()
    for empty in axes[panels:]:
        empty.set_visible(False)
    return figure, list(axes[:panels])


def _finish(
    figure: Figure, axes: Sequence[Any], title: str, x: str, y: str, caption: str, entries: Sequence[tuple[Any, str]]
) -> Figure:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure.supylabel(y, fontsize=9)
    columns = max(20, int(figure.get_figwidth() * 15.5))
    text = "\n".join(textwrap.wrap(caption.replace("..", "."), columns))
    figure.supxlabel(f"{x}\n\n{text}", fontsize=8)
    handles = [
        Patch(color=colour, label=label)
        if marker is None
        else Line2D([], [], color=colour, marker=marker, linestyle=line, label=label)
        for (colour, marker, line, _), label in entries
    ]
    if handles:
        legend = figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)), title=title)
        legend.get_title().set(fontsize=11, fontweight="bold")
    else:
        figure.suptitle(title, fontsize=11, fontweight="bold")
    return figure


def _look(name: str, names: Sequence[str]) -> tuple[str, str, str, str]:
    if name in _STYLES:
        return _STYLES[name]
    others = [other for other in names if other not in _STYLES]
    index = others.index(name)
    return _MORE[index % len(_MORE)], "Dvp*"[index % 4], ("--", "-.")[index // 4 % 2], ""


def _title(name: str) -> str:
    return _TITLES.get(name) or "Branches(" + name.removeprefix("branches:") + ")"


def _shared(found: Sequence[Trend]) -> list[tuple[str, Any]]:
    return [item for item in found[0].setting if all(item in trend.setting for trend in found)]


def _words(items: Iterable[tuple[str, Any]]) -> str:
    short = {"width": "W", "length": "L"}
    return ", ".join(
        value if name == "family" else f"start {value}" if name == "start" else f"{short.get(name, name)} = {_number(value)}"
        for name, value in items
        if (name, value) != ("noise", 0)
    )


def _number(value: Any) -> str:
    return ":".join(f"{v:g}" for v in value) if isinstance(value, tuple) else f"{value:g}"


def _size(found: Sequence[Trend]) -> str:
    sizes = sorted({result.cell.runs for trend in found for _, result in trend.points})
    return f"{sizes[0]:,}" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,}"


def _light(colour: str, share: float = 0.45) -> tuple[float, ...]:
    from matplotlib.colors import to_rgb

    return tuple(1 - share * (1 - channel) for channel in to_rgb(colour))


def _borders(centres: Any, log: bool = False) -> Any:
    """Edges of cells around ascending centres. [n + 1]"""
    values = np.log(centres) if log else np.asarray(centres, dtype=float)
    if len(values) == 1:
        found = np.array([values[0] - 0.5, values[0] + 0.5])
    else:
        inner = (values[1:] + values[:-1]) / 2
        found = np.concatenate([[2 * values[0] - inner[0]], inner, [2 * values[-1] - inner[-1]]])
    return np.exp(found) if log else found


def _name_region(axis: Any, x: Any, y: Any, where: Any, text: str) -> None:
    """Write into the largest connected part, at the point farthest from its border; nothing where it is too small."""
    from matplotlib.patheffects import withStroke
    from scipy.ndimage import distance_transform_cdt, label

    parts, number = label(where)
    if not number:
        return
    largest = max(range(1, number + 1), key=lambda part: int((parts == part).sum()))
    inside = np.pad(parts == largest, 1)
    depth = distance_transform_cdt(inside, metric="chessboard")[1:-1, 1:-1]
    row, column = np.unravel_index(int(depth.argmax()), depth.shape)
    if depth.max() * 30 >= max(where.shape):
        halo = [withStroke(linewidth=2.5, foreground="white")]
        side = "right" if column > 0.85 * len(x) else "left" if column < 0.05 * len(x) else "center"
        axis.text(x[column], y[row], text, ha=side, va="center", fontsize=8, path_effects=halo)
