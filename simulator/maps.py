"""What pictures show: where in an answer calls go, and which schedule is worth it at what price of a call.

The first is simulated, with intervals; maps come from exact laws in the long run (`simulator.nfe.cost`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from simulator.errors import InvalidInput
from simulator.nfe.cost import EXHAUSTIVE, Contest, affine, best_branches, contest, frontier
from simulator.nfe.counting import blocks
from simulator.nfe.laws import DrafterLaw
from simulator.oracles.families import Family
from simulator.schedule import Schedule
from simulator.sweep import BATCHES, Interval, ratio

MAX_KEPT = 1 << 26  # counts held at a time by `calls_by_position`
LawAt: TypeAlias = Callable[[float], DrafterLaw]


class Positions(NamedTuple):
    """Calls a token takes, by where it stands in the answer."""

    edges: tuple[int, ...]  # window i is positions edges[i] + 1 .. edges[i + 1]
    schedules: tuple[str, ...]
    calls: tuple[tuple[Interval, ...], ...]  # [schedules][windows]: (NFE(end) - NFE(begin)) / tokens


def calls_by_position(
    family: Family, schedules: Sequence[Schedule], runs: int, length: int, seed: int = 0, windows: int = 32
) -> Positions:
    """NFE(l) is what a run takes until it has l tokens; its increase over a window is what the window costs.

    The same runs at every l, so that increases are paired. Intervals as in `simulator.sweep`.
    Raises InvalidInput for a number out of range.
    """
    for name, value, low, high in (("runs", runs, 2, 2**30), ("length", length, 1, 2**30), ("windows", windows, 1, 1024)):
        if not low <= value <= high:
            raise InvalidInput(f"{name} must lie in {low} .. {high}, got {value}")
    edges = tuple(sorted({round(length * i / windows) for i in range(windows + 1)}))
    if runs * len(schedules) * len(edges) > MAX_KEPT:
        raise InvalidInput(f"runs x schedules x windows must be <= {MAX_KEPT}, got {runs} x {len(schedules)} x {windows}")
    batches = np.linspace(0, runs, min(BATCHES, runs) + 1).astype(np.int64)[:-1]

    def until(end: int) -> np.ndarray:
        nfe = np.hstack([nfe for _, nfe in blocks(family, schedules, runs, end, seed)])
        return np.add.reduceat(nfe, batches, axis=1)  # [schedules, batches]

    sizes = np.diff(batches, append=runs)
    totals = [until(end) for end in edges]
    calls = tuple(
        tuple(
            ratio((after[i] - before[i]).tolist(), (sizes * (end - begin)).tolist(), schedule.name == "ar")
            for before, after, begin, end in zip(totals, totals[1:], edges, edges[1:], strict=False)
        )
        for i, schedule in enumerate(schedules)
    )
    return Positions(edges, tuple(schedule.name for schedule in schedules), calls)


class CostMap(NamedTuple):
    """Who wins, over drafters and over the price tau + delta n of a call."""

    xs: tuple[float, ...]  # what the laws depend on
    ratios: tuple[float, ...]  # tau / delta
    widths: tuple[int, ...]
    contests: tuple[tuple[Contest, ...], ...]  # [ratios][xs], in tokens per delta

    def plain(self) -> list[dict[str, Any]]:
        """For JSON, a place of the map a row: the winner, and the best of each kind with its width."""
        return [
            {"x": x, "ratio": ratio, "winner": each.winner, "ar": {"throughput": each.ar}}
            | {
                kind: {"schedule": best.schedule.name, "width": best.width, "throughput": best.throughput}
                for kind, best in each._asdict().items()
                if kind != "ar"
            }
            for ratio, contests in zip(self.ratios, self.contests, strict=True)
            for x, each in zip(self.xs, contests, strict=True)
        ]


def cost_map(law: LawAt, xs: Sequence[float], ratios: Sequence[float], widths: Sequence[int]) -> CostMap:
    """The best of each kind at its own best width. Branch sets: all up to W = 8, beyond that grown greedily.

    Raises InvalidInput for a ratio < 0, a width < 1 or an x that `law` refuses.
    """
    prices = [affine(ratio, 1) for ratio in ratios]
    columns = []
    for x in xs:
        drafter = law(x)
        frontiers = {width: frontier(drafter, width, exhaustive=8) for width in widths}
        columns.append([contest(drafter, frontiers, price) for price in prices])
    return CostMap(tuple(xs), tuple(ratios), tuple(widths), tuple(zip(*columns, strict=True)))


class SetMap(NamedTuple):
    """The best branch set of one width."""

    xs: tuple[float, ...]
    ratios: tuple[float, ...]
    width: int
    sets: tuple[tuple[tuple[int, ...], ...], ...]  # [ratios][xs]
    greedy: bool  # sets were grown one by one, not compared with all others

    def plain(self) -> list[dict[str, Any]]:
        """For JSON, a place of the map a row."""
        return [
            {"x": x, "ratio": ratio, "width": self.width, "branches": chosen, "greedy": self.greedy}
            for ratio, sets in zip(self.ratios, self.sets, strict=True)
            for x, chosen in zip(self.xs, sets, strict=True)
        ]


def set_map(law: LawAt, xs: Sequence[float], ratios: Sequence[float], width: int) -> SetMap:
    """Which S gives Branches(S) the most tokens per unit of time; {0} is Packed-SS. Raises what `cost_map` raises."""
    prices = [affine(ratio, 1) for ratio in ratios]
    columns = []
    for x in xs:
        sets = frontier(law(x), width)
        columns.append([best_branches(sets, width, price).schedule.cycle[0].branches for price in prices])
    return SetMap(tuple(xs), tuple(ratios), width, tuple(zip(*columns, strict=True)), width > EXHAUSTIVE)
