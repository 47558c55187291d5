"""Appendix C against serial decoding: holds on the specification, sees planted faults, and is not run on what shows nothing."""

# ruff: noqa: N803, N806 - the paper's symbols
from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import proofs_check.any_order as check
from proofs_check.any_order import NONE, ONE, Findings, Space, arbitrary, check_every, check_random, every, serial_call
from proofs_check.ledger import Entry
from spec import any_order
from spec.any_order import Given, Record, State

REAL_CALL = any_order.call
SMALL = [Space(schedule, 2, 3, 3, EOS) for EOS in (NONE, ONE) for schedule in check.SCHEDULES]


def outcomes(entries: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.outcome for entry in entries}


def violations(entries: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.detail for entry in entries if entry.outcome == "violated"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "spaces", lambda budget: SMALL)


@pytest.mark.claim("PROPC1")
@pytest.mark.claim("PROGRESS")
@pytest.mark.claim("STOP")
def test_it_holds_for_all_models_and_orders() -> None:
    entries = list(check_every("quick"))
    assert outcomes(entries) == dict.fromkeys(check.STATEMENTS, "holds")
    assert {entry.method for entry in entries} == {"exhaustive"}
    # Pinned: the number of leaves changes only with what a run reads.
    assert entries[0].detail == "11,176 leaves, of weight 1 in each of 42 spaces, 46,230 calls"


@pytest.mark.slow
@pytest.mark.claim("PROPC1")
@pytest.mark.parametrize("run", [check_every, check_random])
def test_it_holds_at_full_budget(run: Any) -> None:
    assert outcomes(list(run("full"))) == dict.fromkeys(check.STATEMENTS, "holds")


@pytest.mark.claim("PROPC1")
def test_it_holds_for_random_models() -> None:
    entries = list(check_random("quick"))
    assert outcomes(entries) == dict.fromkeys(check.STATEMENTS, "holds")
    assert {entry.method for entry in entries} == {"property"}
    assert "seeds 0..599" in entries[0].bound


def test_every_follows_all_choices_once() -> None:
    leaves = list(every(lambda choose: (choose(2), choose(3)) if choose(2) else (choose(4),)))
    assert sorted(value for value, _ in leaves) == sorted([*((x,) for x in range(4)), *product(range(2), range(3))])
    assert sum(Fraction(1, options) for _, options in leaves) == 1


def test_leaves_against_brute_force() -> None:
    """V = 2, L = W = 2, textual order: the leaves cover every table of the cells that can be read, by weight."""
    cells = [
        ("p", (), 1),
        *(("p", ((1, x),), 2) for x in (0, 1)),
        *(("q", P, j) for j in (1, 2) for P in ((), ((1, 0),), ((1, 1),))),
    ]

    def nfe(answer: Callable[[str, Any, int], int]) -> int:
        given = Given((), 2, 2, lambda P, j: (answer("p", P, j), 1.0), lambda P, j: (answer("q", P, j), 1.0))
        return any_order.run("packed", given).NFE

    tables = [dict(zip(cells, tokens, strict=True)) for tokens in product((0, 1), repeat=len(cells))]
    expected = Fraction(sum(nfe(lambda name, P, j, table=table: table[name, P, j]) for table in tables), len(tables))

    def run(choose: Any) -> int:
        given = arbitrary(2, 2, 2, NONE, choose)
        return any_order.run("packed", Given((), 2, 2, given.p, given.q)).NFE

    assert sum(Fraction(count, options) for count, options in every(run)) == expected


def test_serial_decoding_by_hand() -> None:
    given = Given((), 4, 9, lambda P, j: (j % 3, 1.0), lambda P, j: (0, 1.0), {2}, {(0, 1)})
    # Ranks 5, 4, 3: drafts 2 (right), 1 (right), none. 5 holds the EOS 2; 3 and 4 make the marker (0, 1).
    assert serial_call(given, ((1, 1),), {5: 2, 4: 1}, (5, 4, 3, 2), 9) == (
        ((5, 2), (4, 1), (3, 0)),
        2,
        4,
        ((1, 1), (4, 1), (3, 0)),
    )


def reordered(schedule: Any, state: State, given: Given) -> Any:
    """F36: the rows of one order, accepted under another."""
    after, record = REAL_CALL(schedule, state, given)
    return after, record._replace(pi=record.pi[::-1]) if len(record.C) > 1 else record


def blind(schedule: Any, state: State, given: Given) -> Any:
    """Verifier rows that do not see the draft."""
    narrow = Given(given.prompt, given.W, given.L, lambda P, j: given.p(state.P, j), given.q, given.EOS, order=given.order)
    return REAL_CALL(schedule, state, narrow)


def beyond_a_gap(schedule: Any, state: State, given: Given) -> Any:
    """F38: a rank without a draft counts as drafted."""
    if not state.D or schedule == "linear":
        return REAL_CALL(schedule, state, given)
    missing = tuple((j, 0) for j in range(1, state.E + 1) if j not in dict(state.P + state.D))
    same = Given(given.prompt, given.W, given.L, given.p, given.q, given.EOS, order=lambda U, _: given.order(U, state))
    return REAL_CALL(schedule, state._replace(D=state.D + missing), same)


def peeking(schedule: Any, state: State, given: Given) -> Any:
    """An order chosen after a look at this call's rows."""

    def order(U: Any, state: State) -> Any:
        given.p(state.P, U[0])
        return given.order(U, state)

    return REAL_CALL(schedule, state, Given(given.prompt, given.W, given.L, given.p, given.q, given.EOS, order=order))


def forgetful(schedule: Any, state: State, given: Given) -> Any:
    """The next draft is lost."""
    after, record = REAL_CALL(schedule, state, given)
    return (after._replace(D=()) if record.C else after), record


def without_the_last_token(schedule: Any, state: State, given: Given) -> Any:
    """A call that accepts matches alone: nothing, at first."""
    after, record = REAL_CALL(schedule, state, given)
    C = record.C[: record.h]
    P, E = any_order.append(state.P, C, state.E, given)
    return after._replace(P=P, E=E), record._replace(C=C)


def idle(schedule: Any, state: State, given: Given) -> Any:
    """A call that asks for an order and does nothing."""
    return state, Record(given.order(tuple(range(1, given.W + 1)), state), 0, ())


def generous(schedule: Any, state: State, given: Given) -> Any:
    """The first rejected draft token is accepted too."""
    after, record = REAL_CALL(schedule, state, given)
    draft, r = dict(state.D), record.h
    if not record.C or r == len(record.pi) or record.pi[r] not in draft:
        return after, record
    j = record.pi[r]
    swapped = lambda pairs: tuple((i, draft[j] if i == j else x) for i, x in pairs)  # noqa: E731
    return after._replace(P=swapped(after.P)), record._replace(C=swapped(record.C))


@pytest.mark.parametrize(
    ("faulty", "claim"),
    [
        (reordered, "ALG3.L5"),
        (generous, "PROPC1"),
        (blind, "EQ8"),
        (beyond_a_gap, "ALG3.L10"),
        (peeking, "ALG3.L5"),
        (forgetful, "ALG3.L15"),
        (without_the_last_token, "PROGRESS"),
        (idle, "PROGRESS"),
    ],
)
def test_planted_calls_are_seen(faulty: Any, claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_order, "call", faulty)
    spaces = [Space("packed", 2, 4, 2, NONE)] if faulty is beyond_a_gap else SMALL
    monkeypatch.setattr(check, "spaces", lambda budget: spaces)
    found = violations(list(check_every("quick")))
    assert claim in found
    assert found[claim].startswith(("packed", "quadratic", "linear"))


def test_a_group_of_another_size_is_seen(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One match is given back: serial decoding agrees with the tokens, not with their number."""

    def timid(schedule: Any, state: State, given: Given) -> Any:
        after, record = REAL_CALL(schedule, state, given)
        if len(record.C) < 2:
            return after, record
        P, E = any_order.append(state.P, record.C[:1], state.E, given)
        D = tuple((j, given.q(state.P, j)[0]) for j in record.pi[1:] if j <= E)
        return State(P, D, (), E), Record(record.pi, 0, record.C[:1])

    monkeypatch.setattr(any_order, "call", timid)
    found = violations(list(check_every("quick")))
    assert "ALG3.L10" in found
    assert "PROPC1" not in found


@pytest.mark.parametrize(
    "append",
    [
        lambda P, C, E, given: (P + C, min([E, *(j for j, x in C if x in given.EOS)])),  # F37: nothing is discarded
        lambda P, C, E, given: (P + C, E),  # EOS is not looked for
        lambda P, C, E, given: (P + C, min([given.L, *(j for j, x in C if x in given.EOS)])),  # E grows back
        lambda P, C, E, given: (tuple(pair for pair in P + C if pair[0] < E), E),  # one too many discarded
    ],
)
def test_a_wrong_end_is_seen(append: Any, small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_order, "append", append)
    found = violations(list(check_every("quick")))
    assert found.keys() & {"STOP", "PROGRESS"}
    assert "L=3, W=3" in next(iter(found.values()))
    assert len(found) < len(check.STATEMENTS)


def test_the_counterexample_is_a_true_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`generous`, as a person reads it: the smallest size, what was accepted, what serial decoding says, the calls."""
    monkeypatch.setattr(any_order, "call", generous)
    detail = violations(list(check_every("quick")))["PROPC1"]
    assert detail == (
        "linear, L=1, W=1, EOS []: call 2 accepts ((1, 0),), serial decoding gives ((1, 1),);"
        " the calls, order/draft/accepted: [1]/{}/{} | [1]/{1: 0}/{1: 0}"
    )


def test_random_runs_see_faults_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(any_order, "call", generous)
    assert "PROPC1" in violations(list(check_random("quick")))
    monkeypatch.undo()
    monkeypatch.setattr(any_order, "append", lambda P, C, E, given: (P + C, E))
    assert violations(list(check_random("quick"))).keys() & {"STOP", "PROGRESS"}


def test_a_wrong_output_is_seen(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    real = any_order.run
    monkeypatch.setattr(any_order, "run", lambda *arguments: (run := real(*arguments))._replace(P=run.P[::-1]))
    assert violations(list(check_every("quick"))).keys() == {"PROPC1"}


def test_what_shows_nothing_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "spaces", lambda budget: [Space("packed", 2, 2, 1, ONE)])
    entries = list(check_every("quick"))
    assert outcomes(entries) == dict.fromkeys(check.STATEMENTS, "not run")
    assert "E lowered in two calls" in entries[0].detail
    assert "a branch b > 0 chosen with draft left" in entries[0].detail


def test_a_leaf_left_out_is_not_run(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "every", lambda run: list(every(run))[1:])
    entries = list(check_every("quick"))
    assert outcomes(entries) == dict.fromkeys(check.STATEMENTS, "not run")
    assert "all leaves of Space" in entries[0].detail


def test_nothing_counts_as_reached_before_a_run() -> None:
    assert {entry.outcome for entry in Findings().entries("property", "", "")} == {"not run"}
