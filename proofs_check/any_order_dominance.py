"""Calls of Packed-SS and Linear-SS in other orders than the textual one: every monotone drafter of a small size, exhaustively.

The drafter is Assumption 3.1 without a left and a right: what is right at position j stays right when more is accepted. In a
fixed order Packed-SS needs no more calls than Linear-SS. In an order that is chosen anew from what has been accepted it can: a
call of Packed-SS may put first what Linear-SS, whose verifying call has a fresh draft, gets to later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import permutations
from typing import NamedTuple

from proofs_check.any_order import Choose, every
from proofs_check.ledger import Budget, Check, Entry
from simulator.any_order import Known, named
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


def compared(sizes: Iterable[tuple[int, int]], fixed: bool) -> Comparison:
    """Every monotone drafter; in every fixed order, or under every order policy of the accepted set."""
    found = Comparison()
    for length, width in sizes:
        orders: Iterator[Order | None] = map(along, permutations(range(1, length + 1))) if fixed else iter((None,))
        for order in orders:

            def run(choose: Choose, length: int = length, width: int = width, order: Order | None = order) -> None:
                found.run(length, width, order or Chosen(choose), Drafter(length, choose))

            for _ in every(run):
                pass
    return found


def _sizes(longest: int) -> list[tuple[int, int]]:
    return [(length, width) for length in range(1, longest + 1) for width in range(1, length + 1)]


def check_fixed(budget: Budget) -> list[Entry]:
    """Fixed orders: all of them."""
    sizes = _sizes(3) if budget == "quick" else [*_sizes(4), (5, 3), (5, 5)]
    found = compared(sizes, fixed=True)
    worse = found.packed_worse or found.quadratic_worse
    missing = [name for name in NEEDED if name not in found.reached]
    return [
        Entry(
            "DOM-FIXED-ORDER",
            "in any fixed order Packed-SS needs no more calls than Linear-SS, and Quadratic-SS no more than Packed-SS",
            "exhaustive",
            f"all permutations and all monotone drafters, L <= {sizes[-1][0]}, {len(sizes)} pairs of L and W",
            "violated" if worse else "not run" if missing else "holds",
            worse[0].text if worse else f"never reached: {', '.join(missing)}" if missing else f"{found.runs:,} runs of each",
        )
    ]


def check_adaptive(budget: Budget) -> list[Entry]:
    """Orders chosen by what is accepted: the smallest run in which Packed-SS needs more."""
    sizes = _sizes(3) if budget == "quick" else [*_sizes(3), (4, 2), (4, 3)]
    found = compared(sizes, fixed=False)
    smallest = min(found.packed_worse, default=None)
    missing = [name for name in NEEDED if name not in found.reached]
    wrong = not smallest or smallest[:2] != (3, 3) or bool(found.quadratic_worse)
    evidence = f"{smallest.text}; {len(found.packed_worse):,} of {found.runs:,} runs" if smallest else "no such run"
    if found.quadratic_worse:
        evidence = found.quadratic_worse[0].text
    return [
        Entry(
            "DOM-ADAPTIVE-ORDER",
            "in an order chosen anew by the accepted set Packed-SS can need more calls than Linear-SS, from L = 3, W = 3 on;"
            " Quadratic-SS never needs more than Packed-SS",
            "exhaustive",
            f"all such orders and all monotone drafters, {', '.join(f'L={length} W={width}' for length, width in sizes[3:])}",
            "violated" if wrong else "not run" if missing else "holds",
            f"never reached: {', '.join(missing)}" if missing and not wrong else evidence,
        )
    ]


CHECKS = (
    Check("any-order/dominance", ("DOM-FIXED-ORDER",), check_fixed),
    Check("any-order/dominance-adaptive", ("DOM-ADAPTIVE-ORDER",), check_adaptive),
)
