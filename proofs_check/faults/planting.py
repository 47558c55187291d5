"""How a fault is planted: the production object with one behaviour replaced, and no copy of it.

Replaced    a schedule with functions of its kernel replaced: `accept`, `_cut` or `draw_block`
Odd         a law that draws, or corrects, by something else than its probabilities
Coins       the coins of a call with some of them replaced
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import simulator.schedule as kernel
from simulator.acceptance import Verdict
from simulator.chance import Chance, Purpose
from simulator.laws import Coin, Law, Probability
from simulator.records import Call, Draft, Reply, State, Step
from simulator.schedule import Schedule

Rule: TypeAlias = Callable[[Draft, Sequence[Law], Chance, int], Verdict]
"""As `simulator.acceptance.accept`."""


@contextmanager
def part_replaced(module: Any, **parts: Callable[..., Any]) -> Iterator[None]:
    """While it lasts, these functions stand in the place of the module's own."""
    production = {name: getattr(module, name) for name in parts}
    try:
        for name, function in parts.items():
            setattr(module, name, function)
        yield
    finally:
        for name, function in production.items():
            setattr(module, name, function)


@dataclass(frozen=True)
class Replaced(Schedule):
    """A schedule whose kernel runs with other functions in the place of its own."""

    parts: tuple[tuple[str, Callable[..., Any]], ...] = ()

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        with part_replaced(kernel, **dict(self.parts)):
            return super().absorb(state, call, reply, chance)


def replaced(schedule: Schedule, **parts: Callable[..., Any]) -> Schedule:
    """The schedule with these functions of its kernel replaced."""
    return Replaced(schedule.name, schedule.opening, schedule.cycle, tuple(parts.items()))


def as_kind(kind: type[Schedule], schedule: Schedule) -> Schedule:
    """The policy of `schedule` run by another class of schedules."""
    return kind(schedule.name, schedule.opening, schedule.cycle)


@dataclass(frozen=True)
class Odd:
    """A law whose tokens come from `drawn`, and whose residual is that of `corrected`; its probabilities are its own."""

    law: Law
    drawn: Law
    corrected: Callable[[Law, Law], Law | None] = lambda law, proposal: law.residual(proposal)

    @property
    def support(self) -> Sequence[int]:
        return self.law.support

    @property
    def certain(self) -> int | None:
        return self.drawn.certain

    @property
    def probabilities(self) -> Any:
        return self.law.probabilities  # type: ignore[attr-defined]

    def probability(self, token: int) -> Probability:
        return self.law.probability(token)

    def residual(self, proposal: Law) -> Law | None:
        return self.corrected(self.law, proposal)

    def draw(self, coin: Coin) -> int:
        return self.drawn.draw(coin)


class Racing:
    """C05: the token is the argmax of p / Exp(1). Exact, and by no comparison of one coin."""

    certain = None

    def __init__(self, law: Law) -> None:
        self.law = law

    def __getattr__(self, name: str) -> Any:
        return getattr(self.law, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Racing) and self.law == other.law

    def __hash__(self) -> int:
        return hash((Racing, self.law))

    def residual(self, proposal: Law) -> Law | None:
        residual = self.law.residual(getattr(proposal, "law", proposal))
        return None if residual is None else Racing(residual)

    def draw(self, coin: Any) -> int:
        own = random.Random(float(coin))
        return max(self.law.support, key=lambda x: self.law.probability(x) / -math.log(1 - own.random()))


class Coins:
    """The coins of a call, asked for under another address: `redirect(purpose, position)` says which."""

    def __init__(self, chance: Chance, redirect: Callable[[Purpose, int], tuple[Purpose, int]]) -> None:
        self.chance, self.redirect = chance, redirect

    def uniform(self, purpose: Purpose, position: int) -> Coin:
        return self.chance.uniform(*self.redirect(purpose, position))
