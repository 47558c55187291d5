"""The battery on any-order schedules: right ones pass in any order, planted faults get a finding of their kind."""

from __future__ import annotations

import random
from typing import Any

import pytest

from proofs_check.any_order_battery import check_any_order
from proofs_check.any_order_system import AnyOrderSystem, compare, program
from proofs_check.faults import any_order as faults
from proofs_check.faults.matrix import judged, lines
from proofs_check.faults.table import ROWS, Member, Row
from proofs_check.stages.any_order import STAGES, Seen, _instance
from proofs_check.system import Found, NotReached
from simulator import InvalidInput, Limits
from simulator.any_order import Schedule, State, linear, named, native, packed, quadratic
from simulator.any_order.orders import right_to_left

PLANTED = [(row, number) for row in ROWS.values() for number, member in enumerate(row.members) if member.checker == "any-order"]
FEW = {"F36": 2, "F37": 3, "F41": 1, "F42": 1}  # of each kind


@pytest.mark.parametrize(
    ("row", "number"),
    [pytest.param(row, n, id=f"{row.id}-{n}") for row, n in PLANTED if n < FEW.get(row.id, 0)],
)
def test_faults_are_killed(row: Row, number: int) -> None:
    result = judged(row, row.members[number])
    assert result.right, "\n".join(lines([result]))
    assert result.first is not None
    assert result.first.stage in row.stages


@pytest.mark.slow
@pytest.mark.parametrize(("row", "number"), [pytest.param(row, n, id=f"{row.id}-{n}") for row, n in PLANTED])
def test_all_of_them_and_the_controls(row: Row, number: int) -> None:
    result = judged(row, row.members[number])
    assert result.right, "\n".join(lines([result]))


@pytest.mark.claim("PROPC1", "ANY-ORDER-LAW")
@pytest.mark.parametrize("schedule", [packed(3), linear(3, "rtl"), quadratic(3, "peak")], ids=lambda s: f"{s.name}-{s.width}")
def test_our_schedules_pass(schedule: Schedule) -> None:
    report = check_any_order(schedule, schedule)
    assert report.verdict == "EXACT", str(report)
    assert [stage.name for stage in report.stages] == list(STAGES)
    assert report.exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("start", ["algorithm", "prompt"])
@pytest.mark.parametrize("order", ["ltr", "rtl", "peak", "random:1", "confidence"])
@pytest.mark.parametrize("name", ["serial", "linear", "packed", "quadratic"])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_all_our_schedules(name: str, width: int, order: str, start: str) -> None:
    """`confidence` at temperature > 0 is what the packed schedules are not exact in, from W = 3 on."""
    schedule: Any = named(name, width, order, start)
    report = check_any_order(schedule, schedule)
    if order == "confidence" and name in ("packed", "quadratic") and width > 2:
        assert [(found.symptom, found.stage) for found in report.findings] == [("law", "law")], str(report)
    else:
        assert report.verdict == "EXACT", str(report)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_no_false_alarm_under_other_seeds(seed: int) -> None:
    for schedule in (packed(4, "rtl"), linear(3, "peak"), quadratic(3, "random:2")):
        assert not check_any_order(schedule, schedule, seed=seed).findings


def test_confidence_fails_the_law_alone() -> None:
    report = check_any_order(packed(3, "confidence"), packed(3, "confidence"), source="schedule = packed(3, 'confidence')")
    assert [(found.symptom, found.stage) for found in report.findings] == [("law", "law")]
    [finding] = report.findings
    assert "the verifier's given" in finding.counterexample
    with pytest.raises(AssertionError, match="position 2 has the law"):
        exec(finding.program, {})


def test_native_is_not_exact() -> None:
    report = check_any_order(native(3))
    assert report.verdict == "NOT EXACT"
    assert ("law", "greedy") in [(found.symptom, found.stage) for found in report.findings]


class Raises(Schedule):
    def absorb(self, *arguments: Any) -> Any:
        raise KeyError("nothing here")


class Remembers(Schedule):
    def request(self, state: State) -> Any:
        seen.append(len(seen))
        return super().request(state) if len(seen) % 2 else super().request(state)._replace(branches=())


class ForgetsTheDraft(Schedule):
    def absorb(self, *arguments: Any) -> Any:
        after, step = super().absorb(*arguments)
        return after._replace(draft=()), step


class Chatty(Schedule):
    def absorb(self, *arguments: Any) -> Any:
        after, step = super().absorb(*arguments)
        return after, step._replace(rows=step.rows + 1)


class OwnCoins(Schedule):
    def absorb(self, state: State, call: Any, reply: Any, chance: Any) -> Any:
        class Stray:
            def uniform(self, purpose: Any, position: int) -> Any:
                return random.random()

        return super().absorb(state, call, reply, Stray())


class NamesNoPrediction(Schedule):
    def absorb(self, *arguments: Any) -> Any:
        after, step = super().absorb(*arguments)
        return after, step._replace(predictions=())


class KeepsMoreInWords(Schedule):
    def absorb(self, *arguments: Any) -> Any:
        after, step = super().absorb(*arguments)
        return after, step._replace(retained=step.retained + 1)


class BranchesInWords(Schedule):
    def absorb(self, *arguments: Any) -> Any:
        after, step = super().absorb(*arguments)
        return after, step._replace(branch=1)


seen: list[int] = []


@pytest.mark.parametrize(
    ("kind", "symptom", "stage"),
    [
        (Raises, "contract", "contract"),
        (Remembers, "contract", "contract"),
        (ForgetsTheDraft, "count", "counts"),
        (Chatty, "count", "counters"),
        (NamesNoPrediction, "count", "counters"),
        (KeepsMoreInWords, "count", "counts"),
        (BranchesInWords, "count", "counts"),
        (OwnCoins, "determinism", "determinism"),
    ],
)
def test_what_misbehaves_gets_a_finding(kind: type[Schedule], symptom: str, stage: str) -> None:
    base = packed(3, "rtl")
    report = check_any_order(faults.kind(kind)(base), base)
    assert (symptom, stage) in [(found.symptom, found.stage) for found in report.findings], str(report)
    assert report.exit_code == 1


def test_a_seed_must_be_one() -> None:
    with pytest.raises(InvalidInput, match="the seed must be >= 0, got -1"):
        check_any_order(packed(2), seed=-1)


def test_what_was_not_reached_is_said() -> None:
    from collections import Counter

    watched = Seen(Counter({"a pair accepted ahead of an unresolved position": 100}), longest=2)
    with pytest.raises(NotReached, match="a rejected draft token, a window of 2 or more accepted in full, an accepted pair"):
        watched.require("a rejected draft token", "a window of 2 or more accepted in full", "an accepted pair that is removed")


def test_a_counterexample_has_a_program() -> None:
    base = faults.kind(faults.LeavesHoles)(packed(3, "rtl"))
    system = AnyOrderSystem(base, source="from simulator.any_order import packed\nschedule = packed(3, 'rtl')")
    with pytest.raises(Found) as caught:
        [compare(system, _instance(f"noisy_pairs(3, {seed}, 0.8, 0.3)", Limits.of(6, 1))) for seed in range(9)]
    assert "call 1: order [3, 2, 1]" in caught.value.finding.counterexample
    exec(caught.value.finding.program, {})
    assert program(system, _instance("noisy_pairs(2, 0)", Limits.of(2))).startswith("from simulator import *")


def test_orders_by_accepted_pairs_pass() -> None:
    member: Member = ROWS["C11"].members[3]
    assert judged(ROWS["C11"], member).right
    assert faults.gaps_last(right_to_left) is not right_to_left
