"""The exact law has eyes: planted faults change it, what is only slow or unusual does not, and a sampled run follows it.

The faulty schedules are the production schedule with one function or the absorbed state replaced. Ids as in the list of
faults known from public decoders (F) and of variants that are exact (C).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import simulator.schedule
from simulator import (
    Ask,
    ContractError,
    Draft,
    Generation,
    Limits,
    Point,
    RationalLaw,
    Sampled,
    Schedule,
    Step,
    ar,
    autoregressive_law,
    exact_law,
    generate,
    named,
    packed,
    quadratic,
)
from simulator.acceptance import Verdict, accept, acceptance_probability
from simulator.chance import draw, leading
from simulator.laws import argmax
from simulator.oracles import TabularModel, ThresholdModel, random_tables

PACKED = packed(3)
HALF, THIRD = Fraction(1, 2), Fraction(1, 3)


# --- by hand ----------------------------------------------------------------------------------------------------------------

COIN = RationalLaw([HALF, HALF])
BIASED = RationalLaw([THIRD, 1 - THIRD])


def test_the_autoregressive_law_by_hand() -> None:
    """P(0) = 1/3 first, then a fair coin after a 0 and a certain 1 after a 1; token 1 may be an EOS."""

    def target(prefix: tuple[int, ...]) -> Any:
        return BIASED if prefix == (7,) else COIN if prefix[-1] == 0 else Point(1)

    law = autoregressive_law(target, (7,), Limits.of(2))
    assert law == {(0, 0): THIRD / 2, (0, 1): THIRD / 2, (1, 1): 1 - THIRD}
    assert autoregressive_law(target, (7,), Limits.of(2, 1)) == {(0, 0): THIRD / 2, (0, 1): THIRD / 2, (1,): 1 - THIRD}
    assert autoregressive_law(target, (7,), Limits.of(2, 7)) == law  # an EOS in the prompt stops nothing
    assert autoregressive_law(target, (7,), Limits.of(0)) == {(): 1}


def test_packed_by_hand() -> None:
    """W = 2, L = 2, every target a fair coin, every proposal (1/3, 2/3). Call 1 emits a token and keeps z2. Its test accepts a
    0 surely and a 1 with probability 3/4, either of which ends the run, and so does the correction: 2 calls, never 3."""
    model = TabularModel(lambda prefix: COIN, lambda prefix, j: BIASED)
    steps: list[Step] = []
    law = exact_law(packed(2), model, (), Limits.of(2), observe=steps.append)
    assert law.output == {(x, y): Fraction(1, 4) for x in (0, 1) for y in (0, 1)}
    assert law.nfe == {2: 1}
    assert law.expected_nfe == 2
    # 1 start; 2 x 2 states of first token and draft; 4 outputs. Rejected 1s become 0s; accepted drafts add a bonus of 2 values,
    # which the limit cuts off: 3 outcomes for a draft 1 (accepted twice, rejected), 2 for a draft 0.
    assert law.states == 1 + 4 + 4
    assert law.transitions == len(steps) == 4 + 2 * (2 + 3)


def test_expected_nfe_by_hand() -> None:
    """L = 3, W = 2: the draft z2 is accepted with probability 1/3 + 2/3 * 3/4 = 5/6, then the bonus ends the run."""
    model = TabularModel(lambda prefix: COIN, lambda prefix, j: BIASED)
    law = exact_law(packed(2), model, (), Limits.of(3))
    assert law.nfe == {2: Fraction(5, 6), 3: Fraction(1, 6)}
    assert law.expected_nfe == Fraction(13, 6)


def test_equal_situations_merge() -> None:
    """AR over a coin that has 1 state per prefix; a greedy run has 1 per call."""
    law = exact_law(ar(), TabularModel(lambda prefix: COIN, lambda prefix, j: COIN), (), Limits.of(3))
    assert (law.states, law.transitions) == (1 + 2 + 4 + 8, 2 + 4 + 8)
    model = ThresholdModel([1, 0, 3, 2, 0])
    run = generate(model, PACKED, (), Limits.of(5))
    law = exact_law(PACKED, model, (), Limits.of(5))
    assert (law.output, law.nfe, law.states, law.transitions) == ({run.tokens: 1}, {run.nfe: 1}, run.nfe + 1, run.nfe)


@pytest.mark.parametrize(
    ("schedule", "states", "transitions"),
    [(ar(), 112, 111), (named("linear", 3), 1453, 5487), (PACKED, 279, 761), (quadratic(3), 430, 1577)],
    ids=lambda value: getattr(value, "name", None),
)
def test_state_counts_are_pinned(schedule: Schedule, states: int, transitions: int) -> None:
    law = exact_law(schedule, random_tables(3, 0), (), Limits.of(5))
    assert (law.states, law.transitions) == (states, transitions)


def test_no_call_for_a_limit_of_0() -> None:
    law = exact_law(PACKED, random_tables(3, 0), (1,), Limits.of(0))
    assert (law.output, law.nfe, law.expected_nfe) == ({(): 1}, {0: 1}, 0)


def test_a_chain_that_does_not_end_in_time_is_refused() -> None:
    model, limits = random_tables(2, 0), Limits.of(4)
    assert max(exact_law(ar(), model, (), limits, max_calls=4).nfe) == 4
    with pytest.raises(ContractError, match="still running after 3 calls"):
        exact_law(ar(), model, (), limits, max_calls=3)
    with pytest.raises(ContractError, match="still running after 20 calls"):
        exact_law(Schedule("stalls", (), (Ask(False, (0,), 1),)), model, (), limits, max_calls=20)


# --- planted faults ---------------------------------------------------------------------------------------------------------


def plain_correction(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """F08: the residual is ignored and the correction is drawn from p."""
    verdict = accept(draft, target, chance, first)
    h = verdict.accepted
    return verdict._replace(tokens=(*draft.tokens[:h], draw(target[h], chance, "correct", first + h)))


def removed_token(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """F09: the correction is drawn from p with the rejected token removed. Right for a one-hot q only (C02)."""
    alphas = [acceptance_probability(*row) for row in zip(target, draft.laws, draft.tokens, strict=False)]
    h = leading(alphas, lambda i: chance.uniform("test", first + i))
    law = target[h] if h == len(draft.tokens) else target[h].residual(Point(draft.tokens[h]))
    return Verdict(h, (*draft.tokens[:h], draw(law or target[h], chance, "correct", first + h)), False)


def usual(p: Any, q: Any, token: int, index: int) -> Any:
    return acceptance_probability(p, q, token)


def accept_with(alpha: Callable[..., Any] = usual, coin: Callable[[int], int] = lambda i: i) -> Any:
    """The accept rule with another acceptance probability alpha(p, q, token, index), or with coin(i) for test i."""

    def rule(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
        rows = zip(target, draft.laws, draft.tokens, strict=False)
        alphas = [alpha(*row, i) for i, row in enumerate(rows)]
        h = leading(alphas, lambda i: chance.uniform("test", first + coin(i)))
        law = target[h] if h == len(draft.tokens) else target[h].residual(draft.laws[h])
        return Verdict(h, (*draft.tokens[:h], draw(law or target[h], chance, "correct", first + h)), law is None)

    return rule


def reused_uniform(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """F12: the uniform of the failed test draws the correction too."""

    class Reusing:
        def uniform(self, purpose: str, position: int) -> Any:
            return chance.uniform("test" if position < first + len(draft.tokens) else purpose, position)

    return accept(draft, target, Reusing(), first)


def bonus_after_rejection(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """F19: A = h + 2 after a rejection, the extra token from the row after the rejected one."""
    verdict = accept(draft, target, chance, first)
    h = verdict.accepted
    if h == len(draft.tokens):
        return verdict
    return verdict._replace(tokens=(*verdict.tokens, draw(target[h + 1], chance, "correct", first + h + 1)))


def sample_and_match(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """C01: draw from the target; go on while the draft equals the draw; always emit the draw."""
    tokens: list[int] = []
    for index, law in enumerate(target):
        tokens.append(draw(law, chance, "correct", first + index))
        if index == len(draft.tokens) or tokens[-1] != draft.tokens[index]:
            break
    return Verdict(len(tokens) - 1, tuple(tokens), False)


ACCEPT_FAULTS = {
    "F08 correction from p": plain_correction,
    "F09 correction from p without the token": removed_token,
    "F12 test coin reused": reused_uniform,
    "F13 one coin for all tests": accept_with(coin=lambda i: 0),
    "F15 accept iff p >= q": accept_with(lambda p, q, d, i: int(p.probability(d) >= q.probability(d))),
    "F16 first token unchecked": accept_with(lambda p, q, d, i: 1 if i == 0 else usual(p, q, d, i)),
    "F19 bonus after rejection": bonus_after_rejection,
    "alpha without the ratio": accept_with(lambda p, q, d, i: p.probability(d)),
}


class Changed(Schedule):
    """The production schedule whose draft, before a call or after it, is replaced."""

    def before(self, draft: Draft, reply: Any) -> Draft:
        return draft

    def after(self, draft: Draft, step: Step, reply: Any, coins: Any) -> Draft:
        return draft

    def absorb(self, state: Any, call: Any, reply: Any, chance: Any) -> Any:
        state = state._replace(draft=self.before(state.draft, reply))
        after, step = super().absorb(state, call, reply, chance)
        if step.stop or step.branch is None:
            return after, step
        position = after.emitted + 1
        draft = self.after(after.draft, step, reply, lambda law, i: draw(law, chance, "draft", position + i))
        return after._replace(draft=draft), step._replace(retained=len(draft.tokens))


class FreshLaws(Changed):
    """F03: the laws of this call's proposals, made from the newer prefix, take the place of the stored ones."""

    def before(self, draft: Draft, reply: Any) -> Draft:
        return Draft(draft.tokens, reply.proposals[0][: len(draft.tokens)])


class ShiftedLaws(Changed):
    """F04: the tokens are trimmed by A, their laws by A - 1."""

    def after(self, draft: Draft, step: Step, reply: Any, coins: Any) -> Draft:
        laws = reply.proposals[0][step.discarded - 1 :]
        return Draft(draft.tokens, laws[: len(draft.tokens)])


class GreedyDraft(Changed):
    """F01: drafts by argmax, soft laws stored."""

    def after(self, draft: Draft, step: Step, reply: Any, coins: Any) -> Draft:
        return Draft(tuple(argmax(law).token for law in draft.laws), draft.laws)


class GreedyDraftItsOwnLaw(Changed):
    """C03: drafts by argmax, stored as the point masses they come from."""

    def after(self, draft: Draft, step: Step, reply: Any, coins: Any) -> Draft:
        points = tuple(map(argmax, draft.laws))
        return Draft(tuple(point.token for point in points), points)


class KeptTooLate(Changed):
    """F20: keeps z from position a + 2 on, each token with its own law, for the positions from a + 1 on."""

    def after(self, draft: Draft, step: Step, reply: Any, coins: Any) -> Draft:
        return Draft(draft.tokens[1:], draft.laws[1:])


class KeptTooEarly(Changed):
    """F20: keeps z from position a on, each token with its own law."""

    def after(self, draft: Draft, step: Step, reply: Any, coins: Any) -> Draft:
        laws = reply.proposals[0][step.discarded - 1 :]
        return Draft(tuple(coins(law, i) for i, law in enumerate(laws)), laws)


class ZeroBranch(Changed):
    """F21: Quadratic-SS takes branch 0 whatever was accepted, laws travelling with the tokens."""

    def after(self, draft: Draft, step: Step, reply: Any, coins: Any) -> Draft:
        laws = reply.proposals[0][1:]
        return Draft(tuple(coins(law, i) for i, law in enumerate(laws)), laws)


STATE_FAULTS = {"F01 draft by argmax": GreedyDraft, "F03 fresh laws": FreshLaws, "F04 shifted laws": ShiftedLaws}


def planted(kind: type[Schedule], schedule: Schedule = PACKED) -> Schedule:
    return kind(schedule.name, schedule.opening, schedule.cycle)


def is_exact(schedule: Schedule, seed: int, length: int = 4) -> bool:
    model, limits = random_tables(3, seed), Limits.of(length)
    return exact_law(schedule, model, (), limits).output == autoregressive_law(model.target, (), limits)


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("name", ["linear", "packed", "quadratic"])
@pytest.mark.parametrize("fault", ACCEPT_FAULTS)
def test_a_wrong_accept_rule_changes_the_law(fault: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On every table tried."""
    assert all(is_exact(named(name, 3), seed) for seed in range(2))
    monkeypatch.setattr(simulator.schedule, "accept", ACCEPT_FAULTS[fault])
    assert not any(is_exact(named(name, 3), seed) for seed in range(2))


@pytest.mark.claim("LEMB4")
@pytest.mark.parametrize("fault", STATE_FAULTS)
def test_a_draft_token_parted_from_its_law_changes_the_law(fault: str) -> None:
    assert not any(is_exact(planted(STATE_FAULTS[fault]), seed) for seed in range(4))


def test_the_patched_rule_without_a_change_is_the_production_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what the faults show is the fault."""
    expected = exact_law(PACKED, random_tables(3, 0), (), Limits.of(4))
    assert exact_law(planted(Changed), random_tables(3, 0), (), Limits.of(4)) == expected
    monkeypatch.setattr(simulator.schedule, "accept", accept_with())
    assert exact_law(PACKED, random_tables(3, 0), (), Limits.of(4)) == expected


def test_one_coin_for_all_tests_leaves_the_first_token_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """F13 shows in the joint law only: with drafts of one token (W = 2) it is exact."""
    monkeypatch.setattr(simulator.schedule, "accept", ACCEPT_FAULTS["F13 one coin for all tests"])
    assert all(is_exact(packed(2), seed) for seed in range(5))


@pytest.mark.parametrize(
    ("slow", "right"),
    [
        (planted(KeptTooLate), PACKED),
        (planted(KeptTooEarly), PACKED),
        (planted(ZeroBranch, quadratic(3)), quadratic(3)),
    ],
    ids=["F20 from a + 2", "F20 from a", "F21"],
)
def test_a_draft_for_the_wrong_place_costs_calls_and_changes_no_law(slow: Schedule, right: Schedule) -> None:
    """The laws travel with their tokens: exact. E[NFE] tells: here the likely token alternates."""

    def likely(position: int, weight: int) -> RationalLaw:
        return RationalLaw.weighted((weight, 1) if position % 2 else (1, weight))

    model = TabularModel(lambda prefix: likely(len(prefix) + 1, 5), lambda prefix, j: likely(len(prefix) + j, 3))
    limits = Limits.of(6)
    law = exact_law(slow, model, (), limits)
    assert law.output == autoregressive_law(model.target, (), limits)
    assert law.expected_nfe > exact_law(right, model, (), limits).expected_nfe


# --- controls: unusual and exact --------------------------------------------------------------------------------------------

CHANGING_WIDTHS = Schedule("widths 3, 0, 1, 2", (), tuple(Ask(True, (0,), width) for width in (3, 0, 1, 2)))
LATE_CHECK = Schedule("drafts twice, verifies once", (), (Ask(False, (0,), 2), Ask(False, (0,), 3), Ask(True, (0,), 2)))


@pytest.mark.parametrize(
    "schedule",
    [CHANGING_WIDTHS, LATE_CHECK, planted(GreedyDraftItsOwnLaw)],
    ids=["C07 another width every call", "C07 drafts thrown away", "C03 greedy drafts with their own laws"],
)
def test_unusual_schedules_are_exact(schedule: Schedule) -> None:
    assert all(is_exact(schedule, seed) for seed in range(4))


@pytest.mark.parametrize("name", ["linear", "packed", "quadratic"])
def test_sample_and_match_is_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C01. It accepts less: on these tables E[NFE] is larger than under the production rule."""
    model, limits = random_tables(3, 0), Limits.of(4)
    production = exact_law(named(name, 3), model, (), limits)
    monkeypatch.setattr(simulator.schedule, "accept", sample_and_match)
    law = exact_law(named(name, 3), model, (), limits)
    assert law.output == production.output
    assert law.expected_nfe > production.expected_nfe


def test_removing_the_rejected_token_is_exact_for_one_hot_proposals(monkeypatch: pytest.MonkeyPatch) -> None:
    """C02: what is a fault for soft proposals (F09) is the rule itself for these."""
    monkeypatch.setattr(simulator.schedule, "accept", removed_token)
    assert all(is_exact(planted(GreedyDraftItsOwnLaw), seed) for seed in range(4))


# --- a sampled run follows the exact law ------------------------------------------------------------------------------------

RUNS, ALPHA = 4000, 1e-6
MODEL, LIMITS = random_tables(3, 3), Limits.of(3, 1)


def sampled(schedule: Schedule) -> list[Generation]:
    return [generate(MODEL, schedule, (), LIMITS, Sampled(2026, request)) for request in range(RUNS)]


def p_value(values: Iterable[Any], expected: dict[Any, Fraction]) -> float:
    """Chi-square of RUNS sampled values; values with an expected count below 5 share a cell."""
    counts = Counter(values)
    assert counts.keys() <= expected.keys()
    cells = [(counts[x], float(weight) * RUNS) for x, weight in expected.items() if weight * RUNS >= 5]
    observed, mean = np.array([*cells, (RUNS - sum(n for n, _ in cells), RUNS - sum(m for _, m in cells))]).T
    used = mean > 1e-9
    assert used.sum() >= 3
    return float(chi2.sf(((observed - mean)[used] ** 2 / mean[used]).sum(), used.sum() - 1))


@pytest.mark.parametrize("name", ["linear", "packed", "quadratic"])
def test_sampled_runs_follow_the_exact_law(name: str) -> None:
    """Tokens and NFE of 4000 requests at seed 2026. For a fresh seed the odds of a false alarm are 1e-6 a test, 6e-6 in all;
    token laws that are off by a total variation of 0.06, spread evenly, are seen in 9 of 10 seeds."""
    schedule = named(name, 3)
    law, runs = exact_law(schedule, MODEL, (), LIMITS), sampled(schedule)
    assert p_value((run.tokens for run in runs), law.output) > ALPHA
    assert p_value((run.nfe for run in runs), law.nfe) > ALPHA


def test_the_statistics_would_see_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """F08 planted: 4000 requests show it at the same level."""
    expected = exact_law(PACKED, MODEL, (), LIMITS).output
    monkeypatch.setattr(simulator.schedule, "accept", plain_correction)
    assert p_value((run.tokens for run in sampled(PACKED)), expected) < ALPHA
