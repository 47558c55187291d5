"""Fits that recover what they were made from, the paper's figures, and the barrier index: a bound, then a ranking."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction as Q

import numpy as np
import pytest

from simulator import InvalidInput, linear, packed, quadratic
from simulator.nfe import calibrate, count, laws
from simulator.nfe.calibrate import BASE_GAIN, F2, F2_LONG_RUN, FAMILIES, Figure, Fit, Index, barrier_index, base_row, fit
from simulator.nfe.laws import Chain, DrafterLaw
from simulator.oracles import MatrixModel, ThresholdModel
from simulator.oracles.families import parse

EMBEDDED = {4: (1.832, 2.047, 2.669), 8: (2.075, 2.400, 3.033), 16: (2.118, 2.460, 3.087)}
"""Tokens/NFE of the embedded model: Linear, Packed, Quadratic by W; start algorithm, 50 prompts of 128 new tokens."""


def gain(law: DrafterLaw, width: int) -> float:
    one_call, two_calls = (float(Chain(make(width), law).long_run().tokens_per_call) for make in (packed, linear))
    return one_call / two_calls


def embedded(width: int) -> list[Figure]:
    return [Figure(make(width), value, 128) for make, value in zip((linear, packed, quadratic), EMBEDDED[width], strict=True)]


def errors(found: Fit, width: int) -> list[float]:
    return [figure.predicted(found.law) / figure.value - 1 for figure in embedded(width)]


@pytest.mark.parametrize(
    ("name", "truth"), [("mixture", (0.2, 0.6)), ("fading", (0.9, 0.8)), ("fading-mixture", (0.1, 0.4, 0.9))]
)
def test_a_fit_recovers_what_the_figures_were_made_from(name: str, truth: tuple[float, ...]) -> None:
    law = FAMILIES[name].law(*truth)
    figures = [Figure(make(6), float(laws.tokens_per_nfe(make(6), law, 50)), 50) for make in (linear, packed, quadratic)][
        : len(truth)
    ]
    found = fit(FAMILIES[name], figures)
    assert found.exact
    assert tuple(found.parameters.values()) == pytest.approx(truth, abs=1e-4)


def test_the_pair_of_the_adapter_in_the_long_run() -> None:
    """10.04 and 5.76 tokens an iteration: surprise 0.0956, rho 0.70 (two parameters for two figures: no prediction)."""
    found = fit(FAMILIES["mixture"], F2_LONG_RUN)
    assert found.exact
    assert found.parameters == pytest.approx({"surprise": 0.0956, "rho": 0.6965}, abs=1e-4)
    assert 2 * F2_LONG_RUN[0].value == pytest.approx(10.04, abs=0.01)
    assert F2_LONG_RUN[1].value == pytest.approx(5.76, abs=0.01)
    near = laws.mixture(0.0956, 0.70)  # as rounded
    assert 2 * F2_LONG_RUN[0].predicted(near) == pytest.approx(10.04, abs=0.02)
    assert F2_LONG_RUN[1].predicted(near) == pytest.approx(5.76, abs=0.02)


def test_the_pair_of_the_adapter_with_ends() -> None:
    """Responses of 272.2 and 274.2 tokens whose last block is cut: rho falls to 0.65. NFE -12.0 % is the same two figures."""
    found = fit(FAMILIES["mixture"], F2)
    assert found.exact
    assert found.parameters == pytest.approx({"surprise": 0.0923, "rho": 0.6505}, abs=1e-4)
    two_calls, one_call = (1 + (figure.length - 1) / figure.predicted(found.law) for figure in F2 if figure.length)
    assert one_call / two_calls - 1 == pytest.approx(-0.120, abs=5e-4)
    fitted, held_out = calibrate.paper_predictions(found, (4, 9))[:3], calibrate.paper_predictions(found, (4, 9))[3:]
    assert [row.held_out for row in (*fitted, *held_out)] == [False] * 3 + [True] * 4
    assert max(abs(row.error) for row in fitted) < 5e-4
    assert [round(row.error, 3) for row in held_out] == [0.1, 0.0, 0.0, 0.0]


def test_the_band_of_the_base_drafter_is_met_only_at_7_to_11_tokens() -> None:
    """Held out: rho of the adapter, Linear-SS tokens an iteration unknown. Below 7 the mixture promises too much."""
    low, high = BASE_GAIN
    inside = {t: low <= base_row(t, 0.6965).over_linear <= high for t in (3, 4, 5, 6, 7, 8, 9, 10, 11, 12)}
    assert [t for t, yes in inside.items() if yes] == [8, 9, 10]
    assert base_row(4, 0.6965).over_linear == pytest.approx(1.354, abs=1e-3)
    assert base_row(3, 0).over_linear == pytest.approx(1.200, abs=1e-3)  # the whole band is above barriers at 3 .. 4 tokens
    assert base_row(10.037, 0).over_linear == pytest.approx(1.050, abs=1e-3)


def test_pure_barriers_and_lags_at_the_paper_s_lengths() -> None:
    """1.18, 1.11, 1.05 at 3.3, 5.0, 9.7 tokens for barriers; independent lags give 1.30 to 1.40 at 3 to 10."""
    for surprise, tokens, expected in ((0.3, 3.3, 1.18), (0.2, 5.0, 1.11), (0.1, 9.7, 1.05)):
        law = laws.barrier(surprise)
        assert 2 * Chain(linear(31), law).long_run().tokens_per_call == pytest.approx(tokens, abs=0.05)
        assert gain(law, 31) == pytest.approx(expected, abs=0.005)
    for mean in (5.0, 16.0, 60.0):
        assert 1.28 <= gain(laws.geometric_lags(mean), 31) <= 1.40


def test_the_embedded_drafter_refutes_the_mixture_and_fades() -> None:
    """Fitted at W = 8 to Linear and Packed; held out: Quadratic, and W = 4 and 16. The mixture is off by up to 20 %; a drafter
    that fades with distance, two parameters as well, misses the fitted pair by 1.6 % and nothing by more than 4 %."""
    barriers, fading = (fit(FAMILIES[name], embedded(8)[:2]) for name in ("mixture", "fading"))
    assert barriers.exact
    assert not fading.exact
    assert 0.18 < max(abs(e) for width in EMBEDDED for e in errors(barriers, width)) < 0.21
    assert max(abs(e) for width in EMBEDDED for e in errors(fading, width)) < 0.04


def test_fits_need_figures() -> None:
    with pytest.raises(InvalidInput, match="2 parameters need 2 figures at least, got 1"):
        fit(FAMILIES["mixture"], F2[:1])
    with pytest.raises(InvalidInput, match="1 to 32 tokens an iteration, got 40"):
        base_row(40, 0.5)


def bounded(index: Callable[[ThresholdModel, int, int], Index], longest: int = 6) -> tuple[int, int, tuple[int, ...] | None]:
    """All threshold vectors with L <= `longest`, W <= L: comparisons, how often the bound is met, a vector that breaks it."""
    compared = met = 0
    for length in range(1, longest + 1):
        vectors = list(itertools.product(*(range(k + 1) for k in range(1, length + 1))))
        lags = np.array([[k - c for k, c in enumerate(vector, 1)] for vector in vectors])
        for width in range(1, length + 1):
            two_calls, one_call = count(lags, [linear(width), packed(width)])
            for vector, most, calls in zip(vectors, two_calls.tolist(), one_call.tolist(), strict=True):
                found = index(ThresholdModel(vector), length, width)
                assert 2 * found.iterations == most
                compared += 1
                met += calls == found.iterations + found.stale
                if calls > found.iterations + found.stale:
                    return compared, met, vector
    return compared, met, None


@pytest.mark.claim("THM3.2")
def test_the_index_bounds_the_calls_of_every_drafter() -> None:
    """NFE_packed <= (1 + index) T, T = NFE_linear / 2: sharper than THM3.2 wherever the index is below 1; all 34,406 cases."""
    assert bounded(barrier_index) == (34406, 29978, None)


@pytest.mark.slow
@pytest.mark.claim("THM3.2")
def test_the_index_bounds_the_calls_up_to_seven_tokens() -> None:
    compared, met, vector = bounded(barrier_index, 7)
    assert (compared, vector) == (34406 + 7 * 40320, None)
    assert met < compared


def test_a_wrong_index_is_noticed() -> None:
    """One stale iteration less is too few."""
    vector = bounded(lambda *drafter: barrier_index(*drafter)._replace(stale=max(0, barrier_index(*drafter).stale - 1)))[2]
    assert vector == (0, 0)  # one iteration, but Packed-SS commits 1 token without a draft, then the other


def test_index_by_hand() -> None:
    """Positions 1, 2 right from the start, 3 a surprise, 4 right only from 3 on, 5 from 2 on; W = 4."""
    found = barrier_index(ThresholdModel([0, 0, 3, 3, 2]), 5, 4)
    assert found == Index(iterations=2, stale=2)
    assert (found.value, found.gain) == (1, 1)
    assert barrier_index(ThresholdModel([0, 0, 3, 0, 0]), 5, 3) == Index(2, 2)  # the older draft ends at 3
    assert barrier_index(ThresholdModel([0, 0, 3, 0, 0]), 4, 4) == Index(2, 1)
    assert barrier_index(ThresholdModel([1, 2, 3]), 3, 4) == Index(3, 0)
    assert barrier_index(MatrixModel([[1, 1, 0, 1], [1, 0, 1], [0, 1], [1]]), 4, 4) == Index(2, 1)
    assert barrier_index(ThresholdModel([]), 0, 4).gain == 2
    with pytest.raises(InvalidInput, match="width >= 1"):
        barrier_index(ThresholdModel([]), 3, 0)


def test_index_of_a_law() -> None:
    """q / (r + q), q = (1-r)(1-rho), for a mixture without width; by hand at W = 1; runs of a family, seed 0."""
    r, rho = 0.2, 0.7
    q = (1 - r) * (1 - rho)
    assert calibrate.law_index(laws.mixture(r, rho), 150) == pytest.approx(q / (r + q), rel=1e-12)
    assert gain(laws.mixture(r, rho), 150) == pytest.approx(2 / (1 + q / (r + q)), rel=1e-12)  # the bound is met
    # W = 1: an iteration gives 2 tokens (a), or 1 (1 - a); what gives 2 is never reproduced by an older draft
    assert calibrate.law_index(laws.acceptance(Q(2, 3)), 1) == Q(2, 3)
    for text in ("mixture:rate=0.2,rho=0.7", "geometric:mean=4"):
        family = parse(text)
        found = [barrier_index(family.model(0, run, 1000, 9), 1000, 8) for run in range(20)]
        total = sum(index.iterations for index in found)
        expected = float(calibrate.law_index(laws.law_of(family, 10), 8))
        error = (expected * (1 - expected) / total) ** 0.5  # neighbours hardly depend on each other: 6 errors, odds below 1e-5
        assert abs(sum(index.stale for index in found) / total - expected) < 6 * error


SPREAD = (
    *(laws.geometric_lags(float(mean)) for mean in (2, 4, 8, 16, 30)),
    *(laws.mixture(r, rho) for r in (0.3, 0.2, 0.1) for rho in (0.0, 0.3, 0.7, 0.9)),
    *(calibrate.fading(*x) for x in ((1.0, 0.85), (1.0, 0.7), (0.9, 0.9))),
    calibrate.fading_mixture(0.1, 0.3, 0.95),
)


@pytest.mark.parametrize("width", [8, 31])
def test_the_index_ranks_the_gain_across_families(width: int) -> None:
    from scipy.stats import spearmanr

    gains = [gain(law, width) for law in SPREAD]
    indices = [float(calibrate.law_index(law, width)) for law in SPREAD]
    lengths = [float(Chain(linear(width), law).long_run().tokens_per_call) for law in SPREAD]
    assert all(g >= 2 / (1 + index) - 1e-12 for g, index in zip(gains, indices, strict=True))
    assert spearmanr(indices, gains).statistic < -0.92
    assert abs(spearmanr(lengths, gains).statistic) < 0.6  # how long Linear's drafts live decides much less
