"""The battery: right schedules pass, whatever they are; what misbehaves gets a finding of its kind, never a traceback."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from typing import Any

import pytest

from proofs_check.battery import assert_exact, check_schedule
from proofs_check.findings import Finding, Report, Stage, worst_first
from proofs_check.stages import STAGES
from simulator import Limits, Schedule, State, ar, branches, linear, packed, quadratic
from simulator.records import Draft
from simulator.schedules import STARTS


@pytest.mark.parametrize(
    "schedule", [ar(), linear(2, "sampled"), packed(3), quadratic(3, "wide"), branches((0, 2), 3)], ids=lambda s: str(s.name)
)
def test_our_schedules_pass(schedule: Schedule) -> None:
    report = check_schedule(schedule, schedule)
    assert report.verdict == "EXACT", str(report)
    assert {stage.outcome for stage in report.stages} == {"passed"}
    assert [stage.name for stage in report.stages] == list(STAGES)
    assert report.exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("width", [1, 2, 4, (3, 0, 2)])
def test_all_our_schedules_pass_under_every_start(start: str, width: Any) -> None:
    """W = 1 keeps no draft in Packed-SS: what only drafts can show is not asked of it."""
    for make in (linear, packed, quadratic):
        schedule = make(width, start)
        report = check_schedule(schedule, schedule)
        assert not report.findings, str(report)
        assert report.verdict == "EXACT", str(report)


def test_another_policy_than_declared_is_a_matter_of_counts() -> None:
    report = check_schedule(packed(3), linear(3))
    assert report.verdict == "EXACT, OTHER COUNTS"
    assert {finding.symptom for finding in report.findings} == {"count"}
    assert report.exit_code == 1


def test_without_a_declared_policy_the_counts_stay_open() -> None:
    report = check_schedule(packed([3, 0, 2]))
    assert report.verdict == "EXACT"
    [counts] = [stage for stage in report.stages if stage.outcome == "not run"]
    assert counts.name == "counts"


@dataclass(frozen=True)
class Packed(Schedule):
    """Packed-SS, for the misbehaving ones below to inherit from."""

    name: str = "mine"
    opening: Any = ()
    cycle: Any = packed(3).cycle


class Raises(Packed):
    def absorb(self, *arguments: Any) -> Any:
        raise KeyError("nothing here")


class Hangs(Packed):
    def request(self, state: State) -> Any:
        while state.emitted > 1:
            time.sleep(0.01)
        return super().request(state)


class Leaves(Packed):
    def init(self, *arguments: Any) -> Any:
        os._exit(3)


class Mutates(Packed):
    def request(self, state: Any) -> Any:
        state.notes.append(1)
        return super().request(state)

    def init(self, prompt: Any, limits: Limits) -> Any:
        return Noted(*super().init(prompt, limits))


class Noted(State):
    notes: list[int] = []  # noqa: RUF012  # shared on purpose

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) and self.seen == getattr(other, "seen", 0)  # type: ignore[call-overload]

    def __deepcopy__(self, memo: object) -> Noted:
        copy = Noted(*self)
        copy.seen = len(self.notes)  # type: ignore[misc]
        return copy

    @property
    def seen(self) -> int:
        return self.__dict__.get("seen", len(self.notes))

    @seen.setter
    def seen(self, value: int) -> None:
        self.__dict__["seen"] = value

    __hash__ = State.__hash__


class Nonsense(Packed):
    """Commits a token nobody proposed."""

    def absorb(self, state: State, call: Any, reply: Any, chance: Any) -> Any:
        after, step = super().absorb(state, call, reply, chance)
        prefix = (*state.prefix, *((-7,) * len(step.committed)))
        return after._replace(prefix=prefix), step._replace(committed=(-7,) * len(step.committed))


class IgnoresChance(Packed):
    def absorb(self, state: State, call: Any, reply: Any, chance: Any) -> Any:
        class Own:
            def uniform(self, purpose: str, position: int) -> float:
                return random.random()

        return super().absorb(state, call, reply, Own())


class FixedCoins(Packed):
    """A generator of its own, seeded anew for every call: reproducible, and the same whatever coins it is given."""

    def absorb(self, state: State, call: Any, reply: Any, chance: Any) -> Any:
        own = random.Random(state.emitted)

        class Own:
            def uniform(self, purpose: str, position: int) -> float:
                return own.random()

        return super().absorb(state, call, reply, Own())


class NeverDrafts(Packed):
    """Declares Packed-SS but throws every draft away: exact, and as slow as AR."""

    def absorb(self, state: State, call: Any, reply: Any, chance: Any) -> Any:
        after, step = super().absorb(state, call, reply, chance)
        return after._replace(draft=Draft()), step._replace(retained=0)


class FewMarkers(Packed):
    def init(self, prompt: Any, limits: Limits) -> Any:
        return super().init(prompt, limits._replace(stop=limits.stop[:3]))


class ShortMarkers(Packed):
    def init(self, prompt: Any, limits: Limits) -> Any:
        return super().init(prompt, limits._replace(stop=tuple(marker for marker in limits.stop if len(marker) < 8)))


class Idles(Packed):
    def request(self, state: State) -> Any:
        return super().request(state)._replace(verify=False, draft=())


@pytest.mark.parametrize(
    ("schedule", "symptoms"),
    [
        (Raises(), {"contract"}),
        (Hangs(), {"progress"}),
        (Leaves(), {"progress"}),
        (Mutates(), {"contract"}),
        (Nonsense(), {"determinism", "law"}),
        (IgnoresChance(), {"determinism"}),
        (FixedCoins(), {"determinism"}),
        (NeverDrafts(), {"count"}),
        (Idles(), {"contract", "progress"}),
        (FewMarkers(), {"stop"}),
        (ShortMarkers(), {"stop"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_misbehaves_gets_a_finding_of_its_kind(schedule: Schedule, symptoms: set[str]) -> None:
    report = check_schedule(schedule, packed(3), limit=3)
    assert report.findings
    assert {finding.symptom for finding in report.findings} <= symptoms, str(report)
    assert report.exit_code == 1
    assert all(finding.stage in STAGES for finding in report.findings)


class Believes(Packed):
    """Accepts every draft token under one condition; right otherwise."""

    when: Any = staticmethod(lambda state, call: False)

    def absorb(self, state: State, call: Any, reply: Any, chance: Any) -> Any:
        if state.draft.laws and self.when(state, call):
            reply = reply._replace(target=(*state.draft.laws, *reply.target[len(state.draft.laws) :]))
        return super().absorb(state, call, reply, chance)


class BelievesLargeIds(Believes):
    when = staticmethod(lambda state, call: max(state.draft.tokens) >= 4)


class BelievesAfterLongPrompts(Believes):
    when = staticmethod(lambda state, call: state.prompt_length > 5)


class MisreportsStops(Packed):
    def absorb(self, state: State, call: Any, reply: Any, chance: Any) -> Any:
        after, step = super().absorb(state, call, reply, chance)
        return after, step._replace(stop=step.stop or ("eos" if step.advance > 1 else None))


@pytest.mark.parametrize(
    ("schedule", "symptom"),
    [(BelievesLargeIds(), "law"), (BelievesAfterLongPrompts(), "law"), (MisreportsStops(), "count")],
    ids=lambda value: type(value).__name__,
)
def test_what_only_shows_off_the_beaten_track(schedule: Schedule, symptom: str) -> None:
    """Ids far apart, long prompts, steps that say they stop."""
    report = check_schedule(schedule, packed(3))
    assert {finding.symptom for finding in report.findings} == {symptom}, str(report)


class Chatters(Packed):
    def request(self, state: State) -> Any:
        print("x" * 1000)
        return super().request(state)


def test_what_a_schedule_prints_is_not_in_the_way(capfd: pytest.CaptureFixture[str]) -> None:
    assert check_schedule(Chatters(), packed(3)).verdict == "EXACT"
    assert capfd.readouterr() == ("", "")


def test_a_first_finding_comes_at_once_and_shows_a_small_instance() -> None:
    class NoStop(Packed):
        def init(self, prompt: Any, limits: Limits) -> Any:
            return super().init(prompt, limits._replace(eos=frozenset()))

    report = check_schedule(NoStop(), source="schedule = make()")
    assert {finding.symptom for finding in report.findings} == {"stop"}
    first = report.findings[0]
    assert "EOS [9]" in first.counterexample
    assert "call 1: no draft" in first.counterexample
    assert "schedule = make()" in first.program
    compile(first.program, "program", "exec")


def test_assert_exact_shows_the_report() -> None:
    assert_exact(packed(2), packed(2))
    with pytest.raises(AssertionError, match="COUNT"):
        assert_exact(NeverDrafts(), packed(3))


def stage(name: str, outcome: Any) -> Stage:
    return Stage(name, outcome, "", 0.0)


@pytest.mark.parametrize(
    ("declares", "stages", "symptoms", "verdict", "code"),
    [
        ("packed", ["passed", "passed"], [], "EXACT", 0),
        ("packed", ["passed", "not run"], [], "NOT RUN", 2),
        (None, ["passed", "not run"], [], "EXACT", 0),
        (None, ["not run", "not run"], [], "NOT RUN", 2),
        ("packed", ["passed", "failed"], ["count"], "EXACT, OTHER COUNTS", 1),
        ("packed", ["not run", "failed"], ["count"], "NOT RUN", 2),
        ("packed", ["not run", "failed"], ["stop", "count"], "NOT EXACT", 1),
    ],
)
def test_verdicts(declares: str | None, stages: list[str], symptoms: list[Any], verdict: str, code: int) -> None:
    findings = tuple(Finding(symptom, "") for symptom in symptoms)
    report = Report("s", declares, tuple(map(stage, ("law", "counts"), stages)), findings)
    assert (report.verdict, report.exit_code) == (verdict, code)
    assert report.plain()["verdict"] == verdict


def test_findings_are_sorted_by_weight() -> None:
    symptoms: list[Any] = ["count", "law", "contract"]
    assert [finding.symptom for finding in worst_first(Finding(symptom, "") for symptom in symptoms)] == symptoms[::-1]
