"""Linear-SS and Packed-SS side by side under every greedy drafter at once, without Assumption 3.1.

A greedy drafter is a matrix: is position k drafted right from c verified tokens, 0 <= c < k <= L? There are 2^(L(L+1)/2) of
them, and yet they can all be counted, for a schedule reads row c only when it stands at c. So sweep c = 0, 1, ..: in row c
assign the cells that are read and no others, give the outcome 2^(number of unread cells) matrices, and merge equal situations.
What is left is a table of a few hundred situations whose weights are exact integers.

Positions count output tokens, capped at L. x_0 < x_1 < .. are Linear-SS's contexts, y_0, y_1, .. the verified lengths after
0, 1, .. calls of Packed-SS. The reach F(c) = min(c + W + 1, first k > c drafted wrong from c) is where a fresh draft gets.

- x_{t+1} = F(x_t), two calls each.
- Packed-SS verifies after y_{n+1} what it drafted from y_n, so y_{n+2} is the first wrong position beyond y_{n+1} in row y_n
  (or the draft's end + 1). Hence y_{n+2} >= F(y_n) [LEMB2, no assumption], and more only if y_{n+1} >= F(y_n).

A context y of Packed-SS is *shrunk* when F(y) lies below the next Linear-SS context after y: a fresh draft made later reaches
less far than an older one did. A context of Linear-SS is never shrunk. Packed-SS is *in step* after as many calls as t
Linear-SS iterations (and the start) take: after an even number of calls with start `algorithm`, an odd one with `wide` and
`sampled`. In between it is out of step.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

from simulator.decode import Generation, generate
from simulator.oracles import MatrixModel
from simulator.records import Limits
from simulator.schedule import Schedule
from simulator.schedules import linear, packed

Start: TypeAlias = Literal["algorithm", "wide", "sampled"]
STARTS: tuple[Start, ...] = ("algorithm", "wide", "sampled")
Rows: TypeAlias = tuple[tuple[int, ...], ...]  # rows[c][k - c - 1], as MatrixModel
Cells: TypeAlias = dict[tuple[int, int], int]  # (c, k) -> right or wrong, the cells that were read


class Outcome(NamedTuple):
    """What one matrix leads to."""

    excess: int  # calls of Packed-SS minus calls of Linear-SS
    in_step: int  # shrunk contexts of Packed-SS in step with Linear-SS
    out_of_step: int  # and the others


class Joint(NamedTuple):
    """Where both stand, all contexts below min(x, y) being settled."""

    x: int  # Linear-SS's next context
    y: int  # Packed-SS's next context
    after: int  # the one it will stand at one call later; after >= L: `y` drafts in vain
    in_step: bool  # is y in step?
    so_far: Outcome


def outcomes(length: int, width: int, start: Start) -> dict[Outcome, int]:
    """Number of matrices per outcome, 2^(L(L+1)/2) in all. L >= 1, W >= 1.

    >>> for outcome, matrices in outcomes(2, 1, "algorithm").items():  # two calls for every one or two tokens, or one for each
    ...     print(outcome.excess, matrices)
    -2 4
    0 4
    """
    counts: defaultdict[Outcome, int] = defaultdict(int)
    for joint, weight in _sweep(length, width, start, lambda *edge: None).items():
        counts[joint.so_far] += weight
    return dict(counts)


def classes(
    length: int, width: int, start: Start, wanted: Callable[[Outcome], bool] = lambda outcome: True
) -> Iterator[tuple[Outcome, Cells]]:
    """Every class of matrices with a wanted outcome, and the cells that decide it; the others are free.

    The classes are disjoint, so their sizes 2^(L(L+1)/2 - |cells|) sum to the count in `outcomes`.
    """
    parents: defaultdict[Joint, list[tuple[Joint | None, Cells]]] = defaultdict(list)

    def keep(before: Joint | None, joint: Joint, cells: Cells) -> None:
        parents[joint].append((before, cells))

    def back(joint: Joint) -> Iterator[Cells]:
        for before, cells in parents[joint]:
            for earlier in back(before) if before else [{}]:
                yield earlier | cells

    for joint in _sweep(length, width, start, keep):
        if wanted(joint.so_far):
            for cells in back(joint):
                yield joint.so_far, cells


def rows_of(cells: Cells, length: int, unread: int) -> Rows:
    """A whole matrix: the cells given, all others `unread`."""
    return tuple(tuple(cells.get((c, k), unread) for k in range(c + 1, length + 1)) for c in range(length))


def _sweep(length: int, width: int, start: Start, edge: Callable[[Joint | None, Joint, Cells], None]) -> dict[Joint, int]:
    layer: defaultdict[Joint, int] = defaultdict(int)
    total = 1 << length * (length + 1) // 2
    for joint, cells in begin(length, width, start):
        edge(None, joint, cells)
        layer[joint] += total >> len(cells)
    for c in range(length):
        for before in [joint for joint in layer if c in (joint.x, joint.y)]:
            weight = layer.pop(before)
            for joint, cells in moves(before, length, width):
                edge(before, joint, cells)
                layer[joint] += weight >> len(cells)
    assert sum(layer.values()) == total
    return layer


def begin(length: int, width: int, start: Start) -> Iterator[tuple[Joint, Cells]]:
    """The situations after the start; calls that both schedules have made by then cancel."""
    none = Outcome(0, 0, 0)
    if start == "algorithm":
        yield Joint(0, 0, 1, True, none), {}
    elif start == "wide":  # y_0 = 0 drafts W + 1 positions; Linear-SS begins at 1
        for y, cells in first_wrong(0, 1, width + 1, length):
            yield Joint(1, 1, y, True, none), cells
    else:  # call 1 emits a token, call 2 drafts from it; call 3 takes both schedules to F(1) and drafts from 1 once more
        for x, cells in first_wrong(1, 1, width + 1, length):
            for y, more in first_wrong(1, x, width + 1, length):
                yield Joint(x, x, y, True, none), cells | more


def moves(joint: Joint, length: int, width: int) -> Iterator[tuple[Joint, Cells]]:
    """Settle the context c = min(x, y) in every way, with the cells of row c that this reads."""
    x, y, after, in_step, (excess, shrunk_in, shrunk_out) = joint
    c = min(x, y)
    for reach, cells in first_wrong(c, c, c + width, length):
        if y > c:
            yield joint._replace(x=reach, so_far=Outcome(excess - 2, shrunk_in, shrunk_out)), cells
            continue
        following = reach if x == c else x
        shrunk = reach < following
        so_far = Outcome(excess + 1 - 2 * (x == c), shrunk_in + (shrunk and in_step), shrunk_out + (shrunk and not in_step))
        for verified, more in [(reach, Cells())] if reach > after else first_wrong(c, after, c + width, length):
            yield Joint(following, after, verified, not in_step, so_far), cells | more


def first_wrong(c: int, begin: int, end: int, length: int) -> Iterator[tuple[int, Cells]]:
    """The first position beyond `begin` that is wrong in row c, or the one after `end` when the draft ends there."""
    right: Cells = {}
    for k in range(begin + 1, min(end, length - 1) + 1):
        yield k, right | {(c, k): 0}
        right[c, k] = 1
    yield min(max(begin, end) + 1, length), right


@dataclass(frozen=True)
class Runs:
    """Both production schedules on one matrix, and what is read off their steps."""

    rows: Rows
    width: int
    start: Start

    @cached_property
    def linear(self) -> Generation:
        return self._run(linear(self.width, self.start))

    @cached_property
    def packed(self) -> Generation:
        return self._run(packed(self.width, self.start))

    def _run(self, schedule: Schedule) -> Generation:
        return generate(MatrixModel(self.rows), schedule, (), Limits.of(len(self.rows)))

    def reach(self, c: int) -> int:
        """F(c), capped at L."""
        row = self.rows[c][: self.width]
        return min(c + 1 + (row.index(0) if 0 in row else self.width), len(self.rows))

    def contexts(self) -> tuple[list[int], list[int], list[int]]:
        """Those of Linear-SS, and those of Packed-SS in step and out of step, first calls of a start left out."""
        first = int(self.start != "algorithm")
        one_call = [(n, y) for n, y in enumerate(_lengths(self.packed)[:-1]) if y >= first]
        in_step, out_of_step = ([y for n, y in one_call if n % 2 == parity] for parity in (first, 1 - first))
        return sorted({x for x in _lengths(self.linear)[:-1] if x >= first}), in_step, out_of_step

    def outcome(self) -> Outcome:
        """By the definitions of this module's docstring."""
        two_call, *one_call = self.contexts()
        stops = [*two_call, len(self.rows)]
        shrunk = (sum(self.reach(y) < min(x for x in stops if x > y) for y in contexts) for contexts in one_call)
        return Outcome(self.packed.nfe - self.linear.nfe, *shrunk)

    def verified(self) -> set[tuple[int, int]]:
        """The cells (c, k) that a run depends on: k was verified as drafted from c, and is not the last position."""
        cells = set()
        for run in (self.linear, self.packed):
            lengths, drafted = _lengths(run), 0
            for before, step in zip(lengths, run.steps, strict=False):
                tested = min(step.accepted + 1, len(step.verified))
                cells |= {(drafted, k) for k in range(before + 1, before + tested + 1) if k < len(self.rows)}
                drafted = before if step.branch is not None else drafted
        return cells

    def picture(self) -> str:
        """The matrix ('.' where no run depends on the cell) and both runs, call by call."""
        positions = range(1, len(self.rows) + 1)
        verified = self.verified()
        lines = ["  c \\ k" + "".join(f"{k:3}" for k in positions)]
        for c in sorted({c for c, _ in verified}):
            cells = (str(self.rows[c][k - c - 1]) if (c, k) in verified else "." if k > c else "" for k in positions)
            lines.append(f"  {c:5}" + "".join(f"{cell:>3}" for cell in cells))
        for name, run in {"Linear-SS": self.linear, "Packed-SS": self.packed}.items():
            told, drafted = [], 0
            for number, (before, now) in enumerate(itertools.pairwise(_lengths(run)), start=1):
                step = run.steps[number - 1]
                if step.committed:
                    told.append(f"call {number}: {before} > {now}" + f" (from {drafted})" * bool(step.verified))
                drafted = before if step.branch is not None else drafted
            lines.append(f"{name}, {run.nfe} calls: {', '.join(told)}")
        return "\n".join(lines)


def _lengths(run: Generation) -> list[int]:
    """The verified length before the first call and after each."""
    return list(itertools.accumulate((len(step.committed) for step in run.steps), initial=0))
