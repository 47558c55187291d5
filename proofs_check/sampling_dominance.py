"""Packed-SS against Linear-SS when sampling: everything known about random drafters reduces to matrices of right and wrong.

*Reduction.* Run a schedule and look back at what it emitted, x_1 x_2 .. (under both schedules a sample of the AR law, THM3.3).
A draft token for position k is tested once at most in a run, as proposed from some context c; emitting x_k by acceptance has
probability min(p(x_k | x_<k), q_c(x_k)), q_c being the law proposed after x_1 .. x_c, and by correction the rest of
p(x_k | x_<k). So given the emitted tokens the tests are independent, each accepted with probability

    gamma(c, k) = min(1, q_c(x_k) / p(x_k | x_<k)),

and the calls are those of the greedy schedule under a random correctness matrix (proofs_check/joint.py) with independent cells
M(c, k) of these probabilities. No run looks twice at a cell, nor at a position; so how cells hang together may be chosen.

*What follows*, <=st being the stochastic order, P(NFE_packed > n) <= P(NFE_linear > n) for all n:
1. Let both schedules use the same matrix. What holds for every matrix holds for every model: if no matrix of a size lets
   Packed-SS need more calls (ASM-NEEDED), NFE_packed <=st NFE_linear for every target and drafter of that size, of any
   vocabulary. And always NFE_packed <=st max(1, W/2) NFE_linear (BOUND-RATIO). Conversely, a matrix is a drafter at
   temperature 0.
2. Let M(c, k) be U_k < gamma(c, k), with one U_k for all c. If gamma(c, k) never falls as c grows, M meets ASM3.1; so
   NFE_packed <=st NFE_linear at any size when min(p(x_k | x_<k), q_c(x_k)) never falls with a longer context c, for every x.
   If the target's laws depend on the position alone, the drafter's on context length and position alone, and there is no
   EOS, the tokens average out: gamma(c, k) = 1 - TV(p_k, q_c,k), and it is enough that total variation never grows with c.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache, partial
from typing import Literal, TypeAlias

from proofs_check import joint
from proofs_check.joint import STARTS, Start
from proofs_check.ledger import Budget, Check, Entry
from proofs_check.necessity import sizes
from simulator.decode import Model
from simulator.exact import autoregressive_law, exact_law
from simulator.laws import RationalLaw
from simulator.oracles import TabularModel, random_tables
from simulator.records import Limits, Tokens
from simulator.schedules import linear, packed

Name: TypeAlias = Literal["packed", "linear"]
NAMES: tuple[Name, Name] = ("packed", "linear")
Gamma: TypeAlias = Callable[[int, int], Fraction]  # (c, k) -> probability that a draft for k made at c is accepted
CallLaw: TypeAlias = dict[int, Fraction]  # number of calls -> probability
ZERO, ONE = Fraction(0), Fraction(1)


def chain(name: Name, model: Model, width: int, start: Start, limits: Limits) -> CallLaw:
    """The law of NFE, from the production scheduler."""
    return exact_law(packed(width, start) if name == "packed" else linear(width, start), model, (), limits).nfe


def calls_given_gamma(name: Name, gamma: Gamma, length: int, width: int, start: Start) -> CallLaw:
    """The law of the number of calls for L = `length` >= 1 tokens when each test is accepted with probability gamma(c, k)."""
    # A situation is the context of the draft in hand and the verified length; Linear-SS drafts where it stands.
    begun = (0, 0) if name == "linear" and start == "algorithm" else (0, 1)
    calls = begun[1]
    if name == "packed" and start == "sampled" and length > 1:
        begun, calls = (1, 1), 2
    counts: defaultdict[int, Fraction] = defaultdict(Fraction)
    layer = {begun: ONE}
    while layer:
        following: defaultdict[tuple[int, int], Fraction] = defaultdict(Fraction)
        for (context, verified), weight in layer.items():
            if verified >= length:
                counts[calls] += weight
                continue
            c = verified if name == "linear" else context
            last = c + width + (name == "packed" and start == "wide" and calls == 1)
            for now, probability in _advance(gamma, c, verified, last, length):
                if probability:
                    following[verified, now] += weight * probability
        layer = following
        calls += 2 if name == "linear" else 1
    return dict(counts)


def _advance(gamma: Gamma, c: int, verified: int, last: int, length: int) -> Iterator[tuple[int, Fraction]]:
    alive = ONE
    for k in range(verified + 1, min(last, length - 1) + 1):
        yield k, alive * (1 - gamma(c, k))
        alive *= gamma(c, k)
    yield min(max(last, verified) + 1, length), alive


def gamma_of(model: TabularModel, path: Tokens) -> Gamma:
    """The acceptance probabilities given that `path` is what is emitted."""

    def gamma(c: int, k: int) -> Fraction:
        token = path[k - 1]
        proposed = Fraction(model.proposal(path[:c], k - c).probability(token))
        return min(ONE, proposed / Fraction(model.target(path[: k - 1]).probability(token)))

    return gamma


def mean(law: CallLaw) -> Fraction:
    return sum((calls * weight for calls, weight in law.items()), Fraction(0))


def no_later(first: CallLaw, second: CallLaw) -> bool:
    """first <=st second."""
    return all(
        sum((w for calls, w in first.items() if calls > n), Fraction(0))
        <= sum((w for calls, w in second.items() if calls > n), Fraction(0))
        for n in range(max(*first, *second))
    )


def check_tables(start: Start, budget: Budget) -> Iterator[Entry]:
    """The exact chain's law of NFE is the mixture over what is emitted; and the two schedules compared on each model."""
    cases = [(2, 5, 3), (3, 4, 3)] if budget == "quick" else [(2, 7, 4), (3, 5, 3), (4, 4, 3)]
    seeds = range(4 if budget == "quick" else 10)
    wrong = worse = ""
    models = fewer = paths = equal = 0
    for (vocabulary, length, width), seed, eos in itertools.product(cases, seeds, (None, 1)):
        model, limits = random_tables(vocabulary, seed), Limits.of(length, eos)
        where = f"random_tables({vocabulary}, {seed}), L={length}, W={width}, eos {eos}"
        emitted = autoregressive_law(model.target, (), limits)
        models, paths = models + 1, paths + len(emitted)
        law = {name: chain(name, model, width, start, limits) for name in NAMES}
        for name in NAMES:
            mixture: defaultdict[int, Fraction] = defaultdict(Fraction)
            for path, weight in emitted.items():
                for calls, share in calls_given_gamma(name, gamma_of(model, path), len(path), width, start).items():
                    mixture[calls] += weight * share
            for calls in sorted(mixture.keys() | law[name].keys()):
                real, said = law[name].get(calls, ZERO), mixture[calls]
                equal += 0 < said == real < 1
                if real != said and not wrong:
                    wrong = f"{where}: {name} makes {calls} calls with probability {real}, a random matrix says {said}"
        fewer += mean(law["packed"]) < mean(law["linear"])
        if not no_later(law["packed"], law["linear"]) and not worse:
            worse = f"{where}: {_compared(law)}"
    bound = f"(V, L, W) = {', '.join(map(str, cases))}, {len(seeds)} random tables each (seeds 0..), EOS or none"
    yield Entry(
        "DOM-SAMPLING",
        f"start {start}: given the emitted tokens, calls are those of a random matrix of right and wrong drafts",
        "exact",
        bound,
        "violated" if wrong else "holds" if equal else "not run",
        wrong or (f"{paths:,} emitted sequences, {equal:,} probabilities equal as rationals" if equal else "nothing random"),
    )
    yield Entry(
        "DOM-SAMPLING",
        f"start {start}: NFE of Packed-SS is stochastically no larger on small random tables",
        "exact",
        bound,
        "violated" if worse else "holds" if fewer else "not run",
        worse or f"none larger up to this size; strictly fewer calls in expectation for {fewer} of {models}",
    )


def _compared(law: dict[Name, CallLaw]) -> str:
    return f"Packed-SS {_tell(law['packed'])} against Linear-SS {_tell(law['linear'])}"


def _tell(law: CallLaw) -> str:
    return f"E[NFE] = {mean(law)}, P(NFE = n) = {', '.join(f'{n}: {weight}' for n, weight in sorted(law.items()))}"


def check_grid(budget: Budget) -> Iterator[Entry]:
    """Every table of a small grid, by the exact chain, and that only total variation counts for them."""
    length, grid = 3 if budget == "quick" else 4, (ZERO, Fraction(1, 2), ONE)
    width = length - 1
    heads = (Fraction(1, 2), Fraction(2, 3))
    cells = [(c, k) for k in range(1, length) for c in range(k)]  # whether the last token was drafted does not matter
    worse = wrong = ""
    models = fewer = 0
    for p, *qs in itertools.product(heads, *[grid] * len(cells)):
        proposed = dict(zip(cells, qs, strict=True))
        accepted = {cell: 1 - abs(p - q) for cell, q in proposed.items()}
        model = _two_tokens(p, proposed)
        for start in STARTS:
            law = {name: chain(name, model, width, start, Limits.of(length)) for name in NAMES}
            where = f"start {start}, p(0) = {p}, q(0) by (c, k) { ({cell: str(q) for cell, q in proposed.items()}) }"
            models += 1
            fewer += mean(law["packed"]) < mean(law["linear"])
            if not no_later(law["packed"], law["linear"]) and not worse:
                worse = f"{where}: {_compared(law)}"
            for name in NAMES:
                said = calls_given_gamma(name, of_cells(accepted), length, width, start)
                if said != law[name] and not wrong:
                    wrong = f"{where}: {name} {_tell(law[name])}, by total variation {_tell(said)}"
    yield Entry(
        "DOM-SAMPLING",
        "NFE of Packed-SS is stochastically no larger on a grid of tables; for these only total variation counts",
        "exact",
        f"V=2, L={length}, W={width}, p(0) in {', '.join(map(str, heads))}, every q(0) in 0, 1/2, 1 by context and position",
        "violated" if worse or wrong else "holds" if fewer else "not run",
        worse or wrong or f"none larger of {models:,}; strictly fewer calls in expectation for {fewer:,}",
    )


def of_cells(cells: dict[tuple[int, int], Fraction]) -> Gamma:
    return lambda c, k: cells[c, k]


def _two_tokens(p: Fraction, q: dict[tuple[int, int], Fraction]) -> TabularModel:
    """The target emits 0 with probability p; the drafter proposes 0 for k from c tokens with probability q[c, k], else p."""
    target = RationalLaw([p, 1 - p])

    def proposal(prefix: Tokens, j: int) -> RationalLaw:
        head = q.get((len(prefix), len(prefix) + j), p)
        return RationalLaw([head, 1 - head])

    return TabularModel(lambda prefix: target, proposal)


def check_smallest(start: Start, budget: Budget) -> Iterator[Entry]:
    """No model below the smallest matrix that needs more calls; at that size one without any probability of 0 or 1."""
    error = Fraction(1, 64)
    for length, width in sizes(9):
        if found := _violating(length, width, start):
            break
    wrong = sorted(cell for cell, right in min(found, key=len).items() if not right) if found else []
    statement = f"start {start}: the smallest model under which Packed-SS needs more calls in expectation"
    if not wrong:
        yield Entry("DOM-SAMPLING", statement, "exact", "L <= 9", "not run", "no matrix needs more calls up to L = 9")
        return
    model = _two_tokens(1 - error, dict.fromkeys(wrong, error))
    law = {name: chain(name, model, width, start, Limits.of(length)) for name in NAMES}
    more = mean(law["packed"]) - mean(law["linear"])
    yield Entry(
        "DOM-SAMPLING",
        statement,
        "exact",
        f"by the reduction to matrices every model with L < {length}, or L = {length} and W < {width}; one model beyond",
        "holds" if more > 0 else "violated",
        f"none up to there, for any vocabulary; at L={length}, W={width}, V=2, p = (1 - e, e), e = {error}, drafts that follow"
        f" p, but (e, 1 - e) for (c, k) = {', '.join(map(str, wrong))}, E[NFE] is {float(mean(law['packed'])):.4f} under"
        f" Packed-SS, {float(mean(law['linear'])):.4f} under Linear-SS (rounded from rationals)",
    )


@cache
def _violating(length: int, width: int, start: Start) -> list[joint.Cells]:
    return [cells for _, cells in joint.classes(length, width, start, lambda outcome: outcome.excess > 0)]


def check_condition(budget: Budget) -> Iterator[Entry]:
    """Acceptance that never falls with context: stochastic order, at sizes where it fails without."""
    rng = random.Random(0)
    tries = 100 if budget == "quick" else 2000
    sorted_out = ""
    disordered = 0
    for start, _ in itertools.product(STARTS, range(tries)):
        length, width = rng.choice([(8, 4), (9, 5)])
        # Near a matrix that needs more calls, which random ones would miss.
        right = rng.choice(_violating(length, width, start))
        gammas = {
            (c, k): Fraction(rng.randint(7, 8) if right.get((c, k), rng.getrandbits(1)) else rng.randint(0, 1), 8)
            for k in range(1, length + 1)
            for c in range(k)
        }
        disordered += not in_order(gammas, length, width, start)
        columns = [sorted(gammas[c, k] for c in range(k)) for k in range(1, length + 1)]
        rising = {(c, k): columns[k - 1][c] for c, k in gammas}
        if not in_order(rising, length, width, start) and not sorted_out:
            sorted_out = (
                f"start {start}, L={length}, W={width}, gamma by (c, k) { ({cell: str(g) for cell, g in rising.items()}) }"
            )
    yield Entry(
        "DOM-SAMPLING",
        "if acceptance never falls with a longer context, NFE of Packed-SS is stochastically no larger",
        "exact",
        f"{3 * tries:,} random tables of gamma(c, k) near matrices that need more calls, L=8..9 (seed 0), columns sorted",
        "violated" if sorted_out else "holds" if disordered else "not run",
        sorted_out or f"in stochastic order all {3 * tries:,}; with their columns unsorted, {disordered:,} are not",
    )


def in_order(gammas: dict[tuple[int, int], Fraction], length: int, width: int, start: Start) -> bool:
    """Is NFE of Packed-SS stochastically no larger?"""
    return no_later(*(calls_given_gamma(name, of_cells(gammas), length, width, start) for name in NAMES))


CHECKS = (
    *(Check(f"sampling/tables/{start}", ("DOM-SAMPLING",), partial(check_tables, start)) for start in STARTS),
    *(Check(f"sampling/smallest/{start}", ("DOM-SAMPLING",), partial(check_smallest, start)) for start in STARTS),
    Check("sampling/grid", ("DOM-SAMPLING",), check_grid),
    Check("sampling/condition", ("DOM-SAMPLING",), check_condition),
)
