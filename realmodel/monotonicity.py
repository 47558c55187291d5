"""What a correctness matrix says of Assumption 3.1: how often it fails, what the drafter looks like, what became of the bounds.

rows[c][k - c - 1] tells whether position k is drafted right from c output tokens, 0 <= c < k <= min(c + W, L); L rows. Column k
is what the contexts max(0, k - W) .. k - 1 make of position k, the oldest first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from proofs_check.joint import Rows, Runs
from proofs_check.reach import bound
from simulator.decode import Generation, generate
from simulator.oracles import EmpiricalModel
from simulator.records import Limits
from simulator.schedule import Schedule

Column: TypeAlias = tuple[int, ...]


@dataclass(frozen=True)
class Share:
    """`count` of `total`."""

    count: int = 0
    total: int = 0

    def __add__(self, other: tuple[int, int] | Share) -> Share:
        count, total = (other.count, other.total) if isinstance(other, Share) else other
        return Share(self.count + count, self.total + total)

    @property
    def value(self) -> float:
        """0 where nothing was counted."""
        return self.count / max(1, self.total)


class Statistics(NamedTuple):
    """A drafter over all its prompts.

    A surprise is a position that every context in reach drafts wrong. A cell (c, k) lies behind a barrier if a surprise s has
    c < s < k, in front of all barriers otherwise; cells of surprises themselves count as neither. In the barrier and mixture
    families everything in front is right, and a share rho of what lies behind.
    """

    by_offset: tuple[Share, ...]  # cells drafted right, at offset 1 .. W
    non_monotone: Share  # ASM3.1: positions right from some context and wrong from a later one; of those with >= 2 contexts
    reach_drops: Share  # ASM-REACH: contexts with F(c) below that of an earlier one; of all but the first of each path
    lags: tuple[int, ...]  # positions k >= W by k - c*_k, 0 .. W; W stands for W or more
    surprises: Share  # of all positions: the renewal rate
    behind: Share  # cells behind a barrier that are right: rho
    in_front: Share  # the other cells that are right

    @property
    def mean_lag(self) -> float:
        """Lags of W or more count as W."""
        return sum(lag * count for lag, count in enumerate(self.lags)) / max(1, sum(self.lags))


class Bounds(NamedTuple):
    """Packed-SS against Linear-SS on one matrix, under one start. e, o, reach as in proofs_check/joint.py."""

    linear: int  # NFE
    packed: int  # NFE
    lead: int  # smallest lead of Packed-SS in verified tokens, over all numbers of calls; >= 0: THM3.2 held at every call
    in_step: int  # e: shrunk contexts in step
    out_of_step: int  # o
    drops: int  # d >= e: contexts in step with a reach below that of any shorter context
    slack: int  # NFE_linear + max(0, min(2 e, 2 o - 1)) - NFE_packed
    slack_2d: int  # NFE_linear + 2 d - NFE_packed
    non_monotone: Share  # ASM3.1 as it is worded: positions, by the contexts that either schedule stood at
    reach_drops: Share  # contexts that either stood at

    @property
    def held(self) -> bool:
        """Whether Packed-SS needed no more calls (THM3.2)."""
        return self.packed <= self.linear


@dataclass(frozen=True)
class MeasuredRuns(Runs):
    """Runs on a measured matrix, whose first draft under the start `wide` was measured too."""

    wide: tuple[int, ...] = ()

    def _run(self, schedule: Schedule) -> Generation:
        return generate(EmpiricalModel(self.rows, self.width, self.wide), schedule, (), Limits.of(len(self.rows)))


def columns(rows: Rows, width: int) -> Iterator[Column]:
    """Column 1 .. L."""
    for k in range(1, len(rows) + 1):
        yield tuple(rows[c][k - c - 1] for c in range(max(0, k - width), k))


def breaks(column: Column) -> bool:
    """Is the position right from one context and wrong from a later one?"""
    return list(column) != sorted(column)


def lag(column: Column) -> int:
    """k - c*_k for the smallest monotone matrix above this one: c*_k is the first context that is right, k if none is."""
    return len(column) - column.index(1) if 1 in column else 0


def thresholds(rows: Rows, width: int) -> tuple[int, ...]:
    """c*_1 .. c*_L, from `lag`. What no context in reach of a draft tells apart is 0, or k - W."""
    return tuple(k - lag(column) for k, column in enumerate(columns(rows, width), start=1))


def reaches(rows: Rows, width: int) -> list[int]:
    """F(c) for c = 0 .. L - 1, capped at L."""
    return [MeasuredRuns(rows, width, "algorithm").reach(c) for c in range(len(rows))]


def statistics(matrices: Iterable[Rows], width: int) -> Statistics:
    """Of matrices measured at one width."""
    by_offset = [Share()] * width
    non_monotone, drops, surprises, behind, in_front = [Share()] * 5
    lags = [0] * (width + 1)
    for rows in matrices:
        for row in rows:
            for offset, right in enumerate(row):
                by_offset[offset] += (right, 1)
        drops += _drops(reaches(rows, width))
        last = 0  # the last surprise so far
        for k, column in enumerate(columns(rows, width), start=1):
            non_monotone += (breaks(column), len(column) > 1)
            if len(column) == width:
                lags[lag(column)] += 1
            surprise = 1 not in column
            surprises += (surprise, 1)
            if surprise:
                last = k
                continue
            seen = min(len(column), k - last)  # contexts last .. k - 1
            behind += (sum(column[:-seen]), len(column) - seen)
            in_front += (sum(column[-seen:]), seen)
    return Statistics(tuple(by_offset), non_monotone, drops, tuple(lags), surprises, behind, in_front)


def bounds(runs: Runs) -> Bounds:
    """THM3.2, ASM-REACH and BOUND-2D on one matrix."""
    outcome = runs.outcome()
    length = len(runs.rows)
    two_call, in_step, out_of_step = runs.contexts()
    stood = sorted({*two_call, *in_step, *out_of_step})
    reach = {c: runs.reach(c) for c in range(length)}
    farthest = list(itertools.accumulate(reach.values(), max))
    drops = sum(c > 0 and reach[c] < farthest[c - 1] for c in in_step)
    non_monotone = Share()
    for k in range(1, length + 1):
        column = tuple(runs.rows[c][k - c - 1] for c in stood if c < k <= c + runs.width)
        non_monotone += (breaks(column), len(column) > 1)
    return Bounds(
        linear=runs.linear.nfe,
        packed=runs.packed.nfe,
        lead=_lead(runs),
        in_step=outcome.in_step,
        out_of_step=outcome.out_of_step,
        drops=drops,
        slack=bound(outcome) - outcome.excess,
        slack_2d=2 * drops - outcome.excess,
        non_monotone=non_monotone,
        reach_drops=_drops([reach[c] for c in stood]),
    )


def _drops(reach: list[int]) -> Share:
    farthest = list(itertools.accumulate(reach, max))
    return Share(sum(here < before for before, here in zip(farthest, reach[1:], strict=False)), max(0, len(reach) - 1))


def _lead(runs: Runs) -> int:
    lengths = (itertools.accumulate(len(step.committed) for step in run.steps) for run in (runs.packed, runs.linear))
    pairs = itertools.zip_longest(*lengths, fillvalue=len(runs.rows))
    return min((packed - linear for packed, linear in pairs), default=0)
