"""Constant: a drafter that proposes one token wherever it is asked."""

from __future__ import annotations

from simulator.laws import Point
from simulator.oracles.answer import Oracle
from simulator.oracles.tabular import TabularModel


def constant(model: Oracle, token: int) -> TabularModel:
    """Every proposal is a point mass on `token`, which may lie outside the vocabulary (F40): then nothing is ever accepted.

    Stands for a collapsed drafter, one that is stuck in a loop, or a wrong mask id. At temperature 0 Assumption 3.1 holds with
    c*_k = 0 where the target's k-th token is `token` and c*_k = k elsewhere: a run of w such tokens, w <= W, costs Linear one
    iteration and every other token too. It costs calls, never correctness (C06).
    """
    law = Point(token)
    return TabularModel(model.target, lambda context, offset: law)
