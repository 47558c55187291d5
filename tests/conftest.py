"""What the rooms share: the battery every law backend must pass, numpy's here and torch's upstairs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any, NamedTuple

import pytest

from simulator import Draft, RationalLaw, Scripted
from simulator.acceptance import Verdict, accept, acceptance_probability
from simulator.laws import argmax, dense
from simulator.processing import Processing

TOP = 1 - 2.0**-53  # the largest coin of a 53-bit generator
ULP = 2.0**-53
MARGIN = 1.5 * 2.0**-40  # coins on tables that float64 rounds keep 2^-40 away from every edge

Convert = Callable[[RationalLaw], Any]
Block = tuple[tuple[RationalLaw, RationalLaw, int], ...]
"""Positions of a draft: (target, proposal, draft token)."""


class Case(NamedTuple):
    """One verification, and what the rational backend makes of it."""

    block: Block
    bonus: RationalLaw
    coins: dict[tuple[int, str, int], float]
    expected: Verdict


class Battery(NamedTuple):
    """Each check compares a backend, given as a conversion from RationalLaw, with the rational one, and returns how many
    comparisons it made."""

    check_laws: Callable[[Convert], int]
    check_verdicts: Callable[[Convert, Convert], int]  # targets, proposals
    check_processing: Callable[[Convert], int]
    check_rounding: Callable[[Callable[[list[float]], Any]], None]  # a law from probabilities as they are
    cases: Callable[[], list[Case]]


@pytest.fixture(scope="session")
def law_battery() -> Battery:
    return Battery(_check_laws, _check_verdicts, _check_processing, _check_rounding, cases)


def is_dyadic(x: Fraction) -> bool:
    return x.denominator & (x.denominator - 1) == 0


def quarters(vocabulary: int) -> list[RationalLaw]:
    """Every law with probabilities in quarters: each exact in float64, zeros and point masses among them."""
    return [RationalLaw.weighted(w) for w in itertools.product(range(5), repeat=vocabulary) if sum(w) == 4]


def small_weights(vocabulary: int) -> list[RationalLaw]:
    """Every law proportional to weights 0 .. 3; most have thirds, fifths, sevenths that float64 rounds."""
    return sorted(
        {RationalLaw.weighted(w) for w in itertools.product(range(4), repeat=vocabulary) if any(w)},
        key=lambda law: law.probabilities,
    )


def numbers(block: Block) -> Iterator[Fraction]:
    """Everything float64 has to hold while the block is verified."""
    for p, q, _ in block:
        yield from p.probabilities
        yield from q.probabilities
        yield from (p.probability(x) / q.probability(x) for x in q.support)
        residual = p.residual(q)
        yield from residual.probabilities if residual else ()


def edge_coins(law: RationalLaw, exact: bool) -> set[float]:
    """0, the top, and both sides of every boundary of the inverse CDF: at the edge if float64 holds it, else clear of it."""
    inner = [float(total) for _, total in law.cumulative[:-1]]
    return {0.0, TOP, *(x - (ULP if exact else MARGIN) for x in inner), *(x + (0.0 if exact else MARGIN) for x in inner)}


def verdicts(block: Block, bonus: RationalLaw) -> Iterator[Case]:
    """The block rejected at each of its tests and accepted in full, by the coins nearest to each decision and by the extreme
    ones, with correction coins on every edge of the law that is drawn from."""
    exact = all(map(is_dyadic, numbers(block))) and all(map(is_dyadic, bonus.probabilities))
    alphas = [Fraction(acceptance_probability(*position)) for position in block]
    for h in range(len(block) + 1):
        if any(alpha == 0 for alpha in alphas[:h]) or (h < len(block) and alphas[h] == 1):
            continue
        least = [0.0] * h + [TOP] * (len(block) - h)  # passing coins as low, failing ones as high as can be
        near = [TOP if a == 1 else float(a) - (ULP if exact else MARGIN) for a in alphas[:h]]
        near += [float(a) + (0.0 if exact or not a else MARGIN) for a in alphas[h : h + 1]] + [0.0] * (len(block) - h - 1)
        p, q, _ = block[h] if h < len(block) else (bonus, None, None)
        law = bonus if q is None else p.residual(q)
        for tests, corrections in ((near, edge_coins(law, exact)), (least, [0.0])):
            for correct in corrections:
                coins = {(1, "test", i): u for i, u in enumerate(tests, 1)} | {(1, "correct", h + 1): correct}
                expected = verdict(block, bonus, coins)
                assert (expected.accepted, expected.fallback) == (h, False)
                yield Case(block, bonus, coins, expected)


def verdict(
    block: Block, bonus: Any, coins: dict[Any, float], target: Convert = lambda p: p, proposal: Convert = lambda q: q
) -> Verdict:
    laws = (*(target(p) for p, _, _ in block), target(bonus))
    draft = Draft(tuple(d for _, _, d in block), tuple(proposal(q) for _, q, _ in block))
    return accept(draft, laws, Scripted(coins).at(1), 1)


@cache
def cases() -> list[Case]:
    """Drafts of one token: every pair of laws in quarters on up to 4 tokens, with every draft token, and 600 pairs of laws
    with other denominators. Longer drafts: every block of 2 and 3 over halves on 2 tokens, and 150 blocks of each length on 3
    and on 4 tokens, in quarters and with other denominators. Choices are seeded: nothing changes from run to run."""
    rng = Random(3)
    blocks: list[Block] = []
    for vocabulary in (1, 2, 3, 4):
        for p, q in itertools.product(quarters(vocabulary), repeat=2):
            blocks += [((p, q, d),) for d in q.support]
    others = {vocabulary: small_weights(vocabulary) for vocabulary in (2, 3, 4)}

    def drawn(laws: list[RationalLaw]) -> tuple[RationalLaw, RationalLaw, int]:
        p, q = rng.choice(laws), rng.choice(laws)
        return p, q, rng.choice(q.support)

    blocks += [(drawn(others[rng.choice((2, 3, 4))]),) for _ in range(600)]
    halves = [law for law in quarters(2) if all((2 * x).denominator == 1 for x in law.probabilities)]
    positions = [(p, q, d) for p in halves for q in halves for d in q.support]
    blocks += [block for size in (2, 3) for block in itertools.product(positions, repeat=size)]
    for size, vocabulary, pool in itertools.product((2, 3), (3, 4), (quarters, small_weights)):
        laws = pool(vocabulary)
        blocks += [tuple(drawn(laws) for _ in range(size)) for _ in range(150)]
    return [case for block in blocks for case in verdicts(block, block[0][0])]


def _check_laws(convert: Convert) -> int:
    """Support, probabilities, draws at and around every edge, and the argmax, of every small law."""
    done = 0
    for vocabulary in (1, 2, 3, 4):
        for law in {*quarters(vocabulary), *small_weights(vocabulary)}:
            ours, exact = convert(law), all(map(is_dyadic, law.probabilities))
            assert tuple(ours.support) == law.support
            for x in range(-1, vocabulary + 1):
                assert ours.probability(x) == float(law.probability(x))
            assert argmax(ours) == argmax(law)
            assert ours.certain in (None, law.certain)
            for u in edge_coins(law, exact):
                assert ours.draw(u) == ours.draw(Fraction(u)) == law.draw(u), (law, u)
                done += 1
    return done


def _check_verdicts(target: Convert, proposal: Convert) -> int:
    """Accepted count, tokens and fallback of every case."""
    target, proposal = cache(target), cache(proposal)
    for block, bonus, coins, expected in cases():
        assert verdict(block, bonus, coins, target, proposal) == expected, (block, bonus, coins)
    return len(cases())


def processings() -> Iterable[Processing]:
    """Every combination of a few bounds, ties and certain edges among them."""
    for k, p, m in itertools.product((None, 1, 2, 3, 5), ("1", "3/4", "1/2", "3/8", "1/16"), ("0", "1/4", "1/2", "1")):
        yield Processing(top_k=k, top_p=Fraction(p), min_p=Fraction(m))


def literal_processing(law: RationalLaw, processing: Processing) -> tuple[list[Fraction], bool]:
    """Temperature 1, restated: (the probabilities, whether a float backend must decide as this does: every number on the way
    is exact in float64, or every bound is 2^-40 away)."""
    p, clear = list(law.probabilities), True
    seen = list(p)

    def keep(tokens: list[int]) -> None:
        total = sum(p[x] for x in tokens)
        p[:] = [mass / total if x in tokens else Fraction(0) for x, mass in enumerate(p)]
        seen.extend(p)

    def ranked() -> list[int]:
        return sorted((x for x in range(len(p)) if p[x] > 0), key=lambda x: (-p[x], x))

    if processing.top_k is not None:
        keep(ranked()[: processing.top_k])
    if processing.top_p < 1:
        order = ranked()
        masses = [sum(p[x] for x in order[:n]) for n in range(1, len(order) + 1)]
        clear &= all(abs(mass - processing.top_p) > 2**-40 for mass in masses)
        seen.extend(masses)
        keep(order[: next(n for n, mass in enumerate(masses, 1) if mass >= processing.top_p)])
    if processing.min_p > 0:
        clear &= all(not x or abs(x - processing.min_p * max(p)) > 2**-40 for x in p)
        seen.append(processing.min_p * max(p))
        keep([x for x in range(len(p)) if p[x] >= processing.min_p * max(p)])
    return p, clear or all(map(is_dyadic, seen))


@cache
def processing_cases() -> list[tuple[RationalLaw, Processing, list[Fraction], bool]]:
    laws = {law for v in (1, 2, 3) for law in (*quarters(v), *small_weights(v))} | set(quarters(4))
    return [(law, how, *literal_processing(law, how)) for law in laws for how in processings()]


def _check_processing(convert: Convert) -> int:
    """Temperature 0 and every truncation of every small law: same tokens, same probabilities up to rounding."""
    done = 0
    convert = cache(convert)
    for law, how, expected, decided in processing_cases():
        ours = how((), convert(law))
        if decided:
            got = dense(ours, len(expected))
            assert tuple(ours.support) == tuple(x for x, mass in enumerate(expected) if mass), (law, how)
            assert max(abs(got - [float(x) for x in expected])) <= 2**-51, (law, how)
            done += 1
        if how.top_k == 1:
            assert ours.certain in (None, argmax(law).token)
            assert Processing(temperature=0)((), convert(law)) == argmax(law)
    return done


def _check_rounding(make: Callable[[list[float]], Any]) -> None:
    """Where rounding leaves no token for the coin the last possible one is drawn; where it leaves no residual there is none,
    and a rejected draft token is corrected from the target row, which the verdict says (F10)."""
    tenths = make([0.1] * 10 + [0.0])  # add up to 1 - 2^-53 in float64
    for u in (TOP, Fraction(TOP)):
        assert tenths.draw(u) == 9
    p, q = make([0.5, 0.5 - 2.0**-54]), make([0.5, 0.5])
    assert p.residual(q) is None
    coins = Scripted({(1, "test", 1): TOP, (1, "correct", 1): 0.25})
    assert accept(Draft((1,), (q,)), (p, p), coins.at(1), 1) == Verdict(0, (0,), True)
