"""Order policies: in which order a call checks its window, chosen from what was known before the call (ALG3.L5).

What sampling preserves depends on the policy. A policy that looks at accepted tokens, positions and laws, but not at which
draft tokens were drawn, leaves every accepted token with the verifier's law, given all that was accepted before it. One that
looks at the drawn tokens, as `confidence` does at temperature > 0, favours positions whose draw was likely and distorts the law
(`proofs_check.any_order_limits` has the smallest case). Greedy decoding agrees with its serial reference under any policy.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from operator import index
from typing import TypeAlias

from simulator.any_order.records import Drafted, Pairs
from simulator.errors import ContractError, InvalidInput
from simulator.laws import argmax
from simulator.laws import confidence as confidence_of
from simulator.records import Tokens


@dataclass(frozen=True)
class Known:
    """What a policy may see: all that was known before the call, and nothing of its answer."""

    window: Tokens  # U_t, ascending
    accepted: Pairs  # in acceptance order
    draft: Mapping[int, Drafted]  # by position
    scores: Mapping[int, float]  # see State.scores
    end: int  # E

    @cached_property
    def drafted_probability(self) -> dict[int, float]:
        """Per position with a draft token: the probability the drafter gave that token when it proposed it."""
        return {j: float(confidence_of(each.law, each.token)) for j, each in self.draft.items()}


Order: TypeAlias = Callable[[Known], Sequence[int]]
"""A policy: a permutation of `Known.window`."""


def left_to_right(known: Known) -> Tokens:
    """Textual order."""
    return known.window


def right_to_left(known: Known) -> Tokens:
    """The last position of the window first."""
    return known.window[::-1]


def confidence(known: Known) -> Tokens:
    """CONF: by falling probability of the drafted token, or, where Linear-SS has no draft yet, by the verifier's highest
    probability in the iteration before; ties by position; positions without a finite score last, in textual order.

    At temperature > 0 it looks at which tokens were drawn and distorts the law (ANY-ORDER-ADAPTIVE): use `peak`.
    """
    return _by(known.window, known.drafted_probability or known.scores)


def peak(known: Known) -> Tokens:
    """By falling highest probability of the drafter's law, whichever token was drawn: `confidence` for sampling."""
    tops = {j: float(confidence_of(each.law, argmax(each.law).token)) for j, each in known.draft.items()}
    return _by(known.window, tops or known.scores)


def _by(window: Tokens, scores: Mapping[int, float]) -> Tokens:
    finite = {j: score for j, score in scores.items() if isfinite(score)}
    return tuple(sorted(window, key=lambda j: (j not in finite, -finite.get(j, 0.0), j)))


@dataclass(frozen=True)
class shuffled:  # noqa: N801 - a policy with a parameter reads as one
    """A pseudo-random order, another for every window and every number of accepted tokens; the same for the same seed."""

    seed: int

    def __call__(self, known: Known) -> Tokens:
        # A string seeds Python's generator the same way on every machine.
        generator = random.Random(f"{self.seed} {known.window} {len(known.accepted)}")
        return tuple(generator.sample(known.window, len(known.window)))


@dataclass(frozen=True)
class along:  # noqa: N801
    """The order of a given permutation of positions 1 .. n; positions beyond n come last, in textual order.

    Raises InvalidInput when `positions` is no permutation of 1 .. n.
    """

    positions: Tokens

    def __post_init__(self) -> None:
        if sorted(self.positions) != list(range(1, len(self.positions) + 1)):
            raise InvalidInput(f"an order must be a permutation of 1 .. {len(self.positions)}, got {list(self.positions)}")

    def __call__(self, known: Known) -> Tokens:
        rank = {j: r for r, j in enumerate(self.positions)}
        return tuple(sorted(known.window, key=lambda j: (rank.get(j, len(rank)), j)))


@dataclass(frozen=True)
class within:  # noqa: N801
    """`order`, but never a position j before an unresolved i <= j - horizon: the orders that a model with that horizon was
    trained on (`horizon` is 2S for SetDLM). A position that is too early waits until those before it are ranked.
    """

    order: Order
    horizon: int

    def __post_init__(self) -> None:
        if self.horizon < 1:
            raise InvalidInput(f"the horizon of an order must be at least 1 position, got {self.horizon}")

    def __call__(self, known: Known) -> Tokens:
        waiting, ranked = list(check(self.order(known), known.window)), []
        while waiting:
            first = min(waiting)
            ranked.append(next(j for j in waiting if j < first + self.horizon))
            waiting.remove(ranked[-1])
        return tuple(ranked)


def check(order: Sequence[int], window: Tokens) -> Tokens:
    """`order` as a tuple of integers. Raises ContractError unless it is a permutation of the window."""
    try:
        ranked = tuple(int(index(j)) for j in order)
    except (TypeError, ValueError):  # ValueError: an array of more than one number
        ranked = ()
    if sorted(ranked) != list(window):
        shown = " ".join(repr(order).split())
        raise ContractError(f"the order policy must return a permutation of the window {list(window)}, got {shown}")
    return ranked
