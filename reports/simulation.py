"""What `packedss simulate` computes: calls counted by the engine, or by the scheduler where a trace or a model is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from simulator.errors import InvalidInput
from simulator.nfe.counting import Tally, blocks, rows
from simulator.oracles.threshold import ThresholdModel
from simulator.schedule import Schedule
from simulator.simulate import count_calls
from simulator.trace import TracedRequest

ByWidth: TypeAlias = Mapping[int, Sequence[Schedule]]
Recorders: TypeAlias = Mapping[int, Callable[[TracedRequest], None]]
Shown: TypeAlias = Callable[[Iterable[Any]], Iterator[Any]]

_MOST_TOKENS = 1_000_000


class Request(NamedTuple):
    """What is asked of every schedule."""

    tokens: int  # L
    runs: int
    eos_rate: float
    start: str
    seed: int


@dataclass(frozen=True)
class Result:
    """All schedules of one width on the same runs."""

    width: int
    schedules: tuple[Schedule, ...]
    tally: Tally
    worse: tuple[int, ...]  # per schedule: runs in which it needs more calls than Linear-SS
    exact: tuple[float | None, ...]  # per schedule: tokens/NFE without simulation, as far as there is a law

    @property
    def linear(self) -> int | None:
        """The number of Linear-SS among the schedules."""
        return next((index for index, schedule in enumerate(self.schedules) if schedule.name == "linear"), None)

    def rows(self, index: int) -> int:
        """Token rows evaluated, padding included (TAB2), summed over the runs."""
        counts = self.tally.histograms[index]
        per_run = rows(self.schedules[index], list(counts))
        return sum(int(each) * number for each, number in zip(per_run, counts.values(), strict=True))

    def plain(self) -> list[dict[str, Any]]:
        """For JSON, a schedule a row."""
        return [
            {
                "width": self.width,
                "schedule": schedule.name,
                "runs": self.tally.runs,
                "tokens": self.tally.sums[0],
                "nfe": self.tally.sums[index + 1],
                "nfe_histogram": dict(self.tally.histograms[index]),
                "rows": self.rows(index),
                "tokens_per_nfe": self.tally.tokens_per_nfe(index)._asdict(),
                "tokens_per_nfe_exact": self.exact[index],
                "gain_over_linear": None if self.linear is None else self.tally.gain(index, self.linear)._asdict(),
                "runs_with_more_calls_than_linear": self.worse[index],
            }
            for index, schedule in enumerate(self.schedules)
        ]


def family(text: str, by_width: ByWidth, request: Request, shown: Shown, recorders: Recorders) -> list[Result]:
    """Runs of a drafter family; the engine counts them unless they are to be recorded."""
    from simulator.nfe.laws import law_of, tokens_per_nfe
    from simulator.oracles.families import parse

    drafters = parse(text)
    if recorders:
        if request.tokens > _MOST_TOKENS:
            raise InvalidInput(f"a traced run has at most {_MOST_TOKENS:,} tokens, got {request.tokens}")
        if request.eos_rate:
            raise InvalidInput("--eos-rate and --trace cannot go together: traced runs all have L tokens")
        cap = max(by_width) + 1
        models = [drafters.model(request.seed, run, request.tokens, cap) for run in range(request.runs)]
        return _counted(models, by_width, request, shown, recorders)
    results = []
    for width, schedules in by_width.items():
        names = [schedule.name for schedule in schedules]
        linear = names.index("linear") if "linear" in names else None
        tally, worse = Tally.none(names), np.zeros(len(names), np.int64)
        for ends, nfe in shown(blocks(drafters, schedules, request.runs, request.tokens, request.seed, request.eos_rate)):
            tally += Tally.of(names, ends, nfe)
            worse += 0 if linear is None else (nfe > nfe[linear]).sum(axis=1)
        exact: list[float | None] = [None] * len(names)
        if request.tokens and not request.eos_rate:
            try:
                law = law_of(drafters, width + 1)
                exact = [float(tokens_per_nfe(schedule, law, request.tokens)) for schedule in schedules]
            except InvalidInput:  # a family without an exact law
                pass
        results.append(Result(width, tuple(schedules), tally, tuple(worse.tolist()), tuple(exact)))
    return results


def given(thresholds: list[int], by_width: ByWidth, request: Request, shown: Shown, recorders: Recorders) -> list[Result]:
    """One run with these thresholds."""
    return _counted([ThresholdModel(thresholds)], by_width, request, shown, recorders)


def empirical(text: str, by_width: ByWidth, request: Request, shown: Shown, recorders: Recorders, quiet: bool) -> list[Result]:
    """A drafter that `packedss audit` measured: its prompts again, each with its length, or requests resampled from them."""
    from simulator.oracles.empirical import load_audits, replay_nfe, resample

    kind, _, file = text.partition(":")
    audits = load_audits(Path(file))
    results = []
    for width, schedules in by_width.items():
        if width not in audits:
            measured = ", ".join(map(str, sorted(audits)))
            raise InvalidInput(f"{file!r} was measured at W = {measured}, and says nothing of W = {width}: give --width")
        if kind == "resampled":
            models = resample(audits[width], request.runs, request.tokens, request.seed)
            results += _counted(models, {width: schedules}, request, shown, recorders)
            continue
        if recorders:
            raise InvalidInput("a replay has no trace; `packedss validate --trace` writes the model's own")
        simulated = replay_nfe(audits[width], [(schedule.name, schedule) for schedule in schedules])
        if not quiet:
            from reports.audit_view import print_replay

            print_replay(audits[width], simulated, request.start)
        tokens = [len(prompt.rows) for prompt in audits[width].prompts]
        nfe = [[run[schedule.name] for run in simulated] for schedule in schedules]
        results.append(_result(width, schedules, tokens, nfe))
    return results


def _counted(
    models: Sequence[ThresholdModel], by_width: ByWidth, request: Request, shown: Shown, recorders: Recorders
) -> list[Result]:
    if request.tokens > _MOST_TOKENS:
        raise InvalidInput(f"a run counted call by call has at most {_MOST_TOKENS:,} tokens, got {request.tokens}")
    results = []
    for width, schedules in by_width.items():
        recording: dict[str, Any] = {"record": recorders[width]} if recorders else {}
        counts = count_calls(schedules, models, request.tokens, shown, **recording)
        tokens = [request.tokens] * len(models)
        results.append(_result(width, schedules, tokens, [count.nfe for count in counts]))
    return results


def _result(width: int, schedules: Sequence[Schedule], tokens: Sequence[int], nfe: Sequence[Sequence[int]]) -> Result:
    names, calls = [schedule.name for schedule in schedules], np.array(nfe, np.int64)
    worse = (calls > calls[names.index("linear")]).sum(axis=1).tolist() if "linear" in names else [0] * len(names)
    tally = Tally.of(names, np.array(tokens, np.int64), calls)
    return Result(width, tuple(schedules), tally, tuple(worse), (None,) * len(names))


def draw(results: Sequence[Result], request: Request, drafter: str, file: Path) -> None:
    """Histograms of the number of calls, the exact law over them where there is one. Raises InvalidInput for several widths."""
    from reports.plots import exact_nfe, nfe_histogram, save
    from simulator.oracles.families import parse

    if len(results) != 1:
        raise InvalidInput(f"--plot draws one width at a time, got W = {', '.join(str(result.width) for result in results)}")
    [result] = results
    exact: list[Sequence[float] | None] = [None] * len(result.schedules)
    if any(value is not None for value in result.exact):
        exact = exact_nfe(parse(drafter), result.schedules, request.tokens)
    setting = f"{drafter or 'given thresholds'}, W = {result.width}, L = {request.tokens}, start {request.start}"
    save(nfe_histogram(result.tally.schedules, result.tally.histograms, exact, setting), file)
