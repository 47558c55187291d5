"""Calls of Packed-SS and Linear-SS in other orders than the textual one: every monotone drafter of a small size, exhaustively.

The drafter is Assumption 3.1 without a left and a right: what is right at position j stays right when more is accepted. From
left to right, from right to left, and in any permutation that one window holds, Packed-SS needs no more calls than Linear-SS.
Where the order changes with what has been accepted it can: because it is chosen anew, or because the window of a permutation
slides and brings in a position that goes first. Packed-SS then begins with it, Linear-SS finishes its window before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from proofs_check.any_order import Choose, every
from proofs_check.ledger import Budget, Check, Entry, Outcome
from simulator.any_order import Known, left_to_right, named, right_to_left
from simulator.any_order.orders import Order, along
from simulator.decode import generate
from simulator.oracles.any_order import AnyOrderModel, by_accepted
from simulator.records import Limits, Tokens

SCHEDULES = ("packed", "linear", "quadratic")
FEWER = "a run with fewer calls than Linear-SS"
EQUAL = "a run with as many calls as Linear-SS"
REJECTED = "a draft token rejected"
KEPT = "a draft kept after a rejection"
AHEAD = "a position accepted ahead of an earlier one"
NEEDED = (FEWER, EQUAL, REJECTED, KEPT, AHEAD)


class Drafter:
    """Right or wrong at each place as chosen when somebody looks, as far as monotonicity leaves a choice."""

    def __init__(self, length: int, choose: Choose) -> None:
        self.length, self.choose = length, choose
        self.cells: dict[tuple[frozenset[int], int], bool] = {}

    def correct(self, accepted: frozenset[int], j: int) -> bool:
        """Whether the draft of position j from this accepted set is right."""
        key = accepted, j
        if key not in self.cells:
            below = any(right and i == j and less <= accepted for (less, i), right in self.cells.items())
            above = any(not right and i == j and more >= accepted for (more, i), right in self.cells.items())
            self.cells[key] = below or (not above and bool(self.choose(2)))
        return self.cells[key]

    def model(self) -> AnyOrderModel:
        """As the schedules see it."""
        return by_accepted([0] * self.length, self.correct)

    def __str__(self) -> str:
        cells = sorted(self.cells.items(), key=lambda cell: (cell[0][1], sorted(cell[0][0])))
        right = ", ".join(f"{j} after {sorted(accepted)}" for (accepted, j), right in cells if right)
        wrong = ", ".join(f"{j} after {sorted(accepted)}" for (accepted, j), right in cells if not right)
        return f"drafts right: {right or 'none'}; wrong: {wrong or 'none'}"


class Chosen:
    """An order for each window and accepted set, chosen when somebody looks; the same for all schedules."""

    def __init__(self, choose: Choose) -> None:
        self.choose = choose
        self.orders: dict[tuple[Tokens, frozenset[int]], Tokens] = {}

    def __call__(self, known: Known) -> Tokens:
        key = known.window, frozenset(j for j, _ in known.accepted)
        if key not in self.orders:
            options = list(permutations(known.window))
            self.orders[key] = options[self.choose(len(options))]
        return self.orders[key]

    def __str__(self) -> str:
        return "orders " + ", ".join(f"{order} after {sorted(accepted)}" for (_, accepted), order in self.orders.items())


class Worst(NamedTuple):
    """A run that needs more calls than one it should not exceed."""

    length: int
    width: int
    text: str


@dataclass
class Comparison:
    """What the runs came to."""

    reached: set[str] = field(default_factory=set)
    runs: int = 0
    packed_worse: list[Worst] = field(default_factory=list)
    quadratic_worse: list[Worst] = field(default_factory=list)

    def run(self, length: int, width: int, order: Order, drafter: Drafter) -> None:
        """All three schedules on one drafter."""
        self.runs += 1
        calls = {}
        for name in SCHEDULES:
            run = generate(drafter.model(), named(name, width, order), (), Limits.of(length))
            calls[name] = run.nfe
            if name == "packed":
                for step in run.steps:
                    rejected = step.accepted < len(step.verified)
                    self.reached |= {REJECTED} if rejected else set()
                    self.reached |= {KEPT} if rejected and step.retained else set()
                    self.reached |= {AHEAD} if any(j > min(step.order) for j in step.order[: step.advance][:1]) else set()
        self.reached.add(FEWER if calls["packed"] < calls["linear"] else EQUAL)
        text = f"L={length}, W={width}, {order}: {calls}; {drafter}"
        if calls["packed"] > calls["linear"]:
            self.packed_worse.append(Worst(length, width, text))
        if calls["quadratic"] > calls["packed"]:
            self.quadratic_worse.append(Worst(length, width, text))


def compared(cases: Iterable[tuple[int, int, Order | None]]) -> Comparison:
    """Every monotone drafter at each (L, W, order); without an order, under every order policy of the accepted set."""
    found = Comparison()
    for length, width, order in cases:

        def run(choose: Choose, length: int = length, width: int = width, order: Order | None = order) -> None:
            found.run(length, width, order or Chosen(choose), Drafter(length, choose))

        for _ in every(run):
            pass
    return found


def _sizes(longest: int) -> list[tuple[int, int]]:
    return [(length, width) for length in range(1, longest + 1) for width in range(1, length + 1)]


def _permutations(sizes: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int, Order | None]]:
    return ((length, width, along(order)) for length, width in sizes for order in permutations(range(1, length + 1)))


def check_fixed(budget: Budget) -> list[Entry]:
    """Orders that what is accepted does not change."""
    longest = 3 if budget == "quick" else 5
    whole = _permutations((length, length) for length in range(1, longest + 1))
    both: tuple[Order, Order] = (left_to_right, right_to_left)
    sliding = ((length, width, order) for length, width in _sizes(longest + 1) for order in both)
    found = compared([*whole, *sliding])
    worse = found.packed_worse or found.quadratic_worse
    missing = [name for name in NEEDED if name not in found.reached]
    return [
        Entry(
            "DOM-FIXED-ORDER",
            "in ltr, rtl, and any permutation in one window Packed-SS needs no more calls than Linear-SS, and Quadratic-SS no"
            " more than Packed-SS",
            "exhaustive",
            f"all monotone drafters; all permutations, W = L <= {longest}; ltr and rtl, W <= L <= {longest + 1}",
            "violated" if worse else "not run" if missing else "holds",
            worse[0].text if worse else f"never reached: {', '.join(missing)}" if missing else f"{found.runs:,} runs of each",
        )
    ]


def _smallest(found: Comparison, size: tuple[int, int], statement: str, bound: str) -> Entry:
    """The entry on a claim that Packed-SS needs more calls from that size on: it holds if that is the smallest case found."""
    smallest = min(found.packed_worse, default=None)
    missing = [name for name in NEEDED if name not in found.reached]
    wrong = not smallest or smallest[:2] != size or bool(found.quadratic_worse)
    evidence = f"{smallest.text}; {len(found.packed_worse):,} of {found.runs:,} runs" if smallest else "no such run"
    if found.quadratic_worse:
        evidence = found.quadratic_worse[0].text
    statement += "; Quadratic-SS never needs more than Packed-SS"
    outcome: Outcome = "violated" if wrong else "not run" if missing else "holds"
    detail = f"never reached: {', '.join(missing)}" if outcome == "not run" else evidence
    return Entry("DOM-ADAPTIVE-ORDER", statement, "exhaustive", bound, outcome, detail)


def check_adaptive(budget: Budget) -> list[Entry]:
    """Orders that what is accepted changes: the smallest runs in which Packed-SS needs more."""
    sizes = _sizes(3) if budget == "quick" else [*_sizes(3), (4, 2), (4, 3)]
    chosen = compared((length, width, None) for length, width in sizes)
    smaller = [size for size in _sizes(3 if budget == "quick" else 4) if size[1] < size[0]]
    slid = [*_permutations(smaller), (5, 3, along((1, 4, 2, 3, 5)))]
    slid += _permutations([(5, 2), (5, 3)]) if budget == "full" else []
    return [
        _smallest(
            chosen,
            (3, 3),
            "in an order chosen anew by the accepted set Packed-SS can need more calls than Linear-SS, from L = 3, W = 3 on",
            f"all such orders and all monotone drafters, {', '.join(f'L={length} W={width}' for length, width in sizes[3:])}",
        ),
        _smallest(
            compared(slid),
            (5, 3),
            "a fixed permutation in a window that slides over it can do the same, from L = 5, W = 3 on",
            f"all monotone drafters; all permutations, W < L <= {smaller[-1][0]}"
            + ("; L=5 W=3: 1,4,2,3,5" if budget == "quick" else "; L=5, W=2 and 3"),
        ),
    ]


CHECKS = (
    Check("any-order/dominance", ("DOM-FIXED-ORDER",), check_fixed),
    Check("any-order/dominance-adaptive", ("DOM-ADAPTIVE-ORDER",), check_adaptive),
)
