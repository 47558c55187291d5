"""The exact chains: they hold for our schedules, say what is wrong with others, and know when they have seen too little."""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

import proofs_check.chain as chain
import simulator.schedule
from proofs_check.chain import (
    BRANCH,
    CHECKS,
    CUTS,
    EXCLUDED,
    KEPT,
    MANY,
    NO_CALL,
    NOTHING_DRAFTED,
    REJECTION,
    RUNS,
    STARTED,
    TWO_WAYS,
    WINDOW,
    Instance,
    Reached,
    Watch,
    check_chain,
    described,
    disjoint,
    near_equal,
    needed,
)
from proofs_check.ledger import Entry, exit_code
from proofs_check.refutations import OneLate, make
from simulator import Ask, Call, Draft, Limits, Point, RationalLaw, Reply, Schedule, State, Step, exact_law, packed
from simulator.acceptance import Verdict, accept
from simulator.chance import draw
from simulator.exact import ExactLaw, Kind, Visit
from simulator.oracles import random_tables
from simulator.schedules import named

LAWS = ("THM3.3", "COR-GREEDY", "STOP")


def by_claim(entries: list[Entry]) -> dict[str, Entry]:
    assert len({entry.claim for entry in entries}) == len(entries)
    return {entry.claim: entry for entry in entries}


def outcomes(entries: list[Entry]) -> dict[str, str]:
    return {claim: entry.outcome for claim, entry in by_claim(entries).items()}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of instances instead of the families: enough for a fault, too few to hold."""
    tables = random_tables(3, 0)

    def sampling(budget: str, start: str) -> list[Instance]:
        ends = [Limits.of(5), Limits.of(4, 2), Limits.of(4, stop=[(0, 1)])]
        return [Instance("tables", tables, tables, 3, limits, 3) for limits in ends]

    def greedy(budget: str) -> list[Instance]:
        laws = near_equal(3, Fraction(0)).greedy()
        return [Instance("greedy", laws, laws, 3, Limits.of(4), 3)]

    monkeypatch.setattr(chain, "sampling_instances", sampling)
    monkeypatch.setattr(chain, "greedy_instances", greedy)


# --- our schedules ----------------------------------------------------------------------------------------------------------


def holds(name: str, start: str) -> None:
    entries = by_claim(check_chain(name, start, "quick"))
    assert tuple(entries) == tuple(needed(name, start))
    assert ("INIT" in entries) == (start != "algorithm")
    for claim, entry in entries.items():
        assert (entry.outcome, entry.method) == ("holds", "exact"), entry
        assert entry.statement.startswith(f"{name}, start {start}: ")
        counts = re.match(r"([\d,]+) transitions in (\d+) instances, equal as rationals", entry.detail)
        assert counts, claim
        assert int(counts[1].replace(",", "")) > int(counts[2]) > 15
    assert exit_code(entries.values()) == 0


QUICK = [("ar", "prompt"), ("linear", "wide"), ("packed", "algorithm"), ("branches:0,2", "prompt")]


@pytest.mark.claim("THM3.3")
@pytest.mark.claim("COR-GREEDY")
@pytest.mark.claim("STOP")
@pytest.mark.claim("PROGRESS")
@pytest.mark.claim("INIT")
@pytest.mark.parametrize(("name", "start"), QUICK)
def test_they_hold(name: str, start: str) -> None:
    holds(name, start)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "start"), [run for run in RUNS if run not in QUICK])
def test_they_hold_for_every_schedule_and_start(name: str, start: str) -> None:
    holds(name, start)


def test_there_is_a_check_for_every_schedule_and_start() -> None:
    assert [check.name for check in CHECKS] == [f"chain/{name}/{start}" for name, start in RUNS]
    assert len(RUNS) == 2 + 4 * 4
    assert all(check.claims == tuple(needed(*run)) for check, run in zip(CHECKS, RUNS, strict=True))


def test_the_figures_told_of_an_instance() -> None:
    law = exact_law(packed(3), random_tables(3, 0), (), Limits.of(5))
    text = described(law)
    assert f"E[NFE] {float(law.expected_nfe):.6f}, P(NFE) " in text
    assert f"E[rows] {float(law.expected_rows):.4f}" in text
    shares = {branch: float(x) for branch, x in re.findall(r"(none|\d+) (\d\.\d{4})", text.split("by branch")[1])}
    assert set(shares) == {"0", "none"}
    assert sum(shares.values()) == pytest.approx(float(law.expected_nfe), abs=1e-3)


# --- faulty schedules -------------------------------------------------------------------------------------------------------


def plain_correction(draft: Any, target: Any, chance: Any, first: int) -> Verdict:
    """The residual is ignored and the correction is drawn from p."""
    verdict = accept(draft, target, chance, first)
    h = verdict.accepted
    return verdict._replace(tokens=(*draft.tokens[:h], draw(target[h], chance, "correct", first + h)))


def off_by_one(draft: Any, target: Any, chance: Any, first: int) -> Verdict:
    """Draft token i is tested against the prediction for i + 1."""
    return accept(draft, (*target[1:], target[-1]), chance, first)


def test_a_wrong_law_is_a_violation_with_the_smallest_counterexample(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator.schedule, "accept", plain_correction)
    entries = by_claim(check_chain("packed", "algorithm", "quick"))
    assert outcomes(list(entries.values())) | {"PROGRESS": "", "NFE-CONV": ""} == {
        "THM3.3": "violated",
        "COR-GREEDY": "not run",  # point masses are right, and too few here
        "STOP": "violated",
        "PROGRESS": "",
        "NFE-CONV": "",
    }
    assert exit_code(entries.values()) == 1
    for claim in ("THM3.3", "STOP"):
        assert entries[claim].detail.startswith("law differs: after the output [")
        assert "instance: V=2, L=2, W=2: a fair coin, all proposals (1/4, 3/4)" in entries[claim].detail
        assert "rejected (test@2 in [2/3, 1))" in entries[claim].detail  # where the fault shows, not where it does not
        assert "accepting 0 and emitting [1] has probability 1/6 in this call, 0 by the rule" in entries[claim].detail


def test_a_wrong_greedy_output_is_a_violation(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulator.schedule, "accept", off_by_one)
    entries = by_claim(check_chain("packed", "algorithm", "quick"))
    assert entries["COR-GREEDY"].outcome == "violated"
    assert "autoregressive" in entries["COR-GREEDY"].detail


def test_an_eos_inside_a_block_that_does_not_cut_it_is_a_violation(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def last_only(tokens: Any, state: State) -> Any:
        tokens = tokens[: state.limits.max_new_tokens - state.emitted]
        return tokens, tokens and state.limits.reached(state.prefix + tokens, state.prompt_length)

    monkeypatch.setattr(simulator.schedule, "_cut", last_only)
    entries = by_claim(check_chain("linear", "algorithm", "quick"))
    assert entries["STOP"].outcome == "violated"
    assert re.search("after the output .* the token . comes with probability .*, autoregressive 0", entries["STOP"].detail)
    assert "EOS [1]" in entries["STOP"].detail


def test_other_calls_are_a_violation_of_the_count_alone(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chain.SCHEDULES, "packed", lambda width, start: make(OneLate, width))
    entries = by_claim(check_chain("packed", "algorithm", "quick"))
    assert entries["NFE-CONV"].outcome == "violated"
    assert entries["NFE-CONV"].detail.startswith("Call count does not match the declared policy packed, start algorithm")
    assert "violated" not in {entry.outcome for claim, entry in entries.items() if claim != "NFE-CONV"}


def test_another_start_than_the_one_named_is_a_violation(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chain.SCHEDULES, "packed", lambda width, start: packed(width, "algorithm"))
    entries = by_claim(check_chain("packed", "wide", "quick"))
    assert {claim for claim, entry in entries.items() if entry.outcome == "violated"} == {"INIT", "NFE-CONV"}
    assert entries["INIT"].detail.startswith("call 1 is Call(")


def test_a_run_without_end_is_a_violation(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(chain.SCHEDULES, "packed", lambda width, start: Schedule("stalls", (), (Ask(False, (0,), 1),)))
    entries = by_claim(check_chain("packed", "algorithm", "quick"))
    assert entries["PROGRESS"].outcome == "violated"
    assert entries["PROGRESS"].detail.startswith("some path is still running after 18 calls")
    assert entries["THM3.3"].outcome == "not run"


def test_processing_of_one_side_that_is_left_out_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The graded list has no processing, so the instance that showed it is told."""
    processed = chain.processed
    monkeypatch.setattr(chain, "processed", lambda model, target, proposal: processed(model, lambda _, law: law, proposal))
    monkeypatch.setattr(chain, "find", lambda make: None)
    entries = by_claim(check_chain("packed", "prompt", "quick"))
    assert entries["THM3.3"].outcome == "violated"
    assert "tables 0, top-k 2 on both sides" in entries["THM3.3"].detail


# --- too little seen --------------------------------------------------------------------------------------------------------


def test_without_instances_nothing_was_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "sampling_instances", lambda budget, start: [])
    monkeypatch.setattr(chain, "greedy_instances", lambda budget: [])
    for name, start in RUNS:
        entries = check_chain(name, start, "quick")
        assert {entry.outcome for entry in entries} == {"not run"}
        assert all("any instance" in entry.detail for entry in entries)
        assert exit_code(entries) == 2


def test_what_was_not_reached_is_named(few: None) -> None:
    entries = by_claim(check_chain("packed", "algorithm", "quick"))
    assert entries["STOP"].detail == f"never reached: {NO_CALL}"
    assert entries["COR-GREEDY"].detail == f"never reached: {REJECTION}, {EXCLUDED}, {KEPT}"
    assert NOTHING_DRAFTED in entries["THM3.3"].detail


KIND = Kind(verified=2, accepted=1, advance=2, committed=2, branch=1, retained=2, stop=None)


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({}, {REJECTION, KEPT, BRANCH}),
        ({"branch": 0}, {REJECTION, KEPT}),
        ({"retained": 0}, {REJECTION}),
        ({"branch": None, "retained": 0}, {REJECTION}),
        ({"accepted": 2, "advance": 3, "committed": 3, "branch": 0}, {WINDOW}),
        ({"verified": 1, "branch": 0}, set()),
        ({"branch": None, "retained": 0, "stop": "eos"}, {REJECTION}),
        ({"branch": None, "retained": 0, "stop": "eos", "committed": 1}, {REJECTION, CUTS[0]}),
        ({"branch": None, "retained": 0, "stop": "stop", "committed": 1}, {REJECTION, CUTS[1]}),
        ({"branch": None, "retained": 0, "stop": "length", "committed": 1}, {REJECTION, CUTS[2]}),
    ],
)
def test_what_a_kind_of_call_shows(changes: dict[str, Any], seen: set[str]) -> None:
    reached = Reached()
    reached.law(ExactLaw({(): Fraction(1)}, {3: Fraction(1)}, 1, 1, Fraction(1), {KIND._replace(**changes): Fraction(1)}))
    assert reached.seen == seen | {STARTED}


def test_what_a_law_shows() -> None:
    for law, seen in (
        (ExactLaw({(): Fraction(1)}, {0: Fraction(1)}, 1, 0, Fraction(0), {}), {NO_CALL}),
        (ExactLaw(dict.fromkeys(((0,), (1,)), Fraction(1, 2)), {1: Fraction(1)}, 3, 2, Fraction(1), {}), {STARTED, MANY}),
    ):
        reached = Reached()
        reached.law(law)
        assert reached.seen == seen


def visit(draft: Draft, target: tuple[Any, ...], verify: bool = True, width: int = 2) -> Visit:
    state = State((), 0, draft, 0, Limits.of(5))
    return Visit(0, state, 1, Call((), draft.tokens, verify, (0,), width), Reply(target, (), 0), ())


A, B, C = (RationalLaw.weighted(weights) for weights in ((1, 1, 1), (4, 1, 1), (0, 1, 1)))


@pytest.mark.parametrize(
    ("draft", "target", "seen"),
    [
        ((0,), (A,), {TWO_WAYS}),  # p(0) = 1/3 < 2/3, and tokens 1 and 2 are left to correct with
        ((1,), (A,), set()),  # accepted for sure
        ((0,), (C,), {TWO_WAYS, EXCLUDED}),
        ((0, 0), (Point(1), A), {EXCLUDED}),  # one correction only; what follows is never tested
        ((), (A,), set()),
    ],
)
def test_what_the_laws_of_a_call_show(draft: tuple[int, ...], target: tuple[Any, ...], seen: set[str]) -> None:
    reached = Reached()
    reached.visit(visit(Draft(draft, (B,) * len(draft)), target))
    assert reached.seen == seen


def test_a_call_that_verifies_and_may_draft_nothing() -> None:
    for verify, width, seen in ((True, 0, {NOTHING_DRAFTED}), (False, 0, set()), (True, 1, set())):
        reached = Reached()
        reached.visit(visit(Draft(), (A,) * verify, verify, width))
        assert reached.seen == seen


def test_a_verifying_call_that_emits_nothing_is_noticed() -> None:
    step = Step((), (None,), 0, 1, (), None, 0, 0, None, 1, False)
    idle = visit(Draft(), (A,))
    for verify, shown in ((True, True), (False, False)):
        watch = Watch("algorithm", 2)
        assert idle.call
        list(watch([idle._replace(call=idle.call._replace(verify=verify), outcomes=[(1, (idle.state, step))])]))
        assert bool(watch.idle) == shown


# --- the families -----------------------------------------------------------------------------------------------------------


def test_the_drafters_of_the_family() -> None:
    equal, near, far = near_equal(3, Fraction(0)), near_equal(3, Fraction(1, 1000)), disjoint(3)
    gaps = set()
    for prefix, j in (((), 1), ((0, 2), 1), ((1,), 3)):
        ahead = prefix + (0,) * (j - 1)
        assert equal.proposal(prefix, j) == equal.target(ahead)
        gaps.add(max(abs(near.proposal(prefix, j).probability(x) - near.target(ahead).probability(x)) for x in range(3)))
        assert not set(far.proposal(prefix, j).support) & set(far.target(prefix).support)
    assert 0 < max(gaps) <= Fraction(1, 1000)
    law: Callable[[Any], Any] = lambda model: exact_law(named("packed", 3), model, (), Limits.of(4))  # noqa: E731
    assert law(far).nfe == {4: 1}
    assert law(equal).expected_nfe < law(near).expected_nfe < 4
