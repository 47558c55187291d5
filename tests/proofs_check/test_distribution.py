"""The check of THM3.3: holds on our schedules, names what is wrong with a faulty one, and knows when it has seen too little."""

from __future__ import annotations

import ast
import itertools
import re
import time
from fractions import Fraction
from typing import Any

import pytest

import proofs_check.distribution as distribution
import simulator.schedule
from proofs_check.distribution import COMMON, EXPECTED, KEPT, Reached, check_distribution
from proofs_check.ledger import exit_code
from simulator import Limits, Step, autoregressive_law, exact_law, named, packed
from simulator.acceptance import Verdict, accept
from simulator.chance import draw
from simulator.oracles import random_tables
from simulator.schedules import STARTS


def plain_correction(draft: Any, target: Any, chance: Any, first: int) -> Verdict:
    """F08: the residual is ignored and the correction is drawn from p."""
    verdict = accept(draft, target, chance, first)
    h = verdict.accepted
    return verdict._replace(tokens=(*draft.tokens[:h], draw(target[h], chance, "correct", first + h)))


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("name", EXPECTED)
def test_it_holds_on_our_schedules(name: str, start: str) -> None:
    entry = check_distribution(name, start, seeds=(0,))
    assert (entry.outcome, entry.claim, entry.method) == ("holds", "THM3.3", "exact")
    assert name in entry.statement
    assert start in entry.statement
    transitions = re.fullmatch(r"([\d,]+) transitions, equal as rationals", entry.detail)
    assert transitions
    assert int(transitions[1].replace(",", "")) > 500
    assert entry.bound == "V=3, L=5, W=3, 1 tables, EOS or none, sampling and greedy"
    assert exit_code([entry]) == 0


def test_it_counts_the_transitions_and_the_seconds_it_took() -> None:
    """Three tables at two temperatures, without an EOS and with one."""
    begun = time.perf_counter()
    entry = check_distribution("packed", "algorithm")
    assert 0 < entry.seconds <= time.perf_counter() - begun
    expected = 0
    for seed, eos in itertools.product((0, 1, 2), (None, 2)):
        tables = random_tables(3, seed)
        for model in (tables, tables.greedy()):
            expected += exact_law(packed(3), model, (), Limits.of(5, eos)).transitions
    assert entry.detail.startswith(f"{expected:,} transitions")
    assert "3 tables" in entry.bound


@pytest.mark.parametrize("name", EXPECTED)
def test_a_planted_fault_is_a_violation_with_a_true_counterexample(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output named really has the two probabilities named, in the first instance that shows the fault."""
    monkeypatch.setattr(simulator.schedule, "accept", plain_correction)
    monkeypatch.setattr(distribution, "LENGTH", 4)
    entry = check_distribution(name, "algorithm", seeds=(1, 0))
    assert (entry.outcome, entry.claim) == ("violated", "THM3.3")
    assert exit_code([entry]) == 1
    found = re.fullmatch(
        r"seed (\d+), eos (None|\d+), (greedy|sampling): output (\[.*\]) has probability (\S+), autoregressive (\S+)",
        entry.detail,
    )
    assert found, entry.detail
    seed, eos, temperature, output, ours, theirs = found.groups()
    assert (seed, eos, temperature) == ("1", "None", "sampling")  # the fault changes no point mass
    model, limits = random_tables(distribution.VOCABULARY, int(seed)), Limits.of(distribution.LENGTH, ast.literal_eval(eos))
    law = exact_law(named(name, distribution.WIDTH), model, (), limits).output
    expected = autoregressive_law(model.target, (), limits)
    tokens = tuple(ast.literal_eval(output))
    assert law.get(tokens, 0) == Fraction(ours) != Fraction(theirs) == expected.get(tokens, 0)
    assert max(abs(law.get(x, 0) - expected.get(x, 0)) for x in law.keys() | expected.keys()) == abs(
        Fraction(ours) - Fraction(theirs)
    )


def test_a_fault_at_temperature_0_is_called_greedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def off_by_one(draft: Any, target: Any, chance: Any, first: int) -> Verdict:
        """F17 for point masses: draft i is tested against prediction i + 1."""
        shifted = (*target[1:], target[-1]) if target[0].certain is not None else target
        return accept(draft, shifted, chance, first)

    monkeypatch.setattr(simulator.schedule, "accept", off_by_one)
    monkeypatch.setattr(distribution, "random_tables", lambda vocabulary, seed: positive(random_tables(vocabulary, seed)))
    entry = check_distribution("packed", "algorithm")
    assert entry.outcome == "violated"
    found = re.search(r"greedy: output .* has probability ([01]), autoregressive ([01])$", entry.detail)
    assert found
    assert {found[1], found[2]} == {"0", "1"}


def positive(tables: Any) -> Any:
    """The same tables without point masses: every law is mixed with the uniform one."""
    from simulator import RationalLaw
    from simulator.oracles import TabularModel

    def mixed(law: Any) -> RationalLaw:
        return RationalLaw((p + Fraction(1, 3)) / 2 for p in law.probabilities)

    return TabularModel(lambda prefix: mixed(tables.target(prefix)), lambda prefix, j: mixed(tables.proposal(prefix, j)))


def test_without_instances_it_did_not_run() -> None:
    entry = check_distribution("packed", "algorithm", seeds=())
    assert entry.outcome == "not run"
    assert all(condition in entry.detail for condition in EXPECTED["packed"])
    assert exit_code([entry]) == 2


def test_conditions_out_of_reach_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With L = 2 a call that keeps a draft is a first call, which has nothing to reject."""
    monkeypatch.setattr(distribution, "LENGTH", 2)
    entry = check_distribution("packed", "algorithm")
    assert (entry.outcome, entry.detail) == ("not run", f"never reached: {KEPT}")


def test_a_violation_is_reported_although_conditions_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribution, "LENGTH", 2)
    monkeypatch.setattr(simulator.schedule, "accept", plain_correction)
    assert check_distribution("packed", "algorithm").outcome == "violated"


# A verifying call that rejects its second token and keeps branch 1's suffix.
STEP = Step((1, 2), (None,) * 3, 1, 2, (1, 0), 1, 1, 2, None, 0, False)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({}, {COMMON[0], KEPT, "a branch b > 0 taken"}),
        ({"branch": 0}, {COMMON[0], KEPT}),
        ({"retained": 0}, {COMMON[0]}),
        ({"branch": None}, {COMMON[0]}),
        ({"accepted": 2, "branch": 0}, {COMMON[1]}),
        ({"verified": (1,), "branch": 0}, set()),
        ({"verified": (), "accepted": 0, "branch": None, "retained": 3}, set()),
        ({"accepted": 2, "advance": 3, "stop": "eos", "branch": None, "retained": 0}, {COMMON[1], COMMON[2]}),
        ({"accepted": 2, "advance": 3, "stop": "length", "branch": None, "retained": 0}, {COMMON[1], COMMON[3]}),
        ({"stop": "eos", "branch": None, "retained": 0}, {COMMON[0]}),  # the block ends there anyway
        ({"stop": "length", "branch": None, "retained": 0}, {COMMON[0]}),
    ],
)
def test_what_a_step_shows(changes: dict[str, Any], names: set[str]) -> None:
    reached = Reached()
    reached(STEP._replace(**changes))
    assert reached.seen == names
