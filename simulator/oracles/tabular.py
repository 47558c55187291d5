"""A model given by tables of exact laws: small enough to enumerate, free enough to be nasty."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache

from simulator.laws import Law, RationalLaw, argmax
from simulator.oracles.answer import answer
from simulator.records import Call, Reply, Tokens


class TabularModel:
    """target(prefix) and proposal(prefix, j), j = 1 .. W counted after the prefix. Both must be pure: answers are kept."""

    def __init__(self, target: Callable[[Tokens], Law], proposal: Callable[[Tokens, int], Law]) -> None:
        self.target = lru_cache(maxsize=None)(target)
        self.proposal = lru_cache(maxsize=None)(proposal)

    def __call__(self, call: Call) -> Reply:
        return answer(call, self.target, self.proposal)

    def greedy(self) -> TabularModel:
        """The same tables at temperature 0."""
        return TabularModel(lambda prefix: argmax(self.target(prefix)), lambda prefix, j: argmax(self.proposal(prefix, j)))


def random_tables(vocabulary: int, seed: int, top_weight: int = 5) -> TabularModel:
    """A model whose laws are proportional to pseudo-random integers 0 .. `top_weight`, fresh for every prefix and offset.

    Zeros are frequent on both sides, and the proposal depends on the prefix and on the offset, so that a stale draft differs
    from a fresh one.
    """

    def law(*key: object) -> RationalLaw:
        return random_law(vocabulary, top_weight, (seed, *key))

    return TabularModel(lambda prefix: law("p", prefix), lambda prefix, j: law("q", prefix, j))


def random_law(vocabulary: int, top_weight: int, key: tuple[object, ...]) -> RationalLaw:
    """A law proportional to pseudo-random integers 0 .. `top_weight`, not all 0: the same one for the same key."""
    rng = random.Random(repr(key))
    weights = [rng.randint(0, top_weight) for _ in range(vocabulary)]
    if not any(weights):
        weights[rng.randrange(vocabulary)] = 1
    return RationalLaw.weighted(weights)
