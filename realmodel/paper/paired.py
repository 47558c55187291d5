"""Figures of a cell and their intervals (METRICS, BOOT): quotients of sums over responses, resampled prompt by prompt.

One resample serves all methods of a cell, so that everything compared is paired; all draws of a prompt go together.
"""

from __future__ import annotations

import math

import numpy as np

from realmodel.bootstrap import RESAMPLES, Floats, Interval, interval, resample
from realmodel.paper.study import Cell


class Paired:
    """The sums of a cell. Methods are named by their place, columns by `study`'s numbers."""

    def __init__(self, cell: Cell, resamples: int = RESAMPLES, seed: int = 0) -> None:
        sums = np.moveaxis(cell.runs.sum(axis=2), 0, 1)  # [prompts, methods, columns]; NaN where a part is not known
        self.prompts, self.responses = len(cell.prompts), len(cell.prompts) * cell.draws
        self.total: Floats = sums.sum(axis=0)  # [methods, columns]
        self.resampled: Floats = resample(sums, resamples, seed)  # [resamples, methods, columns]

    def mean(self, method: int, column: int) -> float:
        """Per response."""
        return float(self.total[method, column] / self.responses)

    def quotient(self, method: int, over: int, under: int) -> Interval:
        """A rate of aggregates, as tokens/NFE."""
        return self._interval(_divided(self.total[method, over], self.total[method, under]),
                              _divided(self.resampled[:, method, over], self.resampled[:, method, under]))  # fmt: skip

    def ratio(self, method: int, baseline: int, over: int, under: int) -> Interval:
        """The quotient of a method over that of a baseline."""
        mine, theirs = (self.quotient(each, over, under).estimate for each in (method, baseline))
        resampled = [_divided(self.resampled[:, each, over], self.resampled[:, each, under]) for each in (method, baseline)]
        return self._interval(_divided(mine, theirs), _divided(*resampled))

    def mean_interval(self, method: int, column: int) -> Interval:
        """Per response."""
        return self._interval(self.mean(method, column), self.resampled[:, method, column] / self.responses)

    def difference(self, method: int, baseline: int, column: int) -> Interval:
        """Per response, method - baseline."""
        total = self.total[method, column] - self.total[baseline, column]
        resampled = self.resampled[:, method, column] - self.resampled[:, baseline, column]
        return self._interval(total / self.responses, resampled / self.responses)

    def _interval(self, estimate: Floats | float, resampled: Floats) -> Interval:
        estimate = float(estimate)
        if not math.isfinite(estimate) or not np.isfinite(resampled).all():
            return Interval(estimate, None, None)
        return interval(estimate, resampled, self.prompts)


def _divided(over: Floats | float, under: Floats | float) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.asarray(over, dtype=np.float64) / np.asarray(under, dtype=np.float64)
    return found
