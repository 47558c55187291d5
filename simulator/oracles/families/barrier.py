"""Barriers: surprises that nothing behind them can be drafted past."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulator.oracles.families.family import Family, Process, parameter, unlimited


@dataclass(frozen=True, kw_only=True)
class Barrier(Family):
    """A renewal process. A surprise s is never drafted right (c*_s = s); every position after it, up to the next one, is
    drafted right from a context that holds s, and from no other (c*_k = s). All drafts made before it are wasted."""

    name: ClassVar[str] = "barrier"
    rate: float = parameter(0, 1, "probability that a token is a surprise")

    def process(self, cap: int) -> Process:
        return Process(np.tile(unlimited(cap), (2, 1)), surprise=(self.rate, self.rate))
