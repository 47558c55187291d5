"""Laws of the number of calls against enumeration of all drafters (rational), closed forms, and simulation."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction as Q
from functools import cache
from math import sqrt
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from simulator import InvalidInput, Limits, Schedule, ar, branches, generate, linear, packed, quadratic
from simulator.nfe import count, laws, simulate
from simulator.nfe.laws import Chain, DrafterLaw, Kind, tokens_per_nfe
from simulator.oracles import ThresholdModel
from simulator.oracles.families import parse
from simulator.schedules import STARTS

half, third = Q(1, 2), Q(1, 3)
HISTOGRAM = (Q(1, 4), Q(1, 4), Q(0), Q(1, 3), Q(1, 6))


def geometric(ratio: Q) -> Kind:
    return Kind(lambda offset: ratio**offset)


LAWS = (
    laws.geometric_lags(2),
    laws.histogram_lags(HISTOGRAM),
    laws.acceptance(Q(2, 3)),
    laws.acceptance(Q(3, 4), half, half, third),
    laws.barrier(third),
    laws.mixture(Q(1, 4), Q(2, 3)),
    laws.markov((Q(3, 4), third), (geometric(Q(4, 5)), geometric(Q(1, 5)))),
    laws.markov((half, Q(2, 3)), (Kind(surprise=Q(1, 10), rho=half), Kind(lambda offset: third**offset, Q(1, 4), Q(1, 5)))),
)


def drafters(law: DrafterLaw, length: int) -> dict[tuple[int, ...], Q]:
    """Every vector of thresholds with its probability: by the words of `Kind`, position after position."""
    paths: Counter[tuple[tuple[int, ...], int, int]] = Counter()  # thresholds, kind, last surprise
    for x, p in enumerate(law.begin):
        paths[(), x, 0] += p  # type: ignore[assignment]
    for k in range(1, length + 1):
        step: Counter[tuple[tuple[int, ...], int, int]] = Counter()
        for (vector, x, last), weight in paths.items():
            for y, kind in enumerate(law.kinds):
                base = weight * law.transition[x][y]
                step[(*vector, k), y, k] += base * kind.surprise
                tails = [1, *(kind.survival(j) for j in range(1, k + 1)), 0]
                for lag, (tail, following) in enumerate(itertools.pairwise(tails)):
                    here = base * (1 - kind.surprise) * (tail - following)
                    step[(*vector, k - lag), y, last] += here * kind.rho
                    step[(*vector, max(k - lag, last)), y, last] += here * (1 - kind.rho)
        paths = Counter({path: weight for path, weight in step.items() if weight})
    found: Counter[tuple[int, ...]] = Counter()
    for (vector, _, _), weight in paths.items():
        found[vector] += weight
    assert sum(found.values()) == 1
    return dict(found)


@cache
def calls(schedule: Schedule, vector: tuple[int, ...]) -> int:
    return generate(ThresholdModel(vector), schedule, (), Limits.of(len(vector))).nfe


def schedules(widths: Iterable[int], starts: Iterable[str]) -> Iterator[Schedule]:
    for width, start in itertools.product(widths, starts):
        yield from (linear(width, start), packed(width, start), quadratic(width, start))


def enumerated(schedule: Schedule, law: DrafterLaw, length: int) -> list[Q]:
    found: Counter[int] = Counter()
    for vector, weight in drafters(law, length).items():
        found[calls(schedule, vector)] += weight
    return [Q(found[n]) for n in range(max(found) + 1)]


def assert_equals_enumeration(schedule: Schedule, law: DrafterLaw, length: int) -> None:
    chain = Chain(schedule, law)
    ours, expected = list(chain.nfe_law(length)), enumerated(schedule, law, length)
    assert ours == expected, (schedule, law.name)
    assert all(type(p) is Q for p in ours)
    assert chain.expected_nfe(length)[length] == sum(n * p for n, p in enumerate(expected))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_every_drafter_of_four_tokens(law: DrafterLaw) -> None:
    """The law of NFE(4), rational, equals the scheduler's over all threshold vectors: every start, widths 1, 2, 4."""
    for schedule in schedules((1, 2, 4), STARTS):
        assert_equals_enumeration(schedule, law, 4)
    for schedule in (ar(), branches((0, 2), 3), branches((1,), 2, "sampled"), packed((3, 1)), linear((2, 0, 3), "wide")):
        assert_equals_enumeration(schedule, law, 4)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.name)
def test_every_drafter_of_six_tokens(law: DrafterLaw) -> None:
    """The same for all 5,040 vectors, counted by the engine, which agrees with the scheduler (test_nfe_engine)."""
    weights = drafters(law, 6)
    lags = np.arange(1, 7) - np.array(list(weights))
    chosen = [
        *schedules((3, 7), ("algorithm",)),
        linear(2, "wide"),
        packed(3, "wide"),
        packed(4, "sampled"),
        branches((0, 2), 4),
    ]
    for schedule, nfe in zip(chosen, count(lags, chosen).tolist(), strict=True):
        expected: Counter[int] = Counter()
        for calls, weight in zip(nfe, weights.values(), strict=True):
            expected[calls] += weight  # type: ignore[assignment]
        assert list(Chain(schedule, law).nfe_law(6)) == [expected[n] for n in range(max(expected) + 1)], schedule


def test_a_wrong_law_is_noticed() -> None:
    """The comparison above can fail: with rho off by 1/100, or the flag of a surprise forgotten."""
    near = laws.mixture(Q(1, 4), Q(2, 3) + Q(1, 100))
    assert list(Chain(packed(2), near).nfe_law(4)) != enumerated(packed(2), laws.mixture(Q(1, 4), Q(2, 3)), 4)

    class Forgetful(DrafterLaw):
        def wrong(self, offset: int) -> Any:
            return super().wrong(offset) @ self.fresh

    law = Forgetful("forgetful", (Kind(surprise=Q(1, 4), rho=Q(2, 3)),))
    assert list(Chain(packed(2), law).nfe_law(4)) != enumerated(packed(2), law, 4)


def test_lengths_of_no_and_one_token() -> None:
    for schedule in schedules((2,), STARTS):
        chain = Chain(schedule, LAWS[0])
        assert list(chain.nfe_law(0)) == [1]
        assert list(chain.expected_nfe(1)) == [0, chain.nfe_law(1) @ range(len(chain.nfe_law(1)))]
    assert list(Chain(packed(2, "sampled"), LAWS[0]).nfe_law(1)) == [0, 1]


def test_closed_forms() -> None:
    a, r, rho = Q(2, 3), Q(1, 5), Q(7, 10)
    for width in (1, 3, 7):
        geometric_sum = (1 - a ** (width + 1)) / (1 - a)
        assert 2 * Chain(linear(width), laws.acceptance(a)).long_run().tokens_per_call == geometric_sum
        assert Chain(quadratic(width), laws.acceptance(a)).long_run().tokens_per_call == (1 - a**width) / (1 - a)
        # behind a barrier Linear sees nothing of rho; without barriers the mixture is independent acceptance
        assert 2 * Chain(linear(width), laws.mixture(1 - a, rho)).long_run().tokens_per_call == geometric_sum
        for name in (packed, quadratic):
            ours = Chain(name(width), laws.mixture(1 - a, 1)).long_run()
            assert ours == Chain(name(width), laws.acceptance(a)).long_run()
    # W without bound: Packed over Linear is 1 + r / (r + 2 (1-r)(1-rho))
    wide = 200
    ratio = [Chain(name(wide), laws.mixture(float(r), float(rho))).long_run().tokens_per_call for name in (packed, linear)]
    assert ratio[0] / ratio[1] == pytest.approx(float(1 + r / (r + 2 * (1 - r) * (1 - rho))), rel=1e-12)
    assert Chain(ar(), LAWS[5]).long_run().tokens_per_call == 1


def test_certain_drafters() -> None:
    """Never wrong: 1 and W tokens in turn for Packed, W + 1 in two calls for Linear. Never right: one token a call."""
    for width in (1, 4):
        assert Chain(packed(width), laws.barrier(0)).long_run().tokens_per_call == Q(width + 1, 2)
        assert Chain(linear(width), laws.barrier(0)).long_run().tokens_per_call == Q(width + 1, 2)
        assert Chain(packed(width), laws.barrier(1)).long_run().tokens_per_call == 1
        assert Chain(quadratic(width), laws.geometric_lags(0)).long_run().tokens_per_call == 1
    assert list(Chain(packed(3), laws.barrier(0)).nfe_law(9)) == [0] * 5 + [1]


def test_float64_is_as_accurate_as_it_says() -> None:
    """Relative errors below 1e-10 (L = 40, rational, a mixture of a lag and a barrier); above, mean and law agree to 1e-11."""
    exact = laws.markov((Q(3, 4), half), (Kind(surprise=Q(1, 10), rho=half), Kind(lambda j: Q(2, 3) ** j, Q(1, 4), Q(1, 5))))
    rough = laws.markov((0.75, 0.5), (Kind(surprise=0.1, rho=0.5), Kind(lambda j: (2 / 3) ** j, 0.25, 0.2)))
    assert (exact.exact, rough.exact) == (True, False)
    for schedule in (linear(5), packed(5)):
        ours, true = Chain(schedule, rough), Chain(schedule, exact)
        assert abs(ours.expected_nfe(40)[40] / float(true.expected_nfe(40)[40]) - 1) < 1e-13
        assert abs(float(ours.long_run().tokens_per_call) / float(true.long_run().tokens_per_call) - 1) < 1e-13
        long = ours.nfe_law(300)
        assert abs(long.sum() - 1) < 1e-12
        assert abs(long @ np.arange(len(long)) / ours.expected_nfe(300)[300] - 1) < 1e-11


def test_finite_lengths_tend_to_the_long_run() -> None:
    """E[NFE(L)] grows by 1 / (tokens a call) with L: on windows of a common period for a chain that forgets."""
    for schedule in (linear(6), packed(6), quadratic(6)):
        chain = Chain(schedule, laws.mixture(0.2, 0.6))
        calls = chain.expected_nfe(400)
        assert (calls[400] - calls[200]) / 200 == pytest.approx(1 / float(chain.long_run().tokens_per_call), rel=1e-9)
    assert tokens_per_nfe(packed(6), laws.mixture(0.2, 0.6), 400) == pytest.approx(400 / calls_of(packed(6)), rel=1e-12)


def calls_of(schedule: Schedule) -> float:
    return float(Chain(schedule, laws.mixture(0.2, 0.6)).expected_nfe(400)[400])


@pytest.mark.parametrize(
    "text",
    [
        "geometric:mean=4",
        "histogram:weights=1:1:2:3:1",
        "barrier:rate=0.2",
        "mixture:rate=0.0956,rho=0.7",
        "markov:easy=12,hard=1,easy_run=40,hard_run=20",
    ],
)
def test_simulation_agrees(text: str) -> None:
    """20,000 runs of 150 tokens, seed 5, W = 8: every mean within 5 standard errors of the law; every histogram by chi-square
    on cells of 20 runs and more (rarer counts join the first), below its 1e-8 quantile. All 15 comparisons together alarm
    falsely with odds near 1e-5."""
    chosen, runs, length = [linear(8, "wide"), packed(8, "wide"), quadratic(8)], 20_000, 150
    tally = simulate(parse(text), chosen, runs=runs, length=length, seed=5)
    for schedule, histogram in zip(chosen, tally.histograms, strict=True):
        law = Chain(schedule, laws.law_of(parse(text), 10)).nfe_law(length)
        numbers = np.arange(len(law))
        seen = np.array([histogram.get(n, 0) for n in numbers.tolist()])
        assert seen.sum() == runs
        mean = law @ numbers
        assert abs(seen @ numbers / runs - mean) < 5 * sqrt(law @ (numbers - mean) ** 2 / runs)
        big = runs * law >= 20
        expected, found = runs * law[big], seen[big]
        expected[0], found[0] = expected[0] + runs * law[~big].sum(), found[0] + seen[~big].sum()
        statistic = ((found - expected) ** 2 / expected).sum()
        assert statistic < chi2.isf(1e-8, len(expected) - 1), schedule


def test_families_without_a_law() -> None:
    for text in ("drift:early=12,late=2,turn=200", "mixture:rate=0.1,rho=0.5,noise=0.01"):
        with pytest.raises(InvalidInput, match="no exact law of"):
            laws.law_of(parse(text), 10)


def test_bad_parameters_name_themselves() -> None:
    for make, message in (
        (lambda: laws.mixture(0.1, 1.5), "rho must lie in 0 .. 1, got 1.5"),
        (lambda: laws.barrier(-0.1), "surprise must lie in 0 .. 1, got -0.1"),
        (lambda: laws.geometric_lags(-1), "the mean lag must be >= 0 and finite, got -1"),
        (lambda: laws.histogram_lags((0.5, 0.4)), "must add up to 1, got 0.9"),
        (lambda: laws.acceptance(0.5, 0.6), "must not increase"),
        (lambda: laws.acceptance(), "at least one rate"),
        (lambda: laws.markov((1, 1), (Kind(), Kind())), "one of the two"),
        (lambda: laws.markov((1,), (Kind(),)), "two kinds"),
        (lambda: DrafterLaw("x", (Kind(),), ((half,),)), "add up to 1"),
        (lambda: tokens_per_nfe(packed(2), LAWS[0], 0), "length must be >= 1"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make()


def test_a_long_run_that_depends_on_luck_is_refused() -> None:
    split = DrafterLaw("split", (Kind(), Kind(surprise=1)), ((1, 0), (0, 1)), (half, half))
    with pytest.raises(InvalidInput, match="depends on where a run ends up"):
        Chain(packed(2), split).long_run()
    assert list(Chain(ar(), split).nfe_law(2)) == [0, 0, 1]


def test_quantiles() -> None:
    assert laws.quantiles([0.25, 0.5, 0.25], {"low": 0.2, "median": 0.5, "all": 1}) == {"low": 0, "median": 1, "all": 2}
