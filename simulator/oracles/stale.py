"""Stale: a drafter that has not yet seen the newest tokens."""

from __future__ import annotations

from simulator.errors import InvalidInput
from simulator.laws import Law
from simulator.oracles.answer import Oracle
from simulator.oracles.tabular import TabularModel


def stale(model: Oracle, age: int, prompt_length: int = 0) -> TabularModel:
    """`model`'s proposals for the same positions, but from the context `age` tokens earlier, or from the prompt if that is
    later.

    Stands for a drafter behind a pipeline or a cache that lags. Assumption 3.1 holds if it held for `model`: a threshold
    c*_k > 0 becomes min(k, c*_k + age), and 0 stays 0. It costs what those thresholds cost; never correctness (C06).

    Raises InvalidInput for a negative age.
    """
    if age < 0:
        raise InvalidInput(f"the age must be >= 0 tokens, got {age}")

    def proposal(context: tuple[int, ...], offset: int) -> Law:
        missing = min(age, max(0, len(context) - prompt_length))
        return model.proposal(context[: len(context) - missing], offset + missing)

    return TabularModel(model.target, proposal)
