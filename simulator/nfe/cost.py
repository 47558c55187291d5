"""What calls cost and which schedule is worth it: throughput from tokens per call and the time of a call by its rows.

A call of n token rows costs tau + delta n (COST), or what a curve through measured calls says. Rows are those of TAB2, padding
included, so that the cost of a call depends on the width and the number of branches alone: B for each block of B = W + 1 rows,
one to verify and one for each branch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np

from simulator.errors import InvalidInput
from simulator.nfe.laws import Chain, DrafterLaw
from simulator.schedule import Schedule
from simulator.schedules import branches, linear, packed, quadratic

Cost: TypeAlias = Callable[[int], float]
"""rows -> the time of a call, in any unit."""

_MAX_BYTES = 16 << 20  # of a file of measured curves
_MAX_ROWS, _MAX_TIME = 1 << 20, 1e9

EXHAUSTIVE = 10  # up to this width all 2^(W-1) branch sets are tried


def affine(tau: float, delta: float) -> Cost:
    """tau + delta n (COST): one request; no batch, length or memory in it.

    Raises InvalidInput unless both are >= 0 and one is positive.
    """
    if not (0 <= tau < np.inf and 0 <= delta < np.inf and tau + delta > 0):
        raise InvalidInput(f"a call must cost something: tau and delta must be >= 0, one of them > 0; got {tau} and {delta}")
    return lambda rows: tau + delta * rows


def measured(times: Mapping[int, float]) -> Cost:
    """Straight lines through {rows: time of a call}; the last one goes on, but does not fall.

    Below the first point the time stays what it is there.

    Raises InvalidInput for fewer than two points, rows < 1 or a time that is not positive.
    """
    points = sorted(times.items())
    if len(points) < 2 or points[0][0] < 1 or min(times.values()) <= 0:
        raise InvalidInput(f"a cost curve needs two points at least, rows >= 1 and times > 0; got {dict(points)}")
    at, values = zip(*points, strict=True)
    slope = max(0.0, float(values[-1] - values[-2]) / (at[-1] - at[-2]))

    def cost(rows: int) -> float:
        return float(np.interp(rows, at, values) + slope * max(0, rows - at[-1]))

    return cost


def load_curve(file: Path, name: str | None = None) -> dict[int, float]:
    """{rows: seconds of a call}, for `measured`, from the JSON of the device check (`realmodel.device_check`).

    The file's curves are named shape/prefix/clock; a file of one curve needs no `name`.

    Raises InvalidInput, in one line, when the file cannot be read or is no such result, has no such curve or too few points.
    """
    shown = repr(str(file))
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InvalidInput(f"{shown} is larger than {_MAX_BYTES >> 20} MiB: not a result of the device check")
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {shown}: {error.strerror}") from None
    except InvalidInput:
        raise
    except (ValueError, RecursionError):
        raise InvalidInput(f"{shown} is not a JSON file") from None
    listed = content.get("curves") if isinstance(content, dict) and content.get("command") == "device-check" else None
    if not isinstance(listed, list) or not all(isinstance(curve, dict) for curve in listed):
        raise InvalidInput(f"{shown} is not a result of the device check")
    found = {curve.get("name"): curve.get("times") for curve in listed if isinstance(curve.get("name"), str)}
    if name is None and len(found) == 1:
        [name] = found
    if name not in found:
        wanted = "a name is needed" if name is None else f"there is no curve {name!r}"
        raise InvalidInput(f"{shown}: {wanted}; it holds {', '.join(map(repr, sorted(found)[:40])) or 'none'}")
    times = found[name]
    if not isinstance(times, dict) or not all(_point(rows, time) for rows, time in times.items()):
        raise InvalidInput(f"{shown}, curve {name!r}: times must be positive numbers by rows of 1 .. {_MAX_ROWS}")
    curve = {int(rows): float(time) for rows, time in times.items()}
    measured(curve)  # points enough, or InvalidInput
    return curve


def _point(rows: str, time: object) -> bool:
    """Whether both are what a curve may hold."""
    counted = rows.isascii() and rows.isdigit() and len(rows) <= 7 and 1 <= int(rows) <= _MAX_ROWS
    return counted and type(time) in (int, float) and 0 < time <= _MAX_TIME  # type: ignore[operator]


class Yield(NamedTuple):
    """A schedule under a law in the long run, per forward pass."""

    schedule: Schedule
    tokens: float
    rows: float


def yielded(schedule: Schedule, law: DrafterLaw) -> Yield:
    """Tokens and rows per call, float64."""
    run = Chain(schedule, law).long_run(lambda rows: rows)
    return Yield(schedule, float(run.tokens_per_call), float(run.cost_per_call))


def throughput(schedule: Schedule, law: DrafterLaw, cost: Cost) -> float:
    """Tokens per unit of time in the long run."""
    return float(Chain(schedule, law).long_run(cost).throughput)


def break_even(one: Yield, other: Yield) -> tuple[float, float]:
    """The open interval of tau/delta >= 0 in which `one` gives more tokens per unit of time than `other`; (0, 0) if none.

    tokens_1 (x + rows_2) - tokens_2 (x + rows_1) is linear in x: there is one change of sides at most. Packed-SS over
    Linear-SS wins above 2B (E_L - E_P) / (2 E_P - E_L), E the tokens of an iteration: THM3.2 makes the denominator >= 0.
    """
    slope, at_zero = one.tokens - other.tokens, one.tokens * other.rows - other.tokens * one.rows
    if slope == 0:
        return (0.0, np.inf) if at_zero > 0 else (0.0, 0.0)
    change = -at_zero / slope
    if slope > 0:
        return max(0.0, change), np.inf
    return 0.0, max(0.0, change)


class Best(NamedTuple):
    """The winner of a comparison."""

    schedule: Schedule
    width: int
    throughput: float


def best_width(make: Callable[[int], Schedule], law: DrafterLaw, cost: Cost, widths: Iterable[int]) -> Best:
    """The width of the highest throughput, the least of equals."""
    found = [Best(schedule, width, throughput(schedule, law, cost)) for width in widths for schedule in [make(width)]]
    return max(found, key=_rate)


class BranchSet(NamedTuple):
    """Accepted-draft counts S whose continuations are drafted."""

    counts: tuple[int, ...]
    tokens: float  # a call, in the long run


def frontier(law: DrafterLaw, width: int, exhaustive: int = EXHAUSTIVE) -> list[BranchSet]:
    """The best branch set of every size 1, 2, .., W: all of them compared up to W = `exhaustive`, grown greedily beyond.

    Every set holds 0, without which a schedule that has run out of draft never gets another, and none holds W: once started, no
    call verifies more than W - 1 draft tokens. So the last entry commits what Quadratic-SS commits, with one block less.
    """
    if width < 1:
        raise InvalidInput(f"the width must be >= 1, got {width}")
    others = range(1, width)

    def tokens(counts: tuple[int, ...]) -> BranchSet:
        return BranchSet(counts, float(Chain(branches(counts, width), law).long_run().tokens_per_call))

    if width <= exhaustive:
        return [
            max((tokens((0, *more)) for more in combinations(others, size)), key=lambda best: best.tokens)
            for size in range(width)
        ]
    grown = [tokens((0,))]
    while len(grown) < width:
        grown.append(
            max(
                (tokens(tuple(sorted((*grown[-1].counts, b)))) for b in others if b not in grown[-1].counts),
                key=lambda best: best.tokens,
            )
        )
    return grown


def best_branches(sets: Sequence[BranchSet], width: int, cost: Cost) -> Best:
    """The set of a `frontier` with the most tokens per unit of time. rows B + |S| B"""
    rates = [best.tokens / cost((width + 1) * (1 + len(best.counts))) for best in sets]
    index = int(np.argmax(rates))
    return Best(branches(sets[index].counts, width), width, rates[index])


class Contest(NamedTuple):
    """The best of each kind under one law and cost, each at its own best width."""

    ar: float
    linear: Best
    packed: Best
    quadratic: Best
    branches: Best  # any S, Packed-SS and Quadratic-SS among them

    @property
    def winner(self) -> str:
        """ar, linear, packed, quadratic, or the name of a branch set that beats both of these (more than rounding does)."""
        rates = {
            "ar": self.ar,
            "linear": self.linear.throughput,
            "packed": self.packed.throughput,
            "quadratic": self.quadratic.throughput,
        }
        name = max(rates, key=lambda key: rates[key])
        return self.branches.schedule.name if self.branches.throughput > rates[name] * (1 + 1e-9) else name


def contest(law: DrafterLaw, frontiers: Mapping[int, Sequence[BranchSet]], cost: Cost) -> Contest:
    """Who wins, over the widths of `frontiers` (width -> `frontier(law, width)`), which serve every cost curve."""
    two_calls = [Best(linear(w), w, yielded(linear(w), law).tokens / cost(w + 1)) for w in frontiers]

    one_call = [Best(packed(w), w, sets[0].tokens / cost(2 * (w + 1))) for w, sets in frontiers.items()]
    branching = [Best(quadratic(w), w, sets[-1].tokens / cost((w + 1) * (w + 2))) for w, sets in frontiers.items()]

    return Contest(
        1 / cost(1),
        max(two_calls, key=_rate),
        max(one_call, key=_rate),
        max(branching, key=_rate),
        max((best_branches(sets, w, cost) for w, sets in frontiers.items()), key=_rate),
    )


def _rate(best: Best) -> float:
    return best.throughput


def break_even_curve(
    make: Callable[[int], Schedule], against: Callable[[int], Schedule], laws: Sequence[DrafterLaw], width: int
) -> list[tuple[float, float]]:
    """`break_even` of two schedules of one width, law by law: where a curve tau/delta x acceptance runs."""
    return [break_even(yielded(make(width), law), yielded(against(width), law)) for law in laws]
