"""Markov: easy and hard stretches of text, of geometric lengths."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from simulator.oracles.families.family import Family, Process, geometric, parameter


@dataclass(frozen=True, kw_only=True)
class Markov(Family):
    """Geometric lags whose mean depends on a two-state Markov chain, which begins in its stationary law."""

    name: ClassVar[str] = "markov"
    easy: float = parameter(0, inf, "mean lag in easy stretches, in tokens")
    hard: float = parameter(0, inf, "mean lag in hard stretches, in tokens")
    easy_run: float = parameter(1, inf, "mean length of an easy stretch, in tokens")
    hard_run: float = parameter(1, inf, "mean length of a hard stretch, in tokens")

    def process(self, cap: int) -> Process:
        below = np.stack([geometric(self.easy, cap), geometric(self.hard, cap)])
        return Process(below, switch=(1 / self.easy_run, 1 / self.hard_run))
