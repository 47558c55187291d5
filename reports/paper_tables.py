"""The paper's Tables 3 to 13 from studies: every builder takes data and gives a `PaperTable`, which is rendered elsewhere.

As the captions say, tokens, wall time and calls are means per response, and rates are quotients of aggregates. A method without
a certificate has no figures. Times that were taken while several processes shared the machine are left out: they are no speeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from realmodel.bootstrap import RESAMPLES, Interval
from realmodel.paper.paired import Paired
from realmodel.paper.study import (
    CORRECT,
    ITERATIONS,
    ITERATIONS_MODEL,
    LARGEST,
    MODEL,
    NFE,
    PROBE,
    TOKENS,
    WALL,
    Cell,
    Method,
    Study,
)

NAMES = {
    "ar": "AR",
    "serial": "Serial",
    "linear": "Linear-SS",
    "packed": "Packed-SS",
    "quadratic": "Quadratic-SS",
    "native": "Native",
}
TASK_NAMES = {
    "humaneval": "HumanEval",
    "mbpp": "MBPP",
    "math-500": "MATH-500",
    "gsm8k": "GSM8K",
    "gsm8k-setdlm": "GSM8K",
    "writingbench": "WritingBench",
}
GSM8K = ("gsm8k", "gsm8k-setdlm")
_REFUSED, _CONTENDED, _MISSING = "REFUSED", "contended", "-"
_BOOT = f"Brackets: 95 % intervals, paired bootstrap over prompts ({RESAMPLES:,} resamples, all draws of a prompt together)."
_MEANS = (
    "Tokens, wall time and NFE are means per response; rates use aggregate totals. NFE counts every forward pass, that of the"
    " prompt included."
)


class Entry(NamedTuple):
    """A cell of a table: what is shown and, for whoever computes on, the number with its interval."""

    text: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    best: bool = False  # the highest throughput of its group


@dataclass(frozen=True)
class PaperTable:
    """A table, whatever it is rendered as. The first `words` columns are text, the others numbers."""

    id: str  # T3 .. T13, or a word for what the paper only tells in its text
    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Entry, ...], ...]
    words: int

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return vars(self) | {"rows": [[entry._asdict() for entry in row] for row in self.rows]}


@dataclass(frozen=True)
class View:
    """A cell with its study and its sums."""

    study: Study
    cell: Cell
    sums: Paired

    @property
    def task(self) -> str:
        return TASK_NAMES.get(self.cell.task, self.cell.task)

    @property
    def setting(self) -> tuple[Entry, Entry]:
        """Model and task, with the number of prompts."""
        return Entry(self.study.model), Entry(f"{self.task} (n = {len(self.cell.prompts):,})")

    def shown(self, *places: int) -> bool:
        """Whether these methods' figures may be shown."""
        return all(self.cell.methods[place].certified for place in places)


def views(studies: Iterable[Study]) -> list[View]:
    """Every cell of every study."""
    return [View(study, cell, Paired(cell)) for study in studies for cell in study.cells]


def tables(found: Sequence[View]) -> list[PaperTable]:
    """All that there are rows for: the paper's, in order, then trajectories, certificates and reasons of wrong answers."""
    tasks = [view for view in found if view.cell.kind != PROBE]
    left_to_right = [view for view in tasks if not view.study.any_order]
    any_order = [view for view in tasks if view.study.any_order]
    greedy = [view for view in left_to_right if view.cell.temperature == 0]
    sampled = [view for view in left_to_right if view.cell.temperature != 0]
    made = (
        probe([view for view in found if view.cell.kind == PROBE]),
        where_time_goes([view for view in greedy if view.cell.task == "gsm8k"]),
        iterations([view for view in greedy if view.cell.task == "gsm8k"]),
        absolute("T6", "Absolute measurements at temperature 0", greedy),
        absolute("T7", "Absolute measurements at temperature 1", sampled),
        windows("T8", "Any-order measurements, left to right", any_order, ("ltr", "")),
        windows("T9", "Any-order measurements, every order", any_order, None),
        comparisons("T10", "Paired any-order efficiency comparisons", any_order),
        accuracies(tasks),
        comparisons("T12", "Paired efficiency comparisons at temperature 0", greedy),
        comparisons("T13", "Paired efficiency comparisons at temperature 1", sampled),
        trajectories(found),
        certificates(found),
        reasons(found),
    )
    return [table for table in made if table.rows]


# --- absolute -----------------------------------------------------------------------------------------------------------------


def probe(found: Sequence[View]) -> PaperTable:
    """Table 3, the block-size probe (F.1)."""
    rows: list[tuple[Entry, ...]] = []
    for view in found:
        group = _marked(view, lambda method: method.schedule)
        for place, method in enumerate(view.cell.methods):
            speed = _speed(view, place, place in group)
            means = [_mean(view, place, column, digits) for column, digits in ((WALL, 3), (NFE, 2), (TOKENS, 1))]
            largest = _if_shown(view, place, lambda v, p: _number(float(v.cell.runs[p, ..., LARGEST].max()), 0))
            rows.append((Entry(view.study.model), _name(method), Entry(str(method.width + 1)), speed, *means,
                         _accuracy(view, place), largest))  # fmt: skip
    few = ", ".join(dict.fromkeys(f"{len(view.cell.prompts)} problems, cap {view.cell.cap:,}" for view in found))
    caption = (
        f"Every row uses the same prompts ({few}), greedy. Tokens/s is the quotient of the means shown; wall time includes the"
        " prompt. Rows/call: most input rows of a call after the first. Bold: highest tokens/s of a schedule."
    )
    columns = ("model", "schedule", "B", "tokens/s", "wall (s)", "NFE", "tokens", "accuracy (%)", "rows/call")
    return PaperTable("T3", "GSM8K block-size probe", caption, columns, tuple(rows), 2)


def where_time_goes(found: Sequence[View]) -> PaperTable:
    """Table 4: model and non-model time (F.2)."""
    rows = []
    for view in found:
        group = _marked(view, lambda _: "")
        for place, method in enumerate(view.cell.methods):
            parts = [_mean(view, place, column, 3) for column in (WALL, MODEL)]
            parts.append(_timed(view, place, lambda v, p: _number(v.sums.mean(p, WALL) - v.sums.mean(p, MODEL), 3)))
            counts = [_mean(view, place, column, digits) for column, digits in ((NFE, 2), (TOKENS, 1))]
            rows.append((*view.setting, _name(method), Entry(str(method.width + 1)), *parts, *counts,
                         _speed(view, place, place in group), _accuracy(view, place)))  # fmt: skip
    caption = (
        f"Greedy, cap {_caps(found)}; means per response. Model and non-model time sum to the wall time. A model named"
        " ':lora' drafts with its proposal-only adapter."
    )
    columns = ("model", "task", "schedule", "B", "wall (s)", "model time (s)", "non-model time (s)", "NFE", "tokens",
               "tokens/s", "accuracy (%)")  # fmt: skip
    return PaperTable("T4", "GSM8K: model execution and non-model decoder time", caption, columns, tuple(rows), 3)


def iterations(found: Sequence[View]) -> PaperTable:
    """Table 5: model time per iteration, and rows of a proposal-only adapter (F.2)."""
    rows = []
    for view in found:
        for place, method in enumerate(view.cell.methods):

            def spent(v: View, p: int) -> Entry:
                count = v.sums.total[p, ITERATIONS]
                return _number(1000 * v.sums.total[p, ITERATIONS_MODEL] / count if count else math.nan, 2)

            adapter = [Entry(_MISSING if n is None else f"{n:,}", n) for n in (method.selected, method.evaluated)]
            rows.append((*view.setting, _name(method), Entry(str(method.width + 1)), _timed(view, place, spent), *adapter))
    caption = (
        "Greedy; means over the iterations after a response's first call. An iteration of Linear-SS is both of its calls."
        " Selected: rows that receive updates of a proposal-only adapter; evaluated: rows for which they are computed; both as"
        " the padded layout has them, whether or not the model has an adapter."
    )
    columns = ("model", "task", "schedule", "B", "ms/iteration", "selected rows", "evaluated rows")
    return PaperTable("T5", "GSM8K: model execution time per iteration", caption, columns, tuple(rows), 3)


_ABSOLUTE = ("tokens", "wall (s)", "NFE", "tokens/NFE", "ms/NFE", "tokens/s", "accuracy (%)")


def absolute(id_: str, title: str, found: Sequence[View]) -> PaperTable:
    """Tables 6 and 7."""
    rows = []
    for view in found:
        group = _marked(view, lambda _: "")
        for place, method in enumerate(view.cell.methods):
            size = Entry(str(method.width + 1) if method.width else _MISSING)
            rows.append((*view.setting, _name(method), size, *_figures(view, place, place in group)))
    caption = (
        f"{_MEANS} Caps: {_caps(found)}. Accuracy: {_scores(found)}. Bold: highest tokens/s within each model and task."
        f"{_starts(found)}"
    )
    return PaperTable(id_, title, caption, ("model", "task", "schedule", "B", *_ABSOLUTE), tuple(rows), 3)


def windows(id_: str, title: str, found: Sequence[View], orders: tuple[str, ...] | None) -> PaperTable:
    """Tables 8 and 9: any-order models, in some orders or all."""
    rows = []
    for view in found:
        group = _marked(view, lambda method: method.order or "ltr")
        for place, method in enumerate(view.cell.methods):
            if orders is None or method.order in orders:
                order = Entry(method.order or _MISSING)
                rows.append((*view.setting, order, _name(method), Entry(str(method.width)),
                             *_figures(view, place, place in group)))  # fmt: skip
    caption = (
        f"{_MEANS} Output positions: {_caps(found)}. Native commits above its confidence threshold, in no verification order,"
        f" and is not exact by design. Bold: highest tokens/s within each window and order.{_starts(found)}"
    )
    return PaperTable(id_, title, caption, ("model", "task", "order", "schedule", "W", *_ABSOLUTE), tuple(rows), 4)


# --- paired -------------------------------------------------------------------------------------------------------------------


def comparisons(id_: str, title: str, found: Sequence[View]) -> PaperTable:
    """Tables 10, 12 and 13: Packed-SS against the others in the same order."""
    rows = []
    for view in found:
        for mine, theirs in _against(view.cell, "packed"):
            order = [Entry(view.cell.methods[mine].order)] if view.study.any_order else []
            wall = _timed_pair(view, mine, theirs, lambda v, a, b: _interval(v.sums.difference(a, b, WALL), 4))
            speed = _timed_pair(view, mine, theirs, lambda v, a, b: _interval(v.sums.ratio(a, b, TOKENS, WALL), 3))
            rows.append((*view.setting, *order, _name(view.cell.methods[theirs]), wall, speed))
    ordered = ("order",) if any(view.study.any_order for view in found) else ()
    columns = ("model", "task", *ordered, "baseline", "wall difference (s)", "throughput ratio")
    caption = (
        "Packed-SS minus baseline wall time per response, Packed-SS/baseline throughput: negative differences and ratios above"
        f" one favour Packed-SS. {_BOOT}{_short(found)}"
    )
    return PaperTable(id_, title, caption, columns, tuple(rows), 3 + len(ordered))


def accuracies(found: Sequence[View]) -> PaperTable:
    """Table 11, and the any-order comparison with the native decoder (F.6)."""
    rows = []
    for view in found:
        if not view.cell.scored:
            continue
        pairs = [*_against(view.cell, "packed"), *_against(view.cell, "quadratic", only=("linear",))]
        for mine, theirs in pairs:
            methods = view.cell.methods
            order = methods[mine].order
            name = f"{_label(methods[mine])} - {_label(methods[theirs])}" + (f", {order}" if order else "")
            entry = (
                _interval(_scaled(view.sums.difference(mine, theirs, CORRECT), 100), 2, signed=True)
                if view.shown(mine, theirs)
                else Entry(_REFUSED)
            )
            rows.append((*view.setting, Entry(f"{view.cell.temperature:g}"), Entry(name), entry))
    caption = f"Percentage points of {_scores(found)}. {_BOOT}{_short(found)}"
    columns = ("model", "task", "temperature", "methods", "difference (points)")
    return PaperTable("T11", "Paired accuracy differences", caption, columns, tuple(rows), 4)


def _against(cell: Cell, schedule: str, only: tuple[str, ...] | None = None) -> Iterator[tuple[int, int]]:
    """(place of the schedule, place of another of the same order or of none), orders one after the other."""
    for mine, method in enumerate(cell.methods):
        if method.schedule != schedule:
            continue
        for theirs, other in enumerate(cell.methods):
            wanted = only is None or other.schedule in only
            if theirs != mine and wanted and other.order in (method.order, "") and other.schedule != schedule:
                yield mine, theirs


# --- what stands behind -------------------------------------------------------------------------------------------------------


def trajectories(found: Sequence[View]) -> PaperTable:
    """On how many prompts greedy outputs differ from Linear-SS's, and what the differences are (F.6)."""
    rows = []
    for view in found:
        for each in view.cell.trajectories:
            method, baseline = view.cell.methods[each.method], view.cell.methods[each.baseline]
            labels = Entry(_MISSING) if each.labels is None else Entry(f"{each.labels:,}", each.labels)
            numbers = [Entry(f"{n:,}", n) for n in (each.different, each.examined, each.ties, each.faults)]
            name = f"{_label(method)}, {_size(view, method)} / {_label(baseline)}, {_size(view, baseline)}"
            order = f", {method.order} / {baseline.order}" if view.study.any_order else ""
            rows.append((Entry(view.study.model), Entry(_kind(view)), Entry(name + order), *numbers, labels,
                         Entry("; ".join(each.examples))))  # fmt: skip
    caption = (
        "Greedy outputs beside those of Linear-SS on the same prompts. Examined: differences held against the reference; a tie"
        " is one that plain autoregressive decoding in the tested dtype could have made, a fault is not; in an order by"
        " confidence, where schedules go different ways, a tie is a pair of outputs both right along their own. Labels: prompts"
        " that one answered right and the other wrong."
    )
    columns = ("model", "task", "methods", "different", "examined", "ties", "faults", "labels", "examples")
    return PaperTable("trajectories", "Output trajectories", caption, columns, tuple(rows), 3)


def certificates(found: Sequence[View]) -> PaperTable:
    """What every figure stands on."""
    rows = []
    for view in found:
        for each in view.cell.evidence:
            method = view.cell.methods[each.method]
            name = f"{_label(method)}, {_size(view, method)}" + (f", {method.order}" if method.order else "")
            layers = ", ".join(f"{layer} {word}" for layer, word, _ in each.layers)
            said = "; ".join([*each.findings, *(detail for _, word, detail in each.layers if word in ("FAULT", "NOT RUN"))])
            setting = (Entry(view.study.model), Entry(_kind(view)), Entry(f"{view.cell.temperature:g}"))
            rows.append((*setting, Entry(name), Entry(method.verdict), Entry(layers), Entry(said)))
    caption = (
        "EXACT and TIES: figures may be shown; FAULT and NOT RUN: they are refused. A FAULT whose layers are sound was found in"
        " an output beyond the certified prompts (output trajectories)."
    )
    columns = ("model", "task", "temperature", "method", "verdict", "layers", "findings")
    return PaperTable("certificates", "Certificates", caption, columns, tuple(rows), 7)


def reasons(found: Sequence[View]) -> PaperTable:
    """Why answers were wrong."""
    rows = []
    for view in found:
        for each in view.cell.reasons:
            method = view.cell.methods[each.method]
            name = _label(method) + (f", {method.order}" if method.order else "")
            setting = (Entry(view.study.model), Entry(_kind(view)), Entry(f"{view.cell.temperature:g}"))
            rows.append((*setting, Entry(name), Entry(each.why), Entry(f"{each.responses:,}", each.responses)))
    columns = ("model", "task", "temperature", "method", "reason", "responses")
    caption = "The most frequent reasons of every method; a grader that had to be stopped is one."
    return PaperTable("reasons", "Why answers were graded wrong", caption, columns, tuple(rows), 5)


# --- entries ------------------------------------------------------------------------------------------------------------------


def _figures(view: View, place: int, best: bool) -> list[Entry]:
    """The columns of _ABSOLUTE."""
    return [
        _mean(view, place, TOKENS, 1),
        _mean(view, place, WALL, 3),
        _mean(view, place, NFE, 2),
        _if_shown(view, place, lambda v, p: _number(v.sums.quotient(p, TOKENS, NFE), 3)),
        _timed(view, place, lambda v, p: _number(_scaled(v.sums.quotient(p, WALL, NFE), 1000), 2)),
        _speed(view, place, best),
        _accuracy(view, place),
    ]


def _speed(view: View, place: int, best: bool) -> Entry:
    return _timed(view, place, lambda v, p: _number(v.sums.quotient(p, TOKENS, WALL), 1)._replace(best=best))


def _mean(view: View, place: int, column: int, digits: int) -> Entry:
    show = _timed if column in (WALL, MODEL) else _if_shown
    return show(view, place, lambda v, p: _number(v.sums.mean_interval(p, column), digits))


def _accuracy(view: View, place: int) -> Entry:
    if not view.cell.scored:
        return Entry(_MISSING)
    return _if_shown(view, place, lambda v, p: _number(_scaled(v.sums.mean_interval(p, CORRECT), 100), 2))


def _if_shown(view: View, place: int, make: Any) -> Entry:
    entry: Entry = make(view, place) if view.shown(place) else Entry(_REFUSED)
    return entry


def _timed(view: View, place: int, make: Any) -> Entry:
    return Entry(_CONTENDED) if view.study.contended and view.shown(place) else _if_shown(view, place, make)


def _timed_pair(view: View, mine: int, theirs: int, make: Any) -> Entry:
    if not view.shown(mine, theirs):
        return Entry(_REFUSED)
    entry: Entry = Entry(_CONTENDED) if view.study.contended else make(view, mine, theirs)
    return entry


def _number(value: float | Interval, digits: int) -> Entry:
    """A number without its interval shown; what is not finite has none."""
    found = value if isinstance(value, Interval) else Interval(value, None, None)
    if not math.isfinite(found.estimate):
        return Entry(_MISSING)
    return Entry(f"{found.estimate:,.{digits}f}", float(found.estimate), found.low, found.high)


def _interval(value: Interval, digits: int, signed: bool = False) -> Entry:
    sign = "+" if signed else ""
    entry = _number(value, digits)
    if entry.value is None:
        return entry
    text = f"{value.estimate:{sign},.{digits}f}"
    if value.low is not None and value.high is not None:
        text += f" [{value.low:{sign},.{digits}f}, {value.high:{sign},.{digits}f}]"
    return entry._replace(text=text)


def _scaled(value: Interval, by: float) -> Interval:
    return Interval(*(None if each is None else by * each for each in value))  # type: ignore[arg-type]


def _marked(view: View, group: Any) -> set[int]:
    """The places with the highest throughput of their group, among two or more."""
    groups: dict[str, list[tuple[float, int]]] = {}
    for place, method in enumerate(view.cell.methods):
        if view.shown(place):
            speed = view.sums.quotient(place, TOKENS, WALL).estimate
            groups.setdefault(group(method), []).append((speed, place))
    return {max(found)[1] for found in groups.values() if len(found) > 1}


def _label(method: Method) -> str:
    return NAMES.get(method.schedule, method.schedule)


def _name(method: Method) -> Entry:
    return Entry(_label(method))


def _size(view: View, method: Method) -> str:
    return f"W = {method.width}" if view.study.any_order else f"B = {method.width + 1}"


def _kind(view: View) -> str:
    return f"{view.task} (probe)" if view.cell.kind == PROBE else view.task


def _caps(found: Sequence[View]) -> str:
    return "; ".join(dict.fromkeys(f"{view.task} {view.cell.cap:,}" for view in found))


def _starts(found: Sequence[View]) -> str:
    starts = ", ".join(dict.fromkeys(repr(view.cell.start) for view in found))
    few = [view for view in found if len(view.cell.prompts) != view.cell.paper_size]
    less = ", ".join(dict.fromkeys(f"{view.task} {len(view.cell.prompts):,} of {view.cell.paper_size:,}" for view in few))
    words = f" Start: {starts}, for all schedules (AR drafts nothing)."
    return words + (f" Problems, of those that the paper runs: {less}." if few else "")


def _scores(found: Sequence[View]) -> str:
    sampled = any(view.cell.temperature for view in found)
    greedy = any(not view.cell.temperature for view in found)
    parts = [
        *(["accuracy or pass@1 at temperature 0"] * greedy),
        *(["mean per-response correctness at temperature 1"] * sampled),
    ]
    draws = "; ".join(
        dict.fromkeys(f"{view.task} {view.cell.draws}" for view in found if view.cell.temperature and view.cell.scored)
    )
    return ", ".join(parts) + (f" (draws per prompt: {draws})" if draws else "")


def _short(found: Sequence[View]) -> str:
    least = min((len(view.cell.prompts) for view in found), default=0)
    return f" With {least} prompts they cover less than 95 %." if 1 < least < 40 else ""
