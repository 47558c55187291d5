"""How much Packed-SS owes to Assumption 3.1: without it, it can need more calls than Linear-SS, but never W/2 times as many.

The smallest drafter under which it does is searched for among ALL correctness matrices (proofs_check/joint.py), every length
up to it and every width included, so that what is found is the smallest and what is not found does not exist.

At most max(1, W/2) times as many, without any assumption: look at one iteration of Linear-SS, from x to F(x) <= x + W + 1. If
Packed-SS stands at x it is at F(x) or beyond two calls later (LEMB2). If it never stands at x, it stands at most at the F(x) - x
- 1 <= W positions between. Either way at most max(2, W) calls of Packed-SS begin within the two calls of Linear-SS. In
particular Packed-SS needs no more calls, whatever the drafter, if W <= 2 or if Linear-SS never commits 4 tokens in an iteration.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial

from proofs_check import joint
from proofs_check.joint import STARTS, Outcome, Rows, Runs, Start, outcomes, rows_of
from proofs_check.ledger import Budget, Check, Entry, Outcome as Verdict
from spec import greedy
from spec.run import Given

LONGEST = {"quick": 10, "full": 15}
BRUTE = {"quick": 4, "full": 5}
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
    classes = list(joint.examples(length, width, start, lambda outcome: outcome.excess > 0))
    outcome: Verdict = "holds"
    for cells, unread in itertools.product(classes, (0, 1)):
        runs = Runs(rows_of(cells, length, unread), width, start)
        found = {"production": runs.outcome().excess, "spec": _spec_excess(runs)}
        if min(found.values()) <= 0:
            outcome = "violated"
            detail = f"not confirmed: Packed-SS minus Linear-SS is {found}\n{runs.picture()}"
            break
    else:
        clearest = min(classes, key=lambda cells: (len(cells), sum(cells.values())))
        share, excess = shares[smallest]
        detail = (
            f"L={length}, W={width}, {share} of the matrices, {excess} more; none for smaller L at any W, nor here for smaller W;"
            f" its {len(classes)} classes replayed by scheduler and spec, free cells ('.') all wrong, then all right\n"
            f"{Runs(rows_of(clearest, length, 0), width, start).picture()}\n{_table(shares)}"
        )
    yield Entry("ASM-NEEDED", statement, "exhaustive", bound, outcome, detail)


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
    """The merged count is the production scheduler's: every matrix of a small length, one by one."""
    length = BRUTE[budget]
    matrices, wrong, detail = 0, "", ""
    kinds: set[Outcome] = set()
    for width in range(1, length + 1):
        counted, example = Counter[Outcome](), dict[Outcome, Rows]()
        for rows in all_matrices(length):
            matrices += 1
            result = Runs(rows, width, start).outcome()
            counted[result] += 1
            example.setdefault(result, rows)
        expected = outcomes(length, width, start)
        kinds |= counted.keys()
        for result in sorted(counted.keys() | expected.keys()):
            if counted[result] != expected.get(result, 0) and not wrong:
                wrong = f"W={width}: {result} for {counted[result]} matrices, counted together {expected.get(result, 0)}"
                if result in example:
                    wrong += "\n" + Runs(example[result], width, start).picture()
    detail = wrong or f"{matrices:,} pairs of runs, {len(kinds)} different outcomes, as often as counted together"
    yield Entry(
        "ASM-NEEDED",
        f"start {start}: counted together or run one by one, the matrices have the same outcomes",
        "exhaustive",
        f"all {2 ** (length * (length + 1) // 2):,} matrices, L={length}, W=1..{length}",
        "violated" if wrong else "holds" if len(kinds) > 2 else "not run",
        detail,
    )


def check_ratio(budget: Budget) -> Iterator[Entry]:
    """The factor W/2, for ALL lengths: heaviest paths in the finite graph of relative positions."""
    widest = WIDEST[budget]
    worst, detail, vertices = "", "", 0
    for start, width in itertools.product(STARTS, range(1, widest + 1)):
        factor = max(Fraction(1), Fraction(width, 2))
        graph = relative_graph(width, start)
        vertices += len(graph)
        gain = heaviest(graph, lambda y, x, f=factor: y - 2 * f * x)
        if gain is None or gain > 0:
            worst = worst or f"start {start}, W={width}: NFE_packed - {factor} NFE_linear grows to {gain or 'infinity'}"
        # If some cycle spends exactly the factor, then with a little more weight on Linear-SS's side it gains for ever.
        elif heaviest(graph, lambda y, x, f=factor: y - 2 * f * x + Fraction(x, 10**6)) is not None:
            detail = detail or f"a smaller factor would do for start {start}, W={width}"
    yield Entry(
        "BOUND-RATIO",
        "whatever the drafter, NFE_packed <= max(1, W/2) NFE_linear, and no smaller factor does",
        "exhaustive",
        f"every L, W=1..{widest}, starts {', '.join(STARTS)}",
        "violated" if worst or detail else "holds" if vertices else "not run",
        worst or detail or f"no path of the {vertices:,} relative positions gains on it at any length; a cycle spends exactly W/2",
    )


Edge = tuple[int, int]  # calls of Packed-SS, iterations of Linear-SS


def relative_graph(width: int, start: Start) -> dict[tuple[int, ...], set[tuple[tuple[int, ...], Edge]]]:
    """Positions (x, y, after) relative to min(x, y), which is 0; the first vertex () leads to the starts."""
    far = 10**6  # no length limit
    graph: dict[tuple[int, ...], set[tuple[tuple[int, ...], Edge]]] = {}
    begun = {(_relative(state), (0, 0)) for state, _ in joint.begin(far, width, start)}
    graph[()] = begun
    todo = [vertex for vertex, _ in begun]
    while todo:
        vertex = todo.pop()
        if vertex in graph:
            continue
        here = joint.Joint(*vertex, True, Outcome(0, 0, 0))
        edge = (int(vertex[1] == 0), int(vertex[0] == 0))
        graph[vertex] = {(_relative(state), edge) for state, _ in joint.moves(here, far, width)}
        todo += [following for following, _ in graph[vertex]]
    return graph


def _relative(state: joint.Joint) -> tuple[int, ...]:
    return tuple(position - min(state.x, state.y) for position in state[:3])


def heaviest(
    graph: dict[tuple[int, ...], set[tuple[tuple[int, ...], Edge]]], weight: Callable[[int, int], Fraction]
) -> Fraction | None:
    """The largest weight of a path from the start, None if a cycle makes it infinite (Bellman-Ford)."""
    best: dict[tuple[int, ...], Fraction] = {(): Fraction(0)}
    for _ in range(len(graph)):
        changed = False
        for vertex, edges in graph.items():
            for following, edge in edges if vertex in best else ():
                value = best[vertex] + weight(*edge)
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
