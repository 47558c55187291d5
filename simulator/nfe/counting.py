"""How many calls schedules make: over given lags, or over any number of runs drawn from a family, in bounded memory.

Runs are taken in blocks, and long ones in chunks whose end is carried over: results do not depend on where they are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from simulator.errors import InvalidInput
from simulator.schedule import Ask, Schedule

if TYPE_CHECKING:
    from simulator.oracles.families.family import Family

Counts: TypeAlias = npt.NDArray[np.int64]
Fill: TypeAlias = Callable[[npt.NDArray[Any], int], None]

_BUFFER = 1 << 19  # lags held at a time: they stay in the cache between being written and being read
_ROWS = 4096
_CHUNKED = 16  # runs in a block whose runs do not fit
_Z = 1.959963984540054  # of the normal law's central 95 %


def count(
    lags: npt.ArrayLike, schedules: Sequence[Schedule], stops: npt.ArrayLike | None = None, any_order: bool = False
) -> Counts:
    """NFE of every schedule on every run of a drafter with ASM3.1, exactly as the scheduler counts. [schedules, runs]

    lags[r, k - 1] is k - c*_k of run r, and everything from W + 1 on means the same. `stops` says how many tokens a run has: L,
    or the position of its first end-of-sequence token; by default all of lags' positions. With `any_order` schedules are those
    of Algorithm 3 in textual order.

    Raises InvalidInput for lags that are not [runs, n] integers >= 0, stops outside 0 .. n, or a start that `any_order` lacks.
    """
    given = np.asarray(lags)
    if given.ndim != 2 or given.dtype.kind not in "iu" or (given.dtype.kind == "i" and given.size and given.min() < 0):
        raise InvalidInput(
            f"lags must be an array [runs, positions] of integers >= 0, got {given.dtype} of shape {given.shape}"
        )
    runs, length = given.shape
    ends = np.broadcast_to(np.asarray(length if stops is None else stops), (runs,))
    if ends.dtype.kind not in "iu" or (runs and not 0 <= ends.min() <= ends.max() <= length):
        raise InvalidInput(f"stops must be integers in 0 .. {length}, one for all runs or one for each")
    plan = _Plan(schedules, any_order)
    found = np.empty((len(schedules), runs), np.int64)
    for first, size in _blocks(runs, length):
        rows = slice(first, first + size)

        def fill(buffer: npt.NDArray[Any], position: int, rows: slice = rows) -> None:
            np.minimum(given[rows, position : position + buffer.shape[1]], plan.cap, out=buffer, casting="unsafe")

        found[:, rows] = plan.run(fill, length, ends[rows], 0.0, np.zeros((size, 2), np.uint64))
    return found


def simulate(
    family: Family,
    schedules: Sequence[Schedule],
    runs: int,
    length: int,
    seed: int = 0,
    eos_rate: float = 0.0,
    any_order: bool = False,
    first_run: int = 0,
) -> Tally:
    """NFE of every schedule on runs first_run .. first_run + runs - 1 of `family`, each until L = `length` tokens or EOS.

    At each position EOS stands with probability `eos_rate`. All schedules meet the same drafters, and the same (seed, run)
    gives the same drafter and EOS: tallies of parts of the runs, made anywhere, add up to the tally of all.

    Raises InvalidInput for a number out of range.
    """
    total = Tally.none([schedule.name for schedule in schedules])
    for ends, nfe in blocks(family, schedules, runs, length, seed, eos_rate, any_order, first_run):
        total += Tally.of(total.schedules, ends, nfe)
    return total


def blocks(
    family: Family,
    schedules: Sequence[Schedule],
    runs: int,
    length: int,
    seed: int = 0,
    eos_rate: float = 0.0,
    any_order: bool = False,
    first_run: int = 0,
) -> Iterator[tuple[Counts, Counts]]:
    """What `simulate` sums, run by run: (tokens [size], NFE [schedules, size]) for one block of runs after the other."""
    from simulator.nfe import coins, draw
    from simulator.nfe.sampling import Sampler

    for name, number, bits in (("runs", runs, 60), ("first_run", first_run, 60), ("length", length, 47)):
        if not 0 <= number < 2**bits:
            raise InvalidInput(f"{name} must lie in 0 .. 2^{bits} - 1, got {number}")
    if not 0 <= eos_rate <= 1:
        raise InvalidInput(f"eos_rate must lie in 0 .. 1, got {eos_rate}")
    plan = _Plan(schedules, any_order)
    sampler = Sampler(family, seed, plan.cap)
    for first, size in _blocks(runs, length):
        first += first_run
        ends = draw.stops(sampler.keys(first, size, coins.STOP), length, float(eos_rate))
        noise = sampler.keys(first, size, coins.NOISE)
        yield ends, plan.run(sampler.block(first, size), length, ends, float(family.noise), noise)


def rows(schedule: Schedule, nfe: npt.ArrayLike) -> Counts:
    """Token rows that runs of that many calls evaluate, padding included (TAB2). Same shape as `nfe`.

    Raises InvalidInput for a schedule whose widths change, where the count depends on more.
    """
    if len({ask.width for ask in schedule.cycle}) > 1:
        raise InvalidInput(f"the rows of {schedule.name} do not follow from its calls: its widths change")

    def of(ask: Ask) -> int:
        return (ask.width * ask.anchored + 1) * ask.verify + (ask.width + ask.anchored) * len(ask.branches)

    opening = np.array(list(accumulate(map(of, schedule.opening), initial=0)))
    cycle = np.array(list(accumulate(map(of, schedule.cycle), initial=0)))
    calls = np.asarray(nfe, np.int64)
    in_opening = np.minimum(calls, len(schedule.opening))
    turns, rest = np.divmod(calls - in_opening, len(schedule.cycle))
    found: Counts = opening[in_opening] + turns * cycle[-1] + cycle[rest]
    return found


class Estimate(NamedTuple):
    """A ratio of sums over runs, with its 95 % interval by the delta method; NaN bounds for fewer than 2 runs."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Tally:
    """Exact sums over runs; tallies of different runs add up, in any order, to the tally of all."""

    schedules: tuple[str, ...]
    runs: int
    sums: tuple[int, ...]  # of tokens, then of each schedule's NFE
    products: tuple[tuple[int, ...], ...]  # of each pair of them, run by run
    histograms: tuple[Mapping[int, int], ...]  # per schedule: NFE -> runs

    @classmethod
    def none(cls, schedules: Sequence[str]) -> Tally:
        """No runs."""
        n = len(schedules) + 1
        return cls(tuple(schedules), 0, (0,) * n, ((0,) * n,) * n, ({},) * (n - 1))

    @classmethod
    def of(cls, schedules: Sequence[str], tokens: Counts, nfe: Counts) -> Tally:
        """The runs with these tokens [runs] and calls [schedules, runs]."""
        columns = np.vstack([tokens, nfe])
        largest = int(columns.max(initial=0))
        exact = columns if largest**2 * len(tokens) < 2**63 else columns.astype(object)
        histograms = tuple(dict(zip(*(x.tolist() for x in np.unique(row, return_counts=True)), strict=True)) for row in nfe)
        products = tuple(map(tuple, (exact @ exact.T).tolist()))
        return cls(tuple(schedules), len(tokens), tuple(exact.sum(axis=1).tolist()), products, histograms)

    def __add__(self, other: Tally) -> Tally:
        if self.schedules != other.schedules:
            raise InvalidInput(f"tallies of {self.schedules} and of {other.schedules} do not add up")
        return Tally(
            self.schedules,
            self.runs + other.runs,
            tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
            tuple(tuple(a + b for a, b in zip(x, y, strict=True)) for x, y in zip(self.products, other.products, strict=True)),
            tuple(
                {calls: a.get(calls, 0) + b.get(calls, 0) for calls in sorted({*a, *b})}
                for a, b in zip(self.histograms, other.histograms, strict=True)
            ),
        )

    def tokens_per_nfe(self, schedule: int) -> Estimate:
        """Aggregate, not a mean of ratios (METRICS), of schedule number `schedule`."""
        return self._ratio(0, schedule + 1)

    def gain(self, schedule: int, over: int) -> Estimate:
        """Tokens/NFE of one schedule over that of another, on the same runs."""
        return self._ratio(over + 1, schedule + 1)

    def _ratio(self, above: int, below: int) -> Estimate:
        a, b, n = self.sums[above], self.sums[below], self.runs
        if not b:
            return Estimate(float("nan"), float("nan"), float("nan"))
        if n < 2:
            return Estimate(a / b, float("nan"), float("nan"))
        products = self.products
        # Sum over runs of (b x_above - a x_below)^2: integers, so that nothing cancels.
        squares = b * b * products[above][above] - 2 * a * b * products[above][below] + a * a * products[below][below]
        spread = _Z * sqrt(squares / b**4 * n / (n - 1))
        return Estimate(a / b, a / b - spread, a / b + spread)


class _Plan:
    """Schedules as the engine's table of phases."""

    def __init__(self, schedules: Sequence[Schedule], any_order: bool) -> None:
        if not schedules:
            raise InvalidInput("at least 1 schedule is needed")
        if any_order and any(ask.verify or ask.branches for schedule in schedules for ask in schedule.opening):
            raise InvalidInput("in any order there are only the starts algorithm and prompt")
        asks = [ask for schedule in schedules for ask in (*schedule.opening, *schedule.cycle)]
        self.width = max(ask.width for ask in asks)
        self.cap = self.width + 1
        size = 4 + self.width + 2
        self.begins: list[int] = []
        table: list[list[int]] = []
        for schedule in schedules:
            opening, cycle = schedule.opening, schedule.cycle
            self.begins.append(len(table) * size)
            again = len(table) + len(opening)
            for number, ask in enumerate((*opening, *cycle), start=1):
                following = len(table) + 1 if number < len(opening) + len(cycle) else again
                best = [max((b for b in ask.branches if b <= h), default=-1) for h in range(self.width + 2)]
                table.append([int(ask.verify), ask.width, following * size, int(any_order), *best])
        self.phases = np.array(table).ravel()

    def run(self, fill: Fill, length: int, ends: Counts, noise: float, keys: npt.NDArray[np.uint64]) -> Counts:
        """NFE of a block of runs whose lags `fill` writes. [schedules, runs]"""
        from simulator.nfe import engine as e

        runs, jobs = len(ends), len(self.begins)
        states = np.zeros((jobs, runs, int(e.STATE)), np.int64)
        states[..., e.PHASE] = np.array(self.begins)[:, None]
        chunk = length if length * runs <= _BUFFER else max(_BUFFER // runs, 4 * self.cap)
        kept = 0 if chunk >= length else self.cap  # a call looks no further than `cap` positions
        stride = kept + chunk
        buffer = np.zeros(runs * stride + e.LANES, np.uint8 if self.cap < 256 else np.uint16)
        lags = buffer[: runs * stride].reshape(runs, stride)
        for first in range(0, length, max(1, chunk)):
            here = min(chunk, length - first)
            lags[:, :kept] = lags[:, stride - kept :]
            fill(lags[:, kept : kept + here], first)
            until = ends if first + here == length else np.minimum(ends, first + here - self.cap)
            states[..., e.UNTIL] = until
            e.advance(buffer, stride, runs, first - kept, self.phases, states.ravel(), noise, keys)
        return states[..., e.CALLS]


def _blocks(runs: int, length: int) -> Iterator[tuple[int, int]]:
    """(first run, runs) of every block."""
    size = min(_ROWS, _BUFFER // max(1, length)) or _CHUNKED
    for first in range(0, runs, size):
        yield first, min(size, runs - first)
