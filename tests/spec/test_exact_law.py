"""THM3.3 and E[NFE], exactly: the spec's own calls, run once for every way the coins can fall, equal states merged."""

# ruff: noqa: SIM300 - P and Q are the paper's symbols here, no constants
from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spec import SCHEDULES, Given, State, greedy, sampling
from spec.run import first_phase, goes_on
from spec.thresholds import threshold_model

STARTS = ("algorithm", "wide", "sampled", "prompt")
RUNS: list[tuple[Any, Any]] = [
    (s, start) for s in SCHEDULES for start in STARTS if s != "ar" or start in ("algorithm", "prompt")
]

ROWS = json.loads((Path(__file__).parents[1] / "golden" / "expected_nfe.json").read_text())["rows"]


# --- the enumerating source of randomness -----------------------------------------------------------------------------------


class Fork:
    """One way the coins can fall. `script` fixes the first decisions; the later ones take their first possible option."""

    def __init__(self, script: tuple[int, ...]) -> None:
        self.script = script
        self.weight = Fraction(1)
        self.taken: list[int] = []
        self.untaken: list[tuple[int, ...]] = []
        self.coins: dict[tuple[int, int], Coin] = {}

    def choose(self, weights: Sequence[Fraction]) -> int:
        possible = [option for option, weight in enumerate(weights) if weight > 0]
        if len(self.taken) < len(self.script):
            option = self.script[len(self.taken)]
        else:
            option = possible[0]
            self.untaken += [(*self.taken, other) for other in possible[1:]]
        self.taken.append(option)
        self.weight *= weights[option]
        return option

    def uniform(self, call: int, position: int) -> Coin:
        """The same address is the same coin, so that a coin used twice shows in the law."""
        return self.coins.setdefault((call, position), Coin(self))

    def draw(self, law: Sequence[Fraction], purpose: str, call: int, position: int) -> int:
        assert sum(law) == 1
        return self.choose(law)


class Coin:
    """A uniform number of which only an interval is known; asking `u < alpha` splits it, with exact weights."""

    def __init__(self, fork: Fork) -> None:
        self.fork, self.low, self.high = fork, Fraction(0), Fraction(1)

    def __lt__(self, alpha: Fraction) -> bool:
        if alpha <= self.low or alpha >= self.high:
            return alpha > self.low
        below = (alpha - self.low) / (self.high - self.low)
        answer = self.fork.choose([below, 1 - below]) == 0
        self.low, self.high = (self.low, alpha) if answer else (alpha, self.high)
        return answer


def outcomes(step: Callable[[Fork], Any]) -> Iterator[tuple[Fraction, Any]]:
    """Everything `step` can return, with its probability."""
    scripts: list[tuple[int, ...]] = [()]
    while scripts:
        fork = Fork(scripts.pop())
        result = step(fork)
        yield fork.weight, result
        scripts += fork.untaken


class Exact(NamedTuple):
    nfe: Fraction  # expected
    law: dict[tuple[int, ...], Fraction]  # of the output, prompt included
    seen: set[tuple[int, int, int]]  # (|D|, h, |D| of the next state) of the calls that verified and did not end the run


def chain(schedule: Any, given: Given[Any], start: Any = "algorithm", call: Callable[..., Any] = sampling.call) -> Exact:
    """The exact Markov chain of a schedule, call by call. `call` replaces the spec's own."""
    now, t = {State(given.prompt, (), (), first_phase(schedule, start)): Fraction(1)}, 0
    exact = Exact(Fraction(0), defaultdict(Fraction), set())
    nfe = Fraction(0)

    def step(state: State, t: int) -> Callable[[Fork], Any]:
        return lambda fork: call(schedule, state, given, t, fork.uniform, fork.draw)

    while now:
        assert t <= 2 * given.L + 1, "a run makes no progress"
        then: dict[State, Fraction] = defaultdict(Fraction)
        for state, weight in now.items():
            if not goes_on(state.P, given):
                nfe += weight * t
                exact.law[state.P] += weight
                continue
            for chance, (after, record) in outcomes(step(state, t + 1)):
                then[after] += weight * chance
                if record.A and goes_on(after.P, given):
                    exact.seen.add((len(state.D), record.h, len(after.D)))
        now, t = then, t + 1
    return exact._replace(nfe=nfe)


def ar_law(given: Given[Any]) -> dict[tuple[int, ...], Fraction]:
    """The law of AR sampling, stopped at EOS or L, straight from p. Shares nothing with the spec."""
    law: dict[tuple[int, ...], Fraction] = {}

    def extend(P: tuple[int, ...], weight: Fraction, room: int) -> None:
        if room == 0 or (P != given.prompt and P[-1] in given.EOS):
            law[P] = weight
            return
        for x, p_x in enumerate(given.p(P)):
            if p_x > 0:
                extend((*P, x), weight * p_x, room - 1)

    extend(given.prompt, Fraction(1), given.L)
    return law


# --- the golden rows --------------------------------------------------------------------------------------------------------


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['schedule']}-{r['start']}-V{r['V']}-L{r['L']}-W{r['W']}-eos{r['eos']}")
def test_golden_expected_nfe_and_the_ar_law(row: dict[str, Any], table_model: Any) -> None:
    eos = frozenset() if row["eos"] is None else frozenset({row["eos"]})
    given = Given((), row["W"], row["L"], *table_model(row["V"]), eos)
    exact = chain(row["schedule"], given, row["start"])
    assert exact.nfe == Fraction(row["expected_nfe"])
    assert exact.law == ar_law(given)


def test_all_golden_rows_are_here() -> None:
    assert len(ROWS) == 60
    sampled = {("linear", "sampled"), ("packed", "sampled"), ("packed", "wide"), ("packed", "prompt")}
    assert {(row["schedule"], row["start"]) for row in ROWS} == {(s, "algorithm") for s in SCHEDULES} | sampled


# --- what the golden rows do not hold ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("schedule", "start"), RUNS)
@pytest.mark.parametrize(("V", "L", "W", "EOS"), [(3, 3, 2, {2}), (2, 4, 3, set()), (3, 2, 3, {0, 1})])
def test_the_whole_run_is_the_chain_of_its_calls(
    schedule: Any, start: Any, V: int, L: int, W: int, EOS: set[int], table_model: Any
) -> None:
    """The loops: the same E[NFE] and law when whole runs are enumerated instead of single calls."""
    given = Given((), W, L, *table_model(V), EOS)
    nfe, law = Fraction(0), defaultdict(Fraction)
    for weight, run in outcomes(lambda fork: sampling.run(schedule, given, fork.uniform, fork.draw, start)):
        nfe += weight * run.NFE
        law[run.P] += weight
    exact = chain(schedule, given, start)
    assert (nfe, law) == (exact.nfe, exact.law)
    assert law == ar_law(given)


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize(("schedule", "start"), RUNS)
@pytest.mark.parametrize("EOS", [{2}, {0, 2}, set()])
def test_law_after_a_prompt_that_ends_in_eos(schedule: str, start: str, EOS: set[int], table_model: Any) -> None:
    given = Given((1, 2), 3, 4, *table_model(3), EOS)
    exact = chain(schedule, given, start)
    assert exact.law == ar_law(given)
    assert max(len(P) for P in exact.law) == 2 + 4


def sparse_model(q_supports: list[list[int]]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """p lives on two tokens of four that depend on the last one; q on q_supports[c + i], unevenly. Zero mass in both."""

    def spread(tokens: list[int]) -> tuple[Fraction, ...]:
        weights = [tokens.index(x) + 1 if x in tokens else 0 for x in range(4)]
        return tuple(Fraction(w, sum(weights)) for w in weights)

    def p(P: tuple[int, ...]) -> tuple[Fraction, ...]:
        return spread([1, 0] if not P or P[-1] == 0 else [0, 1])

    def q(P: tuple[int, ...], i: int) -> tuple[Fraction, ...]:
        tokens = q_supports[(len(P) + i) % len(q_supports)]
        return spread(tokens if not P or P[-1] == 0 else tokens[::-1])

    return p, q


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_zero_mass_tokens(schedule: str, start: str) -> None:
    given = Given((), 3, 5, *sparse_model([[0, 2], [1, 0], [3, 1, 2], [1]]))
    exact = chain(schedule, given, start)
    assert exact.law == ar_law(given)
    assert all(set(P) <= {0, 1} for P in exact.law)


@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_a_drafter_disjoint_from_the_target_costs_calls_only(schedule: str, start: str) -> None:
    """Every test fails, so that a call which verifies emits exactly one token."""
    given = Given((), 3, 4, *sparse_model([[2, 3], [3]]))
    exact = chain(schedule, given, start)
    assert exact.law == ar_law(given)
    drafting_calls = {"linear": 4 if start in ("algorithm", "prompt") else 3}.get(schedule, start == "sampled")
    assert exact.nfe == 4 + drafting_calls + (start == "prompt")


@pytest.mark.parametrize("W", [1, 2, 4])
@pytest.mark.parametrize("schedule", ["linear", "packed", "quadratic"])
def test_a_drafter_equal_to_the_target_is_always_accepted(schedule: Any, W: int) -> None:
    """The number of calls is that of the perfect greedy drafter."""
    law = (Fraction(1, 6), Fraction(1, 2), Fraction(1, 3))
    given = Given((), W, 5, lambda P: law, lambda P, i: law)
    exact = chain(schedule, given)
    assert exact.law == ar_law(given)
    assert exact.nfe == greedy.run(schedule, Given((), W, 5, *threshold_model(()))).NFE


@pytest.mark.claim("THM3.3")
def test_a_fresh_q_in_place_of_the_stored_one_is_seen() -> None:
    """Section 3.2's trap (F03): the tests above have the power to see it, and the law, not the tokens, is what is stored."""

    def fresh(schedule: Any, state: State, given: Given[Any], *rest: Any) -> Any:
        return sampling.call(schedule, state._replace(Q=given.drafter(state.P)[: len(state.D)]), given, *rest)

    given = Given((), 3, 4, lambda P: (Fraction(1, 4), Fraction(3, 4)), lambda P, i: (Fraction(i, 8), Fraction(8 - i, 8)))
    assert chain("packed", given).law == ar_law(given)
    assert chain("packed", given, call=fresh).law != ar_law(given)


def test_the_interesting_branches_are_reached(table_model: Any) -> None:
    """Otherwise the exact laws above would say little. Counted in calls that do not end the run."""
    p, q = table_model(3)
    given = Given((), 3, 5, p, q)
    packed, quadratic = chain("packed", given).seen, chain("quadratic", given).seen
    assert {(2, 0, 2), (2, 1, 1), (2, 2, 0), (1, 0, 2), (0, 0, 2)} == packed  # a rejection outlived by the draft
    assert {(2, 0, 2), (2, 1, 2), (2, 2, 2), (0, 0, 2)} == quadratic  # a branch b > 0, a window accepted in full
    residuals = {sum(x > 0 for x in sampling.residual(p(P), q(P, 1))) for P in [(), (0,), (1,), (2,)]}
    assert max(residuals) >= 2  # a correction that is not forced
