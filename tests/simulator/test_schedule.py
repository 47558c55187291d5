"""The kernel by hand: one iteration, stopping at every index, branches, what a call costs, and who is to blame."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from math import ceil
from typing import Any

import pytest

from simulator import (
    Ask,
    Call,
    ContractError,
    Draft,
    InvalidInput,
    Limits,
    Point,
    RationalLaw,
    Reply,
    Sampled,
    Schedule,
    Scripted,
    State,
    Step,
    ar,
    autoregressive_law,
    branches,
    decode,
    exact_law,
    generate,
    linear,
    named,
    packed,
    quadratic,
)
from simulator.oracles import TabularModel, ThresholdModel, random_tables
from simulator.schedules import STARTS

ALL = ("ar", "linear", "packed", "quadratic", "branches:0,2")
STARTED = [(name, start) for name in ALL for start in STARTS if name != "ar" or start in ("algorithm", "prompt")]
each_start = pytest.mark.parametrize(("name", "start"), STARTED)
NOBODY: Any = None  # greedy laws ask for no coin


def laws(*tokens: int) -> tuple[Point, ...]:
    return tuple(map(Point, tokens))


def draft(*tokens: int) -> Draft:
    return Draft(tokens, laws(*tokens))


def midway(schedule: Schedule, prompt: tuple[int, ...], output: tuple[int, ...], held: Draft, limits: Limits) -> State:
    """A state in which `output` is verified and `held` waits for the call that verifies."""
    state = schedule.init(prompt, limits)
    phase = next(index for index, ask in enumerate(schedule.cycle) if ask.verify)
    return state._replace(prefix=prompt + output, draft=held, phase=len(schedule.opening) + phase)


# --- one iteration by hand --------------------------------------------------------------------------------------------------


@pytest.mark.claim("ALG1.L10")
def test_the_iteration_of_figure_2() -> None:
    """W = 4: one matching draft token and the correction yield A = 2; z1, z2 are discarded, D_t = (z3, z4)."""
    schedule = packed(4)
    state = midway(schedule, (50,), (51,), draft(11, 12, 13), Limits.of(20, 99))
    call = schedule.request(state)
    assert call == Call(prefix=(50, 51), draft=(11, 12, 13), verify=True, branches=(0,), width=4)
    reply = Reply(laws(11, 22, 23, 24), (laws(31, 32, 33, 34),), rows=10)
    after, step = schedule.absorb(state, call, reply, NOBODY)
    assert after == state._replace(prefix=(50, 51, 11, 22), draft=draft(33, 34))
    expected = {
        "verified": (11, 12, 13),
        "predictions": (11, 22, 23, 24),
        "accepted": 1,
        "advance": 2,
        "committed": (11, 22),
        "branch": 0,
        "discarded": 2,
        "retained": 2,
        "stop": None,
        "rows": 10,
        "fallback": False,
    }
    assert expected.items() <= step._asdict().items()


@pytest.mark.claim("ALG2.L12")
def test_an_iteration_of_algorithm_2_and_its_coins() -> None:
    """The stored law, not a fresh one, tests and corrects; every coin is asked for at its own address, unused ones are not."""
    half, stored, fresh = RationalLaw.weighted((1, 1)), RationalLaw.weighted((3, 1)), RationalLaw.weighted((1, 3))
    schedule = packed(4)
    state = midway(schedule, (0,), (1,), Draft((0, 0), (stored, stored)), Limits.of(20))
    call = schedule.request(state)
    script = Scripted({(7, "test", 2): 0.6, (7, "test", 3): 0.7, (7, "draft", 4): 0.2, (7, "draft", 5): 0.3})
    after, step = schedule.absorb(state, call, Reply((half, half, half), ((fresh,) * 4,), 10), script.at(7))
    # alpha = (1/2) / (3/4) = 2/3: 0.6 passes, 0.7 fails; the residual is the point mass on 1 and needs no coin.
    assert (step.accepted, step.committed, after.prefix) == (1, (0, 1), (0, 1, 0, 1))
    assert after.draft == Draft((0, 1), (fresh, fresh))
    assert script.asked == set(script.table)


def test_linear_drafts_then_verifies() -> None:
    """The draft and its laws wait for the verifying call, which keeps nothing."""
    model = TabularModel(lambda prefix: Point(len(prefix)), lambda prefix, j: Point(len(prefix) + j - 1 + 10 * (j == 3)))
    steps = list(decode(model, linear(3), (), Limits.of(5)))
    assert [step.committed for step in steps] == [(), (0, 1, 2), (), (3, 4)]
    assert [step.verified for step in steps] == [(), (0, 1, 12), (), (3, 4, 15)]
    assert [step.retained for step in steps] == [3, 0, 3, 0]
    assert [step.branch for step in steps] == [0, None, 0, None]
    assert [step.predictions for step in steps] == [(), (0, 1, 2, 3), (), (3, 4, 5, 6)]
    assert [step.advance for step in steps] == [0, 3, 0, 3]


def test_absorb_is_a_pure_function_and_its_tuples_are_values() -> None:
    schedule, model, source = packed(3), random_tables(3, 1), Sampled(0)
    prompt = [1, 2]
    state = schedule.init(prompt, Limits.of(5))
    assert (state.prefix, state.prompt_length, state.draft, state.emitted, state.stop) == ((1, 2), 2, Draft(), 0, None)
    for number in (1, 2):
        call = schedule.request(state)
        assert call == schedule.request(state)
        results = [schedule.absorb(state, call, model(call), source.at(number)) for _ in range(2)]
        assert results[0] == results[1]
        state = results[0][0]
        assert len({state, results[1][0], call}) == 2
    assert prompt == [1, 2]
    assert len({schedule, packed(3), packed(4)}) == 2
    with pytest.raises(FrozenInstanceError):
        schedule.cycle = ()  # type: ignore[misc]


# --- stopping ---------------------------------------------------------------------------------------------------------------

WIDTH = 4
EOS_AT = [None, *range(WIDTH + 1)]


@pytest.mark.claim("STOP")
@pytest.mark.parametrize("name", ["linear", "packed", "quadratic", "branches:0,2", "branches:2"])
@pytest.mark.parametrize("accepted", range(WIDTH + 1))
def test_eos_and_limit_at_every_index_of_an_accepted_block(name: str, accepted: int) -> None:
    """Every first EOS, second EOS and limit: the earliest wins, an EOS wins a tie, and a stopped request keeps no draft."""
    schedule = named(name, WIDTH)
    for first, second, room in itertools.product(EOS_AT, EOS_AT, range(1, WIDTH + 3)):
        block = [10 + i for i in range(WIDTH + 1)]
        for index, token in ((first, 98), (second, 99)):
            if index is not None:
                block[index] = token
        state = midway(schedule, (5, 98), (6,), draft(*block[:WIDTH]), Limits.of(1 + room, (98, 99)))
        call = schedule.request(state)
        target = block if accepted == WIDTH else [*block[:accepted], 70, 71, 72, 73, 74][: WIDTH + 1]
        proposals = tuple(laws(*range(20, 20 + WIDTH)) for _ in call.branches)
        after, step = schedule.absorb(state, call, Reply(laws(*target), proposals, 0), NOBODY)

        tokens = tuple(target[: accepted + 1])
        eos = min((i for i, token in enumerate(tokens) if token in (98, 99)), default=99)
        expected = "eos" if eos < room and eos < 99 else "length" if accepted + 1 >= room else None
        assert step.stop == expected == after.stop
        assert step.committed == tokens[: min(eos + 1, room)]
        assert after.prefix == (5, 98, 6, *step.committed)
        assert (step.accepted, step.advance, step.verified) == (accepted, accepted + 1, tuple(block[:WIDTH]))
        if expected:
            assert (after.draft, step.branch, step.discarded, step.retained) == (Draft(), None, 0, 0)


@pytest.mark.claim("STOP")
@pytest.mark.parametrize(
    ("eos_position", "length", "tokens", "stop"),
    [(3, 9, 3, "eos"), (3, 4, 3, "eos"), (3, 3, 3, "eos"), (3, 2, 2, "length"), (1, 1, 1, "eos"), (9, 5, 5, "length")],
)
@each_start
def test_whole_runs_stop_where_they_must(name: str, start: str, eos_position: int, length: int, tokens: int, stop: str) -> None:
    """EOS before the limit, after it, on it, whatever the schedule; a stop token is part of the output."""
    truth = [1 if k == eos_position else 0 for k in range(1, 12)]
    run = generate(ThresholdModel([0] * 12, truth), named(name, WIDTH, start), (), Limits.of(length, 1))
    assert (run.tokens, run.stop) == (tuple(truth[:tokens]), stop)


@pytest.mark.claim("STOP")
@each_start
@pytest.mark.parametrize("prompt", [(), (7,)])
def test_no_call_for_a_limit_of_0(name: str, start: str, prompt: tuple[int, ...]) -> None:
    run = generate(NOBODY, named(name, 3, start), prompt, Limits.of(0, 7))
    assert (run.tokens, run.nfe, run.steps, run.stop) == ((), 0, (), "length")


@pytest.mark.claim("STOP")
@each_start
def test_an_eos_that_ends_the_prompt_stops_nothing(name: str, start: str) -> None:
    model = ThresholdModel([0] * 6, [0, 0, 1, 0], prompt_length=2)
    run = generate(model, named(name, 3, start), (0, 1), Limits.of(6, 1))
    assert (run.tokens, run.stop) == ((0, 0, 1), "eos")


@pytest.mark.claim("STOP")
def test_any_of_several_eos_ids_stops() -> None:
    model = ThresholdModel([0] * 6, [0, 2, 1, 0], vocabulary=4)
    for eos, expected in (
        ((1, 2), (0, 2)),
        ((1, 3), (0, 2, 1)),
        ([3], (0, 2, 1, 0, 0, 0)),
        ((0, 1), (0,)),
        (None, (0, 2, 1, 0, 0, 0)),
    ):
        assert generate(model, packed(3), (), Limits.of(6, eos)).tokens == expected


@pytest.mark.claim("STOP")
@pytest.mark.parametrize(
    ("name", "start", "calls"),
    [
        ("ar", "algorithm", [1, 2, 3, 4, 5, 6, 7]),
        ("linear", "algorithm", [2, 2, 2, 2, 2, 4, 4]),
        ("linear", "sampled", [1, 3, 3, 3, 3, 3, 5]),
        ("packed", "algorithm", [1, 2, 2, 2, 2, 3, 4]),
        ("packed", "sampled", [1, 3, 3, 3, 3, 3, 4]),
        ("quadratic", "algorithm", [1, 2, 2, 2, 2, 3, 3]),
    ],
)
def test_truncation_refunds_no_call(name: str, start: str, calls: list[int]) -> None:
    """A perfect drafter with W = 4 and L = 1 .. 7: a block of 4 or 5 that is cut costs what the whole block costs."""
    assert [generate(ThresholdModel(()), named(name, 4, start), (), Limits.of(n)).nfe for n in range(1, 8)] == calls


# --- drafts and branches ----------------------------------------------------------------------------------------------------


@pytest.mark.claim("DRAFTLEN")
@pytest.mark.parametrize("start", ["algorithm", "sampled"])
def test_packed_keeps_w_minus_a_tokens(start: str, walk: Any) -> None:
    """And all W of them after the drafting call of start `sampled`; Quadratic-SS keeps W - 1 on every call that verifies."""
    lengths = set()
    for width, seed in itertools.product(range(1, 6), range(20)):
        model, source, limits = random_tables(3, seed), Sampled(seed), Limits.of(9)
        for move in walk(model, packed(width, start), (), limits, source):
            step = move.step
            if step.advance == 0:
                assert step.retained == width
            elif not step.stop and move.call.branches:
                assert step.retained == max(0, width - step.advance)
                assert step.discarded == min(width, step.advance)
                lengths.add((width, step.retained))
            assert len(move.after.draft.laws) == len(move.after.draft.tokens) == step.retained
        for move in walk(model, quadratic(width), (), limits, source):
            assert move.step.retained == (0 if move.step.stop else width - 1)
    assert lengths == {(width, kept) for width in range(1, 6) for kept in range(width)}


@pytest.mark.claim("BRANCH0")
@pytest.mark.parametrize("start", ["algorithm", "sampled"])
@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_packed_and_quadratic_are_branch_schedules(start: str, width: int, walk: Any) -> None:
    """Packed-SS is Branches(0), Quadratic-SS is Branches(0 .. W): every state, call, reply and step, sampled and greedy."""
    for seed, eos in itertools.product(range(12), (None, 0)):
        tables, limits = random_tables(3, seed), Limits.of(10, eos)
        for model in (tables, tables.greedy()):
            for schedule, counts in ((packed, [0]), (quadratic, range(width + 1))):
                twin = branches(counts, width, start)
                assert walk(model, schedule(width, start), (1,), limits, Sampled(seed)) == walk(
                    model, twin, (1,), limits, Sampled(seed)
                )


@pytest.mark.claim("BRANCH0")
@pytest.mark.parametrize(
    ("counts", "drafted", "matches", "branch", "discarded", "kept"),
    [
        # proposal j of branch b is 100 b + j and stands at position b + j; h + 1 positions are resolved.
        ((0, 2), 3, 0, 0, 1, (2, 3, 4)),
        ((0, 2), 3, 1, 0, 2, (3, 4)),
        ((0, 2), 3, 2, 2, 1, (202, 203, 204)),
        ((0, 2), 3, 3, 2, 2, (203, 204)),
        ((0,), 4, 4, 0, 4, ()),  # all W proposals are resolved
        ((0, 3), 2, 2, 0, 3, (4,)),  # b > |D| is skipped
        ((1, 3), 3, 0, None, 0, ()),  # none usable
        ((1, 3), 3, 2, 1, 2, (103, 104)),
        ((1, 3), 3, 3, 3, 1, (302, 303, 304)),
        ((4,), 4, 4, 4, 1, (402, 403, 404)),
        ((0, 1, 2, 3, 4), 3, 2, 2, 1, (202, 203, 204)),
        ((), 0, 0, None, 0, ()),
    ],
)
def test_the_largest_usable_branch_supplies_what_it_proposes_beyond_the_tokens_committed(
    counts: Any, drafted: int, matches: int, branch: int | None, discarded: int, kept: tuple[int, ...]
) -> None:
    schedule = branches(counts, 4) if counts else ar()
    state = midway(schedule, (7,), (), draft(*range(11, 11 + drafted)), Limits.of(50))
    call = schedule.request(state)
    target = [*range(11, 11 + matches), *[77] * (drafted + 1 - matches)]
    proposals = tuple(laws(*(100 * b + j for j in range(1, 5))) if b <= drafted else None for b in call.branches)
    after, step = schedule.absorb(state, call, Reply(laws(*target), proposals, 0), NOBODY)
    assert (step.accepted, step.branch, step.discarded, step.retained) == (matches, branch, discarded, len(kept))
    assert after.draft == draft(*kept)


def test_a_branch_schedule_without_usable_branches_goes_on_with_an_empty_draft() -> None:
    """Without branch 0 an empty draft leads to an empty draft: under start `algorithm` one token a call, for good."""
    run = generate(ThresholdModel(()), branches((1, 2), 3), (), Limits.of(5))
    assert (run.tokens, run.nfe) == ((0,) * 5, 5)
    drafted = generate(ThresholdModel(()), branches((1, 2), 3, "sampled"), (), Limits.of(9))
    assert [len(step.committed) for step in drafted.steps] == [1, 0, 4, 2, 2]  # the last block has 3
    assert [step.branch for step in drafted.steps] == [None, 0, 2, 1, None]


def test_the_policies_are_the_table_they_promise() -> None:
    draft_only, verify, both = Ask(False, (0,), 3), Ask(True, (), 3), Ask(True, (0,), 3)
    assert ar() == Schedule("ar", (), (Ask(True, (), 0),))
    assert linear(3) == Schedule("linear", (), (draft_only, verify))
    assert linear(3, "sampled") == Schedule("linear", (Ask(True),), (draft_only, verify))
    assert packed(3) == Schedule("packed", (), (both,))
    assert packed(3, "sampled") == Schedule("packed", (Ask(True), draft_only), (both,))
    assert quadratic(3) == Schedule("quadratic", (), (Ask(True, (0, 1, 2, 3), 3),))
    assert branches([2, 0, 2], 3) == Schedule("branches:0,2", (), (Ask(True, (0, 2), 3),)) == named("branches:0,2", 3)
    for name, start in STARTED:
        assert named(name, 3, start).name == name


# --- what a call costs ------------------------------------------------------------------------------------------------------


@pytest.mark.claim("TAB2")
@pytest.mark.parametrize("width", [1, 3, 8, 31])
def test_rows_per_iteration(width: int) -> None:
    """B = W + 1 rows to verify and B for each branch: Linear 2B in two calls, Packed 2B, Quadratic B(B + 1); AR 1."""
    block, model, limits = width + 1, ThresholdModel(range(1, 6)), Limits.of(5)
    rows = {name: [s.rows for s in generate(model, named(name, width), (), limits).steps] for name in ALL[:4]}
    assert rows["ar"] == [1] * 5
    assert rows["linear"] == [block, block] * 5
    assert rows["packed"] == [2 * block] * 5
    assert rows["quadratic"] == [block * (block + 1)] * 5
    if width >= 2:
        assert {s.rows for s in generate(model, branches((0, 2), width), (), limits).steps} == {3 * block}
    assert [s.rows for s in generate(model, packed(width, "sampled"), (), limits).steps] == [1, block, *[2 * block] * 4]


@pytest.mark.claim("NFE-CONV")
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("length", range(1, 12))
def test_linear_with_start_sampled_takes_1_plus_2t_calls(width: int, length: int) -> None:
    """Call 1 emits one token, then T iterations of two calls, of W + 1 tokens under a perfect drafter and of 1 under none."""
    schedule, limits = linear(width, "sampled"), Limits.of(length)
    assert generate(ThresholdModel(()), schedule, (), limits).nfe == 1 + 2 * ceil((length - 1) / (width + 1))
    assert generate(ThresholdModel(range(1, length + 1)), schedule, (), limits).nfe == 1 + 2 * (length - 1)


@each_start
def test_the_counters_close(name: str, start: str) -> None:
    """Calls seen by the model are the calls reported, tokens are the sum of commits, and no more is accepted than drafted."""
    for seed in range(10):
        tables, calls = random_tables(3, seed), []
        counted: Callable[[Call], Reply] = lambda call, t=tables, c=calls: c.append(call) or t(call)  # noqa: E731
        run = generate(counted, named(name, 3, start), (2,), Limits.of(9, 0), Sampled(seed))
        assert run.nfe == len(run.steps) == len(calls)
        assert sum((step.committed for step in run.steps), ()) == run.tokens
        assert [step.stop for step in run.steps] == [None] * (run.nfe - 1) + [run.stop]
        for call, step in zip(calls, run.steps, strict=True):
            assert 0 <= step.accepted <= len(step.verified) == (len(call.draft) if call.verify else 0)
            assert len(step.committed) <= step.advance
        assert [call.prefix for call in calls] == [
            (2, *sum((step.committed for step in run.steps[:number]), ())) for number in range(run.nfe)
        ]


def test_the_same_request_twice_and_after_another_gives_the_same_tokens() -> None:
    schedule, model = quadratic(3), random_tables(3, 5)
    first = generate(model, schedule, (1,), Limits.of(8), Sampled(3, 1))
    other = generate(model, schedule, (0, 2), Limits.of(8), Sampled(3, 2))
    assert generate(model, schedule, (1,), Limits.of(8), Sampled(3, 1)) == first != other


# --- drafters that are of no use --------------------------------------------------------------------------------------------

USELESS: dict[str, Callable[[tuple[int, ...], int], Any]] = {
    "constant": lambda prefix, j: Point(0),
    "always EOS": lambda prefix, j: Point(2),
    "out of vocabulary": lambda prefix, j: Point(3 + j),
    "negative id": lambda prefix, j: Point(-1),
    "stale prefix": lambda prefix, j: random_tables(3, 8).proposal(prefix[:-2], j),
    "larger vocabulary": lambda prefix, j: RationalLaw.weighted((0, 1, 0, 1, 2)),
    "smaller vocabulary": lambda prefix, j: RationalLaw.weighted((1,)),
}


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("drafter", USELESS)
@pytest.mark.parametrize("name", ALL[1:])
def test_a_useless_drafter_costs_calls_only(name: str, drafter: str) -> None:
    """C06, F40: the output law is the autoregressive one and every call that verifies emits a token."""
    model, limits = TabularModel(random_tables(3, 8).target, USELESS[drafter]), Limits.of(4, 2)
    law = exact_law(named(name, 3), model, (), limits)
    assert law.output == autoregressive_law(model.target, (), limits)
    assert max(law.nfe) <= 4 * (2 if name == "linear" else 1)


@pytest.mark.claim("PROGRESS")
@pytest.mark.parametrize(("name", "start"), STARTED)
@pytest.mark.parametrize("width", [1, 3, 7])
def test_a_drafter_that_is_never_right_costs_one_verifying_call_a_token(name: str, start: str, width: int) -> None:
    run = generate(ThresholdModel(range(1, 7)), named(name, max(width, 2), start), (), Limits.of(6))
    if name == "linear":
        extra = {"algorithm": 6, "wide": 5, "sampled": 5, "prompt": 7}[start]
    else:
        extra = {"algorithm": 0, "wide": 0, "sampled": 1, "prompt": 1}[start]
    assert (run.tokens, run.nfe) == ((0,) * 6, 6 + extra)


def test_the_target_as_drafter_is_accepted_in_full() -> None:
    """Independent tokens, q = p: no rejection, so the calls are those of a perfect drafter, under every outcome."""
    law = RationalLaw.weighted((1, 2))
    model, limits = TabularModel(lambda prefix: law, lambda prefix, j: law), Limits.of(6)
    for name, start in STARTED:
        schedule = named(name, 3, start)
        assert exact_law(schedule, model, (), limits).nfe == {generate(ThresholdModel(()), schedule, (), limits).nfe: 1}


# --- who is to blame --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: named("pakced", 4), ["'pakced'", "ar, linear, packed, quadratic, branches:0,2"]),
        (lambda: named("", 4), ["''", "packed"]),
        (lambda: named("branches", 4), ["'branches'", "branches:0,2"]),
        (lambda: named("branches:0,", 4), ["'branches:0,'", "branches:0,2"]),
        (lambda: named("branches:-1", 4), ["'branches:-1'", "branches:0,2"]),
        (lambda: named("branches:0,5", 4), ["W = 4", "[0, 5]"]),
        (lambda: branches([], 4), ["at least one"]),
        (lambda: branches([-1, 0], 4), ["between 0 and W = 4", "[-1, 0]"]),
        (lambda: branches([0], -1), ["W must be >= 1", "-1"]),
        (lambda: packed(0), ["W must be >= 1", "got 0"]),
        (lambda: linear(0), ["W must be >= 1"]),
        (lambda: quadratic(-3), ["W must be >= 1", "got -3"]),
        (lambda: named("branches:0", 0), ["W must be >= 1"]),
        (lambda: packed(4, "wild"), ["'wild'", *STARTS]),
        (lambda: linear(4, "wild"), ["'wild'", *STARTS]),
        (lambda: named("ar", 4, "wild"), ["'wild'", *STARTS]),
        (lambda: named("ar", 4, "sampled"), ["algorithm", "'sampled'"]),
        (lambda: Limits.of(-1), ["max_new_tokens must be an integer >= 0", "-1"]),
        (lambda: Limits.of(float("nan")), ["integer >= 0", "nan"]),  # type: ignore[arg-type]
        (lambda: Schedule("mine", (), ()), ["'mine'", "at least 1 call"]),
        (lambda: Limits.of(3, -1), ["EOS", ">= 0", "-1"]),
        (lambda: Limits.of(3, [4, -2]), ["EOS", "-2"]),
        (lambda: ThresholdModel([1, 3]), ["c*_2", "0 .. 2", "3"]),
        (lambda: ThresholdModel([0, -1]), ["c*_2", "0 .. 2", "-1"]),
        (lambda: ThresholdModel([0], vocabulary=1), ["at least 2", "1"]),
        (lambda: ThresholdModel([0], [0, 2]), ["0 .. 1"]),
    ],
)
def test_bad_input_is_named_with_what_is_allowed(make: Callable[[], Any], words: list[str]) -> None:
    with pytest.raises(InvalidInput) as error:
        make()
    message = str(error.value)
    assert "\n" not in message
    assert all(word in message for word in words)


def test_ids_may_be_numpy_integers() -> None:
    import numpy as np

    assert Limits.of(3, np.int64(2)) == Limits.of(3, 2) == Limits.of(3, [np.int64(2)])
    run = generate(ThresholdModel([], [0, 1], prompt_length=2), packed(3), np.array([1, 1]), Limits.of(5, np.int64(1)))
    assert run.tokens == (0, 1)


GOOD = Reply(laws(1, 1, 1), (laws(0, 0), laws(0, 0), None), 0)  # for |D| = 2 and branches (0, 2, 3) of width 2


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (GOOD._replace(target=laws(1, 1)), "returned 2 verifier rows where the call asked for 3"),
        (GOOD._replace(target=laws(1, 1, 1, 1)), "returned 4 verifier rows where the call asked for 3"),
        (GOOD._replace(target=()), "returned 0 verifier rows"),
        (GOOD._replace(proposals=GOOD.proposals[:2]), "answered 2 branches where the call asked for 3"),
        (GOOD._replace(proposals=(*GOOD.proposals, None)), "answered 4 branches where the call asked for 3"),
        (GOOD._replace(proposals=(laws(0, 0), laws(0), None)), "returned 1 proposals for branch 2 where the call asked for 2"),
        (GOOD._replace(proposals=(laws(0, 0, 0), laws(0, 0), None)), "returned 3 proposals for branch 0"),
        (GOOD._replace(proposals=(laws(0, 0), None, None)), "returned nothing for branch 2"),
    ],
)
def test_a_reply_that_does_not_fit_the_call_is_refused(reply: Reply, message: str) -> None:
    schedule = Schedule("three branches", (), (Ask(True, (0, 2, 3), 2),))
    state = midway(schedule, (), (), draft(1, 1), Limits.of(9))
    call = schedule.request(state)
    schedule.absorb(state, call, GOOD, NOBODY)
    with pytest.raises(ContractError, match=message):
        schedule.absorb(state, call, reply, NOBODY)


def test_verifier_rows_that_nobody_asked_for_are_refused() -> None:
    schedule = linear(2)
    state = schedule.init((), Limits.of(4))
    with pytest.raises(ContractError, match="returned 1 verifier rows where the call asked for 0"):
        schedule.absorb(state, schedule.request(state), Reply(laws(1), (laws(1, 1),), 0), NOBODY)


def test_a_schedule_that_stalls_is_stopped() -> None:
    """Eight calls without a token, counted from the last token; and no earlier."""
    idle, verify = Ask(False, (0,), 1), Ask(True)
    for opening in ((verify,), ()):
        seen: list[Step] = []
        stalling = decode(ThresholdModel(()), Schedule("stalls", opening, (idle,)), (), Limits.of(4))
        with pytest.raises(ContractError, match="8 calls in a row without emitting a token"):
            seen.extend(stalling)
        assert [len(step.committed) for step in seen] == [1] * len(opening) + [0] * 8
    slow = Schedule("slow", (), (*[idle] * 7, verify))
    assert len(generate(ThresholdModel(()), slow, (), Limits.of(4)).tokens) == 4


def test_sampling_without_chance_names_the_missing_coin() -> None:
    with pytest.raises(ContractError, match="call=1, purpose='correct', position=1"):
        generate(random_tables(3, 3), packed(2), (), Limits.of(4))
