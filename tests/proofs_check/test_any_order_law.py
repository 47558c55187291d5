"""What any-order sampling preserves, and what not: the checks hold, see planted faults, and say when they saw nothing."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import proofs_check.any_order_law as law
import proofs_check.any_order_limits as limits_of
from proofs_check.any_order_law import Case, Deviation, Remembering, accepted_in, deviation, from_joint, serial_law
from proofs_check.any_order_limits import (
    ArgmaxDrafts,
    FreshLaws,
    ShiftedLaws,
    as_kind,
    by_position,
    echo,
    joint_stopped,
    smallest_confidence,
    textual_below,
)
from proofs_check.ledger import Entry
from simulator import Limits, exact_law
from simulator.any_order import Schedule, named
from simulator.exact import visits
from simulator.laws import RationalLaw
from simulator.oracles.any_order import AnyOrderModel, random_tables


def outcomes(entries: list[Entry]) -> set[str]:
    return {entry.outcome for entry in entries}


@pytest.mark.claim("ANY-ORDER-LAW", "ANY-ORDER-SERIAL")
@pytest.mark.parametrize("schedule", law.SCHEDULES)
def test_blind_orders_are_exact(schedule: str) -> None:
    entries = law.check(schedule, "quick")
    assert outcomes(entries) == {"holds"}, entries
    assert {entry.claim for entry in entries} == {"ANY-ORDER-LAW", "ANY-ORDER-SERIAL"}


@pytest.mark.claim("ANY-ORDER-ADAPTIVE", "ANY-ORDER-STOP", "ANY-ORDER-LAW")
@pytest.mark.parametrize("check", limits_of.CHECKS, ids=lambda check: str(check.name))
def test_the_limits_are_where_they_are_said_to_be(check: Any) -> None:
    entries = check.run("quick")
    assert outcomes(entries) == {"holds"}, entries
    assert {entry.claim for entry in entries} <= set(check.claims)


@pytest.mark.slow
@pytest.mark.parametrize("check", [*law.CHECKS, *limits_of.CHECKS], ids=lambda check: str(check.name))
def test_they_hold_at_full_budget(check: Any) -> None:
    assert outcomes(check.run("full")) == {"holds"}


def wrong(policy: Any, model: AnyOrderModel, limits: Limits, ours: bool = True) -> Deviation | None:
    return deviation(visits(Remembering(policy, ours), model, (), limits), model.verifier, limits, ours)[0]


@pytest.mark.parametrize("kind", [FreshLaws, ShiftedLaws, ArgmaxDrafts])
@pytest.mark.parametrize("ours", [False, True])
def test_a_wrong_law_is_a_deviation(kind: type[Schedule], ours: bool) -> None:
    found = wrong(as_kind(kind, "packed", 3, "ltr"), random_tables(3, 0), Limits.of(3), ours)
    assert found is not None
    assert "the verifier's given" in str(found)


def test_a_fault_makes_the_ledger_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law, "named", lambda name, width, order: as_kind(ArgmaxDrafts, name, width, order))
    entries = law.check("packed", "quick")
    assert outcomes(entries) == {"violated"}
    assert entries[0].detail.startswith("random_tables(3, 0), L=3, W=3, order ltr: after [[")


def test_what_reaches_nothing_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law, "cases", lambda budget: iter([Case(3, 0, Limits.of(2), "ltr", 2)]))
    [entry] = law.check_history("quadratic", "quick")
    assert entry.outcome == "not run"
    for condition in (law.WINDOW, law.KEPT, law.BRANCH, law.REMOVED, law.TWICE, law.SAW, law.UNTEXTUAL):
        assert condition in entry.detail


def test_faults_that_survive_are_violations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each limit, taken away, is missed."""
    monkeypatch.setitem(limits_of.FAULTS, "none", (Schedule, "nothing wrong"))
    assert outcomes(limits_of.check_refuted("none", "quick")) == {"violated"}
    with monkeypatch.context() as patch:
        patch.setattr(limits_of, "echo", lambda: by_position(((1, 1),) * 3, ((1, 1),) * 3))
        assert "violated" in outcomes(limits_of.check_stops("quick"))
    with monkeypatch.context() as patch:
        patch.setattr(limits_of, "CutAtEnd", Schedule)
        assert "violated" in outcomes(limits_of.check_stops("quick"))
    with monkeypatch.context() as patch:
        patch.setattr(limits_of, "smallest_confidence", lambda schedule, order="confidence": (None, 0))
        assert "violated" in outcomes(limits_of.check_confidence("quick"))


@pytest.mark.claim("ANY-ORDER-ADAPTIVE")
def test_the_smallest_case_by_hand() -> None:
    """Fair coins p, drafts (1/3, 2/3). The history after call 1: position 2 goes first if its token is the likelier or ties."""
    found, _ = smallest_confidence("packed")
    assert found is not None
    assert (found.length, found.width, found.output) == (3, 3, (1, 1, 0))
    assert (found.ours, found.serial) == (Fraction(5, 36), Fraction(1, 8))
    # Position 2 is first unless d_2 = 0 and d_3 = 1: d_2 = 1 (mass 6/9; accepted with 3/4), or d_2 = d_3 = 0 (mass 1/9).
    one = Fraction(6, 9) * Fraction(3, 4)
    assert found.deviation is not None
    assert found.deviation.ours[1] == one / Fraction(7, 9) == Fraction(9, 14)
    assert wrong(named("packed", 3, "peak"), by_position(((1, 1),) * 3, ((1, 1), (1, 2), (1, 2))), Limits.of(3)) is None


def test_textual_order_is_left_as_soon_as_the_window_allows_it() -> None:
    runs, untextual = textual_below("packed", [(3, 3)])
    assert untextual.startswith("packed, L=3, W=3: order (3, 2)")
    assert runs > 1


@pytest.mark.claim("ANY-ORDER-STOP")
def test_the_smallest_stop_by_hand() -> None:
    """Order 3, 2, 1: if 2 is an EOS (1/2), serial decoding forgets position 3, and position 1 is 0; else it repeats it."""
    limits = Limits.of(3, 1)
    assert serial_law(echo().verifier, "rtl", limits, 3) == {
        (0, 1): Fraction(1, 2),
        (0, 0, 0): Fraction(1, 4),
        (1,): Fraction(1, 4),
    }
    # Drafts of 2 are always accepted, so 1 still sees 3: it is an EOS itself half of the time.
    expected = {(0, 1): Fraction(1, 4), (0, 0, 0): Fraction(1, 4), (1,): Fraction(1, 2)}
    assert exact_law(named("packed", 3, "rtl"), echo(), (), limits).output == expected


def test_a_joint_law_has_its_conditionals() -> None:
    model, joint, texts = from_joint(2, 3, 0)
    mass = dict(zip(texts, joint.probabilities, strict=True))
    held = sum(mass[text] for text in texts if text[2] == 1)
    both = sum(mass[text] for text in texts if text[2] == 1 and text[0] == 0)
    assert model.verifier(((3, 1),), 1).probability(0) == both / held
    stopped = joint_stopped(joint, texts, Limits.of(3, 1))
    assert sum(stopped.values()) == 1
    assert stopped[1,] == sum(mass[text] for text in texts if text[0] == 1)


def test_what_a_call_accepted_is_read_off_its_step() -> None:
    """Position 3, then the EOS at 2, then 1; and a last token that is removed at once, which only `ours` knows."""
    certain = RationalLaw([0, 1])
    model = AnyOrderModel(lambda pairs, j: certain, lambda pairs, j: certain)
    chain = list(visits(Remembering(named("packed", 3, "rtl"), True), model, (), Limits.of(3, 1)))
    assert [visit.state.history for visit in chain][-1] == (((3, 1),), ((2, 1), (1, 1)))
    assert chain[-1].state.end(Limits.of(3, 1)) == 1

    fair = AnyOrderModel(
        lambda pairs, j: certain if j == 1 else RationalLaw([Fraction(1, 2)] * 2), lambda pairs, j: RationalLaw([1, 0])
    )
    histories = {
        ours: {
            visit.state.history
            for visit in visits(
                Remembering(named("linear", 2), ours),
                AnyOrderModel(fair.verifier, lambda pairs, j: certain if j == 1 else RationalLaw([1, 0])),
                (),
                Limits.of(2, 1),
            )
            if visit.call is None
        }
        for ours in (False, True)
    }
    assert histories[False] == {(((1, 1), (2, 0)),), (((1, 1), (2, None)),)}
    assert histories[True] == {(((1, 1), (2, 0)),), (((1, 1), (2, 1)),)}


def test_a_left_to_right_step_is_read_too() -> None:
    from simulator import generate, packed
    from simulator.oracles import ThresholdModel

    for step in generate(ThresholdModel([1, 1, 1]), packed(2), (), Limits.of(3)).steps:
        assert accepted_in(step) == ()  # it names no positions
