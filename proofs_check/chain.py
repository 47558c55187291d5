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
from typing import NamedTuple

from proofs_check.ledger import Budget, Check, Entry, Outcome
from simulator.decode import Model
from simulator.exact import ExactLaw, Visit, autoregressive_law, summed, visits
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


class Instance(NamedTuple):
    """One request: what the model is, what is asked of it, and how wide the schedule drafts."""

    name: str
    model: Model  # what the schedule runs on
    laws: Oracle  # the laws that amounts to, for the reference
    limits: Limits
    width: Width
    prompt: Tokens = ()
    greedy: bool = False

    def __str__(self) -> str:
        ends = [f"L={self.limits.max_new_tokens}", f"W={self.width}"]
        ends += [f"EOS {sorted(self.limits.eos)}"] if self.limits.eos else []
        ends += [f"end markers {[list(marker) for marker in self.limits.stop]}"] if self.limits.stop else []
        ends += [f"prompt {list(self.prompt)}"] if self.prompt else []
        return f"{self.name}, {', '.join(ends)}"


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


def truncated(name: str, tables: TabularModel, target: Processing, proposal: Processing, *where: object) -> Instance:
    """Tables behind the production processing; the reference processes its laws itself."""
    laws = TabularModel(
        lambda prefix: target(prefix, tables.target(prefix)), lambda prefix, j: proposal(prefix, tables.proposal(prefix, j))
    )
    return Instance(name, processed(tables, target, proposal), laws, *where)  # type: ignore[arg-type]


def instances(budget: Budget, start: str) -> Iterator[Instance]:
    """The family of a check: the largest instance first, then every way to end, to process, to vary the width."""

    def plain(name: str, laws: Oracle, *where: object, greedy: bool = False) -> Instance:
        return Instance(name, laws, laws, *where, greedy=greedy)  # type: ignore[arg-type]

    tables = random_tables(3, 0)
    if budget == "full":
        yield plain("tables of 4 tokens", random_tables(4, 0, 9), Limits.of(6), 4)
    if budget == "full" or start == "algorithm":
        yield plain("tables", tables, Limits.of(6), 4)
        yield plain("greedy tables", tables.greedy(), Limits.of(6, 2), 4, greedy=True)
    for seed in range(3 if budget == "full" else 1):
        tables = random_tables(3, seed)
        for eos in (None, 2, (0, 2)):
            yield plain(f"tables {seed}", tables, Limits.of(5, eos), 3)
            yield plain(f"greedy tables {seed}", tables.greedy(), Limits.of(5, eos), 3, greedy=True)
        for length in range(5):
            yield plain(f"tables {seed}", tables, Limits.of(length, 2, [(0, 1), (1, 0, 1)]), 3)
        yield plain(f"tables {seed}", tables, Limits.of(5, None, [(1, 1), (0, 1, 0), (2,)]), 3)
        yield plain(f"tables {seed}", tables, Limits.of(4, 2), 3, (1, 2))
        yield plain(f"greedy tables {seed}", tables.greedy(), Limits.of(4, 2), 3, (1, 2), greedy=True)
        for widths in ((3, 0, 1), (0, 2)):
            yield plain(f"tables {seed}", tables, Limits.of(5), widths)
        top_k, top_p = Processing(top_k=2), Processing(top_p=Fraction(3, 4))
        yield truncated(f"tables {seed}, top-k 2 on both sides", tables, top_k, top_k, Limits.of(4), 3)
        yield truncated(f"tables {seed}, top-k 2 | top-p 3/4", tables, top_k, top_p, Limits.of(4), 3)
        yield truncated(f"tables {seed}, top-p 3/4 | top-k 2", tables, top_p, top_k, Limits.of(4, 2), 3)
        yield truncated(f"tables {seed}, as is | top-k 1", tables, Processing(), Processing(top_k=1), Limits.of(4), 3)
    for thresholds in itertools.product(*(range(k + 1) for k in range(1, 5))):
        drafter = ThresholdModel(thresholds, (0, 1, 0, 2), vocabulary=3)
        yield plain(f"thresholds {thresholds}", drafter, Limits.of(4, 2), 2, greedy=True)
    yield plain("equal laws", near_equal(3, Fraction(0)), Limits.of(4), 3)
    yield plain("nearly equal laws", near_equal(3, Fraction(1, 1000)), Limits.of(4), 3)
    yield plain("disjoint laws", disjoint(3), Limits.of(5, 0), 3)


@dataclass
class Reached:
    """What a family of runs went through. A check whose interesting branches were not reached says nothing (not run)."""

    seen: set[str] = field(default_factory=set)

    def visit(self, visit: Visit) -> None:
        """A rejection whose correction is not forced, and zeros on both sides."""
        call, reply, draft = visit.call, visit.reply, visit.state.draft
        if call is None or reply is None or not call.verify:
            return
        if not call.width and call.branches:
            self.seen.add(NOTHING_DRAFTED)
        for target, law, token in zip(reply.target, draft.laws, draft.tokens, strict=False):
            p, q = target.probability(token), law.probability(token)
            if p == 0:
                self.seen.add(EXCLUDED)
            if p < q and TWO_WAYS not in self.seen:
                residual = target.residual(law)
                self.seen |= {TWO_WAYS} if residual and len(residual.support) > 1 else set()
            if p == 0:
                return

    def law(self, law: ExactLaw) -> None:
        """Of one instance; every kind of call in it has positive probability."""
        self.seen |= {NO_CALL} if law.nfe == {0: 1} else set()
        for kind in law.kinds:
            rejected, cut = kind.accepted < kind.verified, kind.committed < kind.advance
            self.seen |= {
                name
                for name, happened in {
                    REJECTION: rejected,
                    KEPT: rejected and kind.retained and kind.branch is not None,
                    WINDOW: not rejected and kind.verified >= 2,
                    CUT + "an EOS": kind.stop == "eos" and cut,
                    CUT + "an end marker": kind.stop == "stop" and cut,
                    CUT + "the length limit": kind.stop == "length" and cut,
                    BRANCH: kind.branch and kind.retained,
                }.items()
                if happened
            }


REJECTION = "a rejection"
TWO_WAYS = "a correction with two or more possible tokens"
EXCLUDED = "a draft token that the target excludes"
WINDOW = "a fully accepted draft of 2 or more"
KEPT = "a draft that outlives a rejection"
BRANCH = "a branch b > 0 taken with draft left"
CUT = "a block cut by "
CUTS = tuple(CUT + what for what in ("an EOS", "an end marker", "the length limit"))
NO_CALL = "a request that makes no call"
NOTHING_DRAFTED = "a call of width 0"


def expected(schedule: str) -> dict[str, tuple[str, ...]]:
    """What must have been reached for an entry about a claim to say anything."""
    law: tuple[str, ...] = ()
    cuts: tuple[str, ...] = ()
    if schedule != "ar":
        law, cuts = (REJECTION, TWO_WAYS, EXCLUDED, WINDOW), CUTS
    if schedule not in ("ar", "linear"):
        law += (KEPT, NOTHING_DRAFTED)
    if schedule not in ("ar", "linear", "packed"):
        law += (BRANCH,)
    points = tuple(name for name in law if name not in (TWO_WAYS, NOTHING_DRAFTED))
    return {"THM3.3": law, "COR-GREEDY": points, "STOP": (*cuts, NO_CALL)}


def check_chain(name: str, start: str, budget: Budget) -> list[Entry]:
    """One schedule under one start."""
    reached: defaultdict[str, Reached] = defaultdict(Reached)
    faults: dict[str, str] = {}
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for instance in instances(budget, start):
        schedule = SCHEDULES[name](instance.width, start)
        stops = instance.limits.eos or instance.limits.stop or not instance.limits.max_new_tokens
        claims = ["COR-GREEDY" if instance.greedy else "THM3.3", *(["STOP"] if stops else [])]
        law = summed(_watched(visits(schedule, instance.model, instance.prompt, instance.limits), reached, claims))
        for claim in claims:
            reached[claim].law(law)
            counts[claim].append(law.transitions)
        reference = autoregressive_law(instance.laws.target, instance.prompt, instance.limits)
        if law.output != reference:
            for claim in claims:
                faults.setdefault(claim, f"{instance}: {_worst(law.output, reference)}")
    statements = {
        "THM3.3": "the continuation has the autoregressive law",
        "COR-GREEDY": "with point masses the continuation is the greedy one",
        "STOP": "EOS, end markers and the length limit cut the output where they cut the autoregressive one",
    }
    return [
        _entry(claim, f"{name}, start {start}: {statements[claim]}", faults, reached[claim].seen, needed, counts[claim])
        for claim, needed in expected(name).items()
    ]


def _watched(chain: Iterable[Visit], reached: dict[str, Reached], claims: Iterable[str]) -> Iterator[Visit]:
    for visit in chain:
        for claim in claims:
            reached[claim].visit(visit)
        yield visit


def _worst(law: dict[Tokens, Fraction], reference: dict[Tokens, Fraction]) -> str:
    zero = Fraction(0)
    gaps = {x: law.get(x, zero) - reference.get(x, zero) for x in law.keys() | reference.keys()}
    worst = max(gaps, key=lambda x: abs(gaps[x]))
    return f"output {list(worst)} has probability {law.get(worst, zero)}, autoregressive {reference.get(worst, zero)}"


def _entry(
    claim: str, statement: str, faults: dict[str, str], seen: set[str], needed: Iterable[str], transitions: list[int]
) -> Entry:
    missing = [condition for condition in needed if condition not in seen]
    outcome: Outcome = "violated" if claim in faults else "not run" if missing or not transitions else "holds"
    good = f"{sum(transitions):,} transitions in {len(transitions)} instances, equal as rationals"
    detail = faults.get(claim) or (f"never reached: {', '.join(missing)}" if missing else good)
    return Entry(claim, statement, "exact", "V=3, L<=6, W<=4", outcome, detail)


CHECKS = tuple(
    Check(f"chain/{name}/{start}", ("THM3.3", "COR-GREEDY", "STOP"), partial(check_chain, name, start)) for name, start in RUNS
)
