"""The paper's side accounts: the block-size probe (F.1), rows under a proposal-only adapter (F.2), where time goes (F.3).

F.1 is a measurement of several widths on ten prompts, `measure(model, prompts[:10], Protocol(arms(names, widths), limits))`,
of which `chosen_widths` takes the fastest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from realmodel.efficiency import Key
from realmodel.figures import Figures, Row, Summary
from realmodel.layout import rows_of
from simulator.errors import InvalidInput
from simulator.records import Call
from simulator.schedule import Schedule

PROBE_PROMPTS = 10


def chosen_widths(summary: Summary) -> dict[str, Row]:
    """Per schedule the width of the highest throughput, W = B - 1; a refused row is not in the running (F.1)."""
    chosen: dict[str, Row] = {}
    for row in summary.rows:
        if row.figures is None or not row.width:
            continue
        best = chosen.get(row.name, row).figures
        assert best is not None
        if row.name not in chosen or row.figures.throughput.estimate > best.throughput.estimate:
            chosen[row.name] = row
    return chosen


class AdapterRows(NamedTuple):
    """What a proposal-only adapter costs: rows whose update is computed, rows that receive it (T5)."""

    evaluated: int
    selected: int


def adapter_rows(calls: Iterable[Call], padded: bool = True) -> AdapterRows:
    """Sums over calls, from their layouts: the adapter is off in a call that drafts nothing; in another it computes an update
    for every row and applies it to those that are there for the proposals (LORA). Rows that fill the cache do not count."""
    evaluated = selected = 0
    for call in calls:
        rows = _rows(call, padded)
        proposals = rows - _rows(call._replace(branches=()), padded)
        evaluated += rows if proposals else 0
        selected += proposals
    return AdapterRows(evaluated, selected)


def iteration_calls(schedule: Schedule) -> list[Call]:
    """The calls of one iteration after the start, behind a cached prefix. Padded, their rows do not depend on the draft."""
    return [Call((0,), (), *ask) for ask in schedule.cycle]


def _rows(call: Call, padded: bool) -> int:
    rows = rows_of(call, len(call.prefix) - 1, 0, padded)
    return len(rows.tokens) - rows.catch_up


class PerIteration(NamedTuple):
    """Means over the iterations after a run's first call (F.2); one iteration is one verification."""

    tokens: float  # beyond the first token of every response
    model: float | None  # seconds inside the network, drafting calls included
    iterations: float  # per response


def per_iteration(figures: Figures) -> PerIteration:
    """Raises InvalidInput when no run had more than its first call."""
    count = figures.iterations
    if not count:
        raise InvalidInput("no run had an iteration after its first call")
    model = None if figures.iterations_model is None else figures.iterations_model / count
    return PerIteration((figures.tokens - figures.responses) / count, model, count / figures.responses)


class Shares(NamedTuple):
    """Time as a share of the baseline's total, averaged over tasks."""

    model: float
    non_model: float

    @property
    def total(self) -> float:
        return self.model + self.non_model


def timing_decomposition(tasks: Mapping[str, Summary], baseline: Key) -> dict[Key, Shares | None]:
    """Per arm: each task's model and non-model time divided by the baseline's total time on that task, then the mean over
    tasks, so that tasks of long outputs do not dominate (F.3). None for an arm that some task refuses or does not time.

    Raises InvalidInput when the baseline was not measured and certified on every task.
    """
    totals = {}
    for task, summary in tasks.items():
        figures = {row.key: row.figures for row in summary.rows}.get(baseline)
        if figures is None:
            raise InvalidInput(f"the baseline {baseline[0]} at W = {baseline[1]} has no certified times on {task}")
        totals[task] = figures.wall
    keys = dict.fromkeys(row.key for summary in tasks.values() for row in summary.rows)
    return {key: _shares(key, tasks, totals) for key in keys}


def _shares(key: Key, tasks: Mapping[str, Summary], totals: Mapping[str, float]) -> Shares | None:
    model = non_model = 0.0
    for task, summary in tasks.items():
        figures = {row.key: row.figures for row in summary.rows}.get(key)
        if figures is None or figures.model is None:
            return None
        model += figures.model / totals[task] / len(tasks)
        non_model += (figures.wall - figures.model) / totals[task] / len(tasks)
    return Shares(model, non_model)
