"""The chain as a graph: drawn, and solved again."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

import proofs_check.graph as graph
from proofs_check.graph import CHECKS, absorbed, chain_graph, check_absorption, dot, mermaid
from simulator import Ask, InvalidInput, Limits, RationalLaw, Schedule, autoregressive_law, exact_law, named, packed
from simulator.oracles import TabularModel, random_tables

COIN, BIASED = RationalLaw.weighted((1, 1)), RationalLaw.weighted((1, 2))
BY_HAND = TabularModel(lambda prefix: COIN, lambda prefix, j: BIASED)


@pytest.mark.claim("THM3.3")
@pytest.mark.claim("PROGRESS")
def test_it_holds() -> None:
    entries = check_absorption("quick")
    assert {entry.claim: entry.outcome for entry in entries} == dict.fromkeys(CHECKS[0].claims, "holds")
    assert all(
        re.match("18 graphs, [\\d,]+ states, [\\d,]+ transitions, equal as rationals", entry.detail) for entry in entries
    )


def test_by_hand() -> None:
    """W = L = 2: a start, 2 x 2 states of token and draft, 4 outputs; a draft 1 is rejected with probability 1/4."""
    chain = chain_graph(packed(2), BY_HAND, (), Limits.of(2))
    assert (chain.number_of_nodes(), chain.graph["transitions"], chain.number_of_edges()) == (9, 4 + 2 * (2 + 3), 4 + 2 * 3)
    start = chain.graph["start"]
    first = {(state.prefix, state.draft.tokens): p for _, state, p in chain.out_edges(start, data="probability")}
    assert first == {((x,), (y,)): Fraction(1, 2) * Fraction(y + 1, 3) for x in (0, 1) for y in (0, 1)}
    draft_1 = next(state for state in chain if state.draft.tokens == (1,) and state.prefix == (0,))
    assert {after.prefix: edge["probability"] for _, after, edge in chain.out_edges(draft_1, data=True)} == {
        (0, 0): Fraction(1, 4),
        (0, 1): Fraction(3, 4),
    }
    assert sorted(len(edge["steps"]) for _, _, edge in chain.out_edges(draft_1, data=True)) == [1, 2]
    solved = absorbed(chain)
    assert solved.output == {(x, y): Fraction(1, 4) for x in (0, 1) for y in (0, 1)}
    assert solved.calls_ahead == solved.visits == 2


@pytest.mark.parametrize("name", ["ar", "linear", "packed", "quadratic", "branches:0,2"])
def test_it_agrees_with_the_layers(name: str) -> None:
    tables, limits = random_tables(3, 2), Limits.of(4, stop=[(0, 1)])
    solved = absorbed(chain_graph(named(name, 3), tables, (), limits))
    assert solved.output == autoregressive_law(tables.target, (), limits)
    assert solved.calls_ahead == solved.visits == exact_law(named(name, 3), tables, (), limits).expected_nfe


def test_a_request_that_makes_no_call() -> None:
    solved = absorbed(chain_graph(packed(2), BY_HAND, (1,), Limits.of(0)))
    assert solved == ({(): 1}, 0, 0)


def test_a_graph_too_large_is_refused() -> None:
    with pytest.raises(InvalidInput, match="more than 13 transitions"):
        chain_graph(packed(2), BY_HAND, (), Limits.of(2), max_transitions=13)
    chain_graph(packed(2), BY_HAND, (), Limits.of(2), max_transitions=14)


def test_a_cycle_is_refused() -> None:
    chain = chain_graph(Schedule("stalls", (), (Ask(False),)), BY_HAND, (), Limits.of(1))
    with pytest.raises(InvalidInput, match="cycle"):
        absorbed(chain)


def test_drawings() -> None:
    chain = chain_graph(packed(2), BY_HAND, (7,), Limits.of(2))
    for text, node, edge in (
        (dot(chain), r'^  s\d+ \[label="(.*?)"(, shape=box)?\];$', r'^  s\d+ -> s\d+ \[label="(.*)"\];$'),
        (mermaid(chain), r'^  s\d+[\[(]"(.*?)"([\])])$', r'^  s\d+ -->\|"(.*)"\| s\d+$'),
    ):
        labels = [match[1] for match in re.finditer(node, text, re.MULTILINE)]
        assert sorted(labels) == sorted(["-", "0 | 0", "0 | 1", "1 | 0", "1 | 1", "0 0", "0 1", "1 0", "1 1"])
        probabilities = [Fraction(match[1]) for match in re.finditer(edge, text, re.MULTILINE)]
        assert len(probabilities) == 10
        assert sum(probabilities) == 5  # five states make a call
    assert dot(chain).count("shape=box") == mermaid(chain).count('"]') == 4


# --- faults -----------------------------------------------------------------------------------------------------------------


def outcomes(budget: Any = "quick") -> dict[str, str]:
    return {entry.claim: entry.outcome for entry in check_absorption(budget)}


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "cases", lambda budget: [("packed", "algorithm", 0, Limits.of(3))])


def test_layers_that_are_summed_wrongly_are_violations(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*args: Any) -> Any:
        law = exact_law(*args)
        return law._replace(nfe={n + 1: p for n, p in law.nfe.items()}, output={(*x, 0): p for x, p in law.output.items()})

    monkeypatch.setattr(graph, "exact_law", wrong)
    entries = {entry.claim: entry for entry in check_absorption("quick")}
    assert [entries[claim].outcome for claim in ("THM3.3", "NFE-CONV", "PROGRESS")] == ["violated", "violated", "holds"]
    law = exact_law(packed(3), random_tables(3, 0), (), Limits.of(3))
    assert f"E[NFE] is {law.expected_nfe}, {law.expected_nfe}, {law.expected_nfe + 1}" in entries["NFE-CONV"].detail
    assert "packed, start algorithm, V=3, L=3, W=3" in entries["THM3.3"].detail


def test_a_state_that_comes_back_is_a_violation(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(graph.SCHEDULES, "packed", lambda width, start: Schedule("stalls", (), (Ask(False),)))
    assert outcomes()["PROGRESS"] == "violated"


def test_chains_in_which_nothing_merges_were_not_run(few: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "cases", lambda budget: [("ar", "algorithm", 0, Limits.of(2))])
    assert set(outcomes().values()) == {"not run"}
