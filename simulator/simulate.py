"""How many calls? Schedules run on the same threshold drafters, before any GPU is booked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from simulator.decode import generate
from simulator.errors import InvalidInput
from simulator.oracles.threshold import ThresholdModel, random_lags
from simulator.records import Limits
from simulator.schedule import Schedule
from simulator.trace import TracedRequest

Drafter: TypeAlias = Sequence[int] | ThresholdModel
"""Thresholds c*_1 .. c*_L of one request (ASM3.1), or a model like them, ASM3.1 or not."""


class CallCount(NamedTuple):
    """One schedule over all drafters."""

    schedule: str
    tokens: int  # emitted, summed over the runs
    nfe: tuple[int, ...]  # forward passes, one count per run
    rows: int  # token rows evaluated, padding included (TAB2), summed

    @property
    def tokens_per_nfe(self) -> float:
        """Aggregate, not a mean of ratios (METRICS)."""
        return self.tokens / max(1, sum(self.nfe))


def lag_drafters(runs: int, length: int, mean_lag: float, seed: int) -> list[list[int]]:
    """`runs` drafters with independent geometric lags (see `random_lags`), reproducible from `seed`."""
    if seed < 0:
        raise InvalidInput(f"the seed must be >= 0, got {seed}")
    rng = np.random.default_rng(seed)
    return [random_lags(length, mean_lag, rng).tolist() for _ in range(runs)]


def count_calls(
    schedules: Sequence[Schedule],
    drafters: Sequence[Drafter],
    length: int,
    progress: Callable[[Iterable[Drafter]], Iterator[Drafter]] = iter,
    record: Callable[[TracedRequest], None] = lambda request: None,
) -> list[CallCount]:
    """Run every schedule on every drafter until `length` tokens; `record` is handed every run.

    Raises InvalidInput for a threshold c*_k outside 0 .. k.
    """
    limits = Limits.of(length)
    tokens, rows = [0] * len(schedules), [0] * len(schedules)
    nfe: list[list[int]] = [[] for _ in schedules]
    for number, drafter in enumerate(progress(drafters)):
        model = drafter if isinstance(drafter, ThresholdModel) else ThresholdModel(drafter)
        for index, schedule in enumerate(schedules):
            run = generate(model, schedule, (), limits)
            record(TracedRequest(f"drafter {number}", schedule.name, (), limits, run))
            tokens[index] += len(run.tokens)
            nfe[index].append(run.nfe)
            rows[index] += sum(step.rows for step in run.steps)
    return [CallCount(schedule.name, tokens[index], tuple(nfe[index]), rows[index]) for index, schedule in enumerate(schedules)]
