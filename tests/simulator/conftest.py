"""Models and a walker that several files use."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import pytest

from simulator import Call, Point, RationalLaw, Reply, State, Step
from simulator.oracles import TabularModel


class Move(NamedTuple):
    """One call of a run."""

    before: State
    call: Call
    reply: Reply
    step: Step
    after: State


@pytest.fixture(scope="session")
def walk() -> Callable[..., list[Move]]:
    """walk(model, schedule, prompt, limits, chance=None): every call of a run, driven here and not by `simulator.decode`."""

    def run(model: Any, schedule: Any, prompt: Any, limits: Any, chance: Any = None) -> list[Move]:
        moves: list[Move] = []
        state = schedule.init(prompt, limits)
        while state.stop is None:
            assert len(moves) <= 2 * limits.max_new_tokens + 2, "a run makes no progress"
            call = schedule.request(state)
            reply = model(call)
            after, step = schedule.absorb(state, call, reply, chance and chance.at(len(moves) + 1))
            moves.append(Move(state, call, reply, step, after))
            state = after
        return moves

    return run


@pytest.fixture(scope="session")
def points() -> Callable[..., TabularModel]:
    """points(p, q): the greedy model whose target predicts p(prefix) and whose drafter proposes q(prefix, j)."""
    return lambda p, q: TabularModel(lambda prefix: Point(p(prefix)), lambda prefix, j: Point(q(prefix, j)))


@pytest.fixture(scope="session")
def table_model() -> Callable[[int], TabularModel]:
    """table_model(V): the model of golden/expected_nfe.json on V tokens, written from the words in that file."""

    @cache
    def make(vocabulary: int) -> TabularModel:
        def target(prefix: tuple[int, ...]) -> RationalLaw:
            h = sum(7 * i * x for i, x in enumerate(prefix, 1)) + 2 * len(prefix)
            return RationalLaw.weighted(1 + (h + 3 * x) % 5 for x in range(vocabulary))

        def proposal(prefix: tuple[int, ...], j: int) -> RationalLaw:
            h = sum(3 * i * x for i, x in enumerate(prefix, 1)) + 3 * j
            weights = [(h + 2 * x) % 4 for x in range(vocabulary)]
            return RationalLaw.weighted(weights if any(weights) else [1] * vocabulary)

        return TabularModel(target, proposal)

    return make
