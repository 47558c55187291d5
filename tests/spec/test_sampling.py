"""Algorithm 2 by hand: which law tests, corrects and drafts which token, and which coin is asked for it."""

# ruff: noqa: SIM300 - P and Q are the paper's symbols here, no constants
from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from spec import SCHEDULES, Given, Record, State, greedy, sampling

STARTS = ("algorithm", "wide", "sampled", "prompt")
RUNS: list[tuple[Any, Any]] = [
    (s, start) for s in SCHEDULES for start in STARTS if s != "ar" or start in ("algorithm", "prompt")
]
H, T, Z = Fraction(1, 2), Fraction(1, 4), Fraction(0)


class Script:
    """Answers a uniform with `u` and a draw with the next of `tokens`, or else a likeliest one. Remembers what was asked."""

    def __init__(self, u: Any = 0, tokens: tuple[int, ...] = ()) -> None:
        self.u, self.tokens = u, list(tokens)
        self.tests: list[tuple[int, int]] = []
        self.draws: list[tuple[Any, ...]] = []

    def uniform(self, call: int, position: int) -> Any:
        self.tests.append((call, position))
        return self.u(call, position) if callable(self.u) else self.u

    def draw(self, law: Any, purpose: str, call: int, position: int) -> int:
        self.draws.append((law, purpose, call, position))
        return self.tokens.pop(0) if self.tokens else max(range(len(law)), key=lambda x: law[x])


def addressed(seed: int) -> tuple[Callable[..., float], Callable[..., int]]:
    """Independent pseudo-random coins, each fixed by its address; a draw is by inverse CDF, exactly."""

    def uniform(call: int, position: int) -> float:
        return Random(f"{seed} test {call} {position}").random()

    def draw(law: Any, purpose: str, call: int, position: int) -> int:
        u = Random(f"{seed} {purpose} {call} {position}").random()
        possible = [x for x, mass in enumerate(law) if mass > 0]
        return next((x for x in possible if u < sum(law[: x + 1])), possible[-1])

    return uniform, draw


# --- one call of Packed-SS --------------------------------------------------------------------------------------------------

# Prompt (5,), one token emitted, so d^(1) is for output position 2. The stored laws differ from whatever q says now.
STATE = State((5, 0), (0, 1), ((H, H, Z), (Z, H, H)), "both")
TARGET = {(5, 0): (T, T, H), (5, 0, 0): (H, T, T), (5, 0, 0, 1): (Z, Z, Fraction(1))}
FRESH = {j: (Fraction(j, 8), Fraction(8 - j, 8), Z) for j in (1, 2, 3, 4)}


def call_3(script: Script, W: int = 4, L: int = 99) -> tuple[State, Record]:
    given = Given((5,), W, L, lambda P: TARGET[P], lambda P, j: {(5, 0): FRESH}[P][j])
    return sampling.call("packed", STATE, given, 3, script.uniform, script.draw)


@pytest.mark.parametrize(("u", "h"), [(Z, 2), (Fraction(49, 100), 2), (H, 0), (Fraction(99, 100), 0)])
def test_the_stored_law_decides_and_a_tie_rejects(u: Fraction, h: int) -> None:
    """alpha = (T/H, T/H) = (1/2, 1/2) by the stored laws; u = alpha is a rejection."""
    assert call_3(Script(u))[1] == Record("both", h, h + 1, h + 1)


def test_a_call_that_rejects_the_first_token() -> None:
    script = Script(H, tokens=(2, 0, 1, 0))
    state, record = call_3(script)
    assert record == Record("both", h=0, A=1, a=1)
    assert script.tests == [(3, 2), (3, 3)]
    assert script.draws == [
        ((Z, Z, Fraction(1)), "correct", 3, 2),  # [p - Q]+ = (0, 0, 1/2), normalised
        (FRESH[2], "draft", 3, 3),
        (FRESH[3], "draft", 3, 4),
        (FRESH[4], "draft", 3, 5),
    ]
    assert state == State((5, 0, 2), (0, 1, 0), (FRESH[2], FRESH[3], FRESH[4]), "both")


def test_a_call_that_rejects_the_second_token() -> None:
    script = Script(lambda call, position: {2: Z, 3: H}[position], tokens=(0, 1, 0))
    state, record = call_3(script)
    assert record == Record("both", h=1, A=2, a=2)
    assert script.draws[0] == ((Fraction(1), Z, Z), "correct", 3, 3)
    assert [draw[1:] for draw in script.draws[1:]] == [("draft", 3, 4), ("draft", 3, 5)]
    assert state == State((5, 0, 0, 0), (1, 0), (FRESH[3], FRESH[4]), "both")


def test_a_call_that_accepts_all_draws_its_bonus_from_the_target() -> None:
    script = Script(Z, tokens=(2, 1))
    state, record = call_3(script)
    assert record == Record("both", h=2, A=3, a=3)
    assert script.draws == [(TARGET[5, 0, 0, 1], "correct", 3, 4), (FRESH[4], "draft", 3, 5)]
    assert state == State((5, 0, 0, 1, 2), (1,), (FRESH[4],), "both")


@pytest.mark.parametrize("W", [1, 2, 3])
def test_nothing_is_kept_when_the_advance_reaches_the_width(W: int) -> None:
    script = Script(Z)
    state, _ = call_3(script, W)
    assert (state.D, state.Q) == ((), ())
    assert len(script.draws) == 1


def test_the_limit_cuts_the_block_after_its_verifier_token_is_drawn() -> None:
    """ALG2.L7 comes before L9: the bonus has its coin although it is cut. L12 reads the cut a."""
    script = Script(Z)
    state, record = call_3(script, L=2)
    assert record == Record("both", h=2, A=3, a=1)
    assert state.P == (5, 0, 0)
    assert script.draws[0][1:] == ("correct", 3, 4)
    assert state.Q == (FRESH[2], FRESH[3], FRESH[4])


def test_a_token_the_target_forbids_is_rejected_even_at_u_zero() -> None:
    """alpha = 0, u = 0: `<`, not `<=` (F11)."""
    given = Given((), 2, 9, lambda P: (1.0, 0.0), lambda P, j: (0.0, 1.0))
    script = Script(0.0)
    _, record = sampling.call("packed", State((), (1,), ((0.0, 1.0),), "both"), given, 1, script.uniform, script.draw)
    assert record.h == 0
    assert script.draws[0][0] == (1.0, 0.0)


def test_quadratic_selects_the_branch_first_and_draws_only_from_it() -> None:
    """E.4, after one accepted token: positions 2..W of the branch that knows (P, d1)."""

    def q(P: tuple[int, ...], i: int) -> tuple[Fraction, ...]:
        return tuple(Fraction(w, 99) for w in (len(P), i, 99 - len(P) - i))

    given = Given((5,), 3, 99, lambda P: TARGET[P], q)
    script = Script(lambda call, position: {2: Z, 3: H}[position])
    state, record = sampling.call("quadratic", STATE, given, 7, script.uniform, script.draw)
    assert record == Record("both", h=1, A=2, a=2)
    assert state.P == (5, 0, 0, 0)
    assert state.Q == (q((5, 0, 0), 2), q((5, 0, 0), 3))
    assert script.draws[1:] == [(state.Q[0], "draft", 7, 4), (state.Q[1], "draft", 7, 5)]


@pytest.mark.claim("LEMB3")
def test_residual() -> None:
    assert sampling.residual((H, T, T), (Z, H, H)) == (Fraction(1), Z, Z)
    assert sampling.residual((H, T, T), (T, T + H, Z)) == (H, Z, H)
    assert sampling.residual((0.3, 0.7), (0.3, 0.7)) == (0.3, 0.7)  # no mass left by rounding: the target's own row


def test_a_residual_without_mass_is_told() -> None:
    """p falls short of Q by rounding, and u = alpha rejects: the correction comes from p, and the record says so."""
    p, Q = (0.25, 0.75 - 2**-53, 0.0), (0.25, 0.75, 0.0)
    given = Given((), 2, 9, lambda P: p, lambda P, j: Q)
    u = p[1] / Q[1]
    assert u < 1
    script = Script(u)
    _, record = sampling.call("packed", State((), (1,), (Q,), "both"), given, 1, script.uniform, script.draw)
    assert record == Record("both", 0, 1, 1, fallback=True)
    assert script.draws[0][0] == p
    for state in (STATE, State((5, 0), (), (), "both")):
        for uniform in (H, Z):
            script = Script(uniform)
            rest = Given((5,), 4, 99, lambda P: TARGET[P], lambda P, j: FRESH[j])
            assert not sampling.call("packed", state, rest, 3, script.uniform, script.draw)[1].fallback


# --- whole runs -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_every_coin_has_its_own_address(schedule: Any, start: Any, table_model: Any) -> None:
    """Which coins call t asks, from what it did: and no address is asked twice in a run."""
    for seed in range(20):
        uniform, draw = addressed(seed)
        given = Given((1, 2), 1 + seed % 4, 7, *table_model(3))
        script = Script(uniform)

        def remembering(law: Any, *address: Any, script: Script = script, draw: Any = draw) -> int:
            script.draws.append(address)
            return draw(law, *address)

        run = sampling.run(schedule, given, script.uniform, remembering, start)
        tests, draws = [], []
        for t, (record, before, after) in enumerate(zip(run.records, run.states, run.states[1:], strict=False), 1):
            emitted = len(before.P) - 2
            assert len(before.Q) == len(before.D)
            if record.A:
                tests += [(t, emitted + i + 1) for i in range(len(before.D))]
                draws += [("correct", t, emitted + record.h + 1)]
            draws += [("draft", t, len(after.P) - 2 + j + 1) for j in range(len(after.D))]
        assert script.tests == tests
        assert script.draws == draws
        assert len(set(tests)) == len(tests)
        assert len(set(draws)) == len(draws)
        assert len(run.P) == 2 + 7


@pytest.mark.claim("COR-GREEDY")
@pytest.mark.parametrize(("schedule", "start"), RUNS)
@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
def test_point_masses_give_the_greedy_run(schedule: Any, start: Any, u: float) -> None:
    """COR-GREEDY, state by state, for any uniforms."""
    for seed in range(40):
        V = 2 + seed % 3

        def point(x: int, V: int = V) -> tuple[int, ...]:
            return tuple(int(y == x) for y in range(V))

        def p(P: tuple[int, ...], seed: int = seed, V: int = V) -> int:
            return Random(f"{seed} {P}").randrange(V)

        def q(P: tuple[int, ...], i: int, seed: int = seed, V: int = V) -> int:
            return Random(f"{seed} {len(P) + i} {len(P) // 3}").randrange(V)

        fixed: dict[str, Any] = {"prompt": (1,) * (seed % 3), "W": 1 + seed % 4, "L": 9, "EOS": {0} if seed % 2 else set()}
        one = greedy.run(schedule, Given(**fixed, p=p, q=q), start)
        script = Script(u)
        laws = Given(**fixed, p=lambda P, p=p, point=point: point(p(P)), q=lambda P, i, q=q, point=point: point(q(P, i)))
        two = sampling.run(schedule, laws, script.uniform, script.draw, start)
        assert two.records == one.records
        assert [state._replace(Q=()) for state in two.states] == list(one.states)
        assert all(state.Q == tuple(point(d) for d in state.D) for state in two.states)


@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_floats_and_fractions_agree(schedule: Any, start: Any) -> None:
    """The same coins and dyadic tables: the same run, edges included, whichever numbers carry the laws."""

    def exact(weights: list[int]) -> tuple[Fraction, ...]:
        return tuple(Fraction(w, 8) for w in weights)

    def p(P: tuple[int, ...]) -> tuple[Fraction, ...]:
        return exact([[4, 3, 1], [0, 4, 4], [2, 2, 4]][sum(P) % 3])

    def q(P: tuple[int, ...], i: int) -> tuple[Fraction, ...]:
        return exact([[4, 4, 0], [1, 5, 2], [2, 2, 4]][(sum(P) + i) % 3])

    for seed in range(20):
        uniform, draw = addressed(seed)
        rational = Given((), 3, 8, p, q, {2} if seed % 2 else set())
        floating = Given((), 3, 8, lambda P: tuple(map(float, p(P))), lambda P, i: tuple(map(float, q(P, i))), rational.EOS)
        one, two = (sampling.run(schedule, given, uniform, draw, start) for given in (rational, floating))
        assert one == two


@pytest.mark.claim("BRANCH0")
@pytest.mark.parametrize("seed", range(30))
def test_packed_is_the_zero_accepted_branch_of_quadratic(seed: int, table_model: Any) -> None:
    """BRANCH0, with laws: a call that accepts nothing is the same call in both schedules."""
    uniform, draw = addressed(seed)
    given = Given((), 1 + seed % 4, 8, *table_model(3))
    met = 0
    for t, state in enumerate(sampling.run("packed", given, uniform, draw).states[:-1], 1):
        packed = sampling.call("packed", state, given, t, uniform, draw)
        quadratic = sampling.call("quadratic", state, given, t, uniform, draw)
        assert packed[1] == quadratic[1]
        if packed[1].h == 0:
            met += 1
            assert packed == quadratic
    assert met > 0
