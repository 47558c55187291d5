"""May the figures of an arm be shown? And where do greedy outputs part, and is that rounding?

The certificates are those of `realmodel.certificate`, and of `realmodel.any_order.certificate`, on the first prompts of a cell:
at temperature 0 beside transformers' generate, at temperature 1 from tokens sampled for the purpose. Of the native decoder,
which is not exact by design, only the conformance is looked at. Beyond these prompts every greedy output that differs from
Linear-SS's is held against the reference, up to a number of them: a tie within the noise of schedule-free runs, or a fault. All
of it is kept, by everything it depends on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from realmodel import numerics
from realmodel.any_order import certificate as any_order
from realmodel.any_order.conformance import conformance
from realmodel.any_order.validate import LTR
from realmodel.binding import BoundModel
from realmodel.certificate import Certificate, certify, certify_sampling
from realmodel.dualmode import DualModeModel
from realmodel.efficiency import Arm, Measurement, Prompt, Record
from realmodel.paper.plan import Contender, Job
from realmodel.paper.study import BY_DESIGN, PROBE, Evidence, Trajectory
from realmodel.results import Damaged, Parameters, Results, digest
from simulator.any_order import Native
from simulator.decode import Generation
from simulator.records import Limits, Tokens
from simulator.trace import TracedRequest

_EXAMPLES = 5  # of differences, in words


class Certifier(NamedTuple):
    """How much is looked at, with what."""

    model: BoundModel
    limits: Limits  # of the cell's outputs
    reference: BoundModel  # the same weights in float64, or in float32 where that does not fit
    store: Results
    prompts: int  # of each cell, whose outputs are certified
    sampled: int  # tokens that a schedule emits for its certificate at temperature 1
    ties: int  # differences of each arm that are held against the reference
    seed: int
    padded: bool | None


class Found(NamedTuple):
    """The certificate of an arm as it is kept."""

    verdict: str
    evidence: Evidence


def certificates(
    by: Certifier,
    job: Job,
    prompts: Sequence[Prompt],
    measured: Measurement,
    references: dict[str, Tokens],
    progress: Callable[[Sequence[Contender]], Iterable[Contender]],
) -> list[Found]:
    """Of every arm of a job, in order. `references`: by prompt, what transformers' generate makes of the first of them."""
    few = list(prompts[: by.prompts])
    names = {name for name, _ in few}
    widest = max((each.width for each in job.contenders), default=0)
    judge, paths = _judge(by, widest), any_order.Judge(by.model, by.reference)
    found = []
    for place, each in enumerate(progress(job.contenders)):
        runs = [r for r in measured.records if r.key == each.arm.key and r.prompt in names]
        name = _base(by, measured) | {
            "certificate": [*each.arm.key, repr(each.arm.schedule).split(" at 0x")[0]],
            "arms": measured.parameters["arms"],
            "start": job.start,
            "temperature": job.temperature,
            "max_new_tokens": job.cap,
            "prompts": few,
            "outputs": digest([[r.prompt, r.repeat, r.tokens] for r in runs] if job.temperature == 0 else by.sampled),
            "references": digest([[name, references.get(name)] for name, _ in few]),
        }
        kept = _read(by.store, name)
        if kept is None:
            if judge is None:
                kept = [_any_order(by, paths, each, job, few, runs)]
            elif job.temperature:
                kept = [_words(_sampling(by, each, job, few))]
            else:
                kept = [_words(_greedy(by, judge, each, job, few, runs, references))]
            if kept[0][0] != "NOT RUN":  # or the next run could not do better
                by.store.write(name, kept)
        verdict, layers, findings = kept[0]
        evidence = Evidence(place, tuple((a, b, c) for a, b, c in layers), tuple(findings))
        found.append(Found(verdict, evidence))
    return found


def _greedy(
    by: Certifier,
    judge: numerics.Judge,
    each: Contender,
    job: Job,
    few: Sequence[Prompt],
    runs: Sequence[Record],
    references: dict[str, Tokens],
) -> Certificate:
    ids = dict(few)
    outputs = [numerics.Output(r.prompt, ids[r.prompt], references[r.prompt], r.tokens) for r in runs]
    width, start = max(each.width, 1), _start(each, job)
    recorded = [TracedRequest(r.prompt, r.name, ids[r.prompt], by.limits, r.generation, width, start) for r in runs]
    assert isinstance(by.model, DualModeModel)
    assert isinstance(by.reference, DualModeModel)
    return certify(
        by.model, by.reference, each.arm.schedule, outputs, by.limits, width, start,
        judge=judge, padded=by.padded, recorded=recorded,
    )  # fmt: skip


def _sampling(by: Certifier, each: Contender, job: Job, few: Sequence[Prompt]) -> Certificate:
    assert isinstance(by.model, DualModeModel)
    assert isinstance(by.reference, DualModeModel)
    return certify_sampling(
        by.model, by.reference, each.arm.schedule, few, by.limits, max(each.width, 1), _start(each, job),
        temperature=job.temperature, tokens=by.sampled, seed=by.seed, padded=by.padded,
    )  # fmt: skip


def _any_order(
    by: Certifier, paths: any_order.Judge, each: Contender, job: Job, few: Sequence[Prompt], runs: Sequence[Record]
) -> list[Any]:
    if isinstance(each.arm.schedule, Native):
        layer = conformance(by.reference, by.reference, each.arm.schedule, few, by.limits, by.padded)
        verdict = BY_DESIGN if layer.verdict == "EXACT" else layer.verdict
        findings = [f"{found.symptom}: {found.statement}" for found in layer.findings]
        return [verdict, [[layer.name, layer.verdict, layer.detail]], findings]
    ids = dict(few)
    outputs = [any_order.Output(r.prompt, ids[r.prompt], r.generation) for r in runs]
    made = any_order.certify(
        by.model, by.reference, each.arm.schedule, outputs, by.limits, job.start, judge=paths, padded=by.padded
    )
    return _words(made)


def _judge(by: Certifier, width: int) -> numerics.Judge | None:
    """Of left-to-right outputs."""
    if not (isinstance(by.model, DualModeModel) and isinstance(by.reference, DualModeModel)):
        return None
    return numerics.Judge(by.model, by.reference, 2 * (width + 1))


def _start(each: Contender, job: Job) -> str:
    return "algorithm" if each.schedule == "ar" else job.start


def _words(made: Certificate) -> list[Any]:
    layers = [[layer.name, layer.verdict, layer.detail] for layer in made.layers]
    findings = [f"{found.symptom}: {found.statement}" for found in made.findings]
    return [made.verdict, layers, [*findings, *(f"flagged: {flag}" for flag in made.flags)]]


class Parting(NamedTuple):
    """The trajectories of a greedy arm beside Linear-SS's, and the arms that a fault is laid to."""

    trajectory: Trajectory
    blamed: tuple[int, ...]


def trajectories(
    by: Certifier,
    job: Job,
    prompts: Sequence[Prompt],
    measured: Measurement,
    correct: dict[tuple[int, str], bool | None],
    progress: Callable[[Sequence[tuple[int, int]]], Iterable[tuple[int, int]]],
) -> list[Parting]:
    """Of every greedy arm, against Linear-SS of the same order, in the probe of the same width. `correct`: by (arm, prompt),
    what the grader said. Outputs of the native decoder, which differ by design, are not examined.
    """
    if job.temperature:
        return []
    runs = {(r.key, r.prompt): r.generation for r in measured.records if r.repeat == 0}
    pairs = list(_pairs(job))
    judge = _judge(by, max(each.width for each in job.contenders))
    paths = any_order.Judge(by.model, by.reference)
    found = []
    for place, baseline in progress(pairs):
        arms = [job.contenders[i].arm for i in (place, baseline)]
        parted = [
            Parted(name, ids, runs[arms[0].key, name], runs[arms[1].key, name])
            for name, ids in prompts
            if runs[arms[0].key, name].tokens != runs[arms[1].key, name].tokens
        ]
        exact = not isinstance(arms[0].schedule, Native)
        said = list(_examined(by, judge or paths, measured, arms, parted[: by.ties if exact else 0]))
        faults = [each for each in said if not each["tie"]]
        blamed = {place if each["blamed"] == 0 else baseline for each in faults}
        graded = [(correct.get((place, name)), correct.get((baseline, name))) for name, _ in prompts]
        labels = None if any(None in pair for pair in graded) else sum(mine != theirs for mine, theirs in graded)
        trajectory = Trajectory(
            place, baseline, len(prompts), len(parted), len(said), len(said) - len(faults), len(faults),
            tuple(each["words"] for each in [*faults, *(e for e in said if e["tie"])][:_EXAMPLES]), labels,
        )  # fmt: skip
        found.append(Parting(trajectory, tuple(sorted(blamed))))
    return found


class Parted(NamedTuple):
    """Two different outputs of a prompt."""

    name: str
    ids: Tokens
    got: Generation
    expected: Generation


def _pairs(job: Job) -> Iterator[tuple[int, int]]:
    """(an arm, that of Linear-SS beside it)."""
    any_order_job = any(each.order for each in job.contenders)
    for place, each in enumerate(job.contenders):
        order = each.order or (LTR if any_order_job else "")
        for baseline, other in enumerate(job.contenders):
            same = job.kind != PROBE or other.width == each.width
            if (other.schedule, other.order) == ("linear", order) and same and baseline != place:
                yield place, baseline


def _examined(
    by: Certifier,
    judge: numerics.Judge | any_order.Judge,
    measured: Measurement,
    arms: Sequence[Arm],
    parted: Sequence[Parted],
) -> Iterator[dict[str, Any]]:
    for each in parted:
        taken = [[run.tokens, *([step.order for step in run.steps] if isinstance(judge, any_order.Judge) else [])]
                 for run in (each.expected, each.got)]  # fmt: skip
        key = _base(by, measured) | {"difference": [each.name, each.ids, *taken], "max_new_tokens": by.limits.max_new_tokens}
        kept = _read(by.store, key)
        if kept is None:
            if isinstance(judge, any_order.Judge):
                kept = [_any_order_difference(judge, arms, each, by)]
            else:
                kept = [_difference(judge, each.name, each.ids, each.expected.tokens, each.got.tokens)]
            by.store.write(key, kept)
        yield kept[0]


def _any_order_difference(judge: any_order.Judge, arms: Sequence[Arm], each: Parted, by: Certifier) -> dict[str, Any]:
    """Each output along its own path: a fault is laid to the one that is none of rounding."""
    sides = [
        any_order.numerics(judge, arm.schedule, [any_order.Output(each.name, each.ids, run)], by.limits, 0, by.padded)
        for arm, run in zip(arms, (each.got, each.expected), strict=True)
    ]
    faults = [side.verdict == "FAULT" for side in sides]
    words = f"{each.name}: {sides[0].verdict} along its own path, the baseline {sides[1].verdict} along its own"
    return {"tie": not any(faults), "blamed": 0 if faults[0] else 1, "words": words}


def _difference(judge: numerics.Judge, name: str, ids: Tokens, expected: Tokens, got: Tokens) -> dict[str, Any]:
    """A tie if, from either side, it is one; a fault is laid to the output that the reference regrets more."""
    if not expected or not got:
        return {"tie": False, "blamed": int(not expected), "words": f"{name}: one of the outputs is empty"}
    mine, theirs = judge(ids, got), judge(ids, expected)
    there = numerics.diverged(numerics.Output(name, ids, expected, got), mine, theirs)
    back = numerics.diverged(numerics.Output(name, ids, got, expected), theirs, mine)
    tie = there.verdict == back.verdict == "TIES"
    blamed = 0 if float(mine.regrets.max()) >= float(theirs.regrets.max()) else 1
    gap = "one goes on where the other has ended" if math.isinf(there.gap) else f"logit gap {there.gap:.2e}"
    words = (
        f"{name}, output token {there.position}: {there.expected} or {there.got}, {gap}, noise of plain AR {there.noise:.2e},"
        f" largest regrets {float(mine.regrets.max()):.2e} and {float(theirs.regrets.max()):.2e}"
    )
    return {"tie": tie, "blamed": blamed, "words": words}


def _base(by: Certifier, measured: Measurement) -> Parameters:
    """What any finding depends on; the arms and their limits come on top, where it depends on them."""
    own = {"arms", "max_new_tokens", "repeats", "temperature", "seed", "stop", "contended"}
    return {key: value for key, value in measured.parameters.items() if key not in own} | {
        "reference": str(by.reference.dtype),
        "seed": by.seed,
    }


def _read(store: Results, name: Parameters) -> list[Any] | None:
    try:
        return store.read(name)
    except Damaged:
        return None
