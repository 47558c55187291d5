"""Algorithm 1 and its neighbours by hand, at every stop, and against plain greedy decoding on random tables."""

# ruff: noqa: SIM300 - P and Q are the paper's symbols here, no constants
from __future__ import annotations

from collections.abc import Callable
from itertools import product
from random import Random
from typing import Any

import pytest

from spec import SCHEDULES, Given, Record, Run, State, greedy
from spec.thresholds import threshold_model

STARTS = ("algorithm", "wide", "sampled", "prompt")
RUNS: list[tuple[Any, Any]] = [
    (s, start) for s in SCHEDULES for start in STARTS if s != "ar" or start in ("algorithm", "prompt")
]


def perfect(W: int, L: int, EOS: Any = frozenset(), prompt: tuple[int, ...] = ()) -> Given[int]:
    """The target says 1, 2, 3, ... and so does the drafter."""
    return Given(prompt, W, L, *threshold_model((), prompt), EOS)


def tables(seed: int, V: int) -> tuple[Callable[..., int], Callable[..., int]]:
    """A random target, and a drafter that is right about half of the time."""

    def p(P: tuple[int, ...]) -> int:
        return Random(f"{seed} {P}").randrange(V)

    def q(P: tuple[int, ...], i: int) -> int:
        coin = Random(f"{seed} {P} {i}")
        if coin.random() < 0.5:
            for _ in range(i - 1):
                P = (*P, p(P))
            return p(P)
        return coin.randrange(V)

    return p, q


def continuation(given: Given[int]) -> tuple[int, ...]:
    """Plain greedy decoding, sharing nothing with the spec."""
    P = given.prompt
    for _ in range(given.L):
        P = (*P, given.p(P))
        if P[-1] in given.EOS:
            break
    return P


# --- by hand ----------------------------------------------------------------------------------------------------------------


def test_figure_2() -> None:
    """h = 1 draft token matches, the correction makes A = 2, and of z1..z4 the last two are kept."""
    verifier = {(10,): 21, (10, 21): 32, (10, 21, 22): 33, (10, 21, 22, 23): 34}
    given = Given((10,), 4, 99, lambda P: verifier[P], lambda P, i: {(10,): 40 + i}[P])
    state, record = greedy.call("packed", State((10,), (21, 22, 23), (), "both"), given)
    assert record == Record("both", h=1, A=2, a=2)
    assert state == State((10, 21, 32), (43, 44), (), "both")


def test_quadratic_keeps_its_own_branch_without_its_first_proposal() -> None:
    """As Figure 2, but the kept tokens were drafted from (P, d1), at its 2nd to 4th position."""
    verifier = {(10,): 21, (10, 21): 32, (10, 21, 22): 33}
    given = Given((10,), 4, 99, lambda P: verifier[P], lambda P, i: 100 * len(P) + i)
    state, record = greedy.call("quadratic", State((10,), (21, 22), (), "both"), given)
    assert record == Record("both", h=1, A=2, a=2)
    assert state == State((10, 21, 32), (202, 203, 204), (), "both")


def test_the_schedules_on_a_perfect_drafter() -> None:
    """W = 4, L = 10, counted by hand: what each call appends, and what it leaves drafted."""

    def calls(run: Run) -> list[tuple[int, int]]:
        return [(record.a, len(state.D)) for record, state in zip(run.records, run.states[1:], strict=True)]

    given = perfect(W=4, L=10)
    assert calls(greedy.run("ar", given)) == [(1, 0)] * 10
    assert calls(greedy.run("linear", given)) == [(0, 4), (5, 0)] * 2
    assert calls(greedy.run("packed", given)) == [(1, 3), (4, 0), (1, 3), (4, 0)]
    assert calls(greedy.run("quadratic", given)) == [(1, 3), (4, 3), (4, 3), (1, 3)]
    assert calls(greedy.run("linear", given, "sampled")) == [(1, 0), (0, 4), (5, 0), (0, 4), (4, 0)]
    assert calls(greedy.run("packed", given, "sampled")) == [(1, 0), (0, 4), (5, 0), (1, 3), (3, 1)]
    assert calls(greedy.run("quadratic", given, "sampled")) == [(1, 0), (0, 4), (5, 3), (4, 3)]
    assert calls(greedy.run("linear", given, "wide")) == calls(greedy.run("linear", given, "sampled"))
    assert calls(greedy.run("packed", given, "wide")) == [(1, 4), (5, 0), (1, 3), (3, 1)]
    assert calls(greedy.run("quadratic", given, "wide")) == [(1, 4), (5, 3), (4, 3)]
    for schedule in SCHEDULES:
        assert calls(greedy.run(schedule, given, "prompt")) == [(0, 0), *calls(greedy.run(schedule, given))]


def test_the_states_of_a_packed_run() -> None:
    """c* = (1, 0, 3, 2, 1), W = 3, L = 5; a wrong proposal for position k is -k."""
    run = greedy.run("packed", Given((), 3, 5, *threshold_model((1, 0, 3, 2, 1))))
    assert run.states == (
        State((), (), (), "both"),
        State((1,), (2, -3), (), "both"),  # drafted from 0 verified tokens: 2 is right, 3 is not
        State((1, 2, 3), (-4,), (), "both"),  # from 1: 4 would need 2
        State((1, 2, 3, 4), (5, 6), (), "both"),  # from 3
        State((1, 2, 3, 4, 5), (6, 7), (), "both"),  # from 4, trimmed to the advance that the limit left, never read
    )
    assert [record[1:4] for record in run.records] == [(0, 1, 1), (1, 2, 2), (0, 1, 1), (2, 3, 1)]


# --- stopping ---------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("STOP")
@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_eos_and_limit_at_every_place(schedule: Any, start: Any) -> None:
    """STOP, over every EOS position, limit and width, on drafters from perfect to poor: where the output ends, and that
    the run is the unstopped run cut at the call that reaches the end."""
    for c_star, W in product([(), (1, 2, 3, 4), (0, 2, 0, 4, 0, 3, 7, 0)], [1, 2, 3, 5]):
        p, q = threshold_model(c_star, (7, 8))
        unstopped = greedy.run(schedule, Given((7, 8), W, 30, p, q), start)
        for eos, L in product(range(1, 9), range(1, 9)):
            end = min(eos, L)
            run = greedy.run(schedule, Given((7, 8), W, L, p, q, {eos}), start)
            assert run.P == (7, 8, *range(1, end + 1))
            assert run.NFE == next(t for t, state in enumerate(unstopped.states) if len(state.P) - 2 >= end)
            assert [r[:3] for r in run.records] == [r[:3] for r in unstopped.records[: run.NFE]]
            assert sum(record.a for record in run.records) == end


@pytest.mark.parametrize(("eos", "L", "end"), [(3, 9, 3), (9, 3, 3), (3, 4, 3), (4, 3, 3), (3, 3, 3), (5, 5, 5), (1, 5, 1)])
def test_eos_and_limit_in_one_block(eos: int, L: int, end: int) -> None:
    """Linear-SS accepts 1..5 in its second call: the earlier of EOS and limit cuts the block, and h and A do not know of it."""
    run = greedy.run("linear", perfect(W=4, L=L, EOS={eos}))
    assert run.P == tuple(range(1, end + 1))
    assert run.records == (Record("draft", 0, 0, 0), Record("verify", h=4, A=5, a=end))


def test_a_stop_behind_the_block_does_not_cut_it() -> None:
    """From a state that no run reaches: an EOS inside the prefix. Both conditions look at what the call brings."""
    given = Given((), 2, 9, lambda P: 5, lambda P, i: 5, {8})
    state, record = greedy.call("packed", State((8, 5), (5, 5), (), "both"), given)
    assert (state.P, record) == ((8, 5, 5, 5, 5), Record("both", 2, 3, 3))


def test_the_first_of_several_eos_ids_wins() -> None:
    assert greedy.run("linear", perfect(W=4, L=9, EOS={7, 4, 3})).P == (1, 2, 3)
    assert greedy.run("packed", perfect(W=4, L=9, EOS={4, 3})).P == (1, 2, 3)


@pytest.mark.claim("STOP")
@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_limit_zero_makes_no_call(schedule: Any, start: Any) -> None:
    def never(*_: Any) -> int:
        raise AssertionError("the model was called")

    run = greedy.run(schedule, Given((5, 6), 3, 0, never, never, {6}), start)
    assert (run.P, run.NFE, run.records) == ((5, 6), 0, ())


@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_a_prompt_that_ends_in_eos_is_continued(schedule: Any, start: Any) -> None:
    assert greedy.run(schedule, perfect(W=3, L=6, EOS={9, 4}, prompt=(2, 9)), start).P == (2, 9, 1, 2, 3, 4)


@pytest.mark.parametrize("schedule", ["linear", "packed", "quadratic"])
@pytest.mark.parametrize("start", ["sampled", "wide"])
@pytest.mark.parametrize(("L", "EOS"), [(1, {99}), (8, {1})])
def test_no_second_call_if_the_first_ends_the_run(schedule: Any, start: Any, L: int, EOS: set[int]) -> None:
    run = greedy.run(schedule, perfect(W=3, L=L, EOS=EOS), start)
    assert (run.P, run.NFE) == ((1,), 1)


@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_a_drafted_eos_is_not_believed(schedule: Any, start: Any) -> None:
    """The drafter says EOS everywhere, the target only at position 5."""
    given = Given((), 3, 8, lambda P: 9 if len(P) == 4 else 1, lambda P, i: 9, {9})
    assert greedy.run(schedule, given, start).P == (1, 1, 1, 1, 9)


@pytest.mark.claim("STOPSEQ")
@pytest.mark.parametrize(("schedule", "start"), RUNS)
@pytest.mark.parametrize(
    ("text", "L", "markers", "EOS", "output"),
    [
        ("1782789", 7, {(7, 8)}, set(), "178"),
        ("1787891", 7, {(7, 8, 9), (8, 7)}, set(), "1787"),  # the one that ends first, not the one that begins first
        ("1789123", 7, {(7, 8, 9), (8,)}, set(), "178"),
        ("1789123", 7, {(7, 8, 9)}, {8}, "178"),
        ("1789123", 7, {(7, 8, 9)}, {2}, "1789"),
        ("1788989", 7, {(7, 8, 9), (9, 8, 8)}, set(), "1788989"),  # never complete
        ("1789123", 4, {(7, 8, 9)}, set(), "1789"),
        ("1789123", 3, {(7, 8, 9)}, set(), "178"),
        ("8881234", 7, {(8, 8)}, set(), "88"),
        ("8123456", 7, {(9, 8)}, set(), "8123456"),  # the 9 is the prompt's
    ],
)
def test_end_markers(schedule: Any, start: Any, text: str, L: int, markers: Any, EOS: Any, output: str) -> None:
    """Recognised once all tokens are accepted, in one call or over several, and cut as an EOS is."""
    target = [int(x) for x in text + "0" * 30]
    for W, wrong in product((1, 2, 4, 8), (set(), {1, 4}, {3}, set(range(1, 20)))):

        def q(P: tuple[int, ...], i: int, wrong: set[int] = wrong) -> int:
            return -1 if len(P) - 1 + i in wrong else target[len(P) - 2 + i]

        given = Given((9,), W, L, lambda P: target[len(P) - 1], q, EOS, markers)
        assert greedy.run(schedule, given, start).P == (9, *map(int, output))


# --- against plain greedy decoding ------------------------------------------------------------------------------------------


@pytest.mark.claim("COR-GREEDY")
@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_the_output_is_that_of_greedy_decoding(schedule: Any, start: Any) -> None:
    """COR-GREEDY, whatever the drafter; and every call that verifies makes progress (PROGRESS)."""
    for seed in range(60):
        V, W, L = 2 + seed % 3, 1 + seed % 5, seed % 11
        given = Given((1,) * (seed % 3), W, L, *tables(seed, V), {0} if seed % 4 else set())
        run = greedy.run(schedule, given, start)
        assert run.P == continuation(given)
        assert all((1 <= r.a <= r.A == r.h + 1) or r == Record(r.phase, 0, 0, 0) for r in run.records)
        assert all(bool(r.a) == (r.phase not in ("draft", "prompt")) for r in run.records)
        assert run.NFE <= 2 * L + 1


@pytest.mark.claim("PROGRESS")
@pytest.mark.parametrize(("schedule", "start"), RUNS)
def test_the_most_calls(schedule: Any, start: Any) -> None:
    """R-USER-3: a drafter that is always wrong costs this many calls, and no drafter costs more."""
    for W, L in product((1, 2, 5), range(1, 8)):
        most = {"sampled": L + 1, "prompt": L + 1}.get(start, L)
        if schedule == "linear":
            most = {"algorithm": 2 * L, "prompt": 2 * L + 1}.get(start, 2 * L - 1)
        nfe = greedy.run(schedule, Given((), W, L, lambda P: 1, lambda P, i: 0), start).NFE
        assert nfe == most - (start == "sampled" and L == 1 and schedule != "linear")  # which ends in its first call
        assert all(greedy.run(schedule, Given((), W, L, *tables(seed, 2)), start).NFE <= most for seed in range(10))


@pytest.mark.claim("DRAFTLEN")
@pytest.mark.parametrize("start", STARTS)
def test_how_long_the_kept_draft_is(start: Any) -> None:
    """DRAFTLEN; Quadratic-SS keeps W - 1 and Linear-SS drafts W. And what is kept is what was drafted for those places."""
    lengths = set()
    for seed in range(60):
        W = 1 + seed % 5
        given = Given((), W, 12, *tables(seed, 2))
        run = greedy.run("packed", given, start)
        for before, record, after in zip(run.states[:-2], run.records, run.states[1:], strict=False):
            drafted = {"verify": 0, "prompt": 0, "wide": W + 1}.get(record.phase, W)
            assert after.D == tuple(given.q(before.P, i) for i in range(record.A + 1, drafted + 1))
            lengths.add((record.phase, W, len(after.D)))
        quadratic, linear = greedy.run("quadratic", given, start), greedy.run("linear", given, start)
        assert {len(s.D) for s, r in zip(quadratic.states[1:], quadratic.records, strict=True) if r.phase == "both"} == {W - 1}
        assert {len(s.D) for s, r in zip(linear.states[1:], linear.records, strict=True) if r.phase == "draft"} == {W}
    assert {("both", 5, n) for n in range(5)} <= lengths
    full = {"sampled": "draft", "wide": "wide"}.get(start, "none")  # the call after which the draft has W tokens
    assert {(phase, W) for phase, W, n in lengths if n == W} == {(full, W) for W in range(1, 6) if full != "none"}


@pytest.mark.claim("BRANCH0")
def test_packed_is_the_zero_accepted_branch_of_quadratic() -> None:
    """BRANCH0: where nothing is accepted the two calls agree; for W = 1 neither keeps a draft, and the runs are equal."""
    agreed = 0
    for seed in range(60):
        W = 1 + seed % 4
        given = Given((), W, 9, *tables(seed, 2))
        for state in greedy.run("packed", given).states[:-1] + greedy.run("quadratic", given).states[:-1]:
            (packed, record), quadratic = greedy.call("packed", state, given), greedy.call("quadratic", state, given)
            assert quadratic[1] == record
            if record.h == 0:
                assert (packed, record) == quadratic
                agreed += len(state.D) > 0
        if W == 1:
            assert greedy.run("packed", given) == greedy.run("quadratic", given)
    assert agreed > 50


# --- bad input --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("W", "L", "message"), [(0, 3, "W is 0: .* at least 1"), (-2, 3, "W is -2"), (1, -1, "L is -1: .* at least 0")]
)
def test_bad_width_or_limit(W: int, L: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        perfect(W, L)


def test_an_empty_end_marker() -> None:
    with pytest.raises(ValueError, match="an end marker is empty"):
        Given((), 1, 1, len, len, markers={(1, 2), ()})


@pytest.mark.parametrize(
    ("schedule", "start", "message"),
    [
        ("fast", "algorithm", "schedule is 'fast': it must be one of ar, linear, packed, quadratic"),
        ("packed", "slow", "start is 'slow': it must be one of algorithm, prompt, wide, sampled for the schedule packed"),
        ("ar", "sampled", "start is 'sampled': it must be one of algorithm, prompt for the schedule ar"),
        ("ar", "wide", "start is 'wide': it must be one of algorithm, prompt for the schedule ar"),
    ],
)
def test_unknown_schedule_or_start(schedule: Any, start: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        greedy.run(schedule, perfect(1, 1), start)
