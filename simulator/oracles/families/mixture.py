"""Mixture: surprises, behind which some tokens stay predictable all the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from simulator.oracles.families.family import Family, Process, parameter, unlimited


@dataclass(frozen=True, kw_only=True)
class Mixture(Family):
    """`Barrier`, but each position behind a surprise ignores it with probability rho: c*_k = 0. rho = 0 is `Barrier`; with
    rho = 1 the lags are independent, 0 or unlimited. Linear-SS, which always drafts from the newest token, cannot tell them
    apart: rho decides what a draft made before a surprise is worth, and so what Packed-SS gains."""

    name: ClassVar[str] = "mixture"
    rate: float = parameter(0, 1, "probability that a token is a surprise")
    rho: float = parameter(0, 1, "share of tokens behind a surprise that stay predictable")

    def process(self, cap: int) -> Process:
        return Process(np.tile(unlimited(cap), (2, 1)), (self.rate, self.rate), (self.rho, self.rho))
