"""What can stand in the place of Assumption 3.1, and what each breach of it costs.

Words and y_n, x_t, F as in proofs_check/joint.py: a context of Packed-SS is shrunk when a fresh draft from it reaches less far
than Linear-SS's next context; e shrunk contexts are in step, o are out of step. Nothing is asked of F at any other context, nor
of the cells beyond the first wrong one of a row. Then, without any assumption,

    NFE_packed <= NFE_linear + max(0, min(2 e, 2 o - 1)).

Hence THM3.2 needs only e = 0, or only o = 0; either is implied by F(c) <= F(c') for all contexts c <= c' that the two stand at,
and that by ASM3.1. With d >= e for the in-step contexts whose reach is below that of ANY shorter context, 2 e <= 2 d.

Proof. LEMB2 needs no assumption: y_{n+2} >= F(y_n), and y_{n+2} > F(y_n) only if y_{n+1} >= F(y_n). Let Linear-SS make T
iterations. (2 e) Suppose y_n >= x_t, in step. If y_n is not shrunk, y_{n+2} >= F(y_n) >= the next context after y_n >= x_{t+1};
else still y_{n+2} > x_t. So every two calls gain an iteration, but e times: x_T = L is reached with at most 2 T + 2 e calls.
(2 o - 1) While y_n = x_t in step, F(y_n) = x_{t+1}. If always y_{n+2} = x_{t+1}, there is no excess. Else, the first time
y_{n+2} > x_{t+1}, also y_{n+1} >= x_{t+1}: Packed-SS is one call ahead, out of step. From there argue as before, with the
contexts out of step: at most 2 T - 1 + 2 o calls. With the starts `wide` and `sampled` both sides grow by the start's call.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from math import factorial
from typing import NamedTuple

from proofs_check import joint, necessity
from proofs_check.joint import STARTS, Outcome, Runs, Start, outcomes, rows_of
from proofs_check.ledger import Budget, Check, Entry
from proofs_check.necessity import all_matrices, sizes


def bound(outcome: Outcome) -> int:
    """The largest excess allowed."""
    return max(0, min(2 * outcome.in_step, 2 * outcome.out_of_step - 1))


class Survey(NamedTuple):
    """All matrices of all sizes up to a length."""

    worst: dict[tuple[int, int], tuple[int, int, int]]  # (e, o) -> the largest excess, and the first L, W that have it
    broken: dict[str, str]  # claim -> the first counterexample
    cases: int  # matrices with e = 0 or o = 0, summed over the sizes
    monotone: int  # those that meet ASM3.1


def survey(start: Start, longest: int) -> Survey:
    worst: dict[tuple[int, int], tuple[int, int, int]] = {}
    broken: dict[str, str] = {}
    cases = monotone = 0
    for length, width in sizes(longest):
        monotone += factorial(length + 1)
        for outcome, count in outcomes(length, width, start).items():
            pair = outcome.in_step, outcome.out_of_step
            if pair not in worst or outcome.excess > worst[pair][0]:
                worst[pair] = outcome.excess, length, width
            if 0 in pair:
                cases += count
            claim = "ASM-REACH" if 0 in pair else "BOUND-2D"
            if outcome.excess > bound(outcome) and claim not in broken:
                broken[claim] = f"{outcome}, at most {bound(outcome)}: {_show(length, width, start, outcome)}"
    return Survey(worst, broken, cases, monotone)


def check_bound(start: Start, budget: Budget) -> Iterator[Entry]:
    """ASM-REACH and BOUND-2D for all matrices, and that neither can be sharper in terms of e and o."""
    longest = necessity.LONGEST[budget]
    instances = f"start {start}, all 2^(L(L+1)/2) matrices, every L <= {longest}, every W <= L"
    seen = survey(start, longest)

    weaker = _beyond_thresholds(start)
    needed = seen.worst.get((1, 1), (0,))[0] > 0
    yield Entry(
        "ASM-REACH",
        "no shrunk context in step, or none out of step: Packed-SS needs no more calls",
        "exhaustive",
        instances,
        "violated" if "ASM-REACH" in seen.broken else "holds" if weaker and needed else "not run",
        seen.broken.get("ASM-REACH")
        or ("" if weaker else "no matrix without shrunk contexts broke ASM3.1")
        or ("" if needed else "never more calls with e = 1, o = 1")
        or (
            f"{seen.cases:.3g} cases where ASM3.1 leaves {seen.monotone:.3g}; e = 1 with o = 1 can already cost a call;"
            f" weaker than ASM3.1: {weaker}"
        ),
    )

    tight = {pair: worst for pair, worst in seen.worst.items() if worst[0] == bound(Outcome(0, *pair)) > 0}
    missing = {(1, 1), (1, 2), (2, 1)} - tight.keys()  # 2 o - 1 = 1; 2 e = 2; 2 o - 1 < 2 e
    twice = "" if missing else _twice(start, *tight[1, 2])
    yield Entry(
        "BOUND-2D",
        "NFE_packed <= NFE_linear + max(0, min(2e, 2o - 1)), e and o the shrunk contexts in and out of step",
        "exhaustive",
        instances,
        "violated" if seen.broken else "holds" if twice else "not run",
        next(iter(seen.broken.values()), "")
        or (f"not attained for (e, o) = {sorted(missing)}" if missing else "" if twice else "2d not attained")
        or f"attained for (e, o) = {', '.join(map(str, sorted(tight)))}; 2d by {twice}",
    )


def _twice(start: Start, excess: int, length: int, width: int) -> str:
    """A matrix whose excess is twice d, the in-step contexts with a reach below that of any shorter context, visited or not."""
    for _, cells in joint.classes(length, width, start, lambda outcome: outcome == Outcome(excess, 1, 2)):
        runs = Runs(rows_of(cells, length, 0), width, start)
        _, in_step, _ = runs.contexts()
        if sum(runs.reach(y) < max(map(runs.reach, range(y)), default=0) for y in in_step) == 1:
            return f"L={length}, W={width}\n{runs.picture()}"
    return ""


def _show(length: int, width: int, start: Start, outcome: Outcome) -> str:
    _, cells = next(joint.classes(length, width, start, lambda other: other == outcome))
    return f"L={length}, W={width}\n{Runs(rows_of(cells, length, 0), width, start).picture()}"


def _beyond_thresholds(start: Start, longest: int = 4) -> str:
    """The first matrix without shrunk contexts whose verified cells no thresholds explain."""
    for length, width in sizes(longest):
        for rows in all_matrices(length):
            runs = Runs(rows, width, start)
            if runs.outcome()[1:] == (0, 0):
                for (c, k), (later, again) in itertools.combinations(sorted(runs.verified()), 2):
                    if k == again and c < later and rows[c][k - c - 1] > rows[later][k - later - 1]:
                        return f"L={length}, W={width}, {k} is right from {c}, wrong from {later}\n{runs.picture()}"
    return ""


NAMES = ("F(c) <= F(c') on the contexts stood at", "e = 0", "e = 0 or o = 0", "no more calls")


def check_hierarchy(start: Start, budget: Budget) -> Iterator[Entry]:
    """ASM3.1 => F grows on the contexts stood at => e = 0 => e = 0 or o = 0 => no more calls, all from production runs."""
    length, width = (7, 4) if budget == "quick" else (9, 5)
    shares = dict.fromkeys(NAMES, Fraction(0))
    broken = ""
    for _, cells in joint.classes(length, width, start):
        runs = Runs(rows_of(cells, length, 0), width, start)
        holds = conditions(runs)
        for (stronger, given), (weaker, follows) in itertools.pairwise(holds.items()):
            if given and not follows and not broken:
                broken = f"{stronger}, but not: {weaker}, W={width}\n{runs.picture()}"
        for name, here in holds.items():
            shares[name] += Fraction(here, 2 ** len(cells))
    small = 5
    for c_star, w in itertools.product(itertools.product(*(range(k + 1) for k in range(1, small + 1))), range(2, small + 1)):
        rows = tuple(tuple(int(c >= c_star[k - 1]) for k in range(c + 1, small + 1)) for c in range(small))
        runs = Runs(rows, w, start)
        if not conditions(runs)[NAMES[0]] and not broken:
            broken = f"ASM3.1, but not: {NAMES[0]}, W={w}, c* = {c_star}\n{runs.picture()}"
    strict = all(a < b for a, b in itertools.pairwise(shares.values()))
    yield Entry(
        "ASM-REACH",
        f"start {start}: the conditions follow from each other, and none is the next",
        "exhaustive",
        f"all matrices of L={length}, W={width}; ASM3.1: all {factorial(small + 1)} threshold vectors, L={small}, W=2..{small}",
        "violated" if broken else "holds" if strict else "not run",
        broken or "share of the matrices: " + ", ".join(f"{name} {float(share):.6f}" for name, share in shares.items()),
    )


def conditions(runs: Runs) -> dict[str, bool]:
    """NAMES, strongest first."""
    excess, in_step, out_of_step = runs.outcome()
    two_call, one_call, _ = runs.contexts()
    reach = [runs.reach(c) for c in sorted(two_call + one_call)]
    return dict(zip(NAMES, (reach == sorted(reach), not in_step, not in_step or not out_of_step, excess <= 0), strict=True))


CHECKS = (
    *(Check(f"reach/{start}", ("ASM-REACH", "BOUND-2D"), partial(check_bound, start)) for start in STARTS),
    *(Check(f"reach/hierarchy/{start}", ("ASM-REACH",), partial(check_hierarchy, start)) for start in STARTS),
)
