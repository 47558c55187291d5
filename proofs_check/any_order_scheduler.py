"""The production any-order scheduler against spec/, call by call, whatever orders, drafter and verifier (Appendix C).

Every model and every order policy of a small size is a leaf of the same enumeration as in `any_order`: the specification runs
on it, then the scheduler, and every call of theirs must agree in its order, its draft, what it accepts, E, and what it keeps.
The serial schedule, which the specification has no name for, is compared with `serial_call` without a draft.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from proofs_check.any_order import NONE, ONE, Choose, Reads, arbitrary, every, serial_call
from proofs_check.ledger import Budget, Check, Entry
from simulator.any_order import Known, State, named
from simulator.chance import Scripted
from simulator.errors import ContractError
from simulator.laws import Point
from simulator.oracles.any_order import AnyOrderModel
from simulator.records import Limits, Step, Tokens
from spec import any_order as spec
from spec.any_order import Given, Pairs

STATEMENTS = {
    "PROPC1": "the scheduler accepts, keeps and returns what Algorithm 3 and its baselines in spec/ do, call by call",
    "ALG3.L5": "the scheduler asks for an order once, before the call, and shows the policy the state before it",
    "PROGRESS": "every call of the scheduler that verifies leaves fewer positions up to E unresolved, and the run ends",
}
Name = Literal["packed", "quadratic", "linear", "serial"]
NAMES: tuple[Name, ...] = ("packed", "quadratic", "linear", "serial")
_NO_COINS = Scripted({}).at(1)

REJECTED = "a draft token rejected"
WINDOW = "a window of 2 or more accepted in full"
GAP = "a rank without a draft before one with a draft"
REMOVED = "an EOS that discards accepted pairs"
TWICE = "E lowered in two calls"
BRANCH = "a branch b > 0 taken with draft left"
UNTEXTUAL = "an order that is not textual"
PROMPT = "a call that only reads the prompt"
REACHED = (REJECTED, WINDOW, GAP, REMOVED, TWICE, BRANCH, UNTEXTUAL, PROMPT)


class Later(Point):
    """A point mass on a token that is chosen when somebody looks."""

    __slots__ = ("cell",)

    def __init__(self, cell: Any) -> None:  # a Cell
        self.cell = cell

    @property
    def token(self) -> int:  # type: ignore[override]
        return int(self.cell[0])


class _Asked(ContractError):
    """The policy was asked at another time, or shown something else, than by the specification."""


class Space(NamedTuple):
    """All models on V tokens and all order policies."""

    schedule: Name
    V: int
    L: int
    W: int
    EOS: frozenset[int]
    start: Literal["algorithm", "prompt"] = "algorithm"


def spaces(budget: Budget) -> list[Space]:
    """In rising size, so that the first counterexample is a smallest one."""
    small = [(L, W) for L in (1, 2, 3) for W in range(1, L + 1) if (L, W) != (3, 3)]
    family = [Space(name, 2, L, W, EOS) for L, W in small for name in NAMES for EOS in (NONE, ONE)]
    family += [Space(name, 2, 2, 2, ONE, "prompt") for name in NAMES]
    family += [
        Space("quadratic", 1, 4, 3, NONE),
        Space("packed", 2, 3, 3, NONE),
        Space("packed", 2, 3, 3, ONE),
        Space("quadratic", 2, 3, 3, NONE),
    ]
    if budget == "full":
        family += [Space(name, 2, 3, 3, EOS) for name in NAMES[1:] for EOS in (NONE, ONE)]
        family += [Space(name, 2, 4, 2, EOS) for name in NAMES for EOS in (NONE, ONE)]
        family += [Space("packed", 2, 4, 3, ONE), Space("packed", 3, 3, 3, ONE)]
    return family


@dataclass
class Findings:
    """What the runs went through, and the smallest counterexample to each claim."""

    reached: Counter[str] = field(default_factory=Counter)
    faults: dict[str, str] = field(default_factory=dict)
    runs: int = 0
    calls: int = 0

    def watch(self, space: Space, given: Given) -> bool:
        """One leaf: the specification, then the scheduler. False if something is wrong."""
        self.runs += 1
        try:
            claim, text = self._serial(space, given) if space.schedule == "serial" else self._follow(space, given)
        except _Asked as error:
            claim, text = "ALG3.L5", str(error)
        except ContractError as error:
            claim, text = "PROGRESS", str(error)
        if claim:
            eos = f", EOS {sorted(space.EOS)}" if space.EOS else ""
            where = f"{space.schedule}, start {space.start}, V={space.V}, L={space.L}, W={space.W}{eos}"
            self.faults.setdefault(claim, f"{where}: {text}")
        return not claim

    def _follow(self, space: Space, given: Given) -> tuple[str, str]:
        """(claim, what is wrong), or ("", "")."""
        reads = Reads(given)
        name: Any = space.schedule
        run = spec.run(name, reads.given, space.start)
        orders = iter(reads.orders)

        def policy(known: Known) -> Tokens:
            asked = next(orders, None)
            if asked is None:
                raise _Asked("the scheduler asks for more orders than the specification")
            window, before, _, _, order = asked
            seen = known.window, known.accepted, tuple((j, each.token) for j, each in known.draft.items()), known.end
            if seen != (window, before.P, before.D, before.E):
                raise _Asked(f"the policy is shown {seen}, the state before the call is {(window, *before)}")
            return order

        schedule = named(space.schedule, space.W, policy, space.start)
        state: Any = schedule.init(given.prompt, Limits.of(space.L, space.EOS))
        model = AnyOrderModel(lambda pairs, j: Later(given.p(pairs, j)), lambda pairs, j: Later(given.q(pairs, j)))
        lowered = 0
        transitions = zip(run.states, run.records, run.states[1:], strict=False)
        for number, (before, record, after) in enumerate(transitions, 1):
            if state.stop is not None:
                return "PROPC1", f"it ends after {number - 1} calls, the specification makes {run.NFE}"
            self.calls += 1
            call = schedule.request(state)
            earlier = state
            state, step = schedule.absorb(state, call, model(call), _NO_COINS)
            wrong = _differing(state, step, record, after)
            if wrong:
                return "PROPC1", f"call {number}: {wrong}"
            if step.advance and not _unresolved(state) < _unresolved(earlier):
                return "PROGRESS", f"call {number} leaves {_unresolved(state)} positions up to E={state.end} unresolved"
            lowered += after.E < before.E
            self._reach(call, step, before, after, lowered)
        if state.stop is None:
            return "PROGRESS", f"it has not ended after the {run.NFE} calls of the specification"
        if next(orders, None) is not None:
            return "ALG3.L5", "it asks for fewer orders than the specification"
        return ("", "") if state.prefix == run.P else ("PROPC1", f"it returns {state.prefix}, the specification {run.P}")

    def _serial(self, space: Space, given: Given) -> tuple[str, str]:
        def policy(known: Known) -> Tokens:
            return given.order(known.window, spec.State(known.accepted, (), (), known.end))

        schedule = named("serial", space.W, policy, space.start)
        state: Any = schedule.init(given.prompt, Limits.of(space.L, space.EOS))
        model = AnyOrderModel(lambda pairs, j: Later(given.p(pairs, j)), lambda pairs, j: Later(given.q(pairs, j)))
        number, begun, lowered = 0, space.start == "algorithm", 0
        while state.stop is None:
            number += 1
            self.calls += 1
            if number > space.L + 1:
                return "PROGRESS", f"it has not ended after {number - 1} calls"
            before = state
            call = schedule.request(state)
            state, _ = schedule.absorb(state, call, model(call), _NO_COINS)
            if not begun:
                begun = True
                continue
            expected = serial_call(given, before.accepted, {}, call.order[:1], before.end)
            if (state.accepted, state.end) != (expected.kept, expected.end) or len(call.order) != 1:
                return "PROPC1", f"call {number} leaves {state.accepted}, E={state.end}, not {expected}"
            if not _unresolved(state) < _unresolved(before):
                return "PROGRESS", f"call {number} resolves nothing"
            lowered += state.end < before.end
            self.reached[TWICE] += lowered > 1
        return "", ""

    def _reach(self, call: Any, step: Step, before: spec.State, after: spec.State, lowered: int) -> None:
        drafted = [j in dict(call.draft) for j in step.order]
        for name, happened in {
            REJECTED: step.accepted < len(step.verified),
            WINDOW: step.advance == step.accepted == len(step.order) >= 2,
            GAP: step.advance and True in drafted[drafted.index(False) :] if False in drafted else False,
            REMOVED: any(j > after.E for j, _ in before.P),
            TWICE: lowered > 1,
            BRANCH: bool(step.branch) and step.retained > 0,
            UNTEXTUAL: list(step.order) != sorted(step.order),
            PROMPT: not step.order,
        }.items():
            if happened:
                self.reached[name] += 1


def _unresolved(state: State) -> int:
    return state.end - len(state.accepted)


def _differing(state: State, step: Step, record: spec.Record, after: spec.State) -> str:
    """Where a step of the scheduler is not that of the specification."""
    committed: Pairs = tuple(pair for pair in record.C if pair[0] <= after.E)
    positions = tuple(j for j in step.order[: step.advance] if j <= after.E)
    for what, ours, theirs in (
        ("order", step.order, record.pi),
        ("h", step.accepted, record.h),
        ("A", step.advance, len(record.C)),
        ("accepted", tuple(zip(positions, step.committed, strict=True)), committed),
        ("E", (state.end, step.end), (after.E, after.E)),
        ("P", state.accepted, after.P),
        ("D", tuple((each.position, each.token) for each in state.draft), after.D),
        ("fixed order", state.order, after.pi),
    ):
        if ours != theirs:
            return f"{what} is {ours}, in the specification {theirs}"
    return ""


def check_scheduler(budget: Budget) -> Iterator[Entry]:
    """Every space of the budget to its last leaf, or to its first fault."""
    findings = Findings()
    missing = []
    family = spaces(budget)
    for space in family:

        def run(choose: Choose, space: Space = space) -> bool:
            return findings.watch(space, arbitrary(space.V, space.W, space.L, space.EOS, choose))

        shares: Counter[int] = Counter()
        for fine, options in every(run):
            shares[options] += 1
            if not fine:
                break
        if sum(Fraction(leaves, options) for options, leaves in shares.items()) != 1:
            missing.append(f"all leaves of {space}")
    missing += [name for name in REACHED if not findings.reached[name]]
    largest = {space.schedule: (space.V, space.L, space.W) for space in sorted(family, key=lambda s: (s.V, s.L, s.W))}
    bound = "all verifiers, drafters and orders: " + "; ".join(
        f"{name} to V={v} L={length} W={width}" for name, (v, length, width) in largest.items()
    )
    for claim, statement in STATEMENTS.items():
        if claim in findings.faults:
            yield Entry(claim, statement, "exhaustive", bound, "violated", findings.faults[claim])
        elif missing:
            yield Entry(claim, statement, "exhaustive", bound, "not run", f"never reached: {', '.join(missing)}")
        else:
            evidence = f"{findings.runs:,} leaves, of weight 1 in each of {len(family)} spaces, {findings.calls:,} calls"
            yield Entry(claim, statement, "exhaustive", bound, "holds", evidence)


CHECKS = (Check("any-order/scheduler", tuple(STATEMENTS), check_scheduler),)
