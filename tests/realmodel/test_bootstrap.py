"""The paired bootstrap: small cases worked out by hand, the law of its resamples, and how often its intervals cover."""

import itertools
from collections import Counter
from math import comb

import numpy as np
import pytest

from realmodel import bootstrap
from realmodel.bootstrap import Interval, interval, resample
from simulator import InvalidInput


def throughput(sums):
    return sums[..., 0] / sums[..., 1]


def intervals(values, **options):
    """The interval of column 0 / column 1 of [prompts, 2]."""
    values = np.asarray(values, dtype=float)
    return interval(throughput(values.sum(0)), throughput(resample(values, **options)), len(values))


def test_two_prompts_by_hand():
    """(10 tokens, 1 s) and (10 tokens, 4 s): both resampled, with probability 1/4 each, twice the same prompt. The quotient of
    sums is 20 / 5, not the mean of the speeds, (10 + 2.5) / 2."""
    assert intervals([[10, 1], [10, 4]]) == (4, 2.5, 10)


def test_three_prompts_by_enumeration():
    values = np.array([[6.0, 1.0], [5.0, 2.0], [9.0, 9.0]])
    every = sorted(values[list(chosen)].sum(0) @ [1, 0] / (values[list(chosen)].sum(0) @ [0, 1])
                   for chosen in itertools.product(range(3), repeat=3))  # fmt: skip
    # The extremes have 1/27 > 2.5 % each, 9 standard errors of 20,000 draws apart from it.
    assert intervals(values) == (20 / 12, every[0], every[-1]) == (20 / 12, 1, 6)


def test_one_prompt_cannot_vary():
    assert intervals([[10, 4]]) == Interval(2.5, None, None)


def test_the_same_prompts_for_every_method():
    """A method against its double is 1 in every resample, however noisy both are; resampled apart they would scatter."""
    sums = np.random.default_rng(1).lognormal(0, 2, 30)
    both = resample(np.stack([sums, 3 * sums], 1))
    assert np.allclose(both[:, 1] / both[:, 0], 3, rtol=1e-12)


def test_the_law_of_the_counts():
    """Resampling the unit vectors of 4 prompts shows the counts: multinomial(4; 1/4, ..). G test of all 35 outcomes, 2 x 20,000
    draws: a right generator fails with probability 1e-6 (G > 90.3 at 34 degrees of freedom); the seeds are fixed."""
    for seed in (0, 1):
        counts = resample(np.eye(4), seed=seed).astype(int)
        assert (counts.sum(1) == 4).all()
        seen = Counter(map(tuple, counts.tolist()))
        g = 0.0
        for outcome in itertools.product(range(5), repeat=4):
            if sum(outcome) == 4:
                ways = comb(4, outcome[0]) * comb(4 - outcome[0], outcome[1]) * comb(4 - outcome[0] - outcome[1], outcome[2])
                g += 2 * seen[outcome] * np.log(seen[outcome] / (20_000 * ways / 256))
        assert g < 90.3


def test_blocks_of_resamples_change_nothing(monkeypatch):
    values = np.arange(12.0).reshape(6, 2)
    at_once = resample(values, 1000)
    assert at_once.shape == (1000, 2)
    monkeypatch.setattr(bootstrap, "_BLOCK", 60)
    assert (resample(values, 1000) == at_once).all()
    assert (resample(values, 1000, seed=1) != at_once).any()


@pytest.mark.parametrize(("values", "resamples"), [(np.zeros((0, 2)), 10), (np.ones((3, 2)), 0)])
def test_nothing_to_resample(values, resamples):
    with pytest.raises(InvalidInput, match="needs prompts and resamples"):
        resample(values, resamples)


def coverage(prompts, experiments, paired=True, seed=5):
    """How many intervals of a ratio of two throughputs hold its true value, and their mean length. Method 2 takes 0.9 of
    method 1's time on average and independently of it, at the same tokens, whose number varies a lot: true ratio 1 / 0.9."""
    rng = np.random.default_rng(seed)
    covered, lengths = 0, []
    for experiment in range(experiments):
        tokens = rng.integers(20, 500, prompts)
        first = tokens * rng.gamma(20, 1 / 20, prompts)
        second = 0.9 * tokens * rng.gamma(20, 1 / 20, prompts)
        values = np.stack([tokens, first, second], 1)
        draws = resample(values, 2000, experiment)
        ratios = draws[:, 1] / draws[:, 2]
        if not paired:
            ratios = draws[:, 1] / resample(values, 2000, experiment + experiments)[:, 2]
        low, high = interval(0.0, ratios, prompts)[1:]
        covered += low <= 1 / 0.9 <= high
        lengths.append(high - low)
    return covered, np.mean(lengths)


def test_coverage_at_40_prompts():
    """True coverage 93.4 % (measured on 6,000 other experiments); of 400 intervals 349 .. 392 hold the true ratio but for a
    probability of 1e-4; the seeds are fixed. Without pairing the intervals are more than twice as long and always hold it."""
    covered, length = coverage(40, 400)
    assert 349 <= covered <= 392
    covered, unpaired = coverage(40, 60, paired=False)
    assert covered == 60
    assert unpaired > 2 * length


@pytest.mark.slow
def test_coverage_of_few_prompts():
    """What the module says of 10 prompts. Of 4,000 intervals of coverage 0.89, 3,460 .. 3,660 but for a probability of 1e-6."""
    covered, _ = coverage(10, 4000)
    assert 3460 <= covered <= 3660
