"""All threshold vectors: the kernels are the schedules; a sweep sees what is planted and says what it did not reach."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from math import factorial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proofs_check import exhaustive, kernels
from proofs_check.exhaustive import check_assumption, check_lemmas, check_runs, check_scheduler, counts
from proofs_check.ledger import Entry
from simulator import InvalidInput, Limits, Schedule, ar, generate, linear, packed
from simulator.oracles import ThresholdModel
from simulator.schedules import named
from spec import Given, any_order, greedy
from spec.thresholds import F, threshold_model

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "threshold_sums.json").read_text())["rows"]
STARTS = ("algorithm", "wide", "sampled", "prompt")
LEFT_TO_RIGHT = ("linear", "packed", "quadratic")
SWEPT = {"algorithm": "THM3.2", "wide": "DOM-WIDE", "sampled": "DOM-SAMPLED", "any-order": "DOM-ANYORDER"}


@cache
def vectors(length: int) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(k + 1) for k in range(1, length + 1))))


def outcomes(entries: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.outcome for entry in entries}


def details(entries: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.detail for entry in entries}


def spec_nfe(schedule: Any, c_star: tuple[int, ...], width: int, start: Any, eos: int | None) -> int:
    """A run of spec's algorithm."""
    given = Given((), width, len(c_star), *threshold_model(c_star), {eos} if eos else set())
    return greedy.run(schedule, given, start).NFE


def simulator_nfe(schedule: str, c_star: tuple[int, ...], width: int, start: str, eos: int | None) -> int:
    """A run of the production scheduler."""
    model = ThresholdModel(c_star, [int(k == eos) for k in range(1, len(c_star) + 1)])
    return generate(model, named(schedule, width, start), (), Limits.of(len(c_star), 1 if eos else None)).nfe


# The kernels are the schedules.


@pytest.mark.parametrize("schedule", LEFT_TO_RIGHT)
def test_counts_are_those_of_spec_and_scheduler(schedule: str) -> None:
    """All vectors up to length 4, all widths up to 5, starts and EOS positions; none and one beyond the limit among them."""
    compared = 0
    for length, width, start in itertools.product(range(5), range(1, 6), STARTS):
        if length == 4 and (width == 5 or start == "prompt"):
            continue  # as at width 4, and one call more than `algorithm`; the shorter vectors show both
        for eos in (None, *range(1, length + 1)):
            fast = counts(np.array(vectors(length)), width, schedule, start, eos)
            for c_star, nfe in zip(vectors(length), fast, strict=True):
                assert nfe == spec_nfe(schedule, c_star, width, start, eos), (c_star, width, start, eos)
                assert nfe == simulator_nfe(schedule, c_star, width, start, eos), (c_star, width, start, eos)
                compared += 1
        assert (
            counts(np.array(vectors(length)), width, schedule, start, length + 1)
            == counts(np.array(vectors(length)), width, schedule, start)
        ).all()
    assert compared > 7_000


def test_counts_of_longer_vectors() -> None:
    """240 drawn at random, seed 0, lengths 5 .. 8 and widths 1 .. 9: one wrong in 30 would be missed once in 3,000."""
    rng = random.Random(0)
    for _ in range(240):
        length, width = rng.randint(5, 8), rng.randint(1, 9)
        c_star = tuple(rng.randint(max(0, k - rng.choice((1, 3, k))), k) for k in range(1, length + 1))
        schedule, start, eos = rng.choice(LEFT_TO_RIGHT), rng.choice(STARTS), rng.choice((None, rng.randint(1, length)))
        nfe = counts([c_star], width, schedule, start, eos).item()
        assert nfe == spec_nfe(schedule, c_star, width, start, eos) == simulator_nfe(schedule, c_star, width, start, eos)
        limit = rng.randint(0, length + 4)
        run = generate(ThresholdModel(c_star), named(schedule, width, start), (), Limits.of(limit))
        assert counts([c_star], width, schedule, start, length=limit).item() == run.nfe


@pytest.mark.claim("DOM-ANYORDER")
@pytest.mark.parametrize("schedule", ["linear", "packed"])
def test_the_any_order_machine_is_algorithm_3(schedule: Any) -> None:
    """Call by call on all vectors up to length 4 and widths up to 5, EOS at every position and nowhere."""
    code = LEFT_TO_RIGHT.index(schedule)
    for length, width in itertools.product(range(1, 5), range(1, 6)):
        for c_star in vectors(length):
            padded, calls = np.array([0, *c_star, *[0] * (width + 2)]), np.zeros((2 * length + 4, 3), np.int64)
            n = kernels.any_order(padded, width, code, length, calls)
            for eos in (None, *range(1, length + 1)):
                given = any_order.Given(
                    (),
                    width,
                    length,
                    p=lambda pairs, j: (j, 1.0),
                    q=lambda pairs, j, c_star=c_star: (j if len(pairs) >= c_star[j - 1] else -j, 1.0),
                    EOS={eos} if eos else set(),
                )
                run = any_order.run(schedule, given)
                end = eos or length
                assert list(run.P) == [*range(1, end + 1)]
                reached = [len(state.P) for state in run.states]
                assert reached == [min(c, end) for c in calls[: run.NFE + 1, 0]]
                assert counts([c_star], width, f"any-order {schedule}", eos=eos).item() == run.NFE
                verifying = [(record.h, len(record.C)) for record in run.records if record.C]
                assert verifying == [
                    (h, after - before)
                    for before, (after, draft, h) in zip(calls[:, 0], calls[1 : run.NFE + 1].tolist(), strict=False)
                    if draft >= 0
                ]
            assert n >= run.NFE


@pytest.mark.claim("DOM-ANYORDER")
def test_textual_order_is_algorithm_1_with_a_shorter_linear() -> None:
    """Packed-SS never drafts a whole window, so it loses nothing by having no bonus token; Linear-SS loses one token of W."""
    for length, width in itertools.product(range(1, 7), range(1, 8)):
        c_star = np.array(vectors(length))
        assert (counts(c_star, width, "any-order packed") == counts(c_star, width, "packed")).all()
        if width > 1:
            assert (counts(c_star, width, "any-order linear") == counts(c_star, width - 1, "linear")).all()
        else:
            assert (counts(c_star, width, "any-order linear") == 2 * length).all()


def test_starts_of_linear() -> None:
    """`wide` is `sampled`, 1 + 2T calls (INIT); `prompt` adds one call to any schedule (NFE-CONV)."""
    for length, width in itertools.product(range(1, 7), range(1, 7)):
        c_star = np.array(vectors(length))
        wide = counts(c_star, width, "linear", "wide")
        assert (wide == counts(c_star, width, "linear", "sampled")).all()
        assert (wide % 2 == 1).all()
        for schedule in LEFT_TO_RIGHT:
            assert (counts(c_star, width, schedule, "prompt") == counts(c_star, width, schedule) + 1).all()


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: f"L{row['L']}-W{row['W']}")
def test_golden_sums(row: dict[str, int]) -> None:
    c_star = np.array(vectors(row["L"]))
    nfe = {schedule: counts(c_star, row["W"], schedule) for schedule in LEFT_TO_RIGHT}
    assert len(c_star) == row["instances"]
    assert all(nfe[schedule].sum() == row[f"nfe_{schedule}"] for schedule in LEFT_TO_RIGHT)
    assert (nfe["packed"] == nfe["linear"]).sum() == row["packed_equals_linear"]
    tally, failures = kernels.sweep_runs(row["L"], row["W"], kernels.ALGORITHM)
    assert not failures.any()
    assert tally[: kernels.EQUAL + 1].tolist() == [
        row["instances"],
        row["nfe_linear"],
        row["nfe_packed"],
        row["instances"] - row["packed_equals_linear"],
        row["packed_equals_linear"],
    ]


@pytest.mark.parametrize(
    ("length", "width", "sums"),
    [
        (5, 5, {"linear": 4008, "packed": 2736, "quadratic": 2700}),
        (6, 5, {"linear": 31444, "packed": 21714, "quadratic": 21140}),
    ],
)
def test_sums_beyond_the_golden_sizes(length: int, width: int, sums: dict[str, int]) -> None:
    """By spec's algorithm and by the kernel."""
    c_star = vectors(length)
    fast = {schedule: int(counts(c_star, width, schedule).sum()) for schedule in LEFT_TO_RIGHT}
    assert fast == {
        schedule: sum(spec_nfe(schedule, c, width, "algorithm", None) for c in c_star) for schedule in LEFT_TO_RIGHT
    }
    assert fast == sums


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([[2]], 1, "linear"), "0 <= c\\*_k <= k"),
        (([[-1]], 1, "linear"), "0 <= c\\*_k <= k"),
        (([1, 2], 1, "linear"), "rows, n"),
        (([[1]], 1, "ar"), "no schedule 'ar'"),
        (([[1]], 1, "linear", "late"), "start 'late'"),
        (([[1]], 1, "any-order packed", "wide"), "only with algorithm"),
        (([[1]], 0, "linear"), "width and eos must be >= 1"),
        (([[1]], 1, "linear", "algorithm", 0), "width and eos must be >= 1"),
        (([[1]], 1, "linear", "algorithm", None, -1), "length >= 0"),
    ],
)
def test_bad_arguments_of_counts(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        counts(*arguments)


def test_the_kernel_has_the_specs_reach() -> None:
    for c_star, width in itertools.product(vectors(5), range(1, 7)):
        padded = np.array([0, *c_star, *[0] * (width + 3)])
        assert [kernels.F(c, width, padded) for c in range(8)] == [F(c, width, c_star) for c in range(8)]


# What holds.


@pytest.mark.claim("THM3.2")
@pytest.mark.claim("EQ5")
@pytest.mark.claim("DOM-WIDE")
@pytest.mark.claim("DOM-SAMPLED")
@pytest.mark.claim("DOM-ANYORDER")
@pytest.mark.claim("DRAFTLEN")
@pytest.mark.claim("PROGRESS")
@pytest.mark.parametrize("start", SWEPT)
def test_dominance_holds(start: str) -> None:
    length = 6
    entries = check_runs(start, length)
    assert {entry.outcome for entry in entries} == {"holds"}
    assert entries[0].claim == SWEPT[start]
    pairs = length * sum(factorial(size + 1) for size in range(1, length + 1))
    for entry in entries:
        assert entry.bound == "all 5,040 threshold vectors of length L=6 and all shorter ones, W=1..6"
        assert entry.detail.startswith(f"{pairs:,} pairs of vector and width at ")
    schedules = ("any-order packed", "any-order linear") if start == "any-order" else ("packed", "linear")
    sums = [
        sum(
            int(counts(vectors(size), width, schedule, "algorithm" if start == "any-order" else start).sum())
            for size in range(1, length + 1)
            for width in range(1, length + 1)
        )
        for schedule in schedules
    ]
    assert any(f"{sums[0]:,} calls of Packed-SS, {sums[1]:,} of Linear-SS" in entry.detail for entry in entries)


@pytest.mark.claim("EQ6")
@pytest.mark.claim("LEMB1")
@pytest.mark.claim("LEMB2")
def test_lemmas_hold() -> None:
    entries = check_lemmas(6)
    assert outcomes(entries) == dict.fromkeys(("EQ6", "LEMB1", "LEMB2"), "holds")
    total = sum(factorial(size + 1) for size in range(1, 7))
    pairs = 6 * sum(factorial(size + 1) * size * (size + 1) // 2 for size in range(1, 7))
    states = sum(factorial(size + 1) * (size + 1) * (width + 1) for size in range(1, 7) for width in range(1, 7))
    assert all(f"{6 * total:,} pairs of vector" in entry.detail for entry in entries)
    assert f"{pairs:,} pairs c < c'" in details(entries)["LEMB1"]
    assert f"{states:,} states" in details(entries)["LEMB2"]


@pytest.mark.claim("ASM3.1")
def test_the_vectors_are_the_assumption() -> None:
    (entry,) = check_assumption(4)
    assert entry.outcome == "holds"
    assert entry.detail == "2, 3, 4, 5 of 2, 4, 8, 16 patterns are monotone: 120 drafters"


@pytest.mark.claim("THM3.2")
@pytest.mark.claim("LEMB1")
@pytest.mark.claim("LEMB2")
def test_the_production_scheduler_agrees() -> None:
    entries = check_scheduler(3)
    assert {entry.outcome for entry in entries} == {"holds"}
    assert details(entries)["EQ5"].startswith(f"{24 * 3 * 4 * 6 * 3:,} runs")


@pytest.mark.slow
def test_all_checks_hold_as_prove_runs_them() -> None:
    assert {entry.outcome for check in exhaustive.CHECKS for entry in check.run("quick")} == {"holds"}


# What a planted fault does.


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The kernels as plain Python, so that replacing one changes the others."""
    for name, function in list(vars(kernels).items()):
        if hasattr(function, "py_func"):
            monkeypatch.setattr(kernels, name, function.py_func)
    return monkeypatch


def replace(patch: pytest.MonkeyPatch, name: str, make: Callable[[Any], Any]) -> None:
    patch.setattr(kernels, name, make(getattr(kernels, name)))


def test_plain_python_gives_the_same(uncompiled: pytest.MonkeyPatch) -> None:
    assert outcomes(check_lemmas(3)) == dict.fromkeys(("EQ6", "LEMB1", "LEMB2"), "holds")
    assert {entry.outcome for start in SWEPT for entry in check_runs(start, 3)} == {"holds"}


@pytest.mark.parametrize("start", SWEPT)
def test_a_packed_that_forgets_its_draft_is_seen(uncompiled: pytest.MonkeyPatch, start: str) -> None:
    """One token a call. The first vector with enough to lose is all zeros: with W = 2 Linear-SS emits 3 tokens in 2 calls."""

    def forget(run: Any) -> Any:
        def faulty(c_star: Any, width: int, schedule: int, start: int, limit: int, calls: Any) -> int:
            n = run(c_star, width, schedule, start, limit, calls)
            if schedule == kernels.PACKED:
                for n in range(limit + 1):
                    calls[n] = n, 0, 0
            return int(n)

        return faulty

    replace(uncompiled, "run", forget)
    seen = outcomes(check_runs(start, 4))
    assert seen[SWEPT[start]] == "violated"
    assert seen["PROGRESS"] == "not run"  # it has no draft left to reject
    if start == "algorithm":
        assert seen == {"THM3.2": "violated", "EQ5": "violated", "DRAFTLEN": "violated", "PROGRESS": "not run"}
        assert details(check_runs(start, 4))["THM3.2"] == (
            "Packed-SS falls behind for c* = (0, 0), W = 2:"
            " Packed-SS has [0, 1, 2] tokens after calls 0 .. 2; calls 1 .. 2 verify [0, 0] draft tokens;"
            " Linear-SS has [0, 0, 3] tokens after calls 0 .. 2; calls 1 .. 2 verify [0, 2] draft tokens"
        )


def test_a_packed_that_keeps_one_token_fewer_is_seen(uncompiled: pytest.MonkeyPatch) -> None:
    replace(
        uncompiled,
        "left_to_right",
        lambda run: lambda c_star, width, schedule, *rest: run(c_star, width - (schedule == kernels.PACKED), schedule, *rest),
    )
    entries = check_runs("algorithm", 4)
    assert outcomes(entries) == {"THM3.2": "violated", "EQ5": "violated", "DRAFTLEN": "violated", "PROGRESS": "holds"}
    # Two calls of Packed-SS with W = 2 accept 1 + 1 tokens: the one it should keep is gone.
    assert details(entries)["THM3.2"].startswith(
        "Packed-SS falls behind for c* = (0, 0), W = 2: Packed-SS has [0, 1, 2] tokens"
    )
    assert details(entries)["EQ5"].startswith(
        "Packed-SS needs more calls for c* = (0, 0, 0), W = 2: Packed-SS has [0, 1, 2, 3]"
    )
    assert details(entries)["DRAFTLEN"].startswith("Packed-SS keeps a draft of another length for c* = (0, 0), W = 2: Packed")
    assert outcomes(check_runs("wide", 4))["DOM-WIDE"] == "violated"
    assert outcomes(check_runs("sampled", 4))["DOM-SAMPLED"] == "violated"


@pytest.mark.parametrize(("start", "call"), [("algorithm", 2), ("wide", 2), ("sampled", 3)])
def test_the_first_draft_is_measured_too(uncompiled: pytest.MonkeyPatch, start: str, call: int) -> None:
    """W tokens after the calls of a start, W - 1 after the first call of Algorithm 1."""

    def shorter(run: Any) -> Any:
        def faulty(c_star: Any, width: int, schedule: int, start: int, limit: int, calls: Any) -> int:
            n = run(c_star, width, schedule, start, limit, calls)
            calls[call, 1] -= schedule == kernels.PACKED
            return int(n)

        return faulty

    replace(uncompiled, "left_to_right", shorter)
    assert outcomes(check_runs(start, 4))["DRAFTLEN"] == "violated"


def test_a_packed_any_order_with_half_the_window_is_seen(uncompiled: pytest.MonkeyPatch) -> None:
    """One token fewer would not do: Linear-SS has no bonus token to win by."""

    def narrow(by: int) -> Callable[[Any], Any]:
        return lambda run: (
            lambda c_star, width, schedule, *rest: run(
                c_star, max(1, width - by * (schedule == kernels.PACKED)), schedule, *rest
            )
        )

    original = kernels.any_order
    replace(uncompiled, "any_order", narrow(1))
    assert outcomes(check_runs("any-order", 4))["DOM-ANYORDER"] == "holds"
    uncompiled.setattr(kernels, "any_order", narrow(2)(original))
    entries = check_runs("any-order", 4)
    assert entries[0].outcome == "violated"
    assert entries[0].detail.startswith("Packed-SS falls behind for c* = (0, 0, 0), W = 3: Packed-SS has [0, 1, 2, 3] tokens")


@pytest.mark.parametrize("start", SWEPT)
def test_a_verifier_without_its_own_token_makes_no_progress(uncompiled: pytest.MonkeyPatch, start: str) -> None:
    replace(uncompiled, "verified", lambda verified: lambda *arguments: verified(*arguments) - 1)
    entries = check_runs(start, 2)
    assert outcomes(entries)["PROGRESS"] == "violated"
    assert details(entries)["PROGRESS"].startswith("A schedule makes no progress for c* = (0,), W = 1: ")


@pytest.mark.parametrize("start", SWEPT)
def test_two_schedules_that_never_differ_prove_nothing(uncompiled: pytest.MonkeyPatch, start: str) -> None:
    replace(uncompiled, "run", lambda run: lambda c_star, width, schedule, *rest: run(c_star, width, kernels.LINEAR, *rest))
    entry = check_runs(start, 3)[0]
    assert (entry.outcome, entry.detail[:37]) == ("not run", "never reached: a run with fewer calls")


def test_too_short_a_length_reaches_nothing() -> None:
    assert details(check_runs("algorithm", 1))["THM3.2"] == (
        "never reached: a run with as many calls, a rejected draft, a draft that survives a rejection,"
        " a draft of 2 or more accepted in full, a stop inside a block"
    )
    for entry in [*check_runs("wide", 0), *check_lemmas(0), *check_assumption(0), *check_scheduler(0), *check_scheduler(1)]:
        assert entry.outcome == "not run"


def test_a_vector_left_out_is_not_exhaustive(uncompiled: pytest.MonkeyPatch) -> None:
    def skip(next_vector: Any) -> Any:
        def faulty(c_star: Any, length: int) -> bool:
            going = bool(next_vector(c_star, length))
            return bool(next_vector(c_star, length)) if c_star[1 : length + 1].tolist() == [0, 2, 1] else going

        return faulty

    replace(uncompiled, "next_vector", skip)
    for entry in [*check_lemmas(3), *(entry for start in SWEPT for entry in check_runs(start, 3))]:
        assert (entry.outcome, entry.detail) == ("not run", "93 instances visited, 96 expected")


def test_a_wrong_f_is_seen(uncompiled: pytest.MonkeyPatch) -> None:
    original = kernels.F
    uncompiled.setattr(kernels, "F", lambda c, width, c_star: original(c, width, c_star) + 1)
    entries = check_lemmas(3)
    assert outcomes(entries) == dict.fromkeys(("EQ6", "LEMB1", "LEMB2"), "violated")
    assert details(entries)["EQ6"] == (
        "a fresh draft does not end at F for c* = (0,), W = 1: F(0), F(1), .. = [3, 4],"
        " but drafting and verifying ends at [2, 3]"
    )
    uncompiled.setattr(kernels, "F", lambda c, width, c_star: original(c, width, c_star) if c < 2 else 0)
    entries = check_lemmas(3)
    assert outcomes(entries) == {"EQ6": "violated", "LEMB1": "violated", "LEMB2": "holds"}
    assert details(entries)["LEMB1"] == "F decreases for c* = (0, 0), W = 1: F(0), F(1), .. = [2, 3, 0]"


def test_a_draft_that_is_not_kept_breaks_lemma_2(uncompiled: pytest.MonkeyPatch) -> None:
    """The second pass, which verifies what was drafted at an earlier c, finds one token fewer."""
    replace(
        uncompiled,
        "verified",
        lambda verified: lambda c_star, made_at, c, end: verified(c_star, made_at, c, end - (made_at < c)),
    )
    entries = check_lemmas(3)
    assert outcomes(entries) == {"EQ6": "holds", "LEMB1": "holds", "LEMB2": "violated"}
    # W = 1 needs no draft. With W = 2 and one token accepted, one right draft token should be left.
    assert details(entries)["LEMB2"] == (
        "two passes of Packed-SS from c = 0 end at 1 and 2, short of F(0) for c* = (0,), W = 2: F(0), F(1), .. = [3, 4]"
    )


def test_a_drafter_off_its_threshold_is_seen(uncompiled: pytest.MonkeyPatch) -> None:
    with uncompiled.context() as patch:
        patch.setattr(ThresholdModel, "correct", lambda model, k, c: c > model.thresholds[k - 1])
        (entry,) = check_assumption(2)
        assert entry.outcome == "violated"
        assert entry.detail == "the simulator's drafter is right [False] at k = 1 from c = 0 .. with c*_k = 0"
    with uncompiled.context() as patch:
        patch.setattr(exhaustive, "threshold_model", lambda c_star: threshold_model((*c_star[:-1], 0)))
        assert check_assumption(2)[0].detail == "the spec's drafter is right [True] at k = 1 from c = 0 .. with c*_k = 1"
    with uncompiled.context() as patch:
        patch.setattr(kernels, "verified", lambda *arguments: 0)
        assert check_assumption(2)[0].detail.startswith("the kernel's drafter is right [False] at k = 1")


# The same through the production scheduler.

SCHEDULER = ("THM3.2", "EQ5", "DOM-WIDE", "DOM-SAMPLED", "LEMB1", "LEMB2", "DRAFTLEN", "PROGRESS")


def violated(entries: list[Entry]) -> set[str]:
    assert [entry.claim for entry in entries] == list(SCHEDULER)
    return {entry.claim for entry in entries if entry.outcome == "violated"}


def test_a_one_call_schedule_that_forgets_its_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """AR in the place of Packed-SS."""
    monkeypatch.setattr(exhaustive, "packed", lambda width, start: ar())
    entries = check_scheduler(3)
    assert violated(entries) == {"THM3.2", "EQ5", "DOM-WIDE", "DOM-SAMPLED", "LEMB2", "DRAFTLEN"}
    text = details(entries)
    # The first vector, all zeros, is a perfect drafter: Linear-SS emits 3 tokens in 2 calls, here 3 in 3.
    assert text["EQ5"] == "Packed-SS 3, Linear-SS 2 calls for c* = (0, 0, 0), W = 2, start algorithm, limit at 3"
    assert text["LEMB2"].startswith("two passes of Packed-SS end at 2, F(c) = 3, for c* = (0, 0, 0), W = 2, c = 0, the first 0")
    assert text["DRAFTLEN"].startswith(
        "call 1 of Packed-SS keeps 0 draft tokens, and not 1, for c* = (0, 0, 0), W = 1, start wide"
    )


def test_a_two_call_schedule_that_drafts_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "linear", lambda width, start: linear(max(1, width - 1), start))
    entries = check_scheduler(3)
    assert violated(entries) == {"LEMB1", "THM3.2"}  # THM3.2, because this is not the run that the sweeps count
    text = details(entries)
    assert text["LEMB1"] == "Linear-SS does not advance by F for c* = (0, 0, 0), W = 2, start algorithm, limit at 3"
    assert text["THM3.2"].startswith("linear has [0, 0, 2, 2, 3] tokens after its calls, and not [0, 0, 3], for c* = (0, 0, 0)")


def test_a_wrong_f_in_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "F", lambda c, width, c_star: F(c, width, c_star) if c < 2 else 0)
    entries = check_scheduler(3)
    assert violated(entries) == {"LEMB1"}
    assert details(entries)["LEMB1"].startswith("F decreases: [")
    monkeypatch.setattr(exhaustive, "F", lambda c, width, c_star: F(c, width, c_star) + 1)
    assert violated(check_scheduler(3)) == {"LEMB1", "LEMB2"}
    monkeypatch.setattr(exhaustive, "F", lambda c, width, c_star: min(2, F(c, width, c_star)))
    entries = check_scheduler(3)  # wrong in the last iteration only
    assert violated(entries) == {"LEMB1"}
    assert details(entries)["LEMB1"].startswith("Linear-SS does not advance by F")


def test_a_draft_one_token_short_is_seen_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    class Short(Schedule):
        def absorb(self, *arguments: Any) -> Any:
            after, step = super().absorb(*arguments)
            draft = after.draft._replace(tokens=after.draft.tokens[:-1], laws=after.draft.laws[:-1])
            return after._replace(draft=draft), step._replace(retained=len(draft.tokens))

    def short(width: int, start: str) -> Schedule:
        whole = packed(width, start)
        return Short("short", whole.opening, whole.cycle)

    monkeypatch.setattr(exhaustive, "packed", short)
    entries = check_scheduler(3)
    assert {"DRAFTLEN", "LEMB2", "THM3.2", "EQ5"} <= violated(entries)
    assert "PROGRESS" not in violated(entries)


def test_an_eos_that_is_not_cut_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schedule that appends the whole block."""

    class Uncut(Schedule):
        def absorb(self, state: Any, *arguments: Any) -> Any:
            after, step = super().absorb(state._replace(limits=Limits.of(99)), *arguments)
            after = after._replace(limits=state.limits)
            return after, step._replace(stop=after.stop)

    def uncut(width: int, start: str) -> Schedule:
        whole = packed(width, start)
        return Uncut("uncut", whole.opening, whole.cycle)

    monkeypatch.setattr(exhaustive, "packed", uncut)
    entries = check_scheduler(3)
    assert "PROGRESS" in violated(entries)
    assert details(entries)["PROGRESS"].startswith("uncut emits [")


def test_what_the_scheduler_did_not_reach_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    product = itertools.product
    with monkeypatch.context() as patch:
        patch.setattr(
            itertools,
            "product",
            lambda *ranges, **more: iter(list(product(*ranges, **more))[:-1]) if len(ranges) == 3 else product(*ranges, **more),
        )
        entries = check_scheduler(3)
    assert {(entry.outcome, entry.detail) for entry in entries} == {("not run", "never reached: 1 of the vectors")}
    monkeypatch.setattr(exhaustive, "packed", linear)
    entries = check_scheduler(3)
    assert outcomes(entries)["PROGRESS"] == "not run"
    assert "a run with fewer calls (THM3.2)" in details(entries)["PROGRESS"]


# How prove sees it.


def test_checks_say_which_claims_they_are_about() -> None:
    names = [check.name for check in exhaustive.CHECKS]
    assert len(set(names)) == len(names)
    for check in exhaustive.CHECKS:
        assert check.name.startswith("exhaustive/")
        again = pickle.loads(pickle.dumps(check))
        assert again.run.keywords == check.run.keywords
    scheduler = next(check for check in exhaustive.CHECKS if check.name == "exhaustive/scheduler")
    assert scheduler.claims == SCHEDULER
    for start, claim in SWEPT.items():
        check = next(check for check in exhaustive.CHECKS if check.name == f"exhaustive/{start}")
        assert check.claims == tuple(entry.claim for entry in check_runs(start, 1))
        assert check.claims[0] == claim
    lemmas = next(check for check in exhaustive.CHECKS if check.name == "exhaustive/lemmas")
    assert lemmas.claims == tuple(entry.claim for entry in check_lemmas(1))


def test_listing_the_checks_does_not_load_numba() -> None:
    code = "import sys, proofs_check.exhaustive; sys.exit('numba' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
