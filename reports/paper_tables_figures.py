"""The paper's Figures 3 to 5 from the studies: ratios to Linear-SS with intervals, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from realmodel.bootstrap import Interval
from realmodel.paper.study import CORRECT, MODEL, NFE, PROBE, TOKENS, WALL
from reports.output import shown
from reports.paper_tables import GSM8K, NAMES, View
from reports.plots import Figure, _finish, _grid, _look, _styled

_PANELS = (
    ("tokens/NFE, to Linear-SS", TOKENS, NFE, False),
    ("time/NFE, to Linear-SS", WALL, NFE, True),
    ("throughput, to Linear-SS", TOKENS, WALL, True),
)
DECOMPOSED = (*GSM8K, "math-500")


def figures(found: Sequence[View]) -> Iterator[tuple[str, str, Figure]]:
    """(name of its file, what it shows, the picture) of every figure that there is data for."""
    tasks = [view for view in found if view.cell.kind != PROBE]
    greedy = [view for view in tasks if view.cell.temperature == 0]
    sampled = [view for view in tasks if view.cell.temperature != 0]
    for name, title, chosen in (
        ("figure3", "Greedy decoding: efficiency and accuracy", greedy),
        ("figure4", "Temperature 1: efficiency and accuracy", sampled),
    ):
        if any(True for view in chosen for _ in _pairs(view)):
            yield name, title, ratios(chosen, title)
    shares = decomposition(greedy)
    if shares:
        yield "figure5", "Normalized timing decomposition", stacked(shares)


@_styled
def ratios(found: Sequence[View], title: str) -> Figure:
    """Figures 3 and 4: each metric as a ratio to Linear-SS of the same order, accuracy as a difference in points."""
    bars = [(view, place, baseline) for view in found for place, baseline in _pairs(view)]
    settings = list(dict.fromkeys((view.study.model, view.task, _order(view, place)) for view, place, _ in bars))
    names = list(dict.fromkeys(view.cell.methods[place].schedule for view, place, _ in bars))
    figure, axes = _grid(4, columns=1, width=max(6.4, 1.2 * len(settings)), height=2.4)
    step = 0.8 / max(1, len(names))
    for axis, (label, over, under, timed) in zip(
        axes, (*_PANELS, ("accuracy difference (points)", CORRECT, -1, False)), strict=True
    ):
        accuracy = under < 0
        for view, place, baseline in bars:
            if (timed and view.study.contended) or (accuracy and not view.cell.scored) or not view.shown(place, baseline):
                continue
            if accuracy:
                each = view.sums.difference(place, baseline, over)
                value = Interval(*(None if number is None else 100 * number for number in each))  # type: ignore[arg-type]
            else:
                value = view.sums.ratio(place, baseline, over, under)
            if not isfinite(value.estimate):
                continue
            method = view.cell.methods[place]
            at = settings.index((view.study.model, view.task, _order(view, place)))
            x = at + step * (names.index(method.schedule) - (len(names) - 1) / 2)
            colour, _, _, hatch = _look(method.schedule, names)
            base = 0.0 if accuracy else 1.0
            axis.bar(x, value.estimate - base, step * 0.9, base, color=colour, hatch=hatch, edgecolor="white", linewidth=0.3)
            if value.low is not None and value.high is not None:
                axis.vlines(x, value.low, value.high, color="black", linewidth=1)
        axis.axhline(0.0 if accuracy else 1.0, color="black", linewidth=0.8)
        axis.set_title(label)
        axis.set_xlim(-0.6, len(settings) - 0.4)
        axis.set_xticks(range(len(settings)), [""] * len(settings))
    labels = ["\n".join(_plain(part) for part in setting if part) for setting in settings]
    axes[-1].set_xticks(range(len(settings)), labels, fontsize=7)
    notes = ["Strokes: 95 % paired bootstrap over prompts."]
    if any(view.study.contended for view in found):
        notes.append("Times taken while several processes shared the machine are left out.")
    if any(not view.shown(place) for view, place, _ in bars):
        notes.append("Methods without a certificate are left out.")
    if any(not view.cell.scored for view in found):
        notes.append("WritingBench measures speed only.")
    entries = [((*_look(name, names)[:1], None, "", ""), NAMES.get(name, _plain(name))) for name in names]
    return _finish(figure, axes, title, "", "", " ".join(notes), entries)


def decomposition(found: Sequence[View]) -> list[tuple[str, str, float, float]]:
    """(model, schedule, model time, non-model time): each task's times divided by its Linear-SS total, the mean over GSM8K and
    MATH-500 (F.3). Schedules that some task refuses, does not time, or has more than once are left out."""
    parts: dict[tuple[str, str], list[tuple[float, float]]] = {}
    tasks: dict[str, int] = {}
    for view in found:
        linear = view.cell.find("linear", "ltr" if view.study.any_order else "")
        if view.cell.task not in DECOMPOSED or view.study.contended or linear is None or not view.shown(linear):
            continue
        tasks[view.study.model] = tasks.get(view.study.model, 0) + 1
        total = view.sums.total[linear, WALL]
        for place, method in enumerate(view.cell.methods):
            if method.order in ("", "ltr") and view.shown(place):
                model, wall = view.sums.total[place, MODEL], view.sums.total[place, WALL]
                parts.setdefault((view.study.model, method.schedule), []).append((model / total, (wall - model) / total))
    return [
        (model, schedule, sum(a for a, _ in shares) / len(shares), sum(b for _, b in shares) / len(shares))
        for (model, schedule), shares in parts.items()
        if len(shares) == tasks[model]
    ]


@_styled
def stacked(shares: Sequence[tuple[str, str, float, float]]) -> Figure:
    """Figure 5."""
    models = list(dict.fromkeys(model for model, *_ in shares))
    figure, axes = _grid(len(models), columns=min(3, len(models)), width=4.8, height=3.0)
    names = list(dict.fromkeys(schedule for _, schedule, *_ in shares))
    for axis, model in zip(axes, models, strict=True):
        mine = [each for each in shares if each[0] == model]
        for x, (_, schedule, inside, outside) in enumerate(mine):
            colour = _look(schedule, names)[0]
            axis.bar(x, inside, 0.7, color=colour)
            axis.bar(x, outside, 0.7, inside, color=colour, alpha=0.4, hatch="////", edgecolor="white")
            axis.text(x, inside + outside, f"{inside:.3f} + {outside:.3f}", ha="center", va="bottom", fontsize=7)
        axis.axhline(1, color="black", linestyle="--", linewidth=1)
        axis.set_xticks(range(len(mine)), [NAMES.get(schedule, _plain(schedule)) for _, schedule, *_ in mine])
        axis.set_title(_plain(model))
    caption = (
        "Solid: inside the network; hatched: non-model decoder time. Each task's times are divided by its Linear-SS total, then"
        " tasks are averaged. Dashed: Linear-SS."
    )
    return _finish(figure, axes, "Where the time goes", "", "share of Linear-SS's time", caption, [])


def _pairs(view: View) -> Iterator[tuple[int, int]]:
    """(method, Linear-SS of the same order); the native decoder beside Linear-SS left to right."""
    for place, method in enumerate(view.cell.methods):
        order = method.order or ("ltr" if view.study.any_order else "")
        baseline = view.cell.find("linear", order)
        if baseline is not None and baseline != place:
            yield place, baseline


def _order(view: View, place: int) -> str:
    method = view.cell.methods[place]
    return (method.order or "ltr") if view.study.any_order else ""


def _plain(text: Any) -> str:
    """Untrusted text in a picture: matplotlib would take $ for mathematics."""
    return shown(str(text), 60).replace("\\", "\\\\").replace("$", r"\$")
