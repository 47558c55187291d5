"""The joint state space: pinned counts, against brute force and the goldens, and what it sees of planted faults."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from math import factorial
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from proofs_check import state_space
from proofs_check.ledger import Entry
from proofs_check.state_space import CHECKS, Drafted, Pair, check, draw, explore
from simulator import Limits, Schedule, ar, generate, linear, packed, quadratic
from simulator.chance import enumerated
from simulator.oracles import ThresholdModel
from simulator.records import Draft

SUMS = json.loads((Path(__file__).parents[1] / "golden" / "threshold_sums.json").read_text())["rows"]
CLAIMS = ("COR-GREEDY", "DRAFTLEN", "PROGRESS", "THM3.2", "EQ5")
SIZES = [(1, 5), (2, 5), (3, 5)]


@pytest.mark.parametrize(
    ("width", "length", "states", "moves"),
    [
        (1, 1, 4, 4),
        (2, 3, 28, 38),
        (1, 4, 25, 34),
        (2, 4, 59, 86),
        (3, 4, 112, 163),
        (1, 6, 62, 91),
        (2, 6, 226, 372),
        (3, 6, 605, 990),
    ],
)
def test_pinned_state_counts(width: int, length: int, states: int, moves: int) -> None:
    graph = explore(width, length).graph
    assert (len(graph), graph.number_of_edges()) == (states, moves)


@pytest.mark.claim("THM3.2", "EQ5", "DRAFTLEN", "PROGRESS", "COR-GREEDY")
def test_every_claim_holds_at_the_quick_budget() -> None:
    for item in CHECKS:
        entries = list(item.run("quick"))
        assert [entry.claim for entry in entries] == list(CLAIMS) == list(item.claims)
        assert {entry.outcome for entry in entries} == {"holds"}, entries
    assert entries[0].bound == "every drafter of ASM3.1, W=1 L=6, W=2 L=6, W=3 L=6, EOS at each position or none"
    assert entries[0].detail == "3,167 states, 5,126 moves"
    assert "W=3, L=6: Packed-SS 4..6, Linear-SS 4..12 calls, their ratio 1/2..1 (at c* = " in entries[-1].detail


@pytest.mark.slow
@pytest.mark.claim("THM3.2", "EQ5", "DRAFTLEN", "PROGRESS", "COR-GREEDY")
def test_every_claim_holds_at_the_full_budget() -> None:
    entries = [entry for item in CHECKS for entry in item.run("full")]
    assert {entry.outcome for entry in entries} == {"holds"}, entries
    assert {entry.detail.split(";")[0] for entry in entries} == {"50,347 states, 91,252 moves", "41,192 states, 69,346 moves"}


@pytest.mark.parametrize("row", [row for row in SUMS if row["L"] <= 6], ids=lambda row: f"L{row['L']}-W{row['W']}")
def test_calls_over_all_threshold_vectors_are_the_golden_sums(row: dict[str, Any]) -> None:
    space = explore(row["W"], row["L"])
    calls = space.calls(space.roots[0])
    assert calls.total() == row["instances"] == factorial(row["L"] + 1)
    assert sum(pair.packed * vectors for pair, vectors in calls.items()) == row["nfe_packed"]
    assert sum(pair.linear * vectors for pair, vectors in calls.items()) == row["nfe_linear"]
    assert sum(vectors for pair, vectors in calls.items() if pair.packed == pair.linear) == row["packed_equals_linear"]


def run_both(drafter: list[int] | tuple[int, ...], width: int, length: int) -> Pair:
    model, limits = ThresholdModel(drafter), Limits.of(length)
    return Pair(*(generate(model, make(width), (), limits).nfe for make in (packed, linear)))


@pytest.mark.parametrize("width", [1, 2, 3])
def test_the_law_of_both_call_counts_is_that_of_every_vector_run_alone(width: int) -> None:
    length = 5
    space = explore(width, length)
    vectors = itertools.product(*(range(k + 1) for k in range(1, length + 1)))
    assert space.calls(space.roots[0]) == Counter(run_both(c_star, width, length) for c_star in vectors)


def test_an_eos_at_k_costs_what_a_limit_of_k_costs() -> None:
    """EQ5 with EOS: the same comparison at that position. The thresholds behind it multiply the count."""
    space = explore(3, 5, [None, 1, 2, 3, 4, 5])
    assert space.calls(space.roots[0]) == space.calls(space.roots[5])
    for end in range(1, 6):
        shorter = explore(3, end)
        alone = shorter.calls(shorter.roots[0])
        share = factorial(6) // factorial(end + 1)
        assert space.calls(space.roots[end]) == Counter({pair: vectors * share for pair, vectors in alone.items()})


@pytest.mark.parametrize("width", [1, 2, 3])
def test_extremes_are_longest_and_shortest_paths_and_their_drafters_run_so(width: int) -> None:
    space = explore(width, 6)
    root = space.roots[0]
    assert nx.is_directed_acyclic_graph(space.graph)
    assert [state for state in space.graph if not space.graph[state]] == [state for state in space.graph if state.finished]
    calls = space.calls(root)
    worst = max(Fraction(*pair) for pair in calls)
    for packed_weight, linear_weight in [(1, 0), (-1, 0), (0, 1), (0, -1), (1, -1), (1, -worst)]:
        path = space.longest(root, packed_weight, linear_weight)
        edges = [space.graph.edges[move]["pair"] for move in itertools.pairwise(path)]
        pair = Pair(sum(edge.packed for edge in edges), sum(edge.linear for edge in edges))
        value = packed_weight * pair.packed + linear_weight * pair.linear
        assert value == max(packed_weight * p + linear_weight * n for p, n in calls)
        assert run_both(space.drafter(path), width, 6) == pair
    longest = nx.dag_longest_path_length(
        nx.DiGraph((u, v, {"weight": e["pair"].packed}) for u, v, e in space.graph.edges(data=True))
    )
    assert longest == max(pair.packed for pair in calls)


def planted(
    monkeypatch: pytest.MonkeyPatch, name: str, make: Callable[[int], Schedule], sizes: list[tuple[int, int]] = SIZES
) -> dict[str, Entry]:
    monkeypatch.setattr(state_space, name, make)
    return {entry.claim: entry for entry in check(sizes, with_eos=True)}


def altered(make: Callable[[int], Schedule], absorb: Callable[..., Any]) -> Callable[[int], Schedule]:
    """A schedule whose absorb is absorb(original absorb, state, call, reply, chance)."""

    class Altered(Schedule):
        def absorb(self, *arguments: Any) -> Any:
            return absorb(super().absorb, *arguments)

    return lambda width: Altered("altered", (), make(width).cycle)


def test_a_schedule_that_keeps_no_draft_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """AR in the place of Packed-SS, with a counterexample that can be run."""
    entries = planted(monkeypatch, "packed", lambda width: ar())
    assert {claim: entry.outcome for claim, entry in entries.items()} == {
        "COR-GREEDY": "not run",  # it never keeps a token
        "DRAFTLEN": "violated",
        "PROGRESS": "not run",
        "THM3.2": "violated",
        "EQ5": "violated",
    }
    assert entries["EQ5"].detail == "Packed-SS makes 3 calls, Linear-SS 2; W=2, L=5, EOS at 3, c* = [0, 0, 3, 4, 5]"
    model, limits = ThresholdModel([0, 0, 3, 4, 5], truth=[0, 0, 1]), Limits.of(5, eos=1)
    assert [generate(model, schedule, (), limits).nfe for schedule in (ar(), linear(2))] == [3, 2]
    assert entries["THM3.2"].detail.startswith("packed has 2 tokens out where linear has 3, between iterations; W=2, L=5")


def test_proposals_from_the_newer_prefix_are_seen_by_their_context(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = planted(monkeypatch, "packed", quadratic)
    assert {claim for claim, entry in entries.items() if entry.outcome == "violated"} == {"DRAFTLEN"}
    assert entries["DRAFTLEN"].detail.startswith("packed after 1 tokens: a draft of 1 tokens is kept, not 0; W=2, L=5")


def test_a_draft_one_position_late_is_not_right_behind_the_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proposals from a + 2 on are kept for a + 1: the output stays right, the draft is not what EQ4 says."""

    def late(absorb: Any, *arguments: Any) -> Any:
        after, step = absorb(*arguments)
        return after._replace(draft=Draft(after.draft.tokens[1:], after.draft.laws[1:])), step

    entries = planted(monkeypatch, "packed", altered(packed, late))
    assert entries["COR-GREEDY"].outcome != "violated"
    assert entries["DRAFTLEN"].detail.startswith("packed after 0 tokens: a draft of 0 tokens is kept, not 1; W=2, L=5")
    assert entries["EQ5"].outcome == "violated"


def test_tokens_that_do_not_belong_to_their_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(absorb: Any, *arguments: Any) -> Any:
        after, step = absorb(*arguments)
        tokens, laws = after.draft
        return after._replace(draft=Draft(tokens, laws[1:] + laws[:1])), step

    entry = planted(monkeypatch, "packed", altered(packed, shifted))["DRAFTLEN"]
    assert entry.outcome == "violated"
    assert "(position, context) of the kept draft are [(3, 0), (2, 0)], 1 tokens are out" in entry.detail


def test_a_draft_that_is_believed_spoils_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier's token is followed by the rejected one."""

    def believing(absorb: Any, state: Any, call: Any, *arguments: Any) -> Any:
        after, step = absorb(state, call, *arguments)
        if step.accepted < len(step.verified) and after.stop is None:
            after = after._replace(prefix=after.prefix[:-1] + (step.verified[step.accepted],))
        return after, step

    entry = planted(monkeypatch, "packed", altered(packed, believing))["COR-GREEDY"]
    assert entry.outcome == "violated"
    assert entry.detail.startswith("packed after 1 tokens: the output [2, 5] is not the greedy continuation")


def test_an_eos_that_is_run_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def heedless(absorb: Any, state: Any, *arguments: Any) -> Any:
        deaf = state._replace(limits=state.limits._replace(eos=frozenset()))
        after, step = absorb(deaf, *arguments)
        return after._replace(limits=state.limits), step

    entry = planted(monkeypatch, "linear", altered(linear, heedless))["COR-GREEDY"]
    assert entry.outcome == "violated"
    assert entry.detail.startswith(
        "linear after 0 tokens: the output [2, 4] is not the greedy continuation 2, 4, .. to its end 1"
    )


def test_a_schedule_that_comes_to_a_halt(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rejection nothing is accepted and the same draft is tried again."""

    def stubborn(absorb: Any, state: Any, *arguments: Any) -> Any:
        after, step = absorb(state, *arguments)
        return (state, step._replace(committed=())) if step.accepted < len(step.verified) else (after, step)

    entries = planted(monkeypatch, "packed", altered(packed, stubborn))
    assert entries["PROGRESS"].outcome == "violated"
    assert entries["PROGRESS"].detail.startswith("packed after 1 tokens: a verifying call accepted nothing; W=2, L=5, EOS at 2")
    assert (entries["EQ5"].outcome, entries["EQ5"].detail) == ("not run", "some path does not end")


def test_a_state_that_comes_back_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drafting call may accept nothing, but not for ever."""

    def drafting_only(absorb: Any, state: Any, *arguments: Any) -> Any:
        after, step = absorb(state, *arguments)
        return (after._replace(phase=0), step) if after.draft.tokens else (after, step)

    entries = planted(monkeypatch, "linear", altered(linear, drafting_only))
    assert entries["PROGRESS"].outcome == "violated"
    assert entries["PROGRESS"].detail.startswith("a state comes back (packed 1 end, linear 0+); W=1, L=5, EOS at 1")
    assert entries["EQ5"].outcome == "not run"


def test_branches_that_were_not_reached_are_named() -> None:
    entries = {entry.claim: entry for entry in check([(1, 4)], with_eos=True)}
    assert {entry.outcome for claim, entry in entries.items() if claim != "THM3.2"} == {"not run"}
    assert entries["THM3.2"].outcome == "holds"
    assert entries["PROGRESS"].detail == "never reached: a rejected draft token, a draft of 2 or more accepted"
    assert entries["DRAFTLEN"].detail.endswith("shorter by 2 or more, a call that keeps a draft")


def test_drafters_left_out_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_space, "enumerated", lambda run: enumerated(run)[:-1] or enumerated(run))
    entries = check(SIZES, with_eos=False)
    assert {entry.outcome for entry in entries} == {"not run"}
    assert "of 720 threshold vectors were followed, W=" in entries[0].detail


def test_proposals_are_equal_only_from_the_same_context() -> None:
    assert Drafted(3, 1, True) == Drafted(3, 1, True)
    assert len({Drafted(3, 1, True), Drafted(3, 1, True), Drafted(3, 1, False), Drafted(3, 2, True), Drafted(2, 1, True)}) == 4
    assert Drafted(3, 1, True) != 6


def test_the_drawing_is_the_smallest_with_a_kept_token_accepted() -> None:
    text = draw()
    assert text.startswith("digraph states { // W = 2, L = 3\n")
    assert '  0 [label="packed 0, linear 0\\n"];' in text
    assert text.count(" -> ") == 38
    assert text.count(" [label=") - text.count(" -> ") == 28
    assert text.count("peripheries=2") == 1
    assert '  0 -> 2 [label="c*1=0, 1<=c*2"];' in text
    accepted = "a token accepted that was drafted from a prefix shorter by 2 or more"
    assert accepted not in explore(2, 2).reached | explore(1, 3).reached
