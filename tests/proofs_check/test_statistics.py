"""Statistics for samplers one can only run: the stated error is kept, the stated power is there, and the arithmetic is exact.

Seeds are fixed. Under others: the default calibration fails with odds of at most 0.001, the slow one as well; whether our own
samplers pass, with odds of 0.001; each G test of true samples, with its alpha.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from proofs_check import biases, statistics
from proofs_check.biases import BIASES, Bias, Language, emitted, runs
from proofs_check.eprocess import SHAPES, WHEN, Emitted, EProcess, Impossible
from proofs_check.reference import Entries, as_reference, entries_of, regret, rows
from proofs_check.statistics import (
    calibration,
    detectable_variation,
    fit,
    fits,
    most_rejections,
    null_rejections,
    power,
    tokens_to_rejection,
    watch,
)
from simulator import (
    ArrayLaw,
    InvalidInput,
    Limits,
    Point,
    Processing,
    RationalLaw,
    Sampled,
    autoregressive_law,
    generate,
    packed,
)
from simulator.oracles import random_tables


def law(*p: float) -> Entries:
    return entries_of(list(p))


# --- the e-process


@pytest.mark.parametrize("eos", [(), (2,)])
def test_every_bet_is_fair(eos: tuple[int, ...]) -> None:
    """The expected wealth after the next token is the wealth now, bet by bet, whatever came before."""
    rng = np.random.default_rng(0)
    for spread in (0.1, 1.0):
        for before in ([], [3], [0, 5, 1]):
            first = [Emitted(token, Entries(np.arange(6), np.full(6, 1 / 6))) for token in before]
            row = Entries(np.arange(6), rng.dirichlet(np.full(6, spread)))
            expected: Any = 0.0
            for token, p in zip(row.ids, row.p, strict=True):
                process = EProcess(1e-9, eos)
                process.observe([*first, Emitted(int(token), row)])
                expected = expected + p * np.exp(process._wealth)
            process = EProcess(1e-9, eos)
            process.observe(first)
            np.testing.assert_allclose(expected, np.exp(process._wealth), rtol=1e-9)


def test_bets_and_stakes_are_those_of_the_docstring() -> None:
    process = EProcess(0.01, [1])
    assert process.orders == ["id", "probability", "scrambled 1", "scrambled 2", "scrambled 3", "EOS first"]
    assert len(process._wealth) == 6 * len(SHAPES) * len(WHEN) * 8 + 4
    assert process.log_e == pytest.approx(0)


def test_scores_are_means_over_the_cell_of_the_token() -> None:
    """Against numerical integration of the shapes over the token's cell, in the order of ids."""
    row = law(0.1, 0.2, 0.05, 0.61, 0.04)
    edges = np.concatenate([[0], np.cumsum(row.p)])
    for token in range(5):
        process = EProcess(1e-9)
        process.observe([Emitted(token, row)])
        u = np.linspace(edges[token], edges[token + 1], 200_001)
        shapes = (2 * u - 1, 6 * u**2 - 6 * u + 1, ((u > 0.9) - 0.1) / 0.9)
        for number, shape in enumerate(shapes):
            column = number * len(process.orders)
            stakes = process._stakes[process._columns == column]
            wealth = process._wealth[process._columns == column]
            np.testing.assert_allclose(wealth, np.log1p(stakes * shape.mean()), atol=1e-5)


def test_how_an_output_is_cut_into_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    language = Language(1)
    outputs = [emitted(language, run.tokens) for run, _ in zip(runs(language, Bias("", packed(3)), 1), range(3), strict=False)]
    whole, pieces = EProcess(0.01), EProcess(0.01)
    for output in outputs:
        whole.observe(output)
    monkeypatch.setattr("proofs_check.eprocess._CHUNK", 60)
    for output in outputs:
        pieces.observe(output)
    assert pieces.tokens == whole.tokens == 3 * 64
    np.testing.assert_allclose(pieces._wealth, whole._wealth, atol=1e-9)
    assert pieces.uncertain == pytest.approx(whole.uncertain)


def test_an_impossible_token_refutes_at_once() -> None:
    process = EProcess(1e-12)
    assert not process.observe([Emitted(0, law(0.5, 0.5)), Emitted(1, law(0.5, 0.5))])
    assert process.observe([Emitted(0, law(0.5, 0.5)), Emitted(7, law(0.5, 0.5)), Emitted(0, law(1.0))])
    assert process.impossible == Impossible(3, 7)
    assert process.rejected_at == process.tokens == 4
    assert process.log_e == math.inf
    assert process.observe([Emitted(0, law(0.5, 0.5))])  # and it stays so
    assert process.tokens == 4


def test_certain_laws_move_nothing() -> None:
    process = EProcess(0.01)
    process.observe([Emitted(3, entries_of(Point(3)))] * 500)
    assert process.log_e == pytest.approx(0)
    assert process.uncertain == 0
    assert not process.rejected


def test_tokens_next_to_impossible_are_seen() -> None:
    row = law(1 - 1e-9, 1e-9)
    process = EProcess(0.01)
    assert process.observe([Emitted(0, row)] * 50 + [Emitted(1, row)])
    assert process.best == "tokens that are next to impossible come up"
    tiny = Entries(np.arange(2), np.array([1.0, 5e-324]))
    assert EProcess(1e-9).observe([Emitted(1, tiny)])


def test_the_best_bet_in_words() -> None:
    process = EProcess(0.01)
    row = law(0.4, 0.3, 0.2, 0.1)
    rng = np.random.default_rng(0)
    process.observe([Emitted(int(rng.choice(4, p=[0.3, 0.2, 0.1, 0.4])), row) for _ in range(300)])
    assert process.rejected
    assert process.best.startswith(("in the order by id, ", "in the order by probability, ", "tokens that"))


def test_it_goes_on_from_its_state() -> None:
    language = Language(2)
    outputs = [emitted(language, run.tokens) for run, _ in zip(runs(language, Bias("", packed(3)), 1), range(4), strict=False)]
    whole, begun, resumed = EProcess(0.01), EProcess(0.01), EProcess(0.01)
    for output in outputs:
        whole.observe(output)
    for output in outputs[:2]:
        begun.observe(output)
    resumed.restore(json.loads(json.dumps(begun.state())))
    for output in outputs[2:]:
        resumed.observe(output)
    assert resumed.state() == whole.state()
    for other in (EProcess(0.02), EProcess(0.01, [3])):
        with pytest.raises(InvalidInput, match="the saved bets were made with"):
            other.restore(begun.state())
    with pytest.raises(InvalidInput):
        EProcess(1.5)


def test_what_is_detectable() -> None:
    process = EProcess(0.01)
    assert process.detectable == math.inf
    process.tokens = 1000
    bets = len(process._wealth)
    assert process.detectable == pytest.approx(math.sqrt(2 / 3 * math.log(bets / 0.01) / 1000))


# --- calibration and power


def test_the_stated_error_is_kept() -> None:
    """At alpha 0.1, so that few repetitions can show an excess; fails with odds 0.001 under another seed at worst."""
    assert null_rejections(200, 64, alpha=0.1) <= most_rejections(200, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_the_stated_error_is_kept_over_2000_repetitions(alpha: float) -> None:
    assert most_rejections(2000, 0.01) == 35
    assert null_rejections(2000, 512, alpha, seed=12) <= most_rejections(2000, alpha)


def test_an_uncalibrated_process_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the best bet is taken for all of them, as one does who tries many tests and reports one."""
    monkeypatch.setattr("proofs_check.eprocess._log_mean", lambda logs: logs.max(axis=-1))
    assert null_rejections(100, 128) > most_rejections(100)
    [entry] = calibration("quick")
    assert entry.outcome == "not run"
    assert "the e-process rejects true samples" in entry.detail


@pytest.mark.claim("THM3.3")
def test_our_samplers_are_not_told_from_ar() -> None:
    [entry] = calibration("quick")
    assert (entry.claim, entry.method, entry.outcome) == ("THM3.3", "statistical", "holds"), entry.detail
    assert "TV80" in entry.detail


@pytest.mark.parametrize("name", ["stale q", "residual ignored"])
def test_a_sampler_gone_wrong_is_a_violation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = statistics.watch
    monkeypatch.setattr(
        statistics, "watch", lambda language, bias, *rest: wrong(language, replace_schedule(BIASES[name], bias), *rest)
    )
    monkeypatch.setitem(statistics._SIZES, "quick", (20, 64, 6000, 400))
    [entry] = calibration("quick")
    assert entry.outcome == "violated"
    assert "packed: rejected after" in entry.detail


def replace_schedule(bias: Bias, named: Bias) -> Bias:
    return bias._replace(what=named.what)


def test_whole_outputs_gone_wrong_are_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(statistics.SAMPLERS, "packed", BIASES["stale q"].schedule)
    monkeypatch.setattr(statistics, "watch", lambda *_: statistics.Watched(EProcess(0.01), 1, 1))
    monkeypatch.setitem(statistics._SIZES, "quick", (20, 64, 100, 4000))
    [entry] = calibration("quick")
    assert entry.outcome == "violated"
    assert "packed: joint, G = " in entry.detail


def test_runs_without_a_rejection_show_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Language, "proposal", lambda self, prefix, offset: self.target(prefix))
    monkeypatch.setattr(statistics, "SAMPLERS", {"packed": packed(1)})
    [entry] = calibration("quick")
    assert entry.outcome == "not run"
    assert "no draft was rejected" in entry.detail


def test_planted_biases_are_rejected() -> None:
    [entry] = power("quick")
    assert (entry.claim, entry.outcome) == ("THM3.3", "holds"), entry.detail
    for name in BIASES:
        assert name in entry.detail


def test_a_bias_that_is_not_seen_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "BIASES", {"none": Bias("none", packed(4))})
    monkeypatch.setattr(statistics, "_CAP", 500)
    [entry] = power("quick")
    assert entry.outcome == "not run"
    assert "unseen, so that to pass says nothing of them: none" in entry.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("argmax draft", 600),
        ("top-k draft", 900),
        ("residual ignored", 2000),
        ("stale q", 400),
        ("filter missing", 20),
        ("temperature missing", 400),
        ("coin reused", 2500),
        ("one coin for all tests", 9000),
        ("no coin for tests", 600),
    ],
)
def test_power(name: str, most: int) -> None:
    """Median over 15 languages; `most` is about twice what was measured."""
    tokens = tokens_to_rejection(name, range(15), 20_000)
    assert tokens is not None
    assert tokens <= most


def test_biases_do_what_they_say() -> None:
    """Without them their parts are Packed-SS itself: same tokens under the same coins."""
    language, limits = Language(0), Limits.of(40)
    right = generate(language, packed(biases.WIDTH), (), limits, Sampled(4, 0)).tokens
    plain = Bias("none", replace(BIASES["argmax draft"].schedule, processing=Processing()))  # type: ignore[type-var]
    assert next(runs(language, plain, 4, limits)).tokens == right
    for name, bias in BIASES.items():
        differs = next(runs(language, bias, 4, limits)).tokens != right
        assert differs or bias.asked != Processing(), name


# --- G tests of whole outputs


def test_the_worst_detectable_variation() -> None:
    """The noncentrality of a chi-square test of level 0.05 and power 0.8: 7.849 at 1 degree of freedom (Cohen 1988)."""
    assert 4 * 100 * detectable_variation(1, 0.05, 100) ** 2 == pytest.approx(7.849, abs=0.001)
    assert detectable_variation(10, 0.01, 400) == pytest.approx(detectable_variation(10, 0.01, 100) / 2)
    assert detectable_variation(0, 0.05, 100) == detectable_variation(5, 0.05, 0) == math.inf


def test_a_bias_of_the_detectable_size_is_detected_as_often_as_stated() -> None:
    """Along the law's own shape, the worst case: 80 % of 400 runs, within 4 standard errors of 2 % (odds 1e-4)."""
    rng, n, alpha = np.random.default_rng(1), 2000, 0.01
    tv = detectable_variation(3, alpha, n)
    p = np.full(4, 0.25)
    biased = p + tv * np.array([0.5, 0.5, -0.5, -0.5])
    uniform = {cell: Fraction(1, 4) for cell in range(4)}
    rejected = sum(fit(dict(enumerate(rng.multinomial(n, biased).tolist())), uniform, alpha).rejected for _ in range(400))
    assert abs(rejected / 400 - 0.8) < 0.08


def test_g_tests_keep_their_error() -> None:
    """1,000 true samples at alpha 0.05: at most 73 rejections, the 99.9 % quantile."""
    rng = np.random.default_rng(2)
    p = rng.dirichlet(np.ones(12))
    exact = dict(enumerate(p.tolist()))
    rejected = sum(fit(dict(enumerate(rng.multinomial(500, p).tolist())), exact, 0.05).rejected for _ in range(1000))
    assert rejected <= most_rejections(1000, 0.05) == 73


def test_cells_are_pooled_and_impossible_outcomes_named() -> None:
    pooled = fit({0: 90, 1: 6, 2: 4}, {0: 0.9, 1: 0.04, 2: 0.03, 3: 0.03}, 0.01)
    assert (pooled.cells, pooled.df, pooled.n) == (2, 1, 100)
    assert pooled.statistic == pytest.approx(2 * (4 * math.log(4 / 6) + 96 * math.log(96 / 94)))
    assert not pooled.rejected
    alone = fit({0: 10}, {0: Fraction(1)}, 0.01)
    assert alone.vacuous
    assert not alone.rejected
    impossible = fit({0: 10, 5: 1}, {0: Fraction(1)}, 0.01)
    assert impossible.rejected
    assert not impossible.vacuous
    assert "5 came up 1 times and is impossible" in impossible.impossible
    assert fit({}, {0: 0.5, 1: 0.5}, 0.01).vacuous


def test_joint_tests_see_what_marginals_cannot() -> None:
    law_of_two = {(a, b): Fraction(1, 4) for a in range(2) for b in range(2)}
    joint, *marginals = fits([(0, 0), (1, 1)] * 50, law_of_two)
    assert joint.rejected
    assert len(marginals) == 2
    assert not any(each.rejected for each in marginals)
    assert joint.alpha + sum(each.alpha for each in marginals) == pytest.approx(0.01)


def test_true_draws_that_look_otherwise_pass() -> None:
    """argmax of p / Exp(1) noise is a categorical draw."""
    rng = np.random.default_rng(3)
    tables, limits = random_tables(3, 1), Limits.of(3)
    outputs = []
    for _ in range(3000):
        output: tuple[int, ...] = ()
        while limits.reached(output, 0) is None:
            p = np.array([float(tables.target(output).probability(token)) for token in range(3)])
            output += (int((p / rng.exponential(size=3)).argmax()),)
        outputs.append(output)
    assert not any(each.rejected for each in fits(outputs, autoregressive_law(tables.target, (), limits)))


# --- references


def test_references() -> None:
    tables = random_tables(3, 0)
    for reference in (as_reference(tables), as_reference(tables.target)):
        assert list(rows(reference, (1,), (0, 2))) == [tables.target((1,)), tables.target((1, 0))]
        assert reference.vocabulary is None
    with pytest.raises(InvalidInput, match="1 laws for an output of 2"):
        list(rows(Short(), (), (1, 2)))
    assert regret([0.25, 0.5, 0.25], 0) == (pytest.approx(math.log(2)), 1)
    assert regret([0.5, 0.5], 1) == (0, 0)
    assert regret(Point(3), 2) == (math.inf, 3)
    for wrong in ([0.5, 0.4], [float("nan"), 1], [1.5, -0.5], []):
        with pytest.raises(InvalidInput, match="no law"):
            entries_of(wrong)


class Short:
    vocabulary = None

    def laws(self, prompt: Any, output: Any) -> list[ArrayLaw]:
        return [ArrayLaw([0.5, 0.5])]


def test_laws_of_fractions_take_every_temperature() -> None:
    exact = RationalLaw.weighted([1, 2, 0, 5])
    ids, p = entries_of(exact, Processing(temperature=0.5))
    assert ids.tolist() == [0, 1, 3]
    np.testing.assert_allclose(p, np.array([1, 4, 25]) / 30)
    assert entries_of(exact, Processing(top_p=Fraction(7, 8))).ids.tolist() == [1, 3]
    assert entries_of(exact, Processing(0)).ids.tolist() == [3]


def test_counts_of_nothing() -> None:
    assert fits([], {(): Fraction(1)})[0].vacuous
    assert Counter() == Counter([])


def test_watching_stops_at_rejection() -> None:
    watched = watch(Language(0), BIASES["filter missing"], 0, 10_000)
    assert watched.process.impossible is not None
    assert watched.process.tokens < 100
