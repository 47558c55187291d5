"""Independent lags: every position looks back a random number of tokens, whatever happened before."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from simulator.errors import InvalidInput
from simulator.oracles.families.family import Family, Process, geometric, parameter


@dataclass(frozen=True, kw_only=True)
class Geometric(Family):
    """Geometric lags >= 0. A draft token is right with probability (mean / (1 + mean))^j, j positions after its context."""

    name: ClassVar[str] = "geometric"
    mean: float = parameter(0, inf, "mean lag: how far ahead the drafter sees, in tokens")

    def process(self, cap: int) -> Process:
        return Process(np.tile(geometric(self.mean, cap), (2, 1)))


@dataclass(frozen=True, kw_only=True)
class Histogram(Family):
    """Lags 0, 1, 2, ... with probabilities in proportion to given weights, as counted on a real drafter."""

    name: ClassVar[str] = "histogram"
    weights: tuple[float, ...] = parameter(0, inf, "weights of the lags 0, 1, 2, ...")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < sum(self.weights) < inf:
            raise InvalidInput(f"histogram: weights must have a sum > 0 and finite, got {list(self.weights)}")

    def process(self, cap: int) -> Process:
        below = np.cumsum(self.weights) / sum(self.weights)
        below = np.concatenate([below[:cap], np.ones(max(1, cap + 1 - len(below)))])
        return Process(np.tile(below, (2, 1)))
