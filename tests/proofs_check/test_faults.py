"""Planted faults are killed by the right symptom, controls pass, and no right schedule is flagged whatever the seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from proofs_check.battery import check_schedule, check_system
from proofs_check.faults import rules, schedules, systems
from proofs_check.faults.matrix import CHECKERS, Result, exit_code, judged, kill_matrix, lines
from proofs_check.faults.planting import as_kind, replaced
from proofs_check.faults.table import ROWS, Member, Row
from proofs_check.stages import STAGES
from proofs_check.system import Found, NotReached, System
from simulator.acceptance import Verdict, acceptance_probability
from simulator.chance import Chance, draw
from simulator.errors import InvalidInput
from simulator.laws import Law, Point, argmax
from simulator.records import Call, Draft, Limits, State, Step, Tokens
from simulator.schedule import Schedule
from simulator.schedules import STARTS, ar, branches, linear, packed, quadratic

FAULTS = [f"F{number:02}" for number in (*range(1, 27), 31, 32, 34, *range(36, 43))]
CONTROLS = [f"C{number:02}" for number in (*range(1, 10), 11)]


def test_every_row_is_there() -> None:
    assert list(ROWS) == FAULTS + CONTROLS
    for row in ROWS.values():
        assert row.control == row.id.startswith("C")
        assert row.members
        assert {member.checker for member in row.members} <= set(CHECKERS)
        if not row.control:
            assert row.stages


def shown(result: Result) -> str:
    return "\n".join(lines([result]))


# The others are for the slow tier: each runs a whole battery.
QUICK = ["F10", "F14", "F20", "F22", "F26", "F34", "F40", "C09"]


@pytest.mark.parametrize("identifier", QUICK)
def test_a_member_of_each_symptom(identifier: str) -> None:
    row = ROWS[identifier]
    result = judged(row, row.members[0])
    assert result.right, shown(result)
    if not row.control:
        assert result.first is not None
        assert result.first.stage in row.stages, shown(result)
        assert result.first.counterexample


@pytest.mark.parametrize(
    ("row", "member"),
    [(row, member) for row in ROWS.values() for member in row.members if member.checker in ("drafter", "decoder")],
    ids=lambda value: value.id if isinstance(value, Row) else None,
)
def test_those_who_bring_no_schedule(row: Row, member: Member) -> None:
    result = judged(row, member)
    assert result.right, shown(result)


@pytest.mark.slow
def test_the_whole_matrix() -> None:
    results = list(kill_matrix())
    text = list(lines(results))
    assert exit_code(results) == 0, "\n".join(text)
    assert len(results) == sum(len(row.members) for row in ROWS.values())
    for result in results:
        if not result.control:
            assert result.first is not None
            assert result.first.stage in ROWS[result.id].stages, shown(result)


def test_the_matrix_says_what_is_wrong() -> None:
    surviving = replace(ROWS["F21"], members=(Member("none at all", "battery", lambda: System(packed(2), packed(2))),))
    flagged = replace(ROWS["C07"], members=ROWS["F31"].members[:1])
    other = replace(ROWS["F20"], members=ROWS["F31"].members[:1])
    results = [judged(row, row.members[0]) for row in (surviving, flagged, other)]
    assert [result.right for result in results] == [False, False, False]
    assert exit_code(results) == 1
    text = "\n".join(lines(results))
    assert "F21  SURVIVES" in text
    assert "C07  FLAGGED" in text
    assert "F20  WRONG SYMPTOM" in text
    assert "0 of 2 faults of 2 kinds killed" in text
    assert "0 of 1 controls of 1 kinds pass" in text
    assert results[1].plain()["symptoms"] == ("law",)


def test_only_some_rows() -> None:
    [result, *_] = kill_matrix(["F03"], workers=1)
    assert result.id == "F03"
    with pytest.raises(InvalidInput, match="F99"):
        list(kill_matrix(["F99"]))


# --- further members of the kinds: what catches the rows above must catch these ---------------------------------------------

Plant = Callable[[Schedule], Schedule]
Further = tuple[str, set[str], Callable[[Schedule], System]]
LAW, STOP, COUNT, DETERMINISM = {"law"}, {"stop"}, {"count"}, {"determinism"}


def in_schedule(plant: Plant) -> Callable[[Schedule], System]:
    return lambda base: System(plant(base), base)


def in_rule(accept: Any) -> Callable[[Schedule], System]:
    return in_schedule(lambda base: replaced(base, accept=accept))


def in_part(**parts: Any) -> Callable[[Schedule], System]:
    return lambda base: System(base, base, **parts)


def with_draft(change: Callable[[Draft, Step], Draft]) -> Plant:
    """The next draft goes through `change`, tokens and laws together or not."""

    class Changed(Schedule):
        def absorb(self, state: State, *arguments: Any) -> tuple[State, Step]:
            after, step = super().absorb(state, *arguments)
            draft = change(after.draft, step)
            return after._replace(draft=draft), step._replace(retained=len(draft.tokens))

    return lambda base: as_kind(Changed, base)


def laws_shifted_after_full_acceptance(base: Schedule) -> Schedule:
    """Shows on the sixth token of Packed-SS, W = 3, at the earliest."""

    class Shifted(schedules.Unshifted):
        def absorb(self, state: State, *arguments: Any) -> tuple[State, Step]:
            wrong, step = super().absorb(state, *arguments)
            right, _ = Schedule.absorb(self, state, *arguments)
            return (wrong if 0 < step.accepted == len(step.verified) else right), step

    return as_kind(Shifted, base)


def argmax_bonus_after_two(draft: Draft, target: Any, chance: Chance, first: int) -> Verdict:
    verdict = rules.rule()(draft, target, chance, first)
    if verdict.accepted == len(draft.tokens) >= 2:
        return verdict._replace(tokens=(*draft.tokens, argmax(target[verdict.accepted]).token))
    return verdict


def from_target_after_some(draft: Draft, target: Any, chance: Chance, first: int) -> Verdict:
    """The residual is right only where the first draft token is rejected."""
    verdict = rules.rule()(draft, target, chance, first)
    h = verdict.accepted
    if 0 < h < len(draft.tokens):
        return verdict._replace(tokens=(*draft.tokens[:h], draw(target[h], chance, "correct", first + h)))
    return verdict


def trusts_sure_drafts(draft: Draft, *arguments: Any) -> Verdict:
    accept = rules.rule(trusted=lambda index, token: draft.laws[index].certain is not None)
    return accept(draft, *arguments)


def by_last_id(target: Law, stored: Law, token: int) -> Any:
    """law[-1] is the law of the last id."""
    p = [target.probability(x) for x in range(max(3, *target.support) + 1)] if target.support[-1] > 2 else None
    exact = getattr(target, "probabilities", p)
    if token >= 0 or exact is None:
        return acceptance_probability(target, stored, token)
    return min(1, Fraction(exact[token]))


def first_eos_only(limits: Limits, prefix: Tokens, prompt_length: int) -> Any:
    return limits._replace(eos=frozenset(sorted(limits.eos)[:1])).reached(prefix, prompt_length)


def falsy_eos(limits: Limits, prefix: Tokens, prompt_length: int) -> Any:
    return limits._replace(eos=frozenset(filter(None, limits.eos))).reached(prefix, prompt_length)


def within_the_block(tokens: Tokens, state: State) -> Any:
    """End markers are looked for in the tokens of one block alone."""
    limits = state.limits
    for count in range(1, len(tokens) + 1):
        ended = any(tokens[:count][-len(marker) :] == marker for marker in limits.stop)
        stop = limits._replace(stop=()).reached(state.prefix + tokens[:count], state.prompt_length) or (
            "stop" if ended else None
        )
        if stop:
            return tokens[:count], stop
    return tokens, None


class WholeText(State):
    """End markers are looked for in prompt and output."""

    @property
    def stop(self) -> Any:
        ended = self.emitted and any(self.prefix[-len(marker) :] == marker for marker in self.limits.stop)
        return self.limits.reached(self.prefix, self.prompt_length) or ("stop" if ended else None)


class ReachesIntoThePrompt(Schedule):
    """One token a call, so that nothing has to be cut."""

    def init(self, *arguments: Any) -> State:
        return WholeText(*super().init(*arguments))

    def absorb(self, *arguments: Any) -> tuple[State, Step]:
        after, step = super().absorb(*arguments)
        state = WholeText(*after)
        return state, step._replace(stop=state.stop)


@dataclass(frozen=True)
class FirstLimits(Schedule):
    """The EOS ids of the first request stay those of all others."""

    memory: list[Limits] = None  # type: ignore[assignment]

    def init(self, prompt: Any, limits: Limits) -> State:
        self.memory.append(limits)
        return super().init(prompt, limits._replace(eos=self.memory[0].eos))


@dataclass(frozen=True)
class KeptCoin(Schedule):
    """The coin that drew a draft token tests it in the next call."""

    kept: dict[int, Any] = None  # type: ignore[assignment]

    def init(self, *arguments: Any) -> State:
        self.kept.clear()
        return super().init(*arguments)

    def absorb(self, state: State, call: Call, reply: Any, chance: Chance) -> tuple[State, Step]:
        kept = self.kept

        class Coins:
            def uniform(self, purpose: Any, position: int) -> Any:
                if purpose == "test" and position in kept:
                    return kept[position]
                coin = chance.uniform(purpose, position)
                if purpose == "draft":
                    kept[position] = coin
                return coin

        return super().absorb(state, call, reply, Coins())


class AsksForMore(Schedule):
    """A branch is drafted that nobody uses."""

    def request(self, state: State) -> Call:
        call = super().request(state)
        return call._replace(branches=tuple(sorted({*call.branches, 2}))) if call.branches else call


P3, L3, Q2 = packed(3), linear(3), quadratic(2)
FURTHER: list[tuple[str, Schedule, set[str], Callable[[Schedule], System]]] = [
    ("F01 drawn right, the argmax stored", P3, LAW, in_schedule(schedules.drawn_by(lambda law: law, argmax))),
    ("F02 drawn right, the filtered law stored", L3, LAW, in_schedule(schedules.drawn_by(lambda law: law, schedules.top_2))),
    ("F04 after full acceptance only", P3, LAW, in_schedule(laws_shifted_after_full_acceptance)),
    (
        "F05 the target by the proposals' processing",
        P3,
        LAW,
        in_part(processed=lambda m, t, q=None: systems.processed(m, q or t)),
    ),
    ("F07 |p - Q|", P3, LAW, in_rule(rules.rule(corrected=rules.absolute_residual))),
    ("F07 1 - Q / p", L3, LAW, in_rule(rules.rule(corrected=rules.ratio_residual))),
    ("F08 block verification, a single token's residual", L3, LAW, in_rule(rules.block_bound_alone)),
    ("F08 after an accepted token only", P3, LAW, in_rule(from_target_after_some)),
    ("F08 the argmax as bonus after two", packed(8), LAW, in_rule(argmax_bonus_after_two)),
    (
        "F12 drafts drawn by the coins of tests",
        P3,
        LAW,
        in_schedule(schedules.redirected(lambda p, i, f: ("test", f) if p == "draft" else (p, i))),
    ),
    (
        "F12 drafts drawn by the correction's coin",
        Q2,
        LAW,
        in_schedule(schedules.redirected(lambda p, i, f: ("correct", f) if p == "draft" else (p, i))),
    ),
    ("F12 tested by the coin that drew it", linear(2), LAW, in_schedule(lambda s: KeptCoin(s.name, s.opening, s.cycle, {}))),
    (
        "F13 tests in pairs",
        P3,
        LAW,
        in_schedule(schedules.redirected(lambda p, i, f: (p, f + (i - f) // 2 * 2) if p == "test" else (p, i))),
    ),
    (
        "F13 one coin for a whole draft",
        L3,
        LAW,
        in_schedule(schedules.redirected(lambda p, i, f: (p, 0) if p == "draft" else (p, i))),
    ),
    ("F14 numpy's global generator", P3, DETERMINISM, in_schedule(schedules.stray("test", np.random))),
    (
        "F15 a ratio of 1.001",
        P3,
        LAW,
        in_rule(rules.rule(alpha=lambda p, q, x: min(1, acceptance_probability(p, q, x) * Fraction(1001, 1000)))),
    ),
    ("F16 the third draft token", packed(5), LAW, in_rule(rules.rule(trusted=lambda index, token: index == 2))),
    ("F16 drafts that are sure", P3, LAW, in_rule(trusts_sure_drafts)),
    (
        "F20 in the other order, with its laws",
        P3,
        COUNT,
        in_schedule(with_draft(lambda d, step: Draft(d.tokens[::-1], d.laws[::-1]))),
    ),
    (
        "F20 none after a rejection",
        P3,
        COUNT,
        in_schedule(with_draft(lambda d, step: d if step.accepted == len(step.verified) else Draft())),
    ),
    ("F20 all but the last", Q2, COUNT, in_schedule(with_draft(lambda d, step: Draft(d.tokens[:-1], d.laws[:-1])))),
    ("F21 the branch of h - 1", Q2, COUNT, in_schedule(schedules.wrong_branch(lambda h: h - 1))),
    ("F21 a branch for nothing", P3, COUNT, in_schedule(lambda s: as_kind(AsksForMore, s))),
    ("F22 the first of several EOS ids", P3, STOP, in_schedule(lambda s: replaced(s, _cut=schedules.cut_by(first_eos_only)))),
    ("F22 EOS 0 is false", L3, STOP, in_schedule(lambda s: replaced(s, _cut=schedules.cut_by(falsy_eos)))),
    ("F22 a marker across two blocks", P3, STOP, in_schedule(lambda s: replaced(s, _cut=within_the_block))),
    (
        "F22 a marker that begins in the prompt",
        ar(),
        STOP,
        in_schedule(lambda s: as_kind(ReachesIntoThePrompt, s)),
    ),
    ("F26 twice too many", P3, LAW, in_part(session=systems.cropping(lambda surplus, held: 2 * surplus))),
    ("F26 at most 5 rows", P3, LAW, in_part(session=systems.cropping(lambda surplus, held: min(surplus, 5)))),
    (
        "F32 every call twice",
        P3,
        COUNT,
        in_part(drive=systems.counting(lambda steps: [step for step in steps for _ in range(2)])),
    ),
    (
        "F32 nothing accepted",
        P3,
        COUNT,
        in_part(drive=systems.counting(lambda steps: [step._replace(accepted=0) for step in steps])),
    ),
    (
        "F34 the EOS ids of the first request",
        P3,
        DETERMINISM,
        in_schedule(lambda s: FirstLimits(s.name, s.opening, s.cycle, [])),
    ),
    ("F40 -1 is the last id", P3, LAW, in_rule(rules.rule(alpha=by_last_id))),
]
TELLING = {"F04", "F12 tested", "F20 in", "F22 a marker across", "F32 every", "F34", "F40"}


@pytest.mark.parametrize(
    ("name", "base", "symptoms", "subject"),
    [
        pytest.param(*each, id=each[0], marks=() if any(map(each[0].startswith, TELLING)) else pytest.mark.slow)
        for each in FURTHER
    ],
)
def test_further_members_are_killed_too(
    name: str, base: Schedule, symptoms: set[str], subject: Callable[[Schedule], System]
) -> None:
    report = check_system(subject(base), name)
    assert {finding.symptom for finding in report.findings} == symptoms, str(report)


# --- other policies ---------------------------------------------------------------------------------------------------------

OTHERS: dict[str, list[Schedule]] = {
    "F01": [linear(1), packed(2, "wide"), quadratic(2, "sampled"), branches((0, 1), 2), packed(5)],
    "F08": [linear(1), packed(2), packed(2, "wide"), quadratic(2), branches((0, 2), 5), packed((3, 0, 2))],
    "F13": [linear(2), packed(3, "sampled"), quadratic(3), branches((0, 1), 3), linear(5)],
    "F16": [linear(1), packed(2), packed(3, "prompt"), quadratic(2, "wide"), branches((0, 2), 3), packed(5)],
    "F17": [linear(1), packed(2), quadratic(2), linear(5), packed((3, 0, 2))],
    "F22": [linear(1), packed(2), packed(3, "wide"), quadratic(2), branches((0, 2), 3), packed(5)],
    "F24": [linear(1), packed(2), quadratic(2, "sampled"), branches((0, 2), 3), linear(5, "prompt")],
    "F25": [linear(2), packed(3, "wide"), quadratic(3), branches((0, 2), 3), packed(5)],
    "F31": [linear(2), packed(3, "prompt"), quadratic(2), branches((0, 2), 3)],
}
PLANTS: dict[str, Plant] = {
    "F01": schedules.drawn_by(argmax),
    "F08": lambda s: replaced(s, accept=rules.rule(corrected=rules.from_target)),
    "F13": lambda s: replaced(s, accept=rules.rule(coin=rules.one_uniform)),
    "F16": lambda s: replaced(s, accept=rules.rule(trusted=lambda index, token: index == 0)),
    "F17": lambda s: replaced(s, accept=rules.rule(row=1)),
    "F22": lambda s: replaced(s, _cut=schedules.last_token_only),
    "F24": lambda s: replaced(s, _cut=schedules.overshoot),
    "F25": lambda s: replaced(s, _cut=schedules.length_first),
    "F31": lambda s: replaced(s, accept=rules.padded(0, 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("identifier", "base"),
    [(identifier, base) for identifier, bases in OTHERS.items() for base in bases],
    ids=lambda value: value if isinstance(value, str) else f"{value.name}{[ask.width for ask in value.cycle]}",
)
def test_other_policies(identifier: str, base: Schedule) -> None:
    report = check_schedule(PLANTS[identifier](base), base)
    symptoms = {finding.symptom for finding in report.findings}
    assert symptoms, str(report)
    assert symptoms <= set(ROWS[identifier].symptoms), str(report)


# --- false alarms -----------------------------------------------------------------------------------------------------------

SEEDED = ("determinism", "chance", "small law", "greedy", "edges", "cache", "requests", "counts", "law")
"""Stages whose tables, drafters or coins depend on the seed. All their comparisons are exact: their false-alarm odds are 0."""


def alarms(schedule: Schedule, seed: int, stages: tuple[str, ...] = SEEDED) -> Iterator[str]:
    for name in stages:
        try:
            detail = STAGES[name](System(schedule, schedule, seed=seed, limit=600))
        except Found as found:
            yield f"{schedule.name}, seed {seed}, {name}: {found}\n{found.finding.counterexample}"
        except NotReached as reason:
            yield f"{schedule.name}, seed {seed}, {name} did not run: {reason}"
        else:
            assert "sampled" not in detail


def built_in(width: int, start: str = "algorithm") -> list[Schedule]:
    made = [linear(width, start), packed(width + 1, start), quadratic(width, start), branches((0, width), width, start)]
    return [ar(start if start == "prompt" else "algorithm"), *made]


@pytest.mark.parametrize("seed", range(10))
def test_no_false_alarm(seed: int) -> None:
    """Ten seeds; the false-alarm odds of every comparison are 0."""
    quick = ("determinism", "chance", "small law", "edges", "cache", "requests")
    schedules = built_in(1)
    assert not [alarm for schedule in schedules for alarm in alarms(schedule, seed, quick)]
    assert not list(alarms(schedules[seed % len(schedules)], seed, ("law",)))


@pytest.mark.slow
def test_no_false_alarm_in_200_seeds() -> None:
    """200 seeds of every built-in schedule, widths and starts in turn; the false-alarm odds of every comparison are 0."""
    from joblib import Parallel, delayed

    tasks = [(index, seed) for seed in range(200) for index in range(5)]
    found = Parallel(n_jobs=2)(delayed(_alarms)(*task) for task in tasks)
    assert not [alarm for each in found for alarm in each]


def _alarms(index: int, seed: int) -> list[str]:
    return list(alarms(built_in(1 + seed // len(STARTS) % 2, STARTS[seed % len(STARTS)])[index], seed))


def test_the_report_states_its_seed_and_odds() -> None:
    report = check_schedule(packed(2), packed(2), seed=3)
    assert report.seed == 3
    assert report.alpha == 0
    assert "seed 3, false-alarm odds 0" in str(report)
    with pytest.raises(InvalidInput, match="seed"):
        check_schedule(packed(2), seed=-1)


def test_a_law_that_cannot_be_enumerated_is_sampled_and_says_so() -> None:
    """C05: a race computes with its coins."""
    report = check_schedule(as_kind(schedules.Races, packed(2)))
    assert report.verdict == "NOTHING FOUND", str(report)
    assert report.exit_code == 0
    assert report.alpha > 0
    assert f"false-alarm odds {report.alpha:g}" in str(report)


@pytest.mark.slow
def test_what_is_sampled_can_fail() -> None:
    class Races(schedules.Races):
        """The same, with one token drawn by its probability alone."""

        def absorb(self, state: State, call: Call, reply: Any, chance: Chance) -> tuple[State, Step]:
            forgetful = tuple(rules.law_of(dict.fromkeys(law.support, 1), law) for law in reply.target)
            return super().absorb(state, call, reply._replace(target=forgetful), chance)

    report = check_schedule(as_kind(Races, packed(2)))
    assert {finding.symptom for finding in report.findings} == LAW, str(report)
    assert "sampled" in report.findings[0].statement
    assert report.alpha > 0


@pytest.mark.slow
def test_a_drafter_of_points_is_not_asked_for_what_it_cannot_reach() -> None:
    system = System(packed(2), processed=systems.drafter(lambda context, law: Point(0)))
    assert not check_system(system, "points").findings


# --- schedules of others ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Notes:
    """A state of another shape."""

    inner: State

    @property
    def prefix(self) -> Tokens:
        return self.inner.prefix

    @property
    def prompt_length(self) -> int:
        return self.inner.prompt_length

    @property
    def stop(self) -> Any:
        return self.inner.stop


class Foreign:
    """Packed-SS with states of its own, which always asks for the coins of its tests and draws."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = replaced(schedule, accept=self.accept)

    @staticmethod
    def accept(draft: Draft, target: Any, chance: Chance, first: int) -> Verdict:
        for i in range(len(draft.tokens)):
            chance.uniform("test", first + i)
        return rules.rule()(draft, target, chance, first)

    def init(self, prompt: Any, limits: Limits) -> Notes:
        return Notes(self.schedule.init(prompt, limits))

    def request(self, state: Notes) -> Call:
        return self.schedule.request(state.inner)

    def absorb(self, state: Notes, *arguments: Any) -> tuple[Notes, Step]:
        after, step = self.schedule.absorb(state.inner, *arguments)
        return Notes(after), step


def test_states_of_another_shape_pass() -> None:
    foreign: Any = Foreign(packed(3))
    report = check_schedule(foreign, packed(3))
    assert report.verdict == "EXACT", str(report)
