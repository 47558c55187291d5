"""What `packedss simulate --any-order` computes: calls of the any-order schedules, order by order, on the same drafters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from simulator.any_order import NAMES, STARTS, named
from simulator.decode import generate
from simulator.errors import InvalidInput
from simulator.nfe.counting import Tally
from simulator.oracles.families import read
from simulator.oracles.neighbours import Neighbours
from simulator.records import Limits

DEFAULT = "neighbours:need=3"
_MOST = 100_000_000  # tokens times width, of all runs of a schedule
_FAMILIES = {Neighbours.name: Neighbours}


class Request(NamedTuple):
    """What is asked of every schedule."""

    drafter: str
    orders: Sequence[str]
    schedules: Sequence[str]
    widths: Sequence[int]
    tokens: int  # L
    runs: int
    start: str
    seed: int


@dataclass(frozen=True)
class Result:
    """All schedules of one order and width on the same runs."""

    order: str
    width: int
    tally: Tally
    rows: tuple[int, ...]  # per schedule: token rows evaluated, padding included
    right: tuple[int, ...]  # per schedule: output tokens that are the verifier's own
    worse: tuple[int, ...]  # per schedule: runs in which it needs more calls than Linear-SS

    @property
    def linear(self) -> int | None:
        """The number of Linear-SS among the schedules."""
        return self.tally.schedules.index("linear") if "linear" in self.tally.schedules else None

    def plain(self) -> list[dict[str, Any]]:
        """For JSON, a schedule a row."""
        return [
            {
                "order": self.order,
                "width": self.width,
                "schedule": schedule,
                "runs": self.tally.runs,
                "tokens": self.tally.sums[0],
                "nfe": self.tally.sums[index + 1],
                "nfe_histogram": dict(self.tally.histograms[index]),
                "rows": self.rows[index],
                "right": self.right[index],
                "tokens_per_nfe": self.tally.tokens_per_nfe(index)._asdict(),
                "gain_over_linear": None if self.linear is None else self.tally.gain(index, self.linear)._asdict(),
                "runs_with_more_calls_than_linear": self.worse[index],
            }
            for index, schedule in enumerate(self.tally.schedules)
        ]


def simulate(request: Request, shown: Callable[[Iterable[Any]], Iterator[Any]]) -> list[Result]:
    """Every order and width. Raises InvalidInput for what is out of range or unknown, before anything is run."""
    family = read(request.drafter, _FAMILIES)
    limits = Limits.of(request.tokens)
    for name in request.schedules:
        if name not in NAMES:
            raise InvalidInput(f"unknown any-order schedule {name!r}; allowed: {', '.join(NAMES)}")
    if request.start not in STARTS:
        raise InvalidInput(f"unknown start {request.start!r} of an any-order schedule; allowed: {', '.join(STARTS)}")
    if request.tokens * request.runs * max(request.widths) > _MOST:
        raise InvalidInput(
            f"--tokens times --runs times --width may be {_MOST:,} with --any-order: these runs are made call by call"
        )
    policies = {
        (order, width): [named(name, width, order, request.start) for name in request.schedules]
        for order in request.orders
        for width in request.widths
    }
    names = list(request.schedules)
    calls: dict[tuple[str, int], list[list[int]]] = {key: [[] for _ in names] for key in policies}
    sums = {key: [[0, 0] for _ in names] for key in policies}  # rows, right
    for number in shown(range(request.runs)):
        model = family.model(request.seed, number, request.tokens)
        for key, schedules in policies.items():
            for index, schedule in enumerate(schedules):
                run = generate(model, schedule, (), limits)
                calls[key][index].append(run.nfe)
                sums[key][index][0] += sum(step.rows for step in run.steps)
                sums[key][index][1] += run.tokens.count(0)
    results = []
    for (order, width), nfe in calls.items():
        counts = np.array(nfe, np.int64)
        worse = (counts > counts[names.index("linear")]).sum(axis=1).tolist() if "linear" in names else [0] * len(names)
        tally = Tally.of(names, np.full(request.runs, request.tokens, np.int64), counts)
        rows, right = zip(*sums[order, width], strict=True)
        results.append(Result(order, width, tally, rows, right, tuple(worse)))
    return results
