"""Families of random drafters: their laws, their assumptions, the figures they are known to give, and bad parameters."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from simulator import InvalidInput, Limits, Schedule, generate, linear, packed, quadratic
from simulator.nfe import blocks, simulate
from simulator.nfe import laws as exact
from simulator.nfe.coins import DRAFTER, NOISE
from simulator.nfe.sampling import Sampler
from simulator.oracles import ThresholdModel
from simulator.oracles.families import FAMILIES, Barrier, Drift, Family, Geometric, Histogram, Markov, Mixture, parse
from simulator.oracles.families.family import Process

W = 31
EXAMPLES: tuple[Family, ...] = (
    Geometric(mean=2.5),
    Histogram(weights=(5.0, 3.0, 0.0, 1.0)),
    Barrier(rate=0.3),
    Mixture(rate=0.3, rho=0.5),
    Markov(easy=6, hard=0.5, easy_run=4, hard_run=3),
    Drift(early=6, late=0.5, turn=6),
)


def with_noise(family: Family, noise: float) -> Family:
    return parse(f"{family},noise={noise}")


# Assumptions, by brute force.


def assumptions(model: ThresholdModel, length: int) -> tuple[bool, bool]:
    """(ASM3.1, F nondecreasing at every width, which implies ASM-REACH), from what the model answers."""
    right = {(k, c): model.correct(k, c) for k in range(1, length + 1) for c in range(k)}
    monotone = all(right[k, c] <= right[k, c + 1] for k in range(1, length + 1) for c in range(k - 1))
    reach = True
    for width in range(1, length + 1):
        ends = [
            next((k for k in range(c + 1, min(length, c + width) + 1) if not right[k, c]), c + width + 1) for c in range(length)
        ]
        reach &= all(min(a, length) <= min(b, length) for a, b in pairwise(ends))
    return monotone, reach


@pytest.mark.claim("ASM3.1")
@pytest.mark.parametrize("family", EXAMPLES, ids=lambda family: family.name)
def test_assumptions_hold_without_noise_and_break_with_it(family: Family) -> None:
    """300 drafters of 7 positions each. With a tenth of the pairs flipped, breaches of both are met, and so is more calls."""
    assert family.monotone
    assert not with_noise(family, 0.1).monotone
    seen = [assumptions(family.model(1, run, 7, 9), 7) for run in range(300)]
    assert seen == [(True, True)] * 300
    noisy = [assumptions(with_noise(family, 0.1).model(1, run, 7, 9), 7) for run in range(300)]
    assert 0 < sum(monotone for monotone, _ in noisy) < 300
    assert 0 < sum(reach for _, reach in noisy) < 300
    assert all(reach for monotone, reach in noisy if monotone)


@pytest.mark.claim("ASM-NEEDED")
def test_noise_makes_packed_need_more_calls() -> None:
    """In about 1 of 500 requests here; the scheduler agrees on the first of them."""
    family, schedules = Mixture(rate=0.1, rho=0.3, noise=0.3), [packed(8), linear(8)]
    [(_, nfe)] = blocks(family, schedules, 4000, 20, seed=8)
    run = int(np.flatnonzero(nfe[0] > nfe[1])[0])
    model = family.model(8, run, 20, 10)
    one_call, two_calls = (generate(model, schedule, (), Limits.of(20)).nfe for schedule in schedules)
    assert one_call > two_calls
    assert [one_call, two_calls] == nfe[:, run].tolist()


def test_noise_of_a_known_amount() -> None:
    """Pairs differ from the noiseless drafter in the stated share: of 31,000 pairs 9,300 +- 81, allowed are 5 sigma."""
    flips = pairs = 0
    for run in range(50):
        quiet, noisy = (family.model(3, run, 40, 41) for family in (Barrier(rate=0.1), Barrier(rate=0.1, noise=0.3)))
        assert quiet.thresholds == noisy.thresholds
        for k in range(1, 41):
            for c in range(max(0, k - 20), k):
                pairs += 1
                flips += quiet.correct(k, c) != noisy.correct(k, c)
    assert pairs == 30_500
    assert abs(flips - 0.3 * pairs) < 5 * math.sqrt(0.3 * 0.7 * pairs)
    opposite = Barrier(rate=0.1, noise=1).model(3, 0, 40, 41)
    assert all(opposite.correct(k, c) != (c >= opposite.thresholds[k - 1]) for k in range(1, 41) for c in range(k))


# Laws of the lags.


def share(found: np.ndarray[Any, Any], expected: float) -> None:
    """The mean of independent events, within 5 sigma: false alarms in 1 of 10^6 seeds."""
    n = found.size
    assert abs(found.mean() - expected) <= 5 * math.sqrt(expected * (1 - expected) / n) + 1e-12, (found.mean(), expected)


def lags(family: Family, length: int = 100_000, cap: int = 40, run: int = 0) -> np.ndarray[Any, Any]:
    return family.lags(11, run, length, cap)


def test_independent_lags() -> None:
    found = lags(Geometric(mean=3))
    for g in range(12):
        share(found[50:] > g, 0.75 ** (g + 1))
    share((found[50:-1] > 2) & (found[51:] > 2), 0.75**6)  # neighbours, as good as independent
    found = lags(Histogram(weights=(5, 3, 0, 2)))
    assert set(found.tolist()) == {0, 1, 2, 3} - {2}
    for g, p in enumerate((0.5, 0.3, 0, 0.2)):
        share(found == g, p)
    assert set(lags(Geometric(mean=0)).tolist()) == {0}
    assert set(lags(Histogram(weights=(0, 0, 1)))[2:].tolist()) == {2}
    assert lags(Histogram(weights=(0, 0, 1)), 3).tolist() == [1, 2, 2]  # c*_k >= 0
    assert lags(Histogram(weights=(1,) * 100), 10**6, 8).max() == 8


def test_barriers() -> None:
    found, s = lags(Barrier(rate=0.2), cap=60_000), 0
    share(found == 0, 0.2)
    for k, lag in enumerate(found.tolist(), start=1):
        s = k if lag == 0 else s
        assert lag == k - s
    assert lags(Barrier(rate=0), 5).tolist() == [1, 2, 3, 4, 5]
    assert set(lags(Barrier(rate=1)).tolist()) == {0}


def test_mixtures() -> None:
    """Behind a surprise a position has the lag of the barrier, or none but its own position's; rho decides."""
    found, s = lags(Mixture(rate=0.2, rho=0.7), cap=65_000), 0
    share(found == 0, 0.2)
    free = []
    for k, lag in enumerate(found[:60_000].tolist(), start=1):
        s = k if lag == 0 else s
        if lag and s:
            assert lag in (k - s, k)
            free.append(lag == k)
    share(np.array(free), 0.7)
    same = lags(Mixture(rate=0.2, rho=0))
    assert (same == lags(Barrier(rate=0.2))).all()  # the same coins, too
    assert set(lags(Mixture(rate=0.2, rho=1))[40:].tolist()) == {0, 40}


def test_stretches() -> None:
    """Lags 0 in hard and long ones in easy stretches show the chain: its shares, and the lengths of its stretches."""
    found = lags(Markov(easy=1e9, hard=0, easy_run=30, hard_run=10), 400_000)
    hard = found[40:] == 0
    assert abs(hard.mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 * (2 * 7.5) / hard.size)  # 2 / (1/30 + 1/10) - 1 fewer samples
    share(hard[1:][hard[:-1]], 0.9)
    share(hard[1:][~hard[:-1]], 1 / 30)
    firsts = np.array([Markov(easy=1e9, hard=0, easy_run=30, hard_run=10).lags(1, run, 1, 5)[0] == 0 for run in range(2000)])
    share(firsts, 0.25)


def test_drift() -> None:
    family = Drift(early=1e9, late=0, turn=200)
    late = np.array([family.lags(5, run, 260, 300) == 0 for run in range(1500)])
    for k in (1, 2, 51, 101, 200, 201, 260):
        share(late[:, k - 1], min(1, (k - 1) / 200))


def test_coins_are_uniform_and_independent() -> None:
    """Neighbouring runs, seeds, purposes and positions: counts in 16 x 16 cells of pairs of lags, chi-square with 255 degrees
    of freedom, 340 is passed in 1 of 3000 seeds."""
    family = Histogram(weights=(1.0,) * 16)
    grid = np.array([[lags(family, 3000, 16, run) for run in range(40)]])[0][:, 20:]
    other = np.array([family.lags(12, run, 3000, 16) for run in range(40)])[:, 20:]
    for a, b in ((grid[:-1], grid[1:]), (grid[:, :-1], grid[:, 1:]), (grid, other), (grid[:, :-7], grid[:, 7:])):
        cells = np.bincount((16 * a + b).ravel(), minlength=256)
        assert ((cells - cells.mean()) ** 2 / cells.mean()).sum() < 340
    sampler = Sampler(family, 11, 16)
    keys = np.concatenate([sampler.keys(0, 10_000, purpose) for purpose in (DRAFTER, NOISE)])
    assert len(np.unique(keys)) == keys.size


def test_runs_are_reproducible() -> None:
    for family in EXAMPLES:
        whole = family.lags(4, 2, 300, 32)
        assert (family.lags(4, 2, 120, 32) == whole[:120]).all()
        assert (family.lags(4, 2, 300, 9) == np.minimum(whole, 9)).all()
        assert not (family.lags(4, 3, 300, 32) == whole).all()
        assert not (family.lags(5, 2, 300, 32) == whole).all()
        assert family.model(4, 2, 300, 32).thresholds[:3] == tuple((np.arange(1, 4) - whole[:3]).tolist())


# Known figures.


def iterations(family: Family) -> tuple[float, float, float, float]:
    """Tokens an iteration of Linear-SS and of Packed-SS and their ratio per call, on 40 runs of 10^6 tokens; and the largest
    half-width of the three 95 % intervals."""
    tally = simulate(family, [linear(W), packed(W)], 40, 1_000_000, 0)
    two, one, gain = tally.tokens_per_nfe(0), tally.tokens_per_nfe(1), tally.gain(1, 0)
    return 2 * two.value, one.value, gain.value, max(2 * (two.high - two.value), one.high - one.value, gain.high - gain.value)


def test_independent_lags_gain_30_to_40_percent() -> None:
    """1.36, 1.325 and 1.302 at 3.5, 5.7 and 9.8 tokens an iteration."""
    for mean, tokens, gain in ((7, 3.488, 1.363), (20, 5.708, 1.325), (60, 9.766, 1.302)):
        found = iterations(Geometric(mean=mean))
        assert found[3] < 0.006
        assert found[0] == pytest.approx(tokens, abs=0.01)
        assert found[2] == pytest.approx(gain, abs=0.001)


def test_barriers_gain_18_to_5_percent() -> None:
    for rate, tokens, gain in ((0.3, 3.33, 1.18), (0.2, 5.0, 1.11), (0.1, 9.66, 1.05)):
        found = iterations(Barrier(rate=rate))
        assert found[0] == pytest.approx((1 - (1 - rate) ** (W + 1)) / rate, abs=0.02)  # in closed form
        assert found[0] == pytest.approx(tokens, abs=0.02)
        assert found[2] == pytest.approx(gain, abs=0.005)


def test_a_mixture_gives_the_published_pair() -> None:
    """10.04 and 5.76 tokens an iteration (F.2), fitted by two parameters; 95 % intervals of +- 0.007."""
    two, one, _, width = iterations(Mixture(rate=0.0956, rho=0.7))
    assert width < 0.01
    assert two == pytest.approx(10.04, abs=0.02)
    assert one == pytest.approx(5.76, abs=0.02)


@pytest.mark.parametrize(
    ("family", "law"),
    [
        (Geometric(mean=4.0), exact.geometric_lags(4.0)),
        (Histogram(weights=(0.5, 0.25, 0.25)), exact.histogram_lags((0.5, 0.25, 0.25))),
        (Barrier(rate=0.15), exact.barrier(0.15)),
        (Mixture(rate=0.15, rho=0.6), exact.mixture(0.15, 0.6)),
    ],
    ids=lambda case: case.name if isinstance(case, Family) else "",
)
def test_expected_calls_are_those_of_the_exact_law(family: Family, law: Any) -> None:
    """200,000 runs of 40 tokens, all within 5 standard errors: false alarms in 1 of 10^6 seeds each."""
    schedules: list[Schedule] = [linear(8), packed(8), quadratic(4), packed(6, "wide")]
    tally = simulate(family, schedules, 200_000, 40, 2)
    for index, schedule in enumerate(schedules):
        mean, square = tally.sums[index + 1] / tally.runs, tally.products[index + 1][index + 1] / tally.runs
        error = math.sqrt((square - mean**2) / tally.runs)
        assert abs(mean - float(exact.Chain(schedule, law).expected_nfe(40)[40])) < 5 * error + 1e-9


# Parameters.


def test_texts_are_read_back() -> None:
    for family in (*EXAMPLES, *(with_noise(family, 0.25) for family in EXAMPLES)):
        assert parse(str(family)) == family
    assert parse("mixture:rate=0.0956,rho=0.7") == Mixture(rate=0.0956, rho=0.7)
    assert str(parse("histogram:weights=5:3:1,noise=0.5")) == "histogram:weights=5.0:3.0:1.0,noise=0.5"
    assert {type(family) for family in EXAMPLES} == set(FAMILIES.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "unknown drafter family ''; allowed: geometric, histogram, barrier, mixture, markov, drift"),
        ("Mixture:rate=1", "unknown drafter family 'Mixture'"),
        ("mixture:rate=0.1,rho=1.5", r"mixture: rho must be in 0 \.\. 1, got 1.5"),
        ("mixture:rate=-0.1,rho=1", r"mixture: rate must be in 0 \.\. 1, got -0.1"),
        ("mixture:rate=0.1", r"mixture needs rho, share of tokens behind a surprise that stay predictable, in 0 \.\. 1"),
        ("mixture:rate=0.1,rho=nan", r"rho must be in 0 \.\. 1, got nan"),
        ("mixture:rate=0.1,rho=x", "mixture: rho must be a number, got 'x'"),
        ("mixture:rate=0.1,rho", "mixture: rho must be a number, got ''"),
        ("mixture:rate=0.1:0.2,rho=0", "mixture: rate must be one number, got '0.1:0.2'"),
        ("mixture:rate=0.1,rate=0.1,rho=1", "mixture: rate is given twice"),
        ("mixture:speed=1", "mixture has no parameter 'speed'; allowed: noise, rate, rho"),
        ("barrier:rate=0.1,", "barrier has no parameter ''"),
        ("barrier:rate=0.1,noise=2", r"barrier: noise must be in 0 \.\. 1, got 2.0"),
        ("geometric:mean=-1", "geometric: mean must be >= 0 and finite, got -1.0"),
        ("geometric:mean=inf", "geometric: mean must be >= 0 and finite, got inf"),
        ("histogram:weights=1:-1", "histogram: weights must be >= 0 and finite, got -1.0"),
        ("histogram:weights=0:0", "histogram: weights must have a sum > 0"),
        ("markov:easy=1,hard=1,easy_run=0,hard_run=1", "markov: easy_run must be >= 1 and finite, got 0.0"),
        ("drift:early=1,late=1,turn=0.5", "drift: turn must be >= 1 and finite, got 0.5"),
    ],
)
def test_bad_parameters_give_one_clear_line(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"mixture: rho must be in 0 \.\. 1, got 'a'"):
        Mixture(rate=0.1, rho="a")  # type: ignore[arg-type]
    for family in EXAMPLES:
        assert isinstance(family.process(5), Process)
        for seed in (-1, 2**64):
            with pytest.raises(InvalidInput, match=r"seed must lie in 0 \.\. 2\^64 - 1"):
                family.lags(seed, 0, 5, 5)
        for cap in (0, 70_000):
            with pytest.raises(InvalidInput, match=r"lags must be counted up to 1 \.\. 65535"):
                family.lags(0, 0, 5, cap)
        for run, length in ((-1, 5), (0, -1)):
            with pytest.raises(InvalidInput, match="must be >= 0"):
                family.lags(0, run, length, 5)
