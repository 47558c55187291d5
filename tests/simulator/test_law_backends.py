"""Every law backend answers what the rational one answers under the same coins; the battery is in tests/conftest.py."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
import pytest

from simulator import ArrayLaw, Limits, Point, RationalLaw, Sampled, exact_law, generate, named, packed
from simulator.acceptance import acceptance_probability
from simulator.laws import SparseLaw, argmax, dense, entries
from simulator.oracles import TabularModel, random_tables

TOP = 1 - 2.0**-53


def exact(law: RationalLaw) -> RationalLaw:
    return law


def array(law: RationalLaw) -> ArrayLaw:
    return ArrayLaw([float(p) for p in law.probabilities])


def sparse(law: RationalLaw) -> SparseLaw:
    return SparseLaw(law.support, [float(law.probability(token)) for token in law.support])


def sparse_row(row: Any) -> SparseLaw:
    return SparseLaw(*entries(ArrayLaw(row)))


BACKENDS = {"rational": exact, "array": array, "sparse": sparse}
PAIRS = ["array array", "sparse sparse", "array sparse", "sparse array", "array rational"]


# --- the battery ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["array", "sparse"])
def test_laws(name: str, law_battery: Any) -> None:
    assert law_battery.check_laws(BACKENDS[name]) > 1500


@pytest.mark.claim("SPARSEQ")
@pytest.mark.parametrize("pair", PAIRS)
def test_verdicts(pair: str, law_battery: Any) -> None:
    """The accept rule, target laws in one backend and proposal laws in another."""
    target, proposal = pair.split()
    assert law_battery.check_verdicts(BACKENDS[target], BACKENDS[proposal]) > 40_000


@pytest.mark.parametrize("name", BACKENDS)
def test_processing(name: str, law_battery: Any) -> None:
    assert law_battery.check_processing(BACKENDS[name]) > 8000


@pytest.mark.parametrize("make", [ArrayLaw, sparse_row], ids=["array", "sparse"])
def test_rounding(make: Any, law_battery: Any) -> None:
    law_battery.check_rounding(make)


def test_the_battery_reaches_what_it_is_for(law_battery: Any) -> None:
    """Drafts of 1, 2 and 3 tokens stopped at every test, uncertain tests, coins equal to alpha and to a CDF boundary, equal and
    disjoint laws, zeros, corrections with a choice."""
    reached: Counter[Any] = Counter()
    for block, _, coins, (h, _, _) in law_battery.cases():
        reached[len(block), h] += 1
        for index, (p, q, token) in enumerate(block[: h + 1], start=1):
            alpha = acceptance_probability(p, q, token)
            reached["uncertain"] += 0 < alpha < 1
            reached["at alpha"] += alpha == coins[1, "test", index]
            reached["alpha 0 at 0"] += alpha == coins[1, "test", index] == 0
            reached["equal"] += p == q
            reached["disjoint"] += not set(p.support) & set(q.support)
            reached["zeros on both sides"] += 0 in p.probabilities and 0 in q.probabilities
        if h < len(block):
            residual = block[h][0].residual(block[h][1])
            reached["a choice"] += residual.certain is None
            reached["at a boundary"] += coins[1, "correct", h + 1] in [total for _, total in residual.cumulative]
    expected = {(size, h) for size in (1, 2, 3) for h in range(size + 1)}
    assert expected < set(reached)
    assert min(reached.values()) > 300, reached


# --- the sparse law, by hand ------------------------------------------------------------------------------------------------


def test_a_sparse_law_knows_its_entries_only() -> None:
    law = SparseLaw([2, 5, 9], [0.25, 0.5, 0.25])
    assert law.support == [2, 5, 9]
    assert [law.probability(token) for token in (-1, 0, 2, 4, 5, 9, 10, 10**9)] == [0, 0, 0.25, 0, 0.5, 0.25, 0, 0]
    assert [law.draw(u) for u in (0.0, 0.25, 0.5, 0.75, TOP)] == [2, 5, 5, 9, 9]
    assert argmax(SparseLaw([2, 5, 9], [0.25, 0.375, 0.375])) == Point(5)
    assert law.certain is None
    assert SparseLaw([7], [1.0]).certain == 7


@pytest.mark.parametrize(
    ("ids", "probabilities"),
    [([], []), ([1, 1], [0.5, 0.5]), ([2, 1], [0.5, 0.5]), ([-1, 1], [0.5, 0.5]), ([1, 2], [1.0, 0.0]), ([1, 2], [1.0])]
    + [([[1, 2]], [[0.5, 0.5]]), ([1, 2], [float("nan"), 1.0])],
)
def test_entries_that_are_no_sparse_law_are_refused(ids: Any, probabilities: Any) -> None:
    with pytest.raises(ValueError, match="ascending ids >= 0, each with a probability > 0"):
        SparseLaw(ids, probabilities)


@pytest.mark.parametrize(
    "q", [Point(5), Point(-1), Point(30), SparseLaw([0, 5, 20], [0.25, 0.5, 0.25]), RationalLaw([0, 0, 1])]
)
def test_a_sparse_residual_against_laws_of_other_vocabularies(q: Any) -> None:
    """F40: what a proposal says of tokens outside removes nothing; of a token the target lacks neither."""
    p = SparseLaw([2, 5, 9], [0.25, 0.5, 0.25])
    mass = {token: max(p.probability(token) - float(q.probability(token)), 0) for token in (2, 5, 9)}
    residual = p.residual(q)
    assert residual is not None
    assert residual.support == [token for token in mass if mass[token] > 0]
    assert [residual.probability(t) for t in (2, 5, 9)] == [mass[t] / sum(mass.values()) for t in (2, 5, 9)]


def test_dense_and_entries_are_inverse() -> None:
    row = np.array([0.0, 0.5, 0.0, 0.25, 0.25, 0.0])
    for law in (ArrayLaw(row), sparse_row(row), RationalLaw(map(Fraction, row))):
        ids, probabilities = entries(law)
        assert (ids.tolist(), probabilities.tolist()) == ([1, 3, 4], [0.5, 0.25, 0.25])
        assert dense(law, 6).tolist() == row.tolist()
        assert dense(law, 2).tolist() == [0, 0.5]
        assert dense(law, 8).tolist() == [*row, 0, 0]
    assert dense(Point(-1), 2).tolist() == dense(Point(2), 2).tolist() == [0, 0]


# --- dense and sparse are one law, bit for bit ------------------------------------------------------------------------------


@pytest.mark.claim("SPARSEQ")
def test_leaving_out_zeros_changes_no_bit() -> None:
    """Random laws on up to 3000 tokens, most of them zeros: residuals and draws, coins random and within one ulp of a
    boundary."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        size = int(rng.integers(5, 3000))
        rows = rng.dirichlet(np.ones(size), 2) * (rng.random((2, size)) < 0.2)
        rows[:, 3] += 1e-3
        p, q = rows / rows.sum(axis=1, keepdims=True)
        full, thin = ArrayLaw(p), sparse_row(p)
        residuals = [law.residual(other) for law in (full, thin) for other in (ArrayLaw(q), sparse_row(q))]
        assert len({dense(r, size).tobytes() for r in residuals if r}) == 1
        for law, other in ((full, thin), (residuals[0], residuals[3])):
            edges = rng.choice(np.cumsum(dense(law, size)), 20)
            for u in [*rng.random(20).tolist(), *edges.tolist(), *np.nextafter(edges, 0).tolist()]:
                assert law.draw(min(u, TOP)) == other.draw(min(u, TOP))


def in_backend(model: TabularModel, target: Any, proposal: Any) -> TabularModel:
    return TabularModel(lambda prefix: target(model.target(prefix)), lambda prefix, j: proposal(model.proposal(prefix, j)))


@pytest.mark.claim("SPARSEQ")
@pytest.mark.parametrize("pair", ["sparse sparse", "array sparse", "sparse array"])
def test_whole_runs_agree_under_the_same_coins(pair: str) -> None:
    """Every Step of every schedule. Laws have denominators up to 20; a sampled coin lies within 1e-9 of an edge of one of the
    about 3000 decisions made here with odds below 1e-4, and the seeds are fixed."""
    target, proposal = (BACKENDS[name] for name in pair.split())
    rng = Random(1)
    for seed in range(12):
        model = random_tables(rng.choice((3, 4)), seed)
        for name in ("linear", "packed", "quadratic", "branches:0,2"):
            runs = [
                generate(m, named(name, 3), (1,), Limits.of(8, 2), Sampled(seed))
                for m in (model, in_backend(model, target, proposal))
            ]
            steps = [
                [step._replace(predictions=()) for step in run.steps] for run in runs
            ]  # only some backends name a certain token
            assert steps[0] == steps[1]


@pytest.mark.claim("SPARSEQ")
def test_the_exact_law_of_the_sparse_code_on_dyadic_tables() -> None:
    """Enumerated coins run the float64 arithmetic too; where it does not round, it has the rational law."""
    p, q = RationalLaw.weighted([2, 1, 0, 1]), RationalLaw.weighted([1, 2, 0, 1])  # residual [1, 0, 0, 0] and alpha 1/2
    model = TabularModel(lambda prefix: p, lambda prefix, j: q)
    laws = [exact_law(packed(3), m, (), Limits.of(3)) for m in (model, in_backend(model, sparse, sparse))]
    assert laws[0].output == laws[1].output
    assert laws[0].nfe == laws[1].nfe
