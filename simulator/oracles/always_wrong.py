"""Always-wrong: a drafter that never proposes what the target would choose."""

from __future__ import annotations

from simulator.errors import InvalidInput
from simulator.laws import Point, argmax
from simulator.oracles.answer import Oracle, greedy_path
from simulator.oracles.tabular import TabularModel


def always_wrong(model: Oracle, vocabulary: int) -> TabularModel:
    """Proposes, at every position of the most likely continuation, the id after the target's own choice (mod `vocabulary`).

    Stands for a drafter that is useless or broken. At temperature 0 Assumption 3.1 holds with every c*_k = k, nothing is ever
    accepted, and n tokens cost AR, Packed and Quadratic n calls and Linear 2 n. At temperature 1 a draft is accepted with the
    probability the target gives it. It costs calls, never correctness (C06).

    Raises InvalidInput for a vocabulary of fewer than 2 tokens, which has no wrong one.
    """
    if vocabulary < 2:
        raise InvalidInput(f"always_wrong needs a vocabulary of at least 2, got {vocabulary}")
    path = greedy_path(model.target)

    def proposal(context: tuple[int, ...], offset: int) -> Point:
        return Point((argmax(model.target(path(context, offset))).token + 1) % vocabulary)

    return TabularModel(model.target, proposal)
