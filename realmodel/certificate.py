"""The certificate of a schedule on a real model: rule, conformance, numerics, each with its own verdict.

    rule          is the schedule exact? Its exact law on small tables against AR's, as rationals (the stages `greedy` and `law`
                  of the battery), for the policy at W <= 3
    conformance   does the binding compute what the schedule asks for? In float64 (`realmodel.conformance`)
    numerics      what does the tested dtype change? (`realmodel.numerics`)

The whole is FAULT if a layer is, else NOT RUN if one is, else TIES if numerics found certified ties, else EXACT. A small fault
that the noise of a low precision would hide is conformance's to call, and no layer's finding is excused by another.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from proofs_check.findings import Finding, Report, Stage, worst_first
from proofs_check.runner import run_battery
from proofs_check.stages import BASIS, STAGES
from proofs_check.system import System
from realmodel.conformance import conformance
from realmodel.dualmode import DualModeModel
from realmodel.layers import Layer, Word, worst
from realmodel.numerics import Divergence, Judge, Output, greedy, sampled
from realmodel.watching import drafting
from simulator.decode import Policy
from simulator.records import Limits, Tokens
from simulator.schedule import Ask, Schedule
from simulator.trace import TracedRequest

_RULE_WIDTH = 3  # of the policy whose law is enumerated: a rejection with draft left, two ways on, a full window
_RULE_STAGES = ("contract", "determinism", "greedy", "law")
_RULE_SECONDS = (6.0, 60.0)  # that a stage may take, looking at fewer cases then; the second if a busy machine left one undone


@dataclass(frozen=True)
class Certificate:
    """What is certified of one schedule on one model."""

    schedule: str
    width: int
    start: str
    dtype: str  # tested
    reference: str  # dtype of the reference
    temperature: float
    layers: tuple[Layer, ...]
    flags: tuple[str, ...] = ()  # what the run did not exercise, in words

    @property
    def verdict(self) -> Word:
        """See the module."""
        return worst(tuple(layer.verdict for layer in self.layers))

    @property
    def certified(self) -> bool:
        """Whether its speed may be shown."""
        return self.verdict in ("EXACT", "TIES")

    @property
    def findings(self) -> tuple[Finding, ...]:
        return worst_first(finding for layer in self.layers for finding in layer.findings)

    def layer(self, name: str) -> Layer:
        """The layer of that name."""
        return next(layer for layer in self.layers if layer.name == name)

    def report(self) -> Report:
        """As a battery's report, a stage per layer."""
        outcomes: dict[Word, Any] = {"FAULT": "failed", "NOT RUN": "not run"}
        stages = [Stage(each.name, outcomes.get(each.verdict, "passed"), each.detail, each.seconds) for each in self.layers]
        found = (
            replace(finding, stage=layer.name, statement=f"{finding.stage}: {finding.statement}")
            for layer in self.layers
            for finding in layer.findings
        )
        return Report(f"{self.schedule}, W = {self.width}", None, tuple(stages), worst_first(found))

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        layers = [layer.plain() for layer in self.layers]
        return vars(self) | {"layers": layers, "verdict": self.verdict, "certified": self.certified}

    def __str__(self) -> str:
        at = f" at temperature {self.temperature:g}" if self.temperature else ", greedy"
        lines = [f"{self.schedule}, W = {self.width}, start {self.start}, {self.dtype}{at}: {self.verdict}"]
        for layer in self.layers:
            lines.append(f"  {layer.name:12} {layer.verdict:8} {layer.detail}")
            for finding in layer.findings:
                lines.append(f"    {finding.symptom.upper()} ({finding.stage}): {finding.statement}")
                lines += ["      " + line for line in finding.counterexample.splitlines()]
            ties = [Divergence(**each) for each in layer.figures.get("divergences", ())]
            lines += [f"    {tie}" for tie in ties if tie.verdict == "TIES"]
        return "\n".join(lines + [f"  flagged: {flag}" for flag in self.flags])


def certify(
    model: DualModeModel,
    reference: DualModeModel,
    schedule: Policy,
    outputs: Sequence[Output],
    limits: Limits,
    width: int,
    start: str = "algorithm",
    *,
    judge: Judge | None = None,
    binding: DualModeModel | None = None,
    prompts: int = 2,
    samples: int = 5,
    padded: bool | None = None,
    recorded: Sequence[TracedRequest] = (),
) -> Certificate:
    """The certificate of a greedy schedule.

    model       the binding under test, in the tested dtype
    reference   the same weights in float64 (float32 where that does not fit): plain forwards alone
    outputs     what the schedule emitted in that dtype, prompt by prompt, beside transformers' generate
    judge       shared between the schedules of one model, so that equal outputs are judged once
    binding     the binding under test in the reference's dtype; by default the reference's own
    prompts     how many of the prompts are run again, in both dtypes, `samples` calls of each looked at in every part
    recorded    the logs of the outputs' runs, replayed against spec/

    It speaks of these prompts, this width, dtype and device.
    """
    judge = judge or Judge(model, reference, 2 * (width + 1))
    few = [(output.name, output.prompt) for output in outputs[:prompts]]
    conforms = conformance(
        binding or reference, reference, schedule, few, limits, width, start, padded=padded, samples=samples, recorded=recorded
    )
    numeric = greedy(judge, schedule, outputs, limits, prompts, padded)
    layers = (rule(schedule), conforms, numeric)
    seen = drafting(step for request in recorded for step in request.generation.steps)
    return _certificate(
        model, reference, schedule, width, start, 0.0, layers, seen if recorded else conforms.figures["drafting"]
    )


def certify_sampling(
    model: DualModeModel,
    reference: DualModeModel,
    schedule: Policy,
    prompts: Sequence[tuple[str, Tokens]],
    limits: Limits,
    width: int,
    start: str = "algorithm",
    *,
    temperature: float = 1.0,
    tokens: int = 2000,
    seed: int = 0,
    binding: DualModeModel | None = None,
    samples: int = 5,
    padded: bool | None = None,
) -> Certificate:
    """The certificate of a schedule at a temperature above 0, from at least `tokens` tokens sampled here. As `certify` else."""
    conforms = conformance(
        binding or reference, reference, schedule, prompts[:2], limits, width, start, temperature, seed, padded, samples
    )
    numeric, seen = sampled(model, reference, schedule, prompts, limits, temperature, tokens, seed, padded)
    layers = (rule(schedule), conforms, numeric)
    return _certificate(model, reference, schedule, width, start, temperature, layers, seen)


def _certificate(
    model: DualModeModel,
    reference: DualModeModel,
    schedule: Policy,
    width: int,
    start: str,
    temperature: float,
    layers: tuple[Layer, ...],
    seen: tuple[int, int, int],
) -> Certificate:
    tested, exact = (str(each.dtype).removeprefix("torch.") for each in (model, reference))
    name = str(getattr(schedule, "name", type(schedule).__name__))
    return Certificate(name, width, start, tested, exact, temperature, layers, flags(*seen))


def flags(drafts: int, accepted: int, rejected: int) -> tuple[str, ...]:
    """What runs with drafts did not exercise (see `drafting`): a run without a rejection never rolled anything back."""
    counts = {"accepted": accepted, "rejected": rejected}
    return tuple(f"no draft token was ever {word}" for word, count in counts.items() if drafts and not count)


def rule(schedule: Policy) -> Layer:
    """The layer of a schedule alone. Asked again for a schedule of the same policy, it answers from memory."""
    subject = narrowed(schedule)
    for seconds in _RULE_SECONDS:
        layer = _rule(subject, seconds) if isinstance(subject, Hashable) else _rule.__wrapped__(subject, seconds)
        if layer.verdict != "NOT RUN":
            break
    return layer


@lru_cache(maxsize=64)
def _rule(subject: Policy, seconds: float) -> Layer:
    begun = time.perf_counter()
    stages = {name: STAGES[name] for name in _RULE_STAGES}
    report = run_battery(System(subject, limit=seconds), stages, BASIS, 10 * seconds, "")
    detail = "; ".join(f"{stage.name}: {stage.detail}" for stage in report.stages if stage.name in ("greedy", "law"))
    missing = [stage for stage in report.stages if stage.outcome == "not run"]
    verdict: Word = "FAULT" if report.findings else "NOT RUN" if missing else "EXACT"
    if missing and not report.findings:
        detail = f"{missing[0].name}: {missing[0].detail}"
    width = max((ask.width for ask in (*subject.opening, *subject.cycle)), default=0) if isinstance(subject, Schedule) else None
    at = f"W = {width}" if width is not None else "as it is"
    return Layer("rule", verdict, f"{at}; {detail}", report.findings, {}, time.perf_counter() - begun)


def narrowed(schedule: Policy) -> Policy:
    """The policy at W <= 3, whose law can be enumerated: a kernel that is given its widths looks at nothing else.

    A schedule of another kind than `Schedule` is taken as it is.
    """
    if not isinstance(schedule, Schedule):
        return schedule

    def narrow(ask: Ask) -> Ask:
        width = min(ask.width, _RULE_WIDTH + (not ask.anchored))
        return ask._replace(width=width, branches=tuple(b for b in ask.branches if b <= _RULE_WIDTH))

    return replace(schedule, opening=tuple(map(narrow, schedule.opening)), cycle=tuple(map(narrow, schedule.cycle)))
