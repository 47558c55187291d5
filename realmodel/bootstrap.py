"""The paired bootstrap over prompts (BOOT): percentile intervals of aggregates, and of their ratios between methods.

A resample draws as many prompts as there are, with replacement, the same ones for every method; all repeats of a prompt go
together, so the input has one row per prompt, summed over its repeats. The intervals describe variation across prompts, not
timing noise, and are not adjusted for multiple comparisons. Percentile intervals are too short when prompts are few: measured
on ratios of throughputs, a nominal 95 % covers 83 % at 6 prompts, 89 % at 10, 92 % at 20, 93 % at 40.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.errors import InvalidInput

Floats = npt.NDArray[np.float64]
RESAMPLES = 20_000
_BLOCK = 1 << 22  # prompt indices drawn at a time: bounds the memory whatever the number of prompts


class Interval(NamedTuple):
    """A figure and its percentile interval; no interval from a single prompt, which cannot vary."""

    estimate: float
    low: float | None
    high: float | None


def resample(values: npt.ArrayLike, resamples: int = RESAMPLES, seed: int = 0) -> Floats:
    """Sums over resampled prompts. `values`: [prompts, ...], one row per prompt; the result: [resamples, ...].

    Raises InvalidInput without prompts or resamples.
    """
    values = np.asarray(values, dtype=np.float64)
    count = len(values)
    if not count or resamples < 1:
        raise InvalidInput(f"a bootstrap needs prompts and resamples, got {count} and {resamples}")
    flat = values.reshape(count, -1)  # [prompts, columns]
    rng = np.random.default_rng(seed)
    sums = np.empty((resamples, flat.shape[1]))
    step = max(1, _BLOCK // count)
    for begin in range(0, resamples, step):
        size = min(step, resamples - begin)
        chosen = rng.integers(count, size=(size, count)) + count * np.arange(size)[:, None]
        times = np.bincount(chosen.ravel(), minlength=size * count).reshape(size, count)  # how often each prompt was drawn
        sums[begin : begin + size] = times @ flat
    return sums.reshape(resamples, *values.shape[1:])


def interval(estimate: float, resampled: Floats, prompts: int, level: float = 0.95) -> Interval:
    """The percentile interval of a figure from its values on the resamples, [resamples]."""
    if prompts < 2:
        return Interval(estimate, None, None)
    low, high = np.quantile(resampled, [(1 - level) / 2, (1 + level) / 2])
    return Interval(estimate, float(low), float(high))
