"""The weakenings of Assumption 3.1 hold, are sharp, and fail or abstain when something is planted."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from proofs_check import joint, necessity, reach
from proofs_check.joint import STARTS, Cells, Joint, Outcome, Start
from proofs_check.reach import bound, check_bound, check_hierarchy
from simulator import ar


@pytest.mark.claim("ASM-REACH")
@pytest.mark.claim("BOUND-2D")
@pytest.mark.parametrize("start", STARTS)
def test_they_hold_and_are_attained(start: Start) -> None:
    weaker, sharp = check_bound(start, "quick")
    assert [(e.claim, e.outcome, e.method) for e in (weaker, sharp)] == [
        ("ASM-REACH", "holds", "exhaustive"),
        ("BOUND-2D", "holds", "exhaustive"),
    ]
    assert re.search(r"weaker than ASM3.1: L=[34], W=[12], (\d) is right from (\d), wrong from \d\n", weaker.detail)
    assert re.match(r"attained for \(e, o\) = \(1, 1\), \(1, 2\), .*; 2d by L=[89], W=5\n", sharp.detail)
    two_call, one_call = map(int, re.findall(r"SS, (\d+) calls", sharp.detail))
    assert one_call == two_call + 2


@pytest.mark.claim("ASM-REACH")
@pytest.mark.parametrize("start", STARTS)
def test_the_conditions_follow_from_each_other(start: Start) -> None:
    [entry] = check_hierarchy(start, "quick")
    assert entry.outcome == "holds"
    shares = [float(share) for share in re.findall(r" (\d\.\d+)", entry.detail)]
    assert shares == sorted(shares)
    assert len(set(shares)) == len(reach.NAMES)


def test_bound() -> None:
    pairs = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 2), (2, 2), (3, 1)]
    assert [bound(Outcome(0, e, o)) for e, o in pairs] == [0, 0, 0, 1, 2, 3, 1]


def test_too_sharp_a_bound_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first excess comes with a single shrunk context in step."""
    monkeypatch.setattr(reach, "bound", lambda outcome: min(outcome.in_step, outcome.out_of_step) // 2)
    weaker, sharp = check_bound("algorithm", "quick")
    assert (weaker.outcome, sharp.outcome) == ("holds", "violated")
    assert re.match(r"Outcome\(excess=1, in_step=1, out_of_step=\d\), at most 0: L=8, W=4\n", sharp.detail)
    assert re.findall(r"SS, (\d+) calls", sharp.detail) == ["6", "7"]


def test_shrunk_contexts_that_are_not_counted_are_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = joint.moves

    def blind(state: Joint, length: int, width: int) -> Iterator[tuple[Joint, Cells]]:
        for following, cells in plain(state, length, width):
            yield following._replace(so_far=Outcome(following.so_far.excess, 0, following.so_far.out_of_step)), cells

    monkeypatch.setattr(joint, "moves", blind)
    weaker, sharp = check_bound("wide", "quick")
    assert (weaker.outcome, sharp.outcome) == ("violated", "violated")
    assert weaker.detail.startswith("Outcome(excess=1, in_step=0, out_of_step=")
    assert re.findall(r"SS, (\d+) calls", weaker.detail) == ["5", "6"]


def test_a_schedule_without_drafts_breaks_the_hierarchy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joint, "packed", lambda width, start: ar())
    [entry] = check_hierarchy("algorithm", "quick")
    assert entry.outcome == "violated"
    assert re.match(r".*, but not: .*, W=4\n", entry.detail)


def test_without_an_excess_it_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(necessity.LONGEST, "quick", 6)
    weaker, sharp = check_bound("algorithm", "quick")
    assert (weaker.outcome, weaker.detail) == ("not run", "never more calls with e = 1, o = 1")
    assert (sharp.outcome, sharp.detail) == ("not run", "not attained for (e, o) = [(1, 1), (1, 2), (2, 1)]")
    monkeypatch.setattr(reach, "all_matrices", lambda length: [])
    weaker, _ = check_bound("algorithm", "quick")
    assert (weaker.outcome, weaker.detail) == ("not run", "no matrix without shrunk contexts broke ASM3.1")
    monkeypatch.setattr(joint, "classes", lambda *arguments: [])
    assert [entry.outcome for entry in check_hierarchy("algorithm", "quick")] == ["not run"]
