"""Every schedule under every start, exactly: the chain of the production scheduler against the law it must have.

Each check runs one schedule under one start over a family of instances. An instance is a pair of tables, a prompt, limits and
a width; its chain gives the law of the output, compared as rationals with autoregressive sampling, and of everything else that
is asked here: calls, rows, and how often each branch is taken.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from proofs_check.counterexample import Instance, calls_finding, difference, find, law_finding
from proofs_check.ledger import Budget, Check, Entry, Outcome
from simulator.errors import ContractError
from simulator.exact import ExactLaw, Visit, summed, visits
from simulator.laws import RationalLaw
from simulator.oracles import TabularModel, ThresholdModel, random_tables
from simulator.oracles.answer import Oracle
from simulator.processing import Processing, processed
from simulator.records import Limits, Tokens
from simulator.schedule import Schedule
from simulator.schedules import STARTS, Width, ar, branches, linear, packed, quadratic

SCHEDULES: dict[str, Callable[[Width, str], Schedule]] = {
    "ar": lambda width, start: ar(start),
    "linear": linear,
    "packed": packed,
    "quadratic": quadratic,
    "branches:0,2": lambda width, start: branches((0, 2), width, start),
}
RUNS = [(name, start) for name in SCHEDULES for start in STARTS if name != "ar" or start in ("algorithm", "prompt")]


def near_equal(vocabulary: int, share: Fraction) -> TabularModel:
    """Targets that depend on the position alone, and proposals that are the target's law but for a `share` of the uniform."""

    def target(prefix: Tokens) -> RationalLaw:
        rng = random.Random(len(prefix))
        return RationalLaw.weighted(rng.randint(1, 5) for _ in range(vocabulary))

    def proposal(prefix: Tokens, offset: int) -> RationalLaw:
        law = target((0,) * (len(prefix) + offset - 1))
        return RationalLaw((1 - share) * p + share / vocabulary for p in law.probabilities)

    return TabularModel(target, proposal)


def disjoint(vocabulary: int) -> TabularModel:
    """The target never emits the last token and the drafter proposes no other: every test fails."""

    def target(prefix: Tokens) -> RationalLaw:
        rng = random.Random(repr(prefix))
        return RationalLaw.weighted([*(rng.randint(1, 5) for _ in range(vocabulary - 1)), 0])

    return TabularModel(target, lambda prefix, offset: RationalLaw.weighted([0] * (vocabulary - 1) + [1]))


def truncated(name: str, tables: TabularModel, target: Processing, proposal: Processing, limits: Limits) -> Instance:
    """Tables of 3 tokens behind the production processing, W = 3; the reference processes its laws itself."""
    laws = TabularModel(
        lambda prefix: target(prefix, tables.target(prefix)), lambda prefix, j: proposal(prefix, tables.proposal(prefix, j))
    )
    return Instance(name, processed(tables, target, proposal), laws, 3, limits, 3)


def sampling_instances(budget: Budget, start: str) -> Iterator[Instance]:
    """The largest first; then every way to end, to process and to vary the width; drafters near the target and far from it."""

    def plain(name: str, laws: Oracle, limits: Limits, width: Width, prompt: Tokens = ()) -> Instance:
        return Instance(name, laws, laws, 3, limits, width, prompt)

    if budget == "full" and start == "algorithm":
        large = random_tables(4, 0, top_weight=9)
        yield Instance("tables of 4 tokens", large, large, 4, Limits.of(6), 4)
    if budget == "full" or start == "algorithm":
        yield plain("tables", random_tables(3, 0), Limits.of(6), 4)
    for seed in range(3 if budget == "full" else 1):
        tables, name = random_tables(3, seed), f"tables {seed}"
        for eos in (None, 2, (0, 2)):
            yield plain(name, tables, Limits.of(5, eos), 3)
        for length in range(5):
            yield plain(name, tables, Limits.of(length, 2, [(0, 1), (1, 0, 1)]), 3)
        yield plain(name, tables, Limits.of(5, None, [(1, 1), (0, 1, 0), (2,)]), 3)
        yield plain(name, tables, Limits.of(4, 2), 3, (1, 2))
        for widths in ((3, 0, 1), (0, 2)):
            yield plain(name, tables, Limits.of(5), widths)
        top_k, top_p = Processing(top_k=2), Processing(top_p=Fraction(3, 4))
        yield truncated(f"{name}, top-k 2 on both sides", tables, top_k, top_k, Limits.of(4))
        yield truncated(f"{name}, target top-k 2, proposals top-p 3/4", tables, top_k, top_p, Limits.of(4))
        yield truncated(f"{name}, target top-p 3/4, proposals top-k 2", tables, top_p, top_k, Limits.of(4, 2))
        yield truncated(f"{name}, greedy proposals", tables, Processing(), Processing(temperature=0), Limits.of(4))
    yield plain("proposals equal to the target", near_equal(3, Fraction(0)), Limits.of(4), 3)
    yield plain("proposals nearly equal to the target", near_equal(3, Fraction(1, 1000)), Limits.of(4), 3)
    yield plain("proposals disjoint from the target", disjoint(3), Limits.of(5, 0), 3)


def greedy_instances(budget: Budget) -> Iterator[Instance]:
    """Point masses: tables at temperature 0, whose drafter obeys nothing, and drafters of Assumption 3.1."""
    for seed in range(20 if budget == "full" else 5):
        laws = random_tables(3, seed).greedy()
        for limits, prompt in ((Limits.of(6), ()), (Limits.of(6, 2), ()), (Limits.of(6, 2), (1, 2))):
            yield Instance(f"greedy tables {seed}", laws, laws, 3, limits, 4, prompt)
    for thresholds in itertools.product(*(sorted({0, k - 1, k}) for k in range(1, 6))):
        drafter = ThresholdModel(thresholds, (0, 1, 0, 1, 2), vocabulary=3)
        yield Instance(f"thresholds {thresholds}", drafter, drafter, 3, Limits.of(5, stop=[(1, 0, 1)]), 3)
        yield Instance(f"thresholds {thresholds}", drafter, drafter, 3, Limits.of(6, 2), 3)


# --- what was reached -------------------------------------------------------------------------------------------------------

MANY = "two or more possible outputs"
REJECTION = "a rejection"
TWO_WAYS = "a correction with two or more possible tokens"
EXCLUDED = "a draft token that the target excludes"
WINDOW = "a fully accepted draft of 2 or more"
KEPT = "a draft that outlives a rejection"
BRANCH = "a branch b > 0 taken with draft left"
NOTHING_DRAFTED = "a call of width 0 that verifies"
CUT = "a block cut by "
CUTS = (CUT + "an EOS", CUT + "an end marker", CUT + "the length limit")
NO_CALL = "a request that makes no call"
STARTED = "a first call"


def needed(schedule: str, start: str) -> dict[str, tuple[str, ...]]:
    """What an entry about each claim must have reached, else it is not run."""
    # The start `algorithm` is the schedule's own loop, whose calls NFE-CONV compares.
    first_calls = {} if start == "algorithm" else {"INIT": (STARTED,)}
    if schedule == "ar":
        return {"THM3.3": (MANY,), "COR-GREEDY": (), "STOP": (NO_CALL,), "PROGRESS": (), "NFE-CONV": (), **first_calls}
    blocks: tuple[str, ...] = (REJECTION, EXCLUDED, WINDOW)
    if schedule != "linear":
        blocks += (KEPT,)
    if schedule not in ("linear", "packed"):
        blocks += (BRANCH,)
    changing = () if schedule == "linear" else (NOTHING_DRAFTED,)
    return {
        "THM3.3": (MANY, TWO_WAYS, *blocks, *changing),
        "COR-GREEDY": blocks,
        "STOP": (*CUTS, NO_CALL),
        "PROGRESS": (REJECTION, WINDOW, *changing),
        "NFE-CONV": (MANY, *blocks),
        **first_calls,
    }


@dataclass
class Reached:
    """What a family of runs went through: `seen` holds the conditions above."""

    seen: set[str] = field(default_factory=set)

    def visit(self, visit: Visit) -> None:
        """What shows only in the laws that meet in a call."""
        call, reply, draft = visit.call, visit.reply, visit.state.draft
        if call is None or reply is None or not call.verify:
            return
        if call.branches and not call.width:
            self.seen.add(NOTHING_DRAFTED)
        for target, law, token in zip(reply.target, draft.laws, draft.tokens, strict=False):
            p = target.probability(token)
            if TWO_WAYS not in self.seen and p < law.probability(token):
                residual = target.residual(law)
                self.seen |= {TWO_WAYS} if residual and len(residual.support) > 1 else set()
            if p == 0:
                self.seen.add(EXCLUDED)
                return

    def law(self, law: ExactLaw) -> None:
        """What shows in the calls of an instance, each of which has positive probability."""
        self.seen.add(NO_CALL if law.nfe == {0: 1} else STARTED)
        if len(law.output) > 1:
            self.seen.add(MANY)
        for kind in law.kinds:
            rejected, cut = kind.accepted < kind.verified, kind.committed < kind.advance
            events = {
                REJECTION: rejected,
                WINDOW: kind.accepted == kind.verified >= 2,
                KEPT: rejected and kind.branch is not None and kind.retained > 0,
                BRANCH: bool(kind.branch) and kind.retained > 0,
                CUT + "an EOS": cut and kind.stop == "eos",
                CUT + "an end marker": cut and kind.stop == "stop",
                CUT + "the length limit": cut and kind.stop == "length",
            }
            self.seen |= {name for name, happened in events.items() if happened}


# --- the check --------------------------------------------------------------------------------------------------------------

STATEMENTS = {
    "THM3.3": "the continuation has the autoregressive law",
    "COR-GREEDY": "with point masses the continuation is the greedy one",
    "STOP": "EOS, end markers and the length limit cut the output where they cut the autoregressive one",
    "PROGRESS": "every call that verifies emits a token, and every run ends",
    "NFE-CONV": "the call count is that of the declared policy",
    "INIT": "the first calls are those of the start",
}


@dataclass
class Tally:
    """What the instances about one claim came to."""

    instances: list[Instance] = field(default_factory=list)
    transitions: int = 0
    reached: Reached = field(default_factory=Reached)
    fault: str = ""  # the first
    note: str = ""

    def entry(self, claim: str, run: str, conditions: tuple[str, ...]) -> Entry:
        missing = [condition for condition in conditions if condition not in self.reached.seen]
        if not self.instances:
            missing.append("any instance")
        outcome: Outcome = "violated" if self.fault else "not run" if missing else "holds"
        good = f"{self.transitions:,} transitions in {len(self.instances)} instances, equal as rationals{self.note}"
        detail = {"violated": self.fault, "not run": f"never reached: {', '.join(missing)}"}.get(outcome, good)
        return Entry(claim, f"{run}: {STATEMENTS[claim]}", "exact", self.bound(), outcome, detail)

    def bound(self) -> str:
        lengths = max((instance.limits.max_new_tokens for instance in self.instances), default=0)
        widths = max((width_of(instance) for instance in self.instances), default=0)
        vocabulary = max((instance.vocabulary for instance in self.instances), default=0)
        models = len({instance.name for instance in self.instances})
        return f"V<={vocabulary}, L<={lengths}, W<={widths}, {models} models"


def check_chain(name: str, start: str, budget: Budget) -> list[Entry]:
    """One schedule under one start: its laws, its calls, its stops and its first calls."""
    conditions = needed(name, start)
    tallies = {claim: Tally() for claim in conditions}
    cases = [(instance, "THM3.3") for instance in sampling_instances(budget, start)]
    cases += [(instance, "COR-GREEDY") for instance in greedy_instances(budget)]
    largest = 0
    for instance, about in cases:
        schedule = SCHEDULES[name](instance.width, start)
        claims = [about, "PROGRESS", *["STOP"] * ends_early(instance), *["NFE-CONV"] * comparable(instance, budget)]
        claims += ["INIT"] if "INIT" in tallies else []
        watch = Watch(start if name != "linear" or start != "wide" else "sampled", width_of(instance, first=True))
        try:
            law = summed(watch(visits(schedule, instance.model, instance.prompt, instance.limits, instance.patience)))
        except ContractError as error:
            tallies["PROGRESS"].fault = tallies["PROGRESS"].fault or f"{error}\n  instance: {instance}"
            continue
        for claim in claims:
            tally = tallies[claim]
            tally.instances.append(instance)
            tally.transitions += law.transitions
            tally.reached.seen |= watch.reached.seen
            tally.reached.law(law)
        for claim, fault in (("PROGRESS", watch.idle), ("INIT", watch.opening)):
            if fault and not tallies[claim].fault:
                tallies[claim].fault = f"{fault}\n  instance: {instance}"
        laws = {about, "STOP"} & set(claims)
        if difference(law.output, instance) and not all(tallies[claim].fault for claim in laws):
            found = find(partial(_make, name, start)) or law_finding(schedule, instance)
            for claim in laws:
                tallies[claim].fault = tallies[claim].fault or (found.text if found else "")
        if "NFE-CONV" in claims and not tallies["NFE-CONV"].fault:
            found = calls_finding(law.nfe, name, start, instance)
            tallies["NFE-CONV"].fault = found.text if found else ""
        if about == "THM3.3" and law.transitions > largest:
            largest, tallies[about].note = law.transitions, f"; {instance}: {described(law)}"
    run = f"{name}, start {start}"
    return [tallies[claim].entry(claim, run, conditions[claim]) for claim in conditions]


class Watch:
    """Looks at every visit of one instance while it is summed."""

    def __init__(self, start: str, width: int) -> None:
        self.reached = Reached()
        self.idle = self.opening = ""  # what is wrong
        self.first_calls = OPENINGS[start](width)

    def __call__(self, chain: Iterable[Visit]) -> Iterator[Visit]:
        for visit in chain:
            call = visit.call
            if call is not None:
                self.reached.visit(visit)
                if call.verify and not all(step.committed for _, (_, step) in visit.outcomes):
                    self.idle = self.idle or f"a call that verifies emits nothing: {call}"
                if visit.calls < len(self.first_calls):
                    asked = (call.verify, call.branches, call.width, len(call.draft))
                    if asked != self.first_calls[visit.calls]:
                        self.opening = self.opening or f"call {visit.calls + 1} is {call}"
            yield visit


OPENINGS: dict[str, Callable[[int], list[tuple[bool, Tokens, int, int]]]] = {
    "algorithm": lambda width: [],  # no call before the loop
    "prompt": lambda width: [(False, (), 0, 0)],
    "sampled": lambda width: [(True, (), 0, 0), (False, (0,), width, 0)],
    "wide": lambda width: [(True, (0,), width + 1, 0)],
}
"""INIT: whether each of the first calls verifies, the branches and the width it drafts, and the draft it finds."""


def _make(name: str, start: str, width: int) -> Schedule:
    return SCHEDULES[name](width, start)


def width_of(instance: Instance, first: bool = False) -> int:
    """W, the largest or the first of several."""
    if isinstance(instance.width, int):
        return instance.width
    return instance.width[0] if first else max(instance.width)


def ends_early(instance: Instance) -> bool:
    """Whether anything but a limit L > 0 can end the request."""
    return bool(instance.limits.eos or instance.limits.stop or not instance.limits.max_new_tokens)


def comparable(instance: Instance, budget: Budget) -> bool:
    """Whether spec, which has one width and is slow, is asked for its number of calls."""
    small = instance.vocabulary <= 3 and (budget == "full" or instance.limits.max_new_tokens <= 5)
    return small and isinstance(instance.width, int)


def described(law: ExactLaw) -> str:
    """A law in a few rounded figures; `exact_law` has them all as rationals."""
    by_branch: defaultdict[str, Fraction] = defaultdict(Fraction)
    for kind, weight in law.kinds.items():
        by_branch["none" if kind.branch is None else str(kind.branch)] += weight
    shares = ", ".join(f"{branch} {float(by_branch[branch]):.4f}" for branch in sorted(by_branch))
    calls = ", ".join(f"{count} {float(law.nfe[count]):.4f}" for count in sorted(law.nfe))
    rejecting = sum((weight for kind, weight in law.kinds.items() if kind.accepted < kind.verified), Fraction(0))
    return (
        f"E[NFE] {float(law.expected_nfe):.6f}, P(NFE) {calls}; E[rows] {float(law.expected_rows):.4f};"
        f" expected calls by branch {shares}; with a rejection {float(rejecting):.4f}"
    )


CHECKS = tuple(
    Check(f"chain/{name}/{start}", tuple(needed(name, start)), partial(check_chain, name, start)) for name, start in RUNS
)
