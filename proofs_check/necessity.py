"""How much Packed-SS owes to Assumption 3.1: without it, it can need more calls than Linear-SS, but never W/2 times as many.

The smallest drafter under which it does is searched for among ALL correctness matrices (proofs_check/joint.py), every length
up to it and every width included, so that what is found is the smallest and what is not found does not exist.

At most max(1, W/2) times as many, without any assumption: look at one iteration of Linear-SS, from x to F(x) <= x + W + 1. If
Packed-SS stands at x, it is at F(x) or beyond two calls later (LEMB2). If it never does, it stands at most at each of the
F(x) - x - 1 <= W positions between. Either way at most max(2, W) of its calls begin in the stretch that takes Linear-SS two. In
particular Packed-SS needs no more calls, whatever the drafter, if W <= 2 or if Linear-SS never commits 4 tokens at once.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from typing import TypeAlias

from proofs_check import joint
from proofs_check.joint import STARTS, Outcome, Rows, Runs, Start, outcomes, rows_of
from proofs_check.ledger import Budget, Check, Entry
from proofs_check.ledger import Outcome as Verdict
from spec import greedy
from spec.run import Given

LONGEST = {"quick": 10, "full": 15}
BRUTE = 4
REPLAYED = {"quick": (7, (3, 4)), "full": (8, tuple(range(1, 9)))}
WIDEST = {"quick": 6, "full": 12}


def check_smallest(start: Start, budget: Budget) -> Iterator[Entry]:
    """The smallest length, then width, at which some matrix makes Packed-SS need more calls, and how many matrices do."""
    longest = LONGEST[budget]
    shares: dict[tuple[int, int], tuple[Fraction, int]] = {}
    for length, width in sizes(longest):
        counts = outcomes(length, width, start)
        more = sum(count for outcome, count in counts.items() if outcome.excess > 0)
        shares[length, width] = Fraction(more, sum(counts.values())), max(outcome.excess for outcome in counts)
    statement = f"start {start}: the smallest drafter under which Packed-SS needs more calls than Linear-SS"
    bound = f"all 2^(L(L+1)/2) matrices, every L <= {longest}, every W <= L"
    smallest = next((size for size, (share, _) in shares.items() if share), None)
    if smallest is None:
        yield Entry("ASM-NEEDED", statement, "exhaustive", bound, "not run", "no size has such a matrix: search further")
        return
    length, width = smallest
    violating = list(joint.classes(length, width, start, lambda outcome: outcome.excess > 0))
    verdict: Verdict = "holds"
    for (outcome, cells), unread in itertools.product(violating, (0, 1)):
        runs = Runs(rows_of(cells, length, unread), width, start)
        if not runs.outcome().excess == _spec_excess(runs) == outcome.excess:
            verdict = "violated"
            detail = f"{outcome.excess} more calls, but the spec has {_spec_excess(runs)} and the scheduler:\n{runs.picture()}"
            break
    else:
        clearest = min((cells for _, cells in violating), key=lambda cells: (len(cells), sum(cells.values())))
        share, excess = shares[smallest]
        detail = (
            f"L={length}, W={width}, {share} of the matrices, {excess} more; none for smaller L at any W, nor here for smaller"
            f" W; its {len(violating)} classes replayed by scheduler and spec, free cells ('.') all wrong, then all right\n"
            f"{Runs(rows_of(clearest, length, 0), width, start).picture()}\n{_table(shares)}"
        )
    yield Entry("ASM-NEEDED", statement, "exhaustive", bound, verdict, detail)


def sizes(longest: int) -> Iterator[tuple[int, int]]:
    """(L, W), smallest first. A width beyond L is as good as L."""
    return ((length, width) for length in range(1, longest + 1) for width in range(1, length + 1))


def _table(shares: dict[tuple[int, int], tuple[Fraction, int]]) -> str:
    """Share of the matrices per million, and the worst excess."""
    lines = ["matrices per million that need more calls (worst excess):"]
    for length, group in itertools.groupby(shares, key=lambda size: size[0]):
        cells = [f"W={w} {float(share) * 1e6:.0f} (+{top})" for _, w in group for share, top in [shares[length, w]] if share]
        if cells:
            lines.append(f"  L={length}: " + ", ".join(cells))
    return "\n".join(lines)


def _spec_excess(runs: Runs) -> int:
    def draft(prefix: tuple[int, ...], i: int) -> int:
        c, k = len(prefix), len(prefix) + i
        return k if k > len(runs.rows) or runs.rows[c][i - 1] else -k

    given = Given((), runs.width, len(runs.rows), lambda prefix: len(prefix) + 1, draft)
    return greedy.run("packed", given, runs.start).NFE - greedy.run("linear", given, runs.start).NFE


def all_matrices(length: int) -> Iterator[Rows]:
    for bits in itertools.product((0, 1), repeat=length * (length + 1) // 2):
        cells = iter(bits)
        yield tuple(tuple(itertools.islice(cells, length - c)) for c in range(length))


def check_production(start: Start, budget: Budget) -> Iterator[Entry]:
    """What is counted together is what the production scheduler does."""
    length, (longer, widths) = BRUTE, REPLAYED[budget]
    pairs, wrong = 0, ""
    for width in range(1, length + 1):
        counted, example = Counter[Outcome](), dict[Outcome, Rows]()
        for rows in all_matrices(length):
            outcome = Runs(rows, width, start).outcome()
            counted[outcome] += 1
            example.setdefault(outcome, rows)
        pairs += counted.total()
        expected = outcomes(length, width, start)
        for outcome in sorted(counted.keys() | expected.keys()):
            if counted[outcome] != expected.get(outcome, 0) and not wrong:
                wrong = f"W={width}: {counted[outcome]} matrices with {outcome}, counted together {expected.get(outcome, 0)}"
                wrong += "\n" + Runs(example[outcome], width, start).picture() if outcome in example else ""
    rng = random.Random(0)
    both = replayed = 0
    for width in widths:
        for outcome, cells in joint.classes(longer, width, start):
            rows = tuple(tuple(cells.get((c, k), rng.getrandbits(1)) for k in range(c + 1, longer + 1)) for c in range(longer))
            replayed += 1
            both += bool(outcome.in_step and outcome.out_of_step)
            runs = Runs(rows, width, start)
            if runs.outcome() != outcome and not wrong:
                wrong = f"W={width}: {runs.outcome()}, counted together {outcome}\n{runs.picture()}"
    yield Entry(
        "ASM-NEEDED",
        f"start {start}: the scheduler does on each matrix what is counted together",
        "exhaustive",
        f"all {2 ** (length * (length + 1) // 2):,} matrices of L={length}, W=1..{length};"
        f" every class of L={longer}, W={widths[0]}..{widths[-1]}, free cells random (seed 0)",
        "violated" if wrong else "holds" if both else "not run",
        wrong
        or (
            f"{pairs:,} pairs of runs one by one, {replayed:,} classes, {both} with shrunk contexts in and out of step"
            if both
            else "no class with shrunk contexts both in and out of step"
        ),
    )


def check_ratio(budget: Budget) -> Iterator[Entry]:
    """The factor W/2, for ALL lengths: heaviest paths in the finite graph of relative positions."""
    widest = WIDEST[budget]
    worst, loose, vertices = "", "", 0
    for start, width in itertools.product(STARTS, range(1, widest + 1)):
        factor = max(Fraction(1), Fraction(width, 2))
        graph = relative_graph(width, start)
        vertices += len(graph)
        gain = heaviest(graph, Fraction(1), -2 * factor)
        if gain is None or gain > 0:
            worst = worst or f"start {start}, W={width}: NFE_packed - {factor} NFE_linear grows to {gain or 'infinity'}"
        # If some cycle spends exactly the factor, then it gains for ever as soon as Linear-SS's calls cost a little less.
        elif heaviest(graph, Fraction(1), -2 * factor + Fraction(1, 10**6)) is not None:
            loose = loose or f"a smaller factor does for start {start}, W={width}"
    yield Entry(
        "BOUND-RATIO",
        "whatever the drafter, NFE_packed <= max(1, W/2) NFE_linear, and no smaller factor does",
        "exhaustive",
        f"every L, W=1..{widest}, starts {', '.join(STARTS)}",
        "violated" if worst or loose else "holds" if vertices else "not run",
        worst
        or loose
        or f"no path of the {vertices:,} relative positions gains on it at any length; a cycle spends exactly that",
    )


Vertex: TypeAlias = tuple[int, int, int]  # (x, y, after) relative to min(x, y)
Graph: TypeAlias = dict[Vertex, set[tuple[Vertex, tuple[int, int]]]]  # with calls of Packed-SS, iterations of Linear-SS
BEFORE: Vertex = (-1, -1, -1)


def relative_graph(width: int, start: Start) -> Graph:
    """How the positions of both move against each other at any length, from BEFORE the start on."""
    unlimited = 10**6
    todo = [_relative(state) for state, _ in joint.begin(unlimited, width, start)]
    graph: Graph = {BEFORE: {(vertex, (0, 0)) for vertex in todo}}
    while todo:
        vertex = todo.pop()
        if vertex not in graph:
            x, y, after = vertex
            settled = joint.moves(joint.Joint(x, y, after, True, Outcome(0, 0, 0)), unlimited, width)
            graph[vertex] = {(_relative(state), (int(y == 0), int(x == 0))) for state, _ in settled}
            todo += [following for following, _ in graph[vertex]]
    return graph


def _relative(state: joint.Joint) -> Vertex:
    c = min(state.x, state.y)
    return state.x - c, state.y - c, state.after - c


def heaviest(graph: Graph, per_call: Fraction, per_iteration: Fraction) -> Fraction | None:
    """The largest weight of a path from BEFORE, None if a cycle makes it infinite (Bellman-Ford)."""
    best = {BEFORE: Fraction(0)}
    for _ in graph:
        changed = False
        for vertex, edges in graph.items():
            for following, (calls, iterations) in edges if vertex in best else ():
                value = best[vertex] + calls * per_call + iterations * per_iteration
                if following not in best or value > best[following]:
                    best[following], changed = value, True
        if not changed:
            return max(best.values())
    return None


CHECKS = (
    *(Check(f"necessity/{start}", ("ASM-NEEDED",), partial(check_smallest, start)) for start in STARTS),
    *(Check(f"necessity/production/{start}", ("ASM-NEEDED",), partial(check_production, start)) for start in STARTS),
    Check("necessity/ratio", ("BOUND-RATIO",), check_ratio),
)
