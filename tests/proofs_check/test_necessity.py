"""Packed-SS without Assumption 3.1: the count of all matrices is right, and each check fails and abstains when it should."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import pytest

from proofs_check import joint, necessity
from proofs_check.joint import STARTS, Joint, Outcome, Runs, Start, classes, outcomes, rows_of
from proofs_check.necessity import all_matrices, check_production, check_ratio, check_smallest
from simulator import linear

SMALLEST = {"algorithm": (8, 4, Fraction(1, 4096)), "wide": (7, 4, Fraction(1, 1024)), "sampled": (8, 4, Fraction(1, 2048))}


@pytest.mark.parametrize("start", STARTS)
def test_matrices_run_one_by_one_have_the_counted_outcomes(start: Start) -> None:
    for width in (1, 2, 4):
        counted = Counter(Runs(rows, width, start).outcome() for rows in all_matrices(3))
        assert counted == outcomes(3, width, start)
        assert counted.total() == 64


@pytest.mark.parametrize("start", STARTS)
def test_classes_are_disjoint_and_cover_all_matrices(start: Start) -> None:
    length, width = 4, 3
    found = list(classes(length, width, start))
    sizes = Counter[Outcome]()
    for outcome, cells in found:
        sizes[outcome] += 2 ** (10 - len(cells))
    assert sizes == outcomes(length, width, start)
    for (_, one), (_, other) in itertools.combinations(found, 2):
        assert any(cell in other and other[cell] != right for cell, right in one.items())


def test_outcomes_of_large_random_matrices() -> None:
    """By the classes they fall in: 60 matrices at L = 9 (seed 0)."""
    rng = random.Random(0)
    for start in STARTS:
        found = list(classes(9, 4, start))
        for _ in range(20):
            rows = tuple(tuple(rng.getrandbits(1) for _ in range(9 - c)) for c in range(9))
            mine = [outcome for outcome, cells in found if all(rows[c][k - c - 1] == right for (c, k), right in cells.items())]
            assert mine == [Runs(rows, 4, start).outcome()]


@pytest.mark.claim("ASM-NEEDED")
@pytest.mark.parametrize("start", STARTS)
def test_the_smallest_drafter_that_needs_more_calls(start: Start) -> None:
    [entry] = check_smallest(start, "quick")
    length, width, share = SMALLEST[start]
    assert (entry.outcome, entry.claim, entry.method) == ("holds", "ASM-NEEDED", "exhaustive")
    assert entry.detail.startswith(f"L={length}, W={width}, {share} of the matrices, 1 more; none for smaller L")
    runs = [re.search(rf"{name}, (\d+) calls: .*{length}", entry.detail) for name in ("Linear-SS", "Packed-SS")]
    assert [int(run[1]) for run in runs if run] in ([6, 7], [5, 6], [7, 8])


@pytest.mark.claim("ASM-NEEDED")
@pytest.mark.parametrize("start", STARTS)
def test_the_scheduler_does_what_is_counted(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(necessity.REPLAYED, "quick", (7, (3,)))
    [entry] = check_production(start, "quick")
    assert entry.outcome == "holds"
    assert entry.detail.startswith("4,096 pairs of runs one by one")


def test_the_picture_tells_the_runs() -> None:
    _, cells = next(classes(7, 4, "wide", lambda outcome: outcome.excess > 0))
    for unread in (0, 1):
        head, *lines, two_call, one_call = Runs(rows_of(cells, 7, unread), 4, "wide").picture().splitlines()
        assert head.split() == ["c", "\\", "k", *"1234567"]
        shown = {(int(line[:7]), k) for line in lines for k in range(1, 8) if line[4 + 3 * k : 7 + 3 * k].strip() in ("0", "1")}
        assert shown <= cells.keys()
        assert two_call == "Linear-SS, 5 calls: call 1: 0 > 1, call 3: 1 > 2 (from 1), call 5: 2 > 7 (from 2)"
        assert one_call.startswith("Packed-SS, 6 calls: call 1: 0 > 1, call 2: 1 > 3 (from 0)")


def test_a_search_that_ends_too_early_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(necessity.LONGEST, "quick", 7)
    assert [entry.outcome for entry in check_smallest("algorithm", "quick")] == ["not run"]
    monkeypatch.setitem(necessity.REPLAYED, "quick", (5, (2,)))
    [entry] = check_production("algorithm", "quick")
    assert (entry.outcome, entry.detail) == ("not run", "no class with shrunk contexts both in and out of step")
    monkeypatch.setitem(necessity.WIDEST, "quick", 0)
    assert [entry.outcome for entry in check_ratio("quick")] == ["not run"]


def test_another_scheduler_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear-SS in the place of Packed-SS: no class is confirmed, and no table agrees."""
    monkeypatch.setattr(necessity, "BRUTE", 3)
    monkeypatch.setitem(necessity.REPLAYED, "quick", (5, (3,)))
    monkeypatch.setattr(joint, "packed", linear)
    [entry] = check_smallest("algorithm", "quick")
    assert entry.outcome == "violated"
    assert entry.detail.startswith("1 more calls, but the spec has 1 and the scheduler:")
    assert entry.detail.count(", 6 calls: ") == 2
    [entry] = check_production("algorithm", "quick")
    assert entry.outcome == "violated"
    found = re.match(r"W=1: (\d+) matrices with Outcome\(excess=(-?\d+), .*\), counted together (\d+)", entry.detail)
    assert found
    assert found[1] != found[3]


def forgetful(state: Joint, length: int, width: int) -> Iterator[tuple[Joint, joint.Cells]]:
    """A Packed-SS that throws its drafts away."""
    for following, cells in joint_moves(state, length, width):
        drafts = state.y <= state.x
        yield following._replace(after=min(state.after + 1, length)) if drafts else following, cells


joint_moves = joint.moves


def test_a_schedule_without_drafts_breaks_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    """AR against Linear-SS: W + 1 calls against 2."""
    monkeypatch.setattr(joint, "moves", forgetful)
    [entry] = check_ratio("quick")
    assert (entry.outcome, entry.claim) == ("violated", "BOUND-RATIO")
    assert entry.detail == "start algorithm, W=2: NFE_packed - 1 NFE_linear grows to infinity"


def test_a_count_that_reads_the_wrong_rows_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(necessity, "BRUTE", 3)
    monkeypatch.setitem(necessity.REPLAYED, "quick", (5, (3,)))
    monkeypatch.setattr(joint, "moves", forgetful)
    assert [entry.outcome for entry in check_production("wide", "quick")] == ["violated"]


@pytest.mark.claim("BOUND-RATIO")
def test_half_the_width_is_the_factor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(necessity.WIDEST, "quick", 4)
    [entry] = check_ratio("quick")
    assert (entry.outcome, entry.bound) == ("holds", "every L, W=1..4, starts algorithm, wide, sampled")


def test_a_factor_too_large_is_loose(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Packed-SS standing still, any factor does."""
    monkeypatch.setattr(necessity, "heaviest", lambda graph, per_call, per_iteration: Fraction(0))
    [entry] = check_ratio("quick")
    assert (entry.outcome, entry.detail) == ("violated", "a smaller factor does for start algorithm, W=1")


def test_heaviest_path() -> None:
    first, last = (0, 0, 1), (0, 1, 2)
    graph: necessity.Graph = {necessity.BEFORE: {(first, (0, 0))}, first: {(last, (1, 1)), (first, (1, 2))}, last: set()}
    assert necessity.heaviest(graph, Fraction(3), Fraction(-2)) == 1
    assert necessity.heaviest(graph, Fraction(2), Fraction(-2)) == 0
    assert necessity.heaviest(graph, Fraction(3), Fraction(-1)) is None


def test_the_relative_graph_has_the_vertices_of_the_plain_sweep() -> None:
    """Positions met by real pairs of runs, 300 random matrices (seed 0): all are in the graph."""
    rng = random.Random(0)
    vertices = {start: necessity.relative_graph(3, start) for start in STARTS}
    met = 0
    for start in STARTS:
        for _ in range(100):
            rows = tuple(tuple(rng.getrandbits(1) for _ in range(12 - c)) for c in range(12))
            two_call, in_step, out_of_step = Runs(rows, 3, start).contexts()
            one_call = sorted({*in_step, *out_of_step})
            for c in sorted({*two_call, *one_call}):
                ahead = [min((x for x in xs if x >= c), default=12) - c for xs in (two_call, one_call)]
                after = [y - c for y in one_call if y - c > ahead[1]]
                opening = start == "sampled" and c == 1  # where it drafts twice
                if after and ahead[0] + c < 12 and not opening:
                    met += 1
                    assert (*ahead, after[0]) in vertices[start]
    assert met > 500
