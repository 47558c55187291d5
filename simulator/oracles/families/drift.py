"""Drift: difficulty that depends on the position, as in an answer that starts by repeating the question."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import numpy as np

from simulator.oracles.families.family import Family, Process, geometric, parameter


@dataclass(frozen=True, kw_only=True)
class Drift(Family):
    """Independent lags. At position 1 they are geometric with mean `early`; the share of positions with mean `late` instead
    grows linearly until, `turn` tokens later, it is all of them. E[lag] moves linearly from `early` to `late`."""

    name: ClassVar[str] = "drift"
    early: float = parameter(0, inf, "mean lag at the first position, in tokens")
    late: float = parameter(0, inf, "mean lag from position 1 + turn on, in tokens")
    turn: float = parameter(1, inf, "how long the change takes, in tokens")

    def process(self, cap: int) -> Process:
        return Process(np.stack([geometric(self.early, cap), geometric(self.late, cap)]), turn=self.turn)
