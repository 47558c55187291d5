"""The whole protocol, cell by cell: decode, grade, certify, keep what came out. Every finished prompt stays in the folder."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from realmodel.binding import BoundModel
from realmodel.decomposition import chosen_widths
from realmodel.dualmode import DualModeModel
from realmodel.efficiency import Arm, Measurement, Prompt, Protocol, Record, Source, measure, opened
from realmodel.figures import Verdict, summarise
from realmodel.paper import study
from realmodel.paper.certifying import Certifier, Found, certificates, trajectories
from realmodel.paper.estimate import Memory, Time, fits, memory_of, time_of
from realmodel.paper.grading import Answers, grade
from realmodel.paper.plan import PAPER_BLOCKS, Job, Plan
from realmodel.paper.prompts import prompts_of, text_of
from realmodel.paper.study import Cell, Method, Reason, Study
from realmodel.results import Parameters, Results, digest
from realmodel.setdlm import SetDLM
from realmodel.tasks import Grade, Problem
from simulator.errors import InvalidInput
from simulator.records import Tokens

_REASONS = 8  # of a method's wrong answers, the most frequent
_LONGEST_REASON = 160  # characters
Shown = Callable[[Iterable[Any], int, str], Iterable[Any]]


class Engine(NamedTuple):
    """Where tasks are decoded (`simulator.engines`)."""

    name: str = "local"
    workers: int = 1
    address: str | None = None

    @property
    def alone(self) -> bool:
        """Whether decoding has the machine to itself, in this process."""
        return self.name == "local" and self.workers == 1


class Care(NamedTuple):
    """How much is certified, see `Certifier`."""

    prompts: int = 4
    sampled: int = 2000
    ties: int = 20
    dtype: str = "float64"  # of the reference
    device: str | None = None  # of the reference; None: the model's


@dataclass(frozen=True)
class Prepared:
    """A plan with its problems read, its model loaded and its prompts made."""

    plan: Plan
    model: BoundModel
    problems: dict[str, tuple[Problem, ...]]
    prompts: dict[str, list[Prompt]]
    past: int = 0  # prompts that go, with their outputs, past the length the model was trained on, as the paper's do (E.1)

    def of(self, job: Job) -> list[Prompt]:
        """The prompts of a job."""
        return self.prompts[job.task.name][: len(job.problems)]

    def provisional(self) -> list[Job]:
        """The probe, and every job; where the probe is still to choose, with the paper's block sizes."""
        blocks = dict(self.plan.blocks or PAPER_BLOCKS.items())
        probe = self.plan.probing(self.problems)
        return [*([probe] if probe else []), *self.plan.jobs(self.problems, blocks, self.model)]


def prepare(plan: Plan) -> Prepared:
    """Read the tasks, load the model, make and check the prompts. Raises InvalidInput, in one line, for whatever is wrong."""
    problems = plan.problems()
    with in_memory("loading the model"):
        model = opened(plan.source)
    if isinstance(model, SetDLM):
        model.beyond = True
    prompts = {name: prompts_of(plan.source, model, found) for name, found in problems.items()}
    prepared = Prepared(plan, model, problems, prompts)
    past = sum(fits(job, model, prepared.of(job)) for job in prepared.provisional())
    return replace(prepared, past=past)


def estimate(prepared: Prepared, care: Care) -> tuple[list[Time], Memory]:
    """Time of every job, and memory."""
    jobs, times = prepared.provisional(), []
    for job in jobs:
        with in_memory(f"the estimate for {job.name}"):
            times.append(time_of(prepared.model, job, prepared.of(job), prepared.plan.seed, prepared.plan.padded))
    longest = max(len(ids) for job in jobs for _, ids in prepared.of(job))
    rows = max((each.width + 1) * (each.width + 2) for job in jobs for each in job.contenders)
    return times, memory_of(prepared.model, care.dtype, longest, max(job.cap for job in jobs), rows)


def run(
    prepared: Prepared,
    folder: Path,
    engine: Engine = Engine(),  # noqa: B008
    care: Care = Care(),  # noqa: B008
    shown: Shown = lambda items, total, label: items,
    said: Callable[[str], None] = lambda text: None,
) -> Study:
    """Run every job and return the study, which is also in the folder, cell by cell, with all that it was made from.

    shown  wraps what is iterated, with its number and a label; `said` is told what happens, line by line
    Raises InvalidInput, in one line, when memory runs out or an answer cannot be graded: what was finished stays.
    """
    plan, model = prepared.plan, prepared.model
    runs, kept = Results(folder / "runs"), Results(folder / "kept")
    result: Study | None = None
    reference: BoundModel | None = None
    blocks = dict(plan.blocks or ())
    probe = plan.probing(prepared.problems)
    waiting = [probe] if probe else plan.jobs(prepared.problems, blocks, model)
    while waiting:
        job = waiting.pop(0)
        prompts = prepared.of(job)
        where = Engine() if job.kind == study.PROBE else engine  # which compares speeds
        measured = _decode(prepared, job, prompts, folder, where, shown)
        said(f"{job.name}: {len(prompts)} prompts, {measured.reused} of them finished before")
        for damaged in measured.damaged:
            said(f"measured again: {damaged}")
        grades = _grade(prepared, job, measured, kept, shown)
        if reference is None:
            with in_memory("loading the reference"):
                reference = opened_reference(plan.source, care)
        few = min(care.prompts, len(prompts))
        by = Certifier(model, job.limits(model), reference, kept, few, care.sampled, care.ties, plan.seed, plan.padded)
        with in_memory(f"certifying {job.name}", folder):
            cell = _certified(by, job, prompts, measured, grades, runs.path, shown)
        result = _added(result, cell, prepared, measured)
        study.write(result, folder)
        if job.kind == study.PROBE:
            blocks = _chosen(job, measured, cell)
            said("chosen by the probe: " + ", ".join(f"{name} B = {size}" for name, size in blocks.items()))
            waiting = plan.jobs(prepared.problems, blocks, model)
    assert result is not None
    return result


def opened_reference(source: Source, care: Care) -> BoundModel:
    """The same weights for the certificates. Not by `opened`, which remembers one model only."""
    from realmodel.any_order.loading import is_any_order, load_any_order
    from realmodel.loading import load

    device = care.device or source.device
    if is_any_order(source.name):
        return load_any_order(source.name, care.dtype, device)
    return load(source.name, care.dtype, device, source.trust_remote_code)


@contextmanager
def in_memory(what: str, folder: Path | None = None) -> Iterator[None]:
    """Say in one line that memory ran out, and where."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _out_of_memory(error):
            raise
        stays = "" if folder is None else f" Finished prompts stay in {str(folder)!r}, and the same command goes on from there."
        raise InvalidInput(
            f"out of memory while {what}: smaller block sizes, a lower cap, --reference-dtype float32 or a reference on the CPU"
            f" need less.{stays}"
        ) from error


def _out_of_memory(error: BaseException) -> bool:
    text = str(error).lower()
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "out of memory" in text or "can't allocate memory" in text or "not enough memory" in text


def _decode(prepared: Prepared, job: Job, prompts: list[Prompt], folder: Path, engine: Engine, shown: Shown) -> Measurement:
    plan = prepared.plan
    protocol = job.protocol(prepared.model, plan.seed, plan.padded)
    source = prepared.model if engine.alone else plan.source
    with in_memory(f"decoding {job.name}", folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the trained length: said in the plan
        return measure(
            source, prompts, protocol, folder / "runs", engine.workers,
            lambda done, total: shown(done, total, f"decoding {job.name}"),
            engine=engine.name, address=engine.address,
        )  # fmt: skip


def arm_digest(parameters: Parameters, arm: Arm) -> str:
    """Of everything that makes an arm's answers: the model, the schedule, the limits and the seed."""
    own = [described for *key, described in parameters["arms"] if tuple(key) == arm.key]
    return digest([own, arm.key, {key: value for key, value in parameters.items() if key not in ("arms", "contended")}])


def _grade(
    prepared: Prepared, job: Job, measured: Measurement, store: Results, shown: Shown
) -> dict[tuple[int, str], list[Grade]]:
    """By (arm, problem), draw by draw."""
    runs: dict[tuple[tuple[str, int], str], list[Record]] = {}
    for record in measured.records:
        runs.setdefault((record.key, record.prompt), []).append(record)
    answers = {}
    for place, each in enumerate(job.contenders):
        arm = arm_digest(measured.parameters, each.arm)
        for problem in job.problems:
            draws = sorted(runs[each.arm.key, problem.id], key=lambda record: record.repeat)
            texts = tuple(text_of(prepared.model, record.tokens) for record in draws)
            answers[place, problem.id] = Answers(problem, arm, texts)
    grades = grade(job.task, list(answers.values()), store, lambda done, total: shown(done, total, f"grading {job.name}"))
    return {key: grades[each.problem.id, each.arm] for key, each in answers.items()}


def _certified(
    by: Certifier,
    job: Job,
    prompts: Sequence[Prompt],
    measured: Measurement,
    grades: dict[tuple[int, str], list[Grade]],
    runs: Path,
    shown: Shown,
) -> Cell:
    """The cell with its verdicts. A fault found in an output beyond the certified prompts is a fault of its arm."""
    references: dict[str, Tokens] = {}
    if job.temperature == 0 and isinstance(by.model, DualModeModel):
        alone = Protocol((Arm(None),), by.limits, 1, 0.0, by.seed, by.padded)
        made = measure(by.model, list(prompts[: by.prompts]), alone, runs,
                       progress=lambda done, total: shown(done, total, f"transformers' generate, {job.name}"))  # fmt: skip
        references = {record.prompt: record.tokens for record in made.records}
    found: list[Found] = certificates(
        by, job, prompts, measured, references, lambda arms: shown(arms, len(arms), f"certifying {job.name}")
    )
    correct = {key: draws[0].correct for key, draws in grades.items()}
    parted = trajectories(
        by, job, prompts, measured, correct, lambda pairs: shown(pairs, len(pairs), f"differences, {job.name}")
    )
    blamed = {place for each in parted for place in each.blamed}
    methods = tuple(
        Method(each.schedule, each.order, each.width, "FAULT" if place in blamed else found[place].verdict,
               each.evaluated, each.selected)
        for place, each in enumerate(job.contenders)
    )  # fmt: skip
    places = {each.arm.key: place for place, each in enumerate(job.contenders)}
    rows = []
    for record in measured.records:
        place = places[record.key]
        said = grades[place, record.prompt][record.repeat].correct
        rows.append((place, record.prompt, record.repeat, (*columns(record), float("nan") if said is None else float(said))))
    names = [name for name, _ in prompts]
    return Cell(
        job.task.name, job.kind, job.temperature, job.cap, job.start, job.task.size, job.task.scored, tuple(names), methods,
        study.arranged(rows, len(methods), names, job.draws), tuple(each.trajectory for each in parted),
        tuple(_reasons(grades)), tuple(each.evidence for each in found),
    )  # fmt: skip


def columns(record: Record) -> tuple[float, ...]:
    """A record in the columns of a study, but for its grade."""
    later = record.steps[1:]
    return (
        len(record.tokens),
        record.nfe,
        record.rows,
        record.wall,
        sum(record.model),
        sum(bool(step.predictions) for step in later),
        sum(record.model[1:]),
        max((step.rows for step in later or record.steps), default=1),
    )


def _reasons(grades: dict[tuple[int, str], list[Grade]]) -> Iterator[Reason]:
    counts: dict[int, Counter[str]] = {}
    for (place, _), draws in grades.items():
        wrong = [each.why[:_LONGEST_REASON] or "no reason given" for each in draws if each.correct is False]
        counts.setdefault(place, Counter()).update(wrong)
    for place, counter in sorted(counts.items()):
        for why, count in counter.most_common(_REASONS):
            yield Reason(place, why, count)


def _chosen(job: Job, measured: Measurement, cell: Cell) -> dict[str, int]:
    """By schedule the block size of the highest throughput among the certified (F.1)."""
    pairs = zip(job.contenders, cell.methods, strict=True)
    verdicts = {each.arm.key: Verdict(method.certified, method.verdict) for each, method in pairs}
    chosen = {name: row.width + 1 for name, row in chosen_widths(summarise(measured.records, verdicts)).items()}
    missing = [each.schedule for each in job.contenders if each.schedule not in chosen]
    if missing:
        raise InvalidInput(
            f"the probe certified no block size of {missing[0]}: packedss validate says why, or give block sizes"
        )
    return chosen


def _added(result: Study | None, cell: Cell, prepared: Prepared, measured: Measurement) -> Study:
    told = measured.parameters
    if result is None:
        result = Study(
            told["model"], told["dtype"], told["device"], told["hardware"], False, prepared.plan.any_order,
            prepared.plan.seed, {name: told[name] for name in ("packedss", "torch", "transformers")}, (),
        )  # fmt: skip
    return replace(result, contended=result.contended or told["contended"], cells=(*result.cells, cell))
