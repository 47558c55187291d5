"""Samplers one can only run: tests against a known law, and what the e-process sees of samplers that are wrong.

`fits` compares outputs with the law of the whole output: jointly, and position by position. `proofs_check.eprocess` compares an
opaque decoder, token by token, with a reference model. Every result states alpha, n, and what it could have seen. Where the
chain of a schedule can be enumerated (`proofs_check.chain`) that is a verdict and this is none; the ledger therefore asks two
questions only of this file: do our samplers pass, and are samplers with a planted bias rejected?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from proofs_check.biases import BIASES, LENGTH, Bias, Language, emitted, runs
from proofs_check.eprocess import Emitted, EProcess
from proofs_check.ledger import Budget, Check, Entry, Outcome
from proofs_check.reference import Entries
from simulator.chance import Sampled
from simulator.decode import generate
from simulator.exact import autoregressive_law
from simulator.laws import Probability
from simulator.oracles import random_tables
from simulator.records import Limits, Tokens
from simulator.schedules import linear, packed, quadratic

POWER = 0.8


@dataclass(frozen=True)
class Fit:
    """A G test of counts against a law, on cells that were pooled until each expects enough."""

    what: str  # joint, or the output position
    n: int
    cells: int
    statistic: float
    p_value: float
    alpha: float  # this test's share
    impossible: str = ""  # an outcome that the law gives probability 0

    @property
    def df(self) -> int:
        return self.cells - 1

    @property
    def rejected(self) -> bool:
        return self.p_value < self.alpha

    @property
    def vacuous(self) -> bool:
        """One cell cannot be wrong."""
        return self.cells < 2 and not self.impossible

    @property
    def tv80(self) -> float:
        """Every bias of at least this total variation between the pooled cells is rejected in 80 % of runs or more.

        It is the worst case: a bias spread over the cells as their probabilities are. Many are seen when far smaller.
        """
        return detectable_variation(self.df, self.alpha, self.n)


def detectable_variation(df: int, alpha: float, n: int, power: float = POWER) -> float:
    """TV80 = sqrt(lambda / (4 n)), lambda the noncentrality at which a chi-square test of level alpha has that power.

    A bias d over cells p has noncentrality n sum(d^2 / p) >= n (sum |d|)^2 = 4 n TV^2. Not finite without a sample or cells.
    """
    from scipy.optimize import brentq
    from scipy.stats import chi2, ncx2

    if df < 1 or n < 1:
        return float("inf")
    critical = chi2.isf(alpha, df)
    needed = brentq(lambda noncentrality: ncx2.sf(critical, df, noncentrality) - power, 1e-9, 1e4 + 100 * df)
    return float((needed / (4 * n)) ** 0.5)


def fit(counts: Mapping[Any, int], law: Mapping[Any, Probability], alpha: float, what: str = "joint", least: float = 5) -> Fit:
    """The G test of counts of outcomes against their law; outcomes that expect fewer than `least` are pooled, rarest first."""
    from scipy.stats import power_divergence

    n = sum(counts.values())
    for outcome, count in counts.items():
        if count and not law.get(outcome, 0) > 0:
            text = f"{outcome} came up {count} times and is impossible under the law"
            return Fit(what, n, 0, float("inf"), 0.0, alpha, text)
    cells: list[list[float]] = []  # expected, observed
    for outcome, mass in sorted(law.items(), key=lambda item: item[1]):
        if mass > 0:
            if not cells or cells[-1][0] >= least:
                cells.append([0.0, 0.0])
            cells[-1][0] += n * float(mass)
            cells[-1][1] += counts.get(outcome, 0)
    if len(cells) > 1 and cells[-1][0] < least:
        expected, observed = cells.pop()
        cells[-1][0] += expected
        cells[-1][1] += observed
    if len(cells) < 2:
        return Fit(what, n, len(cells), 0.0, 1.0, alpha)
    expected_counts, observed_counts = np.array(cells).T
    expected_counts *= n / expected_counts.sum()  # rounding
    statistic, p_value = power_divergence(observed_counts, expected_counts, lambda_="log-likelihood")
    return Fit(what, n, len(cells), float(statistic), float(p_value), alpha)


def fits(outputs: Iterable[Tokens], law: Mapping[Tokens, Probability], alpha: float = 0.01) -> list[Fit]:
    """Outputs against the law of the whole output: jointly at alpha / 2, and token by token at the rest, shared equally.

    The token at a position beyond the output's end is None. Marginals alone would not do: coins that are shared between
    positions leave them right.
    """
    counts = Counter(map(tuple, outputs))
    length = max(map(len, (*law, *counts)), default=0)
    results = [fit(counts, law, alpha / 2)]
    for index in range(length):
        marginal_counts: Counter[int | None] = Counter()
        marginal: dict[int | None, Probability] = {}
        for output, count in counts.items():
            marginal_counts[output[index] if index < len(output) else None] += count
        for output, mass in law.items():
            token = output[index] if index < len(output) else None
            marginal[token] = marginal.get(token, 0) + mass
        results.append(fit(marginal_counts, marginal, alpha / 2 / length, f"output token {index + 1}"))
    return results


SAMPLERS = {"linear": linear(4), "packed": packed(4), "quadratic": quadratic(4)}
ALPHA = 0.01
LEDGER_ALPHA = 0.001  # of all tests of the ledger together; their seeds are fixed
NULL_SEED, SEED = 11, 0
_SIZES: dict[Budget, tuple[int, int, int, int]] = {  # null repetitions, their tokens; tokens and outputs per sampler
    "quick": (300, 128, 1500, 1500),
    "full": (2000, 512, 20_000, 20_000),
}
_CAP = 20_000  # tokens after which a bias counts as unseen


def null_rejections(repetitions: int, tokens: int, alpha: float = ALPHA, seed: int = NULL_SEED) -> int:
    """How often a sampler of the reference's own law is rejected at alpha: independent draws, one uniform number per token.

    The laws are of every kind that occurs: spread out, all but certain, of two tokens, a point mass, sparse, with tiny
    probabilities.
    """
    rng = np.random.default_rng(seed)
    rows = _null_rows(rng)
    edges = [np.cumsum(row.p)[:-1] for row in rows]
    rejections = 0
    for _ in range(repetitions):
        process = EProcess(alpha, eos=(0,))
        which, coins = rng.integers(len(rows), size=tokens), rng.random(tokens)
        drawn = (int(rows[k].ids[np.searchsorted(edges[k], u, side="right")]) for k, u in zip(which, coins, strict=True))
        output = [Emitted(token, rows[k]) for token, k in zip(drawn, which, strict=True)]
        rejections += any(process.observe(output[begin : begin + LENGTH]) for begin in range(0, tokens, LENGTH))
    return rejections


def _null_rows(rng: np.random.Generator) -> list[Entries]:
    rows = [Entries(np.arange(24), rng.dirichlet(np.full(24, spread))) for spread in (0.1, 0.5, 1, 5) for _ in range(8)]
    rows += [Entries(np.array([2, 7]), np.array([share, 1 - share])) for share in (0.5, 0.1, 1e-3)]
    rows += [Entries(np.array([5]), np.ones(1)), Entries(np.array([3, 500, 100_000]), np.array([0.5, 0.3, 0.2]))]
    steep = 2.0 ** -np.arange(1.0, 41.0)
    return [*rows, Entries(np.arange(40), steep / steep.sum())]


def most_rejections(repetitions: int, alpha: float = ALPHA) -> int:
    """The 99.9 % quantile of Binomial(repetitions, alpha): more than so many rejections refute the error alpha."""
    from scipy.stats import binom

    return int(binom.ppf(0.999, repetitions, alpha))


class Watched(NamedTuple):
    """A sampler under the e-process."""

    process: EProcess
    rejections: int  # of drafts
    kept: int  # drafts that outlived one


def watch(language: Language, bias: Bias, seed: int, tokens: int, alpha: float = ALPHA) -> Watched:
    """Run a sampler until it is rejected or has emitted `tokens` tokens."""
    process = EProcess(alpha)
    rejections = kept = 0
    for run in runs(language, bias, seed):
        rejected = [step for step in run.steps if step.accepted < len(step.verified)]
        rejections += len(rejected)
        kept += sum(step.retained > 0 for step in rejected)
        if process.observe(emitted(language, run.tokens, bias.asked)) or process.tokens >= tokens:
            break
    return Watched(process, rejections, kept)


def calibration(budget: Budget) -> list[Entry]:
    """Our samplers, token by token and as whole outputs, after the e-process itself has been tried on true samples."""
    repetitions, null_tokens, tokens, samples = _SIZES[budget]
    rejections, most = null_rejections(repetitions, null_tokens), most_rejections(repetitions)
    alpha = LEDGER_ALPHA / 2 / len(SAMPLERS)
    bad, missing, seen = [], [], []
    if rejections > most:
        missing.append(
            f"the e-process rejects true samples: {rejections} of {repetitions} at alpha {ALPHA}, at most {most} allowed"
        )
    for name, schedule in SAMPLERS.items():
        watched = watch(Language(SEED), Bias(name, schedule), SEED, tokens, alpha)
        process = watched.process
        if process.rejected:
            bad.append(f"{name}: rejected after {process.rejected_at} tokens; {process.best}")
        if not watched.rejections or (name != "linear" and not watched.kept):
            missing.append(f"{name}: no draft was rejected, or none outlived a rejection")
        results = whole_outputs(name, samples, alpha)
        bad += [
            f"{name}: {result.what}, G = {result.statistic:.1f}, p = {result.p_value:.1e} {result.impossible}"
            for result in results
            if result.rejected
        ]
        missing += [f"{name}: {result.what}: one cell" for result in results[:1] if result.vacuous]
        seen.append(
            f"{name} {process.tokens:,} tokens, e = {np.exp(process.log_e):.2g}, TV80 of whole outputs {results[0].tv80:.3f}"
        )
    outcome: Outcome = "not run" if missing else "violated" if bad else "holds"
    evidence = f"{rejections} of {repetitions} true samplers rejected at alpha {ALPHA} (99.9 % quantile {most}); " + "; ".join(
        seen
    )
    return [
        Entry(
            "THM3.3",
            "What the samplers emit is not told from AR sampling: by bets on every token, by G tests of whole outputs",
            "statistical",
            f"W=4; >={tokens:,} tokens, V=24, {samples:,} outputs, V=3, L=4, per sampler; alpha {LEDGER_ALPHA}, seed {SEED}",
            outcome,
            "; ".join(missing or bad) or evidence,
        )
    ]


def whole_outputs(name: str, samples: int, alpha: float) -> list[Fit]:
    """Outputs of one of our samplers on a small table with zeros, against AR's exact law."""
    model, limits = random_tables(3, SEED), Limits.of(4, eos=[2])
    outputs = (generate(model, SAMPLERS[name], (), limits, Sampled(SEED, request)).tokens for request in range(samples))
    return fits(outputs, autoregressive_law(model.target, (), limits), alpha)


def power(budget: Budget) -> list[Entry]:
    """Planted biases: tokens until the e-process rejects them, the median over languages."""
    seeds = range(3 if budget == "quick" else 15)
    needed = {name: tokens_to_rejection(name, seeds, _CAP) for name in BIASES}
    unseen = [name for name, tokens in needed.items() if tokens is None]
    detail = "; ".join(f"{name} {tokens:,.0f}" for name, tokens in needed.items() if tokens is not None)
    return [
        Entry(
            "THM3.3",
            "Samplers with a planted bias are told from AR sampling by bets on every token",
            "statistical",
            f"{len(BIASES)} biases of Packed-SS, W=4, V=24, {len(seeds)} languages, at most {_CAP:,} tokens, alpha {ALPHA}",
            "not run" if unseen else "holds",
            f"unseen, so that to pass says nothing of them: {', '.join(unseen)}"
            if unseen
            else f"median tokens to rejection: {detail}",
        )
    ]


def tokens_to_rejection(name: str, seeds: Iterable[int], cap: int) -> float | None:
    """The median over languages; None when it lies beyond `cap`."""
    results = [watch(Language(seed), BIASES[name], seed, cap).process.rejected_at for seed in seeds]
    median = float(np.median([np.inf if result is None else result for result in results]))
    return median if np.isfinite(median) else None


CHECKS = (
    Check("statistics/calibration", ("THM3.3",), calibration),
    Check("statistics/power", ("THM3.3",), power),
)
