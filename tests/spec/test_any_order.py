"""Algorithm 3 and its neighbours: the golden runs, Prop. C.1 from every reachable state, orders, branches and stops by hand."""

# ruff: noqa: SIM300 - P, A and E are the paper's symbols here, no constants
from __future__ import annotations

import json
from collections.abc import Callable
from itertools import permutations, product
from math import inf, nan
from pathlib import Path
from random import Random
from typing import Any

import pytest

from spec import Given as LeftToRight
from spec import Run, greedy
from spec.any_order import Given, Pairs, Record, State, call, confidence, run, serial

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "any_order.json").read_text())["rows"]
VERIFYING: list[Any] = ["linear", "packed", "quadratic"]
ALL: list[Any] = [*VERIFYING, "native"]
POLICIES: dict[str, Callable[[tuple[int, ...], State], tuple[int, ...]]] = {
    "ltr": lambda U, state: U,
    "rtl": lambda U, state: U[::-1],
    "drafted_first": lambda U, state: tuple(sorted(U, key=lambda j: (j not in dict(state.D), 7919 * j % 13, j))),
    "confidence": confidence,
}


class Toy:
    """The formula-defined model of golden/any_order.json. Its drafter knows the order, so the policy is wrapped to tell it."""

    def __init__(self, V: int, salt: int, noise: int, policy: str) -> None:
        self.V, self.salt, self.noise, self.policy = V, salt, noise, POLICIES[policy]
        self.pi: tuple[int, ...] = ()

    def order(self, U: tuple[int, ...], state: State) -> tuple[int, ...]:
        self.pi = self.policy(U, state)
        return self.pi

    def p(self, pairs: Pairs, j: int) -> tuple[int, float]:
        h = 17 * j + self.salt
        for r, (i, x) in enumerate(pairs):
            h = 31 * h + 7 * i + 13 * x + r
        return h // 7 % self.V, (h % 101) / 101

    def q(self, pairs: Pairs, j: int) -> tuple[int, float]:
        walk = pairs
        for i in self.pi[: self.pi.index(j)]:
            if i not in dict(pairs):
                walk += ((i, self.p(walk, i)[0]),)
        token, h = self.p(walk, j)[0], 5 * j + self.salt + sum(3 * i + 11 * x for i, x in pairs)
        hash = (h * 2654435761) >> 7
        return (token + 1) % self.V if hash % 100 < self.noise else token, (hash % 89) / 89

    def given(self, W: int, L: int, EOS: set[int], **more: Any) -> Given:
        return Given((), W, L, self.p, self.q, EOS, order=self.order, **more)


def moves(run: Run) -> Any:
    return zip(run.states[:-1], run.records, run.states[1:], strict=True)


def keeps_pairs_that_saw_removed_ones(run: Run) -> bool:
    found = False
    for before, record, after in moves(run):
        kept = [j <= after.E for j, _ in before.P + record.C]
        found |= False in kept and any(kept[kept.index(False) :])
    return found


def jumpy(salt: int, V: int = 5) -> Callable[[Pairs, int], tuple[int, float]]:
    """A verifier or drafter without any regularity."""

    def answer(pairs: Pairs, j: int) -> tuple[int, float]:
        random = Random(f"{salt} {pairs} {j}")
        return random.randrange(V), random.random()

    return answer


# --- the golden runs --------------------------------------------------------------------------------------------------------


@pytest.mark.claim("PROPC1")
@pytest.mark.parametrize("row", GOLDEN, ids=lambda r: f"{r['policy']}-V{r['V']}-L{r['L']}-W{r['W']}-{r['salt']}-{r['noise']}")
def test_golden_runs(row: dict[str, Any]) -> None:
    toy = Toy(row["V"], row["salt"], row["noise"], row["policy"])
    given = toy.given(row["W"], row["L"], set() if row["eos"] is None else {row["eos"]})
    result = run("packed", given)
    assert list(result.P) == row["tokens"]
    assert result.NFE == row["nfe"]
    assert [{"order": list(record.pi), "accepted": len(record.C)} for record in result.records] == row["calls"]
    assert sum(after.E < before.E for before, _, after in moves(result)) == row["eos_moved"]
    assert keeps_pairs_that_saw_removed_ones(result) == row["keeps_pairs_that_saw_removed_ones"]
    assert serial(result.records, given) == result.P


def test_golden_rows_hold_what_they_should() -> None:
    assert len(GOLDEN) == 17
    assert {row["policy"] for row in GOLDEN} == set(POLICIES) - {"confidence"}
    assert sum(row["keeps_pairs_that_saw_removed_ones"] for row in GOLDEN) == 4


# --- Prop. C.1 --------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("PROPC1")
@pytest.mark.parametrize("schedule", VERIFYING)
@pytest.mark.parametrize(("L", "W", "EOS"), [(4, 3, set()), (4, 3, {1}), (5, 2, {0})])
def test_every_call_is_serial_decoding_from_every_reachable_state(schedule: Any, L: int, W: int, EOS: set[int]) -> None:
    """The induction step of PROPC1 and PROGRESS, for all orders and all drafts on two tokens, whatever their probabilities."""
    reached, states = set(), 0
    for salt in range(8):
        p = jumpy(salt, 2)
        seen, frontier = set(), [State((), (), (), L)]
        while frontier:
            state = frontier.pop()
            free = [j for j in range(1, state.E + 1) if j not in dict(state.P)]
            if state in seen or not free:
                continue
            seen.add(state)
            U = [j for j in free if j < free[0] + W]
            for pi in [state.pi] if state.pi else permutations(U):
                asked: list[Any] = []

                def q(pairs: Pairs, j: int, asked: list[Any] = asked) -> tuple[int, float]:
                    asked.append((pairs, j))
                    return 0, 0.5

                call(schedule, state, Given((), W, L, p, q, EOS, order=lambda U, state, pi=pi: pi))
                for tokens in product((0, 1), repeat=len(asked)):
                    drafted = dict(zip(asked, tokens, strict=True))
                    given = Given((), W, L, p, lambda P, j, d=drafted: (d[P, j], 0.5), EOS, order=lambda U, state, pi=pi: pi)
                    after, record = call(schedule, state, given)
                    assert record.pi == pi
                    check_call(schedule, p, state, record, after, EOS, U, drafted)
                    frontier.append(after._replace(S=()))
                    kept = [j <= after.E for j, _ in state.P + record.C]
                    reached |= {("h", record.h), ("A", len(record.C)), ("gap", kept != sorted(kept, reverse=True))}
        states += len(seen)
    assert states > 50
    drafted = W if schedule == "linear" else W - 1  # at most, in a call that verifies
    assert reached >= {("h", h) for h in range(drafted + 1)} | {("A", A) for A in range(1, W + 1)} | {("gap", bool(EOS))}


def check_call(
    schedule: str, p: Any, before: State, record: Record, after: State, EOS: set[int], U: list[int], drafted: dict[Any, int]
) -> None:
    """One call against serial decoding and against the text of Appendix C, sharing no code with the spec."""
    if schedule == "linear" and not before.pi:
        assert (after.P, after.E, after.pi, record) == (before.P, before.E, record.pi, (record.pi, 0, ()))
        assert after.D == tuple((j, drafted[before.P, j]) for j in U)
        return
    generated: Pairs = ()
    for j in record.pi[: len(record.C)]:
        generated += ((j, p(before.P + generated, j)[0]),)
    assert record.C == generated
    draft, tokens = dict(before.D), dict(generated)
    h = 0
    while h < len(U) and record.pi[h] in draft and draft[record.pi[h]] == tokens.get(record.pi[h]):
        h += 1
    assert (record.h, len(record.C)) == (h, min(h + 1, len(U)))
    ends = [j for j, x in generated if x in EOS]
    assert min([before.E, *ends]) == after.E
    assert after.P == tuple((j, x) for j, x in before.P + generated if j <= after.E)
    free = [sum(j not in dict(state.P) for j in range(1, state.E + 1)) for state in (before, after)]
    assert free[1] < free[0]
    seen = {"packed": before.P, "quadratic": before.P + tuple((j, draft[j]) for j in record.pi[: min(h, len(U) - 1)])}
    kept = [j for j in U if j not in dict(after.P) and j <= after.E] if schedule in seen else []
    assert after.D == tuple((j, drafted[seen[schedule], j]) for j in kept)
    assert after.pi == ()


@pytest.mark.claim("PROPC1")
@pytest.mark.parametrize("schedule", VERIFYING)
@pytest.mark.parametrize("policy", POLICIES)
def test_whole_runs(schedule: Any, policy: str) -> None:
    """The serial reference under a run's orders, and termination, on random models with stops."""
    stopped = full = 0
    for seed in range(40):
        toy = Toy(2 + seed % 5, seed, seed % 4 * 20, policy)
        given = toy.given(1 + seed % 6, seed % 14, {1} if seed % 2 else set(), markers={(0, 1, 0)} if seed % 3 else set())
        result = run(schedule, given)
        assert serial(result.records, given) == result.P
        assert len(result.P) == result.states[-1].E == len(result.states[-1].P)
        assert result.NFE <= given.L * (2 if schedule == "linear" else 1)
        assert all(len(record.C) > 0 for record in result.records[schedule == "linear" :: 1 + (schedule == "linear")])
        stopped += len(result.P) < given.L
        full += any(0 < record.h == len(record.pi) for record in result.records)
    assert stopped > 5
    assert full > 5


@pytest.mark.parametrize("schedule", VERIFYING)
def test_the_reference_needs_the_orders_of_the_run(schedule: Any) -> None:
    """Else PROPC1 would say little: other orders, or other group sizes with an EOS, give other outputs."""
    outputs = {policy: run(schedule, Toy(5, 3, 20, policy).given(4, 12, set())).P for policy in ("ltr", "rtl", "drafted_first")}
    assert len(set(outputs.values())) == 3


@pytest.mark.parametrize("schedule", VERIFYING)
def test_textual_order_is_left_to_right_decoding(schedule: Any) -> None:
    """With the default order the output is Algorithm 1's, and here a call has no bonus token beyond the window."""
    for seed in range(30):
        p, q = jumpy(seed, 3), jumpy(-seed, 3)
        given = Given((9,), 1 + seed % 4, 9, p, q, {0} if seed % 2 else set())
        target = LeftToRight((9,), 2, 9, lambda P, p=p: p(tuple(enumerate(P[1:], 1)), len(P))[0], lambda P, i: 0, given.EOS)
        assert run(schedule, given).P == greedy.run("ar", target).P


def test_only_what_line_7_says_is_verified() -> None:
    """Ranks 1..min(kappa + 1, u), each given the draft pairs of earlier ranks; rank 2 has no draft, so rank 3's is not used."""
    asked = []

    def p(pairs: Pairs, j: int) -> tuple[int, float]:
        asked.append((pairs, j))
        return 7, 1.0

    given = Given((), 4, 9, p, lambda P, j: (7, 1.0), order=lambda U, state: (3, 2, 5, 4))
    after, record = call("packed", State(((1, 0),), ((3, 7), (5, 7)), (), 9), given)
    assert asked == [(((1, 0),), 3), (((1, 0), (3, 7)), 2)]
    assert record == Record((3, 2, 5, 4), 1, ((3, 7), (2, 7)))
    assert after == State(((1, 0), (3, 7), (2, 7)), ((4, 7), (5, 7)), ((4, 1.0), (5, 1.0)), 9)


@pytest.mark.parametrize("schedule", VERIFYING)
def test_a_window_accepted_in_full_has_no_bonus(schedule: Any) -> None:
    """A = min(h + 1, u): and the next window begins without a draft."""
    given = Given((), 2, 9, lambda P, j: (j, 1.0), lambda P, j: (j, 1.0))
    state = State((), ((1, 1), (2, 2)), (), 9, pi=(1, 2) if schedule == "linear" else ())
    after, record = call(schedule, state, given)
    assert record == Record((1, 2), 2, ((1, 1), (2, 2)))
    assert after == State(((1, 1), (2, 2)), (), (), 9)


def test_the_window_counts_positions_not_unresolved_ones() -> None:
    """ALG3.L4: from the leftmost unresolved position, W consecutive ones, those resolved already being skipped."""
    given = Given((), 4, 9, lambda P, j: (7, 1.0), lambda P, j: (7, 1.0))
    for E, U in [(9, (2, 4)), (4, (2, 4)), (3, (2,)), (2, (2,))]:
        assert call("packed", State(((1, 0), (3, 0), (5, 0)), (), (), E), given)[1].pi == U


# --- Quadratic-SS and Linear-SS ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("right", "h"), [((), 0), ((3,), 1), ((3, 1), 2), ((3, 1, 4), 3)])
def test_quadratic_keeps_the_branch_of_the_accepted_pairs(right: tuple[int, ...], h: int) -> None:
    """Branches follow pi: branch b is drafted from P and the first b draft pairs of pi, and h accepted pairs select it."""
    drafted = []

    def q(pairs: Pairs, j: int) -> tuple[int, float]:
        drafted.append((pairs, j))
        return 100 + 10 * len(pairs) + j, len(pairs) / 8

    given = Given((), 6, 9, lambda P, j: (j if j in right else 50 + j, 1.0), q, order=lambda U, state: (3, 1, 4, 5, 6))
    after, record = call("quadratic", State(((2, 0),), ((1, 1), (3, 3), (4, 4)), (), 9), given)
    assert record.h == h
    d = ((3, 3), (1, 1), (4, 4))
    assert drafted == [(((2, 0), *d[:b]), j) for b in range(4) for j in (3, 1, 4, 5, 6)[b:]]
    left = sorted((3, 1, 4, 5, 6)[h + 1 :])
    assert after.D == tuple((j, 110 + 10 * h + j) for j in left)
    assert after.S == tuple((j, (1 + h) / 8) for j in left)


@pytest.mark.claim("BRANCH0")
def test_packed_is_the_zero_accepted_branch_of_quadratic() -> None:
    """BRANCH0: a call that accepts no draft token is the same call in both schedules; else only the kept draft differs."""
    met = 0
    for seed in range(40):
        given = Given((), 1 + seed % 4, 9, jumpy(seed, 2), jumpy(-seed, 2), {0} if seed % 3 == 0 else set(), order=confidence)
        for state, _, _ in moves(run("quadratic", given)):
            packed, quadratic = call("packed", state, given), call("quadratic", state, given)
            assert packed[1] == quadratic[1]
            assert packed[0]._replace(D=(), S=()) == quadratic[0]._replace(D=(), S=())
            if packed[1].h == 0:
                assert packed == quadratic
                met += len(state.D) > 0
    assert met > 20


def test_linear_fixes_its_order_before_it_drafts() -> None:
    """The order of both halves is asked once, before the drafting call, and the second verifies every rank."""
    asked = []

    def order(U: tuple[int, ...], state: State) -> tuple[int, ...]:
        asked.append((U, state.D))
        return U[::-1]

    given = Given((), 3, 5, lambda P, j: (j % 2, j / 10), lambda P, j: (0, 0.9), order=order)
    result = run("linear", given)
    assert asked == [((1, 2, 3), ()), ((1, 2), ()), ((4, 5), ()), ((4,), ())]
    assert [(record.pi, record.h, [j for j, _ in record.C]) for record in result.records] == [
        ((3, 2, 1), 0, []),
        ((3, 2, 1), 0, [3]),
        ((2, 1), 0, []),
        ((2, 1), 1, [2, 1]),
        ((5, 4), 0, []),
        ((5, 4), 0, [5]),
        ((4,), 0, []),
        ((4,), 1, [4]),
    ]


# --- confidence order -------------------------------------------------------------------------------------------------------


@pytest.mark.claim("CONF")
@pytest.mark.parametrize(
    ("scores", "pi"),
    [
        ({}, (2, 3, 5, 6)),  # the first iteration
        ({2: 0.1, 3: 0.9, 5: 0.5, 6: 0.7}, (3, 6, 5, 2)),
        ({2: 0.5, 3: 0.7, 5: 0.7, 6: 0.5}, (3, 5, 2, 6)),  # ties by position
        ({5: 0.1, 3: 0.2}, (3, 5, 2, 6)),  # no score: last, in textual order
        ({2: nan, 3: inf, 5: 0.0, 6: -inf}, (5, 2, 3, 6)),  # nor a finite one
    ],
)
def test_confidence_order(scores: dict[int, float], pi: tuple[int, ...]) -> None:
    assert confidence((2, 3, 5, 6), State((), (), tuple(scores.items()), 9)) == pi


@pytest.mark.claim("CONF")
def test_whose_probabilities_are_the_scores() -> None:
    """Packed-SS and Quadratic-SS: the drafter's when it proposed the token, in the selected branch. Linear-SS: the verifier's
    of the previous iteration, at every position it checked, those beyond the first mismatch included."""

    def p(pairs: Pairs, j: int) -> tuple[int, float]:
        return 0, 0.01 * j + 0.1 * len(pairs)

    def q(pairs: Pairs, j: int) -> tuple[int, float]:
        return int(j != 1), 0.02 * j + 0.2 * len(pairs)

    given = Given((), 4, 9, p, q, order=confidence)
    start = State((), (), (), 9)
    for schedule in ("packed", "quadratic"):
        state, _ = call(schedule, start, given)
        assert (state.P, dict(state.S)) == (((1, 0),), pytest.approx({2: 0.04, 3: 0.06, 4: 0.08}))
        state, record = call(schedule, state._replace(D=((2, 1), (3, 1), (4, 0))), given)
        assert (record.pi, record.h) == ((4, 3, 2, 5), 1)
        accepted = 1 if schedule == "packed" else 2  # the pair (4, 0) is known to branch 1
        assert dict(state.S) == pytest.approx({j: 0.02 * j + 0.2 * accepted for j in (2, 5)})
    state, _ = call("linear", start, given)
    assert state.pi == (1, 2, 3, 4)
    state, record = call("linear", state, given)
    assert record.C == ((1, 0), (2, 0))
    assert dict(state.S) == pytest.approx({3: 0.03 + 0.2, 4: 0.04 + 0.3})
    state, record = call("linear", state, given)
    assert record.pi == (4, 3, 5, 6)


# --- Native -----------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("NATIVE")
@pytest.mark.parametrize(
    ("probabilities", "accepted"),
    [
        ((0.9, 0.2, 0.95), (2, 4)),  # at the threshold is enough
        ((0.5, 0.8999, 0.7), (3,)),  # none: the most probable
        ((0.5, 0.7, 0.7), (3,)),  # the leftmost of equals
        ((0.99, 0.9, 1.0), (2, 3, 4)),
    ],
)
def test_native(probabilities: tuple[float, ...], accepted: tuple[int, ...]) -> None:
    given = Given((), 3, 9, jumpy(0), lambda P, j: (10 * j, dict(zip((2, 3, 4), probabilities, strict=True))[j]))
    after, record = call("native", State(((1, 0),), (), (), 9), given)
    assert record == Record((2, 3, 4), 0, tuple((j, 10 * j) for j in accepted))
    assert after == State(((1, 0), *record.C), (), (), 9)


@pytest.mark.claim("NATIVE")
def test_native_runs() -> None:
    """The window moves with the leftmost unresolved position; EOS discards what lies beyond; every call accepts something."""
    probabilities = {1: 0.1, 2: 0.95, 3: 0.2, 4: 0.9, 5: 0.3, 6: 0.99}
    given = Given((5,), 3, 6, jumpy(0), lambda P, j: (j, probabilities[j]), {4})
    result = run("native", given)
    assert [[j for j, _ in record.C] for record in result.records] == [[2], [3], [1], [4, 6]]
    assert (result.P, result.states[-1].P) == ((5, 1, 2, 3, 4), ((2, 2), (3, 3), (1, 1), (4, 4)))
    for seed in range(30):
        result = run("native", Given((), 1 + seed % 5, 12, jumpy(0), jumpy(seed), {0}))
        assert len(result.P) == len(result.states[-1].P) == result.states[-1].E
        assert all(record.C for record in result.records)


# --- stops and starts -------------------------------------------------------------------------------------------------------


def rightmost_first(tokens: str, E: int | None = None, **more: Any) -> Run:
    """Packed-SS fills the text from right to left, one token a call: the drafter is always wrong."""
    order = POLICIES["rtl"]
    target = {j: int(x) for j, x in enumerate(tokens, 1)}
    return run(
        "packed", Given((), 9, E or len(tokens), lambda P, j: (target[j], 1.0), lambda P, j: (-1, 1.0), order=order, **more)
    )


@pytest.mark.claim("STOPSEQ")
def test_a_marker_is_recognised_when_all_of_its_tokens_are_accepted() -> None:
    """(7, 8) at 4-5: the 8 alone says nothing. With the 7 E becomes 5, what lies behind goes, and 1..3 are filled."""
    result = rightmost_first("1237856", markers={(7, 8)})
    assert [state.E for state in result.states] == [7, 7, 7, 7, 5, 5, 5, 5]
    assert result.P == (1, 2, 3, 7, 8)
    assert result.states[3].P == ((7, 6), (6, 5), (5, 8))
    assert result.states[4].P == ((5, 8), (4, 7))


@pytest.mark.claim("STOPSEQ")
@pytest.mark.parametrize(
    ("text", "stops", "output"),
    [
        ("1782782", {"markers": {(7, 8)}}, "178"),  # twice: the earlier, though it is accepted later
        ("1787892", {"markers": {(7, 8, 9), (8, 7)}}, "1787"),  # the one that ends first, not the one that begins first
        ("1789", {"markers": {(7, 8, 9), (8,)}}, "178"),  # one inside the other
        ("1789", {"markers": {(7, 8, 9)}, "EOS": {8}}, "178"),  # EOS is a marker of one token
        ("17891", {"markers": {(7, 8, 9)}, "EOS": {1}}, "1"),
        ("1788", {"markers": {(7, 8, 9), (8, 9), (9, 7)}}, "1788"),  # never complete
        ("8881", {"markers": {(8, 8)}}, "88"),
    ],
)
@pytest.mark.parametrize("schedule", VERIFYING)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_marker_that_ends_first_wins(schedule: Any, policy: str, text: str, stops: dict[str, Any], output: str) -> None:
    """In whatever order the text is filled: here the tokens do not depend on it, and some drafts are right."""
    target = {j: int(x) for j, x in enumerate(text, 1)}
    for W, wrong in product((1, 3, 9), ((), (1, 3), (2,), (1, 2, 3, 4, 5, 6, 7))):

        def q(pairs: Pairs, j: int, wrong: tuple[int, ...] = wrong) -> tuple[int, float]:
            return (-1 if j in wrong else target[j]), j / 9

        given = Given((7,), W, len(text), lambda P, j: (target[j], j / 9), q, order=POLICIES[policy], **stops)
        assert run(schedule, given).P == (7, *map(int, output))


@pytest.mark.claim("STOPSEQ")
def test_the_prompt_is_no_part_of_a_marker() -> None:
    assert run("packed", Given((7,), 2, 3, lambda P, j: (8, 1.0), lambda P, j: (8, 1.0), markers={(7, 8)})).P == (7, 8, 8, 8)


@pytest.mark.claim("INIT")
@pytest.mark.parametrize("schedule", ALL)
def test_the_prompt_call(schedule: Any) -> None:
    """One more call that accepts nothing; none for L = 0."""
    for seed in range(10):
        given = Given((1,), 3, seed, jumpy(seed), jumpy(-seed), {0}, order=confidence)
        plain, prompt = run(schedule, given), run(schedule, given, "prompt")
        assert prompt.P == plain.P
        assert prompt.records == ((Record((), 0, ()), *plain.records) if seed else ())
        assert prompt.states[-plain.NFE - 1 :] == plain.states


def test_bad_width() -> None:
    with pytest.raises(ValueError, match="W is 0"):
        Given((), 0, 3, jumpy(0), jumpy(0))
