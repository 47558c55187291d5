"""From records to figures (METRICS, BOOT): sums over prompts, quotients of the sums, their intervals, and who is refused one.

A speed is total tokens / total wall time, never a mean of speeds. An arm whose outputs nobody certified has no figures at all,
and nobody is compared with it: a faulty decoder may well be a fast one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import nan
from typing import Any, NamedTuple

import numpy as np

from realmodel.bootstrap import RESAMPLES, Floats, Interval, interval, resample
from realmodel.efficiency import GENERATE, Key, Record
from simulator.errors import InvalidInput
from simulator.records import Step


class Verdict(NamedTuple):
    """What somebody who checked an arm's outputs says of them."""

    certified: bool
    words: str


class Figures(NamedTuple):
    """Sums over all cells of an arm, and what follows from them. Times in seconds."""

    responses: int
    tokens: int  # stop tokens included
    nfe: int
    rows: int  # token rows evaluated, padding included, prompt rows excluded
    wall: float
    model: float | None  # inside the network; None for transformers' generate, which does not tell
    iterations: int  # verifying calls after a run's first call (F.2)
    iterations_model: float | None  # time inside the network after a run's first call
    largest_call: int  # most rows of a call after a run's first
    peak_memory: int  # bytes; see Record
    tested: tuple[int, ...]  # how often a draft token at position 1, 2, .. was tested
    accepted: tuple[int, ...]  # how often it was accepted
    lengths: tuple[int, ...]  # how many verifying calls accepted 0, 1, .. draft tokens
    tokens_per_nfe: Interval
    time_per_nfe: Interval
    throughput: Interval  # tokens per second

    @property
    def non_model(self) -> float | None:
        """Time outside the network: proposals, acceptance, state, layout."""
        return None if self.model is None else self.wall - self.model

    @property
    def acceptance(self) -> list[float]:
        """Share of the tested draft tokens that were accepted, by draft position; NaN where none was tested."""
        return [a / n if n else nan for a, n in zip(self.accepted, self.tested, strict=True)]


class Comparison(NamedTuple):
    """An arm against a baseline on the same prompts: quotients of aggregates, arm / baseline."""

    baseline: Key
    tokens_per_nfe: Interval
    time_per_nfe: Interval
    throughput: Interval
    nfe: Interval
    wall: Interval
    wall_difference: Interval  # seconds per response, arm - baseline


class Row(NamedTuple):
    """An arm in a table of speeds; REFUSED, without figures, unless its outputs are certified and it emitted a token."""

    name: str
    width: int
    verdict: Verdict
    figures: Figures | None
    comparisons: tuple[Comparison, ...]

    @property
    def key(self) -> Key:
        return self.name, self.width

    @property
    def refused(self) -> bool:
        return self.figures is None


@dataclass(frozen=True)
class Summary:
    """The result of `summarise`."""

    rows: tuple[Row, ...]
    prompts: int
    repeats: int
    contended: bool  # several workers shared the machine: counts stand, times are no honest speeds
    resamples: int
    seed: int

    def row(self, key: Key) -> Row:
        """The row of an arm. Raises KeyError when it was not measured."""
        rows = {row.key: row for row in self.rows}
        return rows[key]

    def plain(self) -> dict[str, Any]:
        """For JSON: named fields all the way down."""
        return asdict(self) | {"rows": [_plain(row) | {"refused": row.refused} for row in self.rows]}


def summarise(records: Sequence[Record], verdicts: Mapping[Key, Verdict], resamples: int = RESAMPLES, seed: int = 0) -> Summary:
    """One row per arm: generate, AR, then width by width; intervals by the paired bootstrap over prompts.

    An arm without a verdict is refused; transformers' generate is what the others are certified against and needs none.
    Baselines: the only Linear-SS or the one of the same width, AR or any-order serial decoding, and transformers' generate, as
    far as they were measured.
    Raises InvalidInput unless every arm ran on every prompt as often.
    """
    keys = sorted({record.key for record in records}, key=_place)
    cells: dict[Key, list[Record]] = {key: [r for r in records if r.key == key] for key in keys}
    prompts = list(dict.fromkeys(record.prompt for record in records))
    repeats = len({record.repeat for record in records})
    wanted = {(prompt, repeat) for prompt in prompts for repeat in range(repeats)}
    for key, runs in cells.items():
        if len(runs) != len(wanted) or {(run.prompt, run.repeat) for run in runs} != wanted:
            raise InvalidInput(f"{key[0]} at W = {key[1]} was not run on every prompt {repeats} times: nothing can be paired")
    if not records:
        raise InvalidInput("there are no records to summarise")

    sums = np.zeros((len(prompts), len(keys), 3))  # tokens, NFE, wall
    places = {name: place for place, name in enumerate(prompts)}
    for column, key in enumerate(keys):
        for run in cells[key]:
            sums[places[run.prompt], column] += len(run.tokens), run.nfe, run.wall
    resampled = resample(sums, resamples, seed)  # [resamples, arms, 3]
    columns = {key: (sums.sum(0)[column], resampled[:, column]) for column, key in enumerate(keys)}

    given = {(GENERATE, 0): Verdict(True, "reference"), **verdicts}
    verdict = {key: given.get(key, Verdict(False, "not certified")) for key in keys}
    shown = {key for key in keys if verdict[key].certified and all(columns[key][0][:2])}
    rows = []
    for key in keys:
        figures, comparisons = None, []
        if key in shown:
            figures = _figures(cells[key], *columns[key], len(prompts))
            for baseline in _baselines(key, keys):
                if baseline in shown:
                    comparisons.append(_compare(baseline, columns[key], columns[baseline], len(prompts), repeats))
        rows.append(Row(*key, verdict[key], figures, tuple(comparisons)))
    return Summary(tuple(rows), len(prompts), repeats, any(r.contended for r in records), resamples, seed)


def acceptance(steps: Sequence[Step]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(tested, accepted) by draft position from 1, and verifying calls by accepted count from 0, before any stopping rule.

    A token is tested only when all before it in its draft were accepted.
    """
    longest = max((len(step.verified) for step in steps), default=0)
    tested, accepted, lengths = [0] * longest, [0] * longest, [0] * (longest + 1)
    for step in steps:
        if not step.predictions:
            continue  # it verified nothing
        lengths[step.accepted] += 1
        for position in range(min(step.accepted + 1, len(step.verified))):
            tested[position] += 1
            accepted[position] += position < step.accepted
    return tuple(tested), tuple(accepted), tuple(lengths)


def _figures(runs: Sequence[Record], total: Floats, resampled: Floats, prompts: int) -> Figures:
    steps = [step for run in runs for step in run.steps]
    later = [step for run in runs for step in run.steps[1:]]
    timed = all(run.model for run in runs)
    return Figures(
        responses=len(runs),
        tokens=sum(len(run.tokens) for run in runs),
        nfe=sum(run.nfe for run in runs),
        rows=sum(run.rows for run in runs),
        wall=sum(run.wall for run in runs),
        model=sum(sum(run.model) for run in runs) if timed else None,
        iterations=sum(bool(step.predictions) for step in later),
        iterations_model=sum(sum(run.model[1:]) for run in runs) if timed else None,
        largest_call=max((step.rows for step in later or steps), default=1),
        peak_memory=max(run.peak_memory for run in runs),
        **dict(zip(("tested", "accepted", "lengths"), acceptance(steps), strict=True)),
        tokens_per_nfe=_quotient(total, resampled, 0, 1, prompts),
        time_per_nfe=_quotient(total, resampled, 2, 1, prompts),
        throughput=_quotient(total, resampled, 0, 2, prompts),
    )


def _quotient(total: Floats, resampled: Floats, over: int, under: int, prompts: int) -> Interval:
    return interval(total[over] / total[under], resampled[:, over] / resampled[:, under], prompts)


def _compare(
    baseline: Key, mine: tuple[Floats, Floats], theirs: tuple[Floats, Floats], prompts: int, repeats: int
) -> Comparison:
    (total, resampled), (base, base_resampled) = mine, theirs
    ratio, ratios = total / base, resampled / base_resampled  # of tokens, NFE, wall
    responses = prompts * repeats
    difference, differences = (total - base)[2] / responses, (resampled - base_resampled)[:, 2] / responses
    return Comparison(
        baseline,
        tokens_per_nfe=_quotient(ratio, ratios, 0, 1, prompts),
        time_per_nfe=_quotient(ratio, ratios, 2, 1, prompts),
        throughput=_quotient(ratio, ratios, 0, 2, prompts),
        nfe=interval(ratio[1], ratios[:, 1], prompts),
        wall=interval(ratio[2], ratios[:, 2], prompts),
        wall_difference=interval(difference, differences, prompts),
    )


def _baselines(key: Key, keys: Sequence[Key]) -> list[Key]:
    linears = [other for other in keys if other[0] == "linear"]
    linears = linears if len(linears) == 1 else [other for other in linears if other[1] == key[1]]
    return [other for other in (*linears, ("ar", 0), ("serial", 0), (GENERATE, 0)) if other in keys and other != key]


def _place(key: Key) -> tuple[int, int, int, str]:
    known = (GENERATE, "ar", "serial", "linear", "packed", "quadratic")
    return known.index(key[0]) if key[0] in known[:3] else 3, key[1], (*known, key[0]).index(key[0]), key[0]


def _plain(value: Any) -> Any:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(item) for name, item in value._asdict().items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
