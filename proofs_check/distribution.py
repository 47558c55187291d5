"""THM3.3 and COR-GREEDY, exactly: the output law of every schedule equals the autoregressive law, as rationals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial

from proofs_check.ledger import Budget, Check, Entry, Outcome
from simulator.exact import autoregressive_law, exact_law
from simulator.oracles import random_tables
from simulator.records import Limits, Step
from simulator.schedules import STARTS, named


@dataclass
class Reached:
    """What a family of runs went through. A check whose interesting branches were not reached says nothing (not run)."""

    seen: set[str] = field(default_factory=set)

    def __call__(self, step: Step) -> None:
        rejected = step.accepted < len(step.verified)
        self.seen |= {
            name
            for name, happened in {
                "a rejection": rejected,
                "a draft kept from before a rejection": rejected and step.retained > 0 and step.branch is not None,
                "a fully accepted draft of 2 or more": not rejected and len(step.verified) >= 2,
                "an EOS inside an accepted block": step.stop == "eos" and len(step.committed) < step.advance,
                "the length limit inside an accepted block": step.stop == "length" and len(step.committed) < step.advance,
                "a branch b > 0 taken": bool(step.branch and step.retained),
            }.items()
            if happened
        }


COMMON = (
    "a rejection",
    "a fully accepted draft of 2 or more",
    "an EOS inside an accepted block",
    "the length limit inside an accepted block",
)
KEPT = "a draft kept from before a rejection"
EXPECTED = {
    "linear": COMMON,
    "packed": (*COMMON, KEPT),
    "quadratic": (*COMMON, KEPT, "a branch b > 0 taken"),
    "branches:0,2": (*COMMON, KEPT, "a branch b > 0 taken"),
}
ZERO = Fraction(0)
VOCABULARY, LENGTH, WIDTH = 3, 5, 3


def check_distribution(name: str, start: str, seeds: Sequence[int] = (0, 1, 2)) -> Entry:
    """The exact output law of one schedule, sampling and greedy, on random tables with zeros, with and without EOS."""
    begun = time.perf_counter()
    schedule = named(name, WIDTH, start)
    reached = Reached()
    transitions = 0
    detail = ""
    outcome: Outcome = "holds"
    for seed in seeds:
        for temperature_0 in (False, True):
            for eos in (None, 2):
                limits = Limits.of(LENGTH, eos)
                tables = random_tables(VOCABULARY, seed)
                model = tables.greedy() if temperature_0 else tables
                law = exact_law(schedule, model, (), limits, observe=reached)
                expected = autoregressive_law(model.target, (), limits)
                transitions += law.transitions
                if law.output != expected and outcome == "holds":
                    outcome = "violated"
                    gaps = {x: law.output.get(x, ZERO) - expected.get(x, ZERO) for x in law.output.keys() | expected.keys()}
                    worst = max(gaps, key=lambda x: abs(gaps[x]))
                    detail = (
                        f"seed {seed}, eos {eos}, {'greedy' if temperature_0 else 'sampling'}: output {list(worst)}"
                        f" has probability {law.output.get(worst, ZERO)}, autoregressive {expected.get(worst, ZERO)}"
                    )
    missing = [condition for condition in EXPECTED[name] if condition not in reached.seen]
    if outcome == "holds" and missing:
        outcome, detail = "not run", f"never reached: {', '.join(missing)}"
    return Entry(
        "THM3.3",
        f"{name}, start {start}: the continuation has the autoregressive law",
        "exact",
        f"V={VOCABULARY}, L={LENGTH}, W={WIDTH}, {len(seeds)} tables, EOS or none, sampling and greedy",
        outcome,
        detail or f"{transitions:,} transitions, equal as rationals",
        time.perf_counter() - begun,
    )


def _run(name: str, start: str, budget: Budget) -> list[Entry]:
    return [check_distribution(name, start)]


CHECKS = tuple(
    Check(f"chain/{name}/{start}", ("THM3.3",), partial(_run, name, start)) for name in EXPECTED for start in STARTS
)
