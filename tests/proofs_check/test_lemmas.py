"""The checks of B.2's lemmas: they hold, they find planted faults and name a true counterexample, and say what they missed."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Hashable
from dataclasses import fields
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import pytest

import proofs_check.lemmas as lemmas
import simulator.processing
import simulator.schedule
from proofs_check.ledger import Entry
from proofs_check.lemmas import (
    EXPECTED,
    all_functions,
    check_blocks,
    check_greedy,
    check_one_token,
    check_sparse,
    check_stored_laws,
    law_grid,
)
from simulator import Draft, Limits, Point, RationalLaw, autoregressive_law, generate, named, packed
from simulator.acceptance import Verdict, accept, acceptance_probability
from simulator.chance import draw
from simulator.laws import SparseLaw, entries
from simulator.oracles import TabularModel, random_tables
from simulator.processing import Processing, greedy
from simulator.schedule import Schedule


def outcomes(entries: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.outcome for entry in entries}


def details(entries: list[Entry]) -> dict[str, str]:
    return {entry.claim: entry.detail for entry in entries}


def everything_holds(found: list[Entry]) -> None:
    assert found
    for entry in found:
        assert entry.outcome == "holds", entry
        counts = [int(count.replace(",", "")) for count in re.findall(r"[\d,]+\d|\d", entry.detail)]
        assert max(counts) > 50


# --- faults -----------------------------------------------------------------------------------------------------------------


def plain_correction(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """F08: the correction is drawn from p."""
    verdict = accept(draft, target, chance, first)
    h = verdict.accepted
    return verdict._replace(tokens=(*draft.tokens[:h], draw(target[h], chance, "correct", first + h)))


def one_coin(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """F13: one uniform for all tests of a call."""

    class Shared:
        def uniform(self, purpose: Any, position: int) -> Any:
            return chance.uniform(purpose, 1 if purpose == "test" else position)

    return accept(draft, target, Shared(), first)


def at_most_alpha(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """F11: u <= alpha."""
    rows = zip(target, draft.laws, draft.tokens, strict=False)
    alphas = [acceptance_probability(*row) for row in rows]
    passes = [chance.uniform("test", first + i) <= alpha for i, alpha in enumerate(alphas)]
    h = passes.index(False) if False in passes else len(passes)
    law = target[h].residual(draft.laws[h]) if h < len(passes) else target[h]
    return Verdict(h, (*draft.tokens[:h], draw(law or target[h], chance, "correct", first + h)), False)


def peeking(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """A draft that ends in token 0 is thrown away unseen and a token drawn from p: each token has its law, the draft not."""
    if len(draft.tokens) > 1 and draft.tokens[-1] == 0:
        return Verdict(0, (draw(target[0], chance, "correct", first),), False)
    return accept(draft, target, chance, first)


class Faulty(Schedule):
    """A schedule that keeps its drafts wrongly; `names` replaces `lemmas.named`."""

    @classmethod
    def named(cls, name: str, width: int, start: str = "algorithm") -> Schedule:
        sound = named(name, width, start)
        return cls(*(getattr(sound, field.name) for field in fields(sound)))


class ShiftedLaws(Faulty):
    """F04: the stored laws are one position behind their tokens."""

    def absorb(self, state: Any, call: Any, reply: Any, chance: Any) -> Any:
        after, step = super().absorb(state, call, reply, chance)
        laws = after.draft.laws
        return after._replace(draft=Draft(after.draft.tokens, laws[:1] + laws[:-1])), step


class Stalling(Faulty):
    """Nothing is emitted when the first draft token is rejected."""

    def absorb(self, state: Any, call: Any, reply: Any, chance: Any) -> Any:
        after, step = super().absorb(state, call, reply, chance)
        if step.verified and not step.accepted:
            return state, step._replace(committed=())
        return after, step


def same_coin_block(laws: Any, chance: Any, first: int) -> tuple[int, ...]:
    """F12's kind: one coin for all draft tokens of a call. Each has its law, but not given the earlier ones."""
    return tuple(draw(law, chance, "draft", first) for law in laws)


def spent_coin_block(laws: Any, chance: Any, first: int) -> tuple[int, ...]:
    """Draft tokens drawn with the coin of this call's correction."""
    return tuple(draw(law, chance, "correct", first - 1) for law in laws)


def likeliest_block(laws: Any, chance: Any, first: int) -> tuple[int, ...]:
    """F01: drafts are the most likely tokens, their stored laws are not point masses."""
    return tuple(max(law.support, key=law.probability) for law in laws)


# --- LEMB3 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("LEMB3")
def test_one_token_holds() -> None:
    entries = check_one_token("quick")
    everything_holds(entries)
    assert [entry.claim for entry in entries] == ["LEMB3", "ALG2.L6"]
    # 15 laws of quarters and 21 of fifths share the 3 point masses; 10 of halves on 4 tokens.
    assert entries[0].detail.startswith(f"{33**2 + 10**2:,} pairs of laws")


def test_a_correction_from_p_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counterexample is the emission probability of that rule by hand: min(p, Q) + rejection * p."""
    monkeypatch.setattr(lemmas, "accept", plain_correction)
    entries = check_one_token("quick")
    assert outcomes(entries) == {"LEMB3": "violated", "ALG2.L6": "holds"}
    found = re.fullmatch(r"p = \{(.*)\}, Q = \{(.*)\}: token (\d) is emitted with probability (\S+)", entries[0].detail)
    assert found, entries[0].detail
    p, q = ({int(x): Fraction(w) for x, w in re.findall(r"(\d+): ([\d/]+)", text)} for text in found.groups()[:2])
    x, claimed = int(found[3]), Fraction(found[4])
    least = {y: min(p.get(y, 0), q[y]) for y in q}
    assert claimed == least.get(x, 0) + (1 - sum(least.values())) * p.get(x, 0) != p.get(x, 0)


def test_a_test_at_the_edge_is_refuted_though_the_law_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "accept", at_most_alpha)
    entries = check_one_token("quick")
    assert outcomes(entries) == {"LEMB3": "holds", "ALG2.L6": "violated"}
    found = re.search(r"token \d passes at u = (\S+), alpha = (\S+)$", entries[1].detail)
    assert found
    assert found[1] == found[2]


def test_acceptance_alone_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample-and-match emits p exactly, but accepts with probability p(d) only: no fault of a rule, yet not ALG2's."""

    def match(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
        token = draw(target[0], chance, "correct", first)
        return Verdict(int(token == draft.tokens[0]), (token,), False)

    monkeypatch.setattr(lemmas, "accept", match)
    entry = check_one_token("quick")[0]
    assert entry.outcome == "violated"
    assert entry.detail.endswith("not min(p, Q)")


def test_a_grid_without_zeros_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "law_grid", lambda vocabulary, n: [RationalLaw([Fraction(1, vocabulary)] * vocabulary)])
    for entry in check_one_token("quick"):
        assert (entry.outcome, entry.detail.count(",")) == ("not run", 3)
        assert "alpha = 0" in entry.detail


def test_the_grid() -> None:
    assert [str(law) for law in law_grid(2, (1, 2))] == [
        "RationalLaw(0, 1)",
        "RationalLaw(1/2, 1/2)",
        "RationalLaw(1, 0)",
    ]
    assert len(law_grid(3, (6,))) == 28


@pytest.mark.claim("LEMB3")
def test_blocks_hold() -> None:
    entries = check_blocks("quick")
    everything_holds(entries)
    assert len(entries) == 2


@pytest.mark.parametrize("fault", [one_coin, plain_correction])
def test_faults_that_a_block_shows(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "accept", fault)
    twos, threes = check_blocks("quick")
    assert twos.outcome == threes.outcome == "violated"
    found = re.fullmatch(
        r"random_tables\(3, (\d+)\), Q = .*: (\[.*\]) has probability (\S+), autoregressive (\S+)", threes.detail
    )
    assert found, threes.detail
    law = autoregressive_law(random_tables(3, int(found[1])).target, (), Limits.of(4))
    assert law.get(tuple(ast.literal_eval(found[2])), 0) == Fraction(found[4]) != Fraction(found[3])


def test_one_token_cannot_show_a_shared_coin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why blocks are looked at: F13 is exact for a draft of one token."""
    monkeypatch.setattr(lemmas, "accept", one_coin)
    everything_holds(check_one_token("quick")[:1])


def test_blocks_that_are_never_rejected_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    uniform = RationalLaw([Fraction(1, 3)] * 3)
    monkeypatch.setattr(lemmas, "law_grid", lambda vocabulary, n: [uniform])
    monkeypatch.setattr(lemmas, "random_tables", lambda v, seed: TabularModel(lambda x: uniform, lambda x, j: uniform))
    twos, threes = check_blocks("quick")
    assert (twos.outcome, twos.detail) == ("not run", "never reached: 0 of 2 accepted, 1 of 2 accepted")
    assert threes.outcome == "not run"


# --- LEMB4 ------------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("LEMB4", "EQ7", "LEMB3", "PROGRESS")
@pytest.mark.parametrize("name", EXPECTED)
def test_stored_laws_hold(name: str) -> None:
    entries = check_stored_laws(name, "quick")
    everything_holds(entries)
    assert [entry.claim for entry in entries] == ["LEMB4", "EQ7", "PROGRESS", "LEMB3"]


@pytest.mark.parametrize(
    ("fault", "refuted"),
    [
        (likeliest_block, {"LEMB4", "EQ7", "LEMB3"}),
        (same_coin_block, {"LEMB4", "EQ7", "LEMB3"}),
        (spent_coin_block, {"LEMB4", "EQ7", "LEMB3"}),
        (peeking, {"LEMB4", "EQ7", "LEMB3"}),
        (plain_correction, {"LEMB3"}),
        (one_coin, {"LEMB3"}),
        (ShiftedLaws, {"LEMB4", "EQ7", "LEMB3"}),
    ],
)
def test_faults_of_drafts(fault: Any, refuted: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "STARTS", ("algorithm",))
    if fault in (plain_correction, one_coin, peeking):
        monkeypatch.setattr(simulator.schedule, "accept", fault)
    elif fault is ShiftedLaws:
        monkeypatch.setattr(lemmas, "named", fault.named)
    else:
        monkeypatch.setattr(simulator.schedule, "draw_block", fault)
    entries = check_stored_laws("packed", "quick")
    assert {claim for claim, outcome in outcomes(entries).items() if outcome == "violated"} == refuted


def test_the_counterexample_of_a_likeliest_draft(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored law named is q after the older prefix, and the token drawn from it is certain."""
    monkeypatch.setattr(lemmas, "STARTS", ("algorithm",))
    monkeypatch.setattr(simulator.schedule, "draw_block", likeliest_block)
    detail = details(check_stored_laws("packed", "quick"))["LEMB4"]
    found = re.search(
        r"seed (\d+), eos \S+, (\[.*?\]) with draft \[.*\] becomes (\[.*\]) with a draft of \d, slot \d after (\[.*\]): "
        r"the draft token is (\d) with probability ([01]), not (\S+)$",
        detail,
    )
    assert found, detail
    older, newer, earlier = (ast.literal_eval(found[i]) for i in (2, 3, 4))
    offset = len(newer) - len(older) + len(earlier) + 1
    law = random_tables(3, int(found[1])).proposal(tuple(older), offset)
    assert law.probability(int(found[5])) == Fraction(found[7]) not in (0, 1)


def test_a_run_that_makes_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "named", Stalling.named)
    entries = check_stored_laws("packed", "quick")
    assert outcomes(entries)["PROGRESS"] == "violated"
    assert "still running" in details(entries)["PROGRESS"]


def test_point_masses_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "STARTS", ("algorithm",))
    monkeypatch.setattr(lemmas, "random_tables", lambda vocabulary, seed: random_tables(vocabulary, seed).greedy())
    entry = check_stored_laws("packed", "quick")[0]
    assert (entry.outcome, entry.detail) == ("not run", f"never reached: {lemmas.LATER}")


# --- SPARSEQ ----------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("SPARSEQ")
def test_sparse_storage_holds() -> None:
    everything_holds(check_sparse("quick"))


def lossy_rational(law: Any) -> Any:
    """The least likely entry is not stored."""
    kept = sorted(law.support, key=law.probability)[1:] or law.support
    return RationalLaw.weighted(int(60**3 * law.probability(x)) if x in kept else 0 for x in range(4))


def lossy_floats(law: Any) -> SparseLaw:
    ids, p = entries(law)
    kept = p > p.min() if p.min() < p.max() else p > 0
    return SparseLaw(ids[kept], p[kept] / p[kept].sum())


@pytest.mark.parametrize("storage", ["rationals", "float64"])
def test_an_entry_that_is_not_stored(storage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if storage == "rationals":
        stored = lemmas.Nonzero.of
        monkeypatch.setattr(lemmas.Nonzero, "of", lambda law: stored(lossy_rational(law)))
    else:
        monkeypatch.setattr(lemmas, "_sparse", lossy_floats)
    (entry,) = check_sparse("quick")
    assert entry.outcome == "violated"
    found = re.search(r"has probability (\S+) with full vectors, (\S+) with nonzero entries", entry.detail)
    assert found
    assert found[1] != found[2]


def test_a_stored_law_of_another_token_shows_in_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault on both sides alike leaves the chains equal; the autoregressive law still tells."""
    monkeypatch.setattr(simulator.schedule, "accept", plain_correction)
    (entry,) = check_sparse("quick")
    assert entry.outcome == "violated"
    assert "autoregressive" in entry.detail


def test_filters_that_remove_nothing_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "Processing", lambda **bounds: Processing())
    (entry,) = check_sparse("quick")
    assert entry.outcome == "not run"
    assert entry.detail.startswith(f"never reached: {lemmas.SHORTENED}")


# --- COR-GREEDY -------------------------------------------------------------------------------------------------------------


def test_all_functions() -> None:
    """Two cells are read, the second only where the first is 0: 3 + 2 runs stand for 9 functions."""

    def run(function: Callable[[Hashable], int]) -> tuple[int, ...]:
        first = function("a")
        return (first, function("b")) if first == 0 else (first, function("a"))

    found = {result: share for share, result in all_functions(run, 3)}
    assert found == {
        **{(0, b): Fraction(1, 9) for b in range(3)},
        **{(a, a): Fraction(1, 3) for a in (1, 2)},
    }


@pytest.mark.claim("COR-GREEDY")
def test_greedy_holds() -> None:
    everything_holds(check_greedy("quick"))


def test_all_tables_are_all_tables() -> None:
    """The lazily chosen tables against every table written out, V = 2, L = 2, W = 2."""
    laws = [RationalLaw.weighted(weights) for weights in lemmas.POINTS]
    schedule, limits = packed(2), Limits.of(2)
    contexts = [(), (0,), (1,)]
    cells: list[Any] = [("p", x) for x in contexts]
    cells += [("q", x, j) for x in contexts for j in (1, 2) if len(x) + j <= 2]
    seen: set[Any] = set()
    for values in product((0, 1), repeat=len(cells)):
        table = dict(zip(cells, values, strict=True))
        model = TabularModel(
            lambda x, table=table: laws[table.get(("p", x), 0)], lambda x, j, table=table: laws[table.get(("q", x, j), 0)]
        )
        seen.add(generate(greedy(model), schedule, (), limits).steps)
    lazy: set[Any] = set()

    def run(function: Callable[[Hashable], int]) -> None:
        model = TabularModel(
            lambda x: laws[function(("p", x)) if len(x) < 2 else 0],
            lambda x, j: laws[function(("q", x, j)) if len(x) + j <= 2 else 0],
        )
        lazy.add(generate(greedy(model), schedule, (), limits).steps)

    assert sum(share for share, _ in all_functions(run, 2)) == 1
    assert lazy == seen


def unchecked_first(draft: Draft, target: Any, chance: Any, first: int) -> Verdict:
    """F16: the first draft token is never checked."""
    if not draft.tokens:
        return accept(draft, target, chance, first)
    rest = accept(Draft(draft.tokens[1:], draft.laws[1:]), target[1:], chance, first + 1)
    return Verdict(rest.accepted + 1, (draft.tokens[0], *rest.tokens), rest.fallback)


def test_a_token_that_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "STARTS", ("algorithm",))
    monkeypatch.setattr(simulator.schedule, "accept", unchecked_first)
    (entry,) = check_greedy("quick")
    assert entry.outcome == "violated"
    found = re.search(r"output (\[.*\]), greedy (\[.*\])$", entry.detail)
    assert found
    assert found[1] != found[2]


def test_a_tie_that_the_highest_id_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """F39."""
    monkeypatch.setattr(lemmas, "STARTS", ("algorithm",))

    def highest(law: Any) -> Point:
        return Point(max(law.support))

    monkeypatch.setattr(simulator.processing, "argmax", highest)
    (entry,) = check_greedy("quick")
    assert entry.outcome == "violated"
    assert "with ties" in entry.detail


def test_a_greedy_run_that_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "STARTS", ("algorithm",))
    monkeypatch.setattr(lemmas, "named", Stalling.named)
    (entry,) = check_greedy("quick")
    assert entry.outcome == "violated"
    assert "calls in a row without emitting a token" in entry.detail


def test_tables_without_ties_did_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lemmas, "STARTS", ("algorithm",))
    monkeypatch.setattr(lemmas, "TIES", lemmas.POINTS)
    (entry,) = check_greedy("quick")
    assert (entry.outcome, entry.detail) == ("not run", "never reached: a tie")


@pytest.mark.slow
@pytest.mark.parametrize(
    "check", [check_one_token, check_blocks, partial(check_stored_laws, "packed"), check_sparse, check_greedy]
)
def test_full(check: Any) -> None:
    everything_holds(check("full"))
