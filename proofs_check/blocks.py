"""Targets and draft laws for one block of draft tokens: what an acceptance rule is tried on, small ones first."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

from simulator.chance import rational
from simulator.records import Tokens

Row: TypeAlias = tuple[Any, ...]
"""A law: the probabilities of the tokens 0 .. V-1, Fractions or floats."""


@dataclass(frozen=True)
class Block:
    """Laws for a draft of k tokens, by the tokens before."""

    name: str
    target: Mapping[Tokens, Row]  # after each of up to k tokens
    proposal: Mapping[Tokens, Row]  # of the draft token after each of up to k - 1

    @property
    def size(self) -> int:
        """k."""
        return max(map(len, self.target))

    @property
    def vocabulary(self) -> int:
        return len(self.target[()])

    def drafts(self) -> Iterator[tuple[Tokens, Any]]:
        """Every draft of positive probability, with it."""
        pending: list[tuple[Tokens, Any]] = [((), rational(1))]
        while pending:
            draft, weight = pending.pop()
            if len(draft) == self.size:
                yield draft, weight
                continue
            row = self.proposal[draft]
            pending += [((*draft, x), weight * rational(row[x])) for x in reversed(range(len(row))) if row[x]]

    def laws(self, draft: Tokens) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
        """The k + 1 laws of the target along a draft, and its own k."""
        k = len(draft)
        return tuple(self.target[draft[:i]] for i in range(k + 1)), tuple(self.proposal[draft[:i]] for i in range(k))

    def greedy(self) -> Block:
        """The same with the most likely draft alone, its laws point masses."""
        points = {x: point(self.vocabulary, row.index(max(row))) for x, row in self.proposal.items()}
        return Block(f"{self.name}, q one-hot", self.target, points)


def block(name: str, size: int, vocabulary: int, target: Callable[[Tokens], Row], proposal: Callable[[Tokens], Row]) -> Block:
    prefixes = [x for m in range(size + 1) for x in itertools.product(range(vocabulary), repeat=m)]
    return Block(name, {x: target(x) for x in prefixes}, {x: proposal(x) for x in prefixes if len(x) < size})


def grid(vocabulary: int, *denominators: int) -> list[Row]:
    """Every law whose probabilities are multiples of 1/n, in the order of the denominators."""
    laws: dict[Row, None] = {}
    for n in denominators:
        for weights in itertools.product(range(n, -1, -1), repeat=vocabulary):
            if sum(weights) == n:
                laws[tuple(Fraction(w, n) for w in weights)] = None
    return list(laws)


def point(vocabulary: int, token: int) -> Row:
    return tuple(Fraction(x == token) for x in range(vocabulary))


def exact_blocks(size: int) -> Iterator[Block]:
    """Rational laws: targets that depend on the tokens before; drafts that do too, and drafts that do not, as in diffusion."""
    if size == 1:
        for laws in (grid(2, 1, 2, 3), grid(3, 1, 2, 4), grid(3, 3)):
            for p, q in sorted(itertools.product(range(len(laws)), repeat=2), key=max):
                yield block("small laws", 1, len(laws[0]), _round(laws, p), _round(laws, q))
        many = _weighted(range(1, 61))  # more than the usual top-k leaves
        for few in (point(60, 59), point(60, 0), _weighted([1, 2] + [0] * 58)):
            yield block("a law on 60 tokens", 1, 60, _by_position(many, many[::-1]), _by_position(few))
    if size == 2:
        for laws, firsts in ((grid(2, 1, 2, 3), range(5)), (grid(3, 1, 2, 3), range(1))):
            for first, q, r in itertools.product(firsts, range(len(laws)), range(len(laws))):
                target = _round(laws, first + (q + 2 * r if len(firsts) == 1 else 0))
                yield block("small laws, q by position", 2, len(laws[0]), target, _by_position(laws[q], laws[r]))
                if (q + r) % 2:
                    yield block("small laws, q by prefix", 2, len(laws[0]), target, _round(laws, q))
    more = {1: ((4, 40), (5, 10)), 2: ((3, 30), (4, 10)), 3: ((2, 20), (3, 40)), 4: ((2, 8), (3, 12))}
    for vocabulary, seeds in more[size]:
        for seed in range(seeds):
            target = partial(_random, vocabulary, 0, f"p {seed}")
            proposal = partial(_random, vocabulary, 0, f"q {seed}")
            name = f"random laws {seed}, q by {'position' if seed % 2 else 'prefix'}"
            by_position = _by_position(*(proposal((0,) * i) for i in range(size)))
            yield block(name, size, vocabulary, target, by_position if seed % 2 else proposal)
    for vocabulary in range(2, 6 - size):
        yield from _special(size, vocabulary)


def _special(size: int, vocabulary: int) -> Iterator[Block]:
    """Draft laws equal to the target's, nearly so, and disjoint from them; point masses on either side."""
    v, tiny = vocabulary, Fraction(1, 1000)
    p = partial(_random, v, 1, "p")

    def best(x: Tokens) -> Row:
        return point(v, p(x).index(max(p(x))))

    def worst(x: Tokens) -> Row:
        return point(v, p(x).index(min(p(x))))

    yield block("q = p", size, v, p, p)
    yield block("q near p", size, v, p, lambda x: tuple((1 - tiny) * w + tiny / v for w in p(x)))
    yield block("q disjoint from p", size, v, lambda x: (*_random(v - 1, 1, "p", x), Fraction(0)), lambda x: point(v, v - 1))
    yield block("greedy draft, q one-hot", size, v, p, best)
    yield block("useless draft, q one-hot", size, v, p, worst)
    yield block("greedy target, p one-hot", size, v, best, p)
    sharp = [_weighted(weights) for weights in ((2, 1, 997), (1, 3, 996), (0, 50, 950), (960, 0, 40), (1, 999, 0))]
    if v == 3:
        for a, b in itertools.product(sharp, repeat=2):
            if size == 1 or a is sharp[0]:
                yield block("sharp laws", size, v, _by_position(a, *sharp[1:]), _by_position(b, *sharp[:3]))


def _round(laws: list[Row], first: int) -> Callable[[Tokens], Row]:
    """Laws that go round the list with the tokens before."""
    return lambda prefix: laws[(first + sum(i * (x + 1) for i, x in enumerate(prefix, 1))) % len(laws)]


def _by_position(*laws: Row) -> Callable[[Tokens], Row]:
    return lambda prefix: laws[len(prefix)]


def _random(vocabulary: int, least: int, name: str, prefix: Tokens) -> Row:
    rng = random.Random(f"{name} {prefix}")
    weights = [rng.randint(least, 4) for _ in range(vocabulary)]
    weights[rng.randrange(vocabulary)] += 1
    return _weighted(weights)


def _weighted(weights: Sequence[int]) -> Row:
    return tuple(Fraction(w, sum(weights)) for w in weights)


def edge_blocks() -> Iterator[Block]:
    """Rational laws with zeros, at the front and at the end too."""
    laws = grid(3, 1, 2)
    for p, q in itertools.product(range(len(laws)), repeat=2):
        yield block("small laws", 1, 3, _round(laws, p), _round(laws, q))
    rows = [_weighted(row) for row in ((0, 0, 1, 2), (2, 1, 0, 0), (0, 3, 1, 0), (1, 1, 1, 1))]
    for a, b in itertools.product(rows, repeat=2):
        yield block("zeros at the ends", 1, 4, _by_position(a, b), _by_position(b))
    for seed in range(4):
        yield block(f"random laws {seed}", 2, 3, partial(_random, 3, 0, f"p {seed}"), partial(_random, 3, 0, f"q {seed}"))


def float_blocks() -> Iterator[Block]:
    """float64 laws: p equal to q, nearly so, disjoint up to rounding; sums a little off 1; ids of probability 0 at the ends."""
    groups: tuple[tuple[Row, ...], ...] = (
        ((0.5, 0.5), (0.5, 0.5 - 2.0**-54), (0.5 - 2.0**-54, 0.5), (1.0, 0.0)),
        ((0.0, 0.5, 0.5, 0.0), (0.0, 0.5, 0.5 - 2.0**-54, 0.0), (0.0, 0.5 - 2.0**-54, 0.5, 0.0)),
        ((0.1, 0.2, 0.3, 0.4), (0.1, 0.2, 0.30000000000000004, 0.4), (1e-300, 1.0, 1e-17, 0.0), (1.0, 1e-300, 0.0, 1e-17)),
        ((0.1,) * 10 + (0.0,), (0.0,) + (0.1,) * 10, (0.0,) + (1 / 9,) * 9 + (0.0,)),
    )
    for rows in groups:
        for p, q in itertools.product(rows, repeat=2):
            yield block("float64 laws", 1, len(p), _by_position(p, q), _by_position(q))
    for p, q in itertools.product(groups[0], repeat=2):
        yield block("float64 laws", 2, 2, _by_position(p, q, p), _by_position(q, p))
