"""From draws of one problem to its score."""

from __future__ import annotations

from fractions import Fraction
from math import comb

from simulator.errors import InvalidInput


def pass_at(k: int, draws: int, correct: int) -> Fraction:
    """The unbiased estimator of pass@k (Chen et al., 2021) of one problem: 1 - C(draws - correct, k) / C(draws, k).

    The chance that k of the draws, chosen without putting back, hold a correct one. For k = 1 it is correct / draws.
    Raises InvalidInput unless 1 <= k <= draws and 0 <= correct <= draws.
    """
    if not 1 <= k <= draws:
        raise InvalidInput(f"pass@{k} needs at least {max(k, 1)} draws and k at least 1; there are {draws}")
    if not 0 <= correct <= draws:
        raise InvalidInput(f"{correct} of {draws} draws cannot be correct")
    return 1 - Fraction(comb(draws - correct, k), comb(draws, k))
