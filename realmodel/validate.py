"""Validate a real model: every schedule against transformers' greedy decoding, certified, and what each one costs.

`validate` decodes and compares; `issue` adds the certificates (`realmodel.certificate`), whose verdicts then stand.
Schedules are interleaved prompt by prompt, after an unmeasured warm-up, so that a drifting machine hits all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from realmodel.certificate import Certificate, certify
from realmodel.dualmode import DualModeModel
from realmodel.layers import Word
from realmodel.numerics import Judge, Output
from realmodel.reference import causal_logits, greedy_reference
from simulator.decode import generate
from simulator.records import Limits, Tokens
from simulator.schedule import Schedule
from simulator.trace import TracedRequest


class Difference(NamedTuple):
    """The first place where a schedule's output leaves the reference."""

    prompt: str
    position: int  # output position, 1 after the prompt
    expected: int | None  # the reference's token, None past its end
    got: int | None
    gap: float  # logit of `expected` minus that of `got` after their common context, plain causal forward in the tested dtype
    noise: float  # largest logit difference between two plain AR runs of the output (row by row, all at once)
    regret: float  # worst shortfall of an emitted token from the top logit, from here to the end of the output

    @property
    def tie(self) -> bool:
        """Whether the two tokens, and every later token against its own context, are as close as schedule-free runs are."""
        return abs(self.gap) <= 2 * self.noise and self.regret <= 2 * self.noise


@dataclass
class Tally:
    """Sums of one schedule over the prompts. Times in seconds, device-synchronised; tokens include stop tokens (METRICS)."""

    name: str
    tokens: int = 0
    nfe: int = 0
    rows: int = 0  # token rows evaluated, padding included, prompt rows excluded
    wall: float = 0.0
    model: float = 0.0  # part of `wall` spent inside the network
    exact: int = 0  # prompts whose tokens equal the reference
    differences: list[Difference] = field(default_factory=list)
    runs: list[tuple[Output, TracedRequest]] = field(default_factory=list)  # what it emitted, and how
    certificate: Certificate | None = None

    @property
    def ties(self) -> int:
        return sum(difference.tie for difference in self.differences)

    @property
    def verdict(self) -> Word:
        """The certificate's. Before there is one, of the comparison alone: TIES when all differences look like ties, NOT RUN
        when no token was compared."""
        if self.certificate:
            return self.certificate.verdict
        if not self.tokens:
            return "NOT RUN"
        if not self.differences:
            return "EXACT"
        return "TIES" if self.ties == len(self.differences) else "FAULT"

    def plain(self) -> dict[str, Any]:
        """For JSON: the sums, the verdict, each difference with its fields and whether it is a tie, the certificate."""
        differences = [difference._asdict() | {"tie": difference.tie} for difference in self.differences]
        sums = {name: value for name, value in vars(self).items() if name not in ("runs", "certificate")}
        certificate = self.certificate.plain() if self.certificate else None
        more = {"differences": differences, "ties": self.ties, "verdict": self.verdict, "certificate": certificate}
        return sums | more


@dataclass
class Validation:
    """The result of `validate`."""

    model: str
    dtype: str
    device: str
    prompts: int
    max_new_tokens: int
    width: int
    start: str
    reference: Tally  # transformers' generate; its NFE is one call a token, its model time is not separable
    schedules: list[Tally]

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        schedules = [tally.plain() for tally in self.schedules]
        return vars(self) | {"reference": self.reference.plain(), "schedules": schedules}


def validate(
    model: DualModeModel,
    prompts: Sequence[tuple[str, Tokens]],
    schedules: Sequence[Schedule],
    limits: Limits,
    width: int,
    start: str,
    padded: bool | None = None,
    progress: Callable[[Sequence[tuple[str, Tokens]]], Iterator[tuple[str, Tokens]]] = iter,
    record: Callable[[TracedRequest], None] = lambda request: None,
) -> Validation:
    """Decode every (name, prompt) greedily with every schedule and compare with transformers' generate.

    `padded` as in `DualModeModel.session`; `progress` wraps the iteration over prompts; `record` is handed every run, outside
    the timing. Raises InvalidInput for a prompt the model cannot take.
    """
    for _, prompt in prompts:
        model.check_prompt(prompt, limits.max_new_tokens, width)
    reference = Tally("transformers generate")
    tallies = [Tally(schedule.name) for schedule in schedules]
    warm = Limits.of(min(4, limits.max_new_tokens))
    for schedule in schedules:
        generate(model.session(padded=padded), schedule, prompts[0][1], warm)
    greedy_reference(model, prompts[0][1], warm)

    for number, (name, prompt) in enumerate(progress(prompts)):
        begun = _now(model)
        expected = greedy_reference(model, prompt, limits)
        reference.wall += _now(model) - begun
        reference.tokens += len(expected)
        reference.nfe += len(expected)
        reference.rows += len(expected)
        reference.exact += 1
        for turn in range(len(schedules)):
            which = (turn + number) % len(schedules)
            session = model.session(padded=padded)
            begun = _now(model)
            run = generate(session, schedules[which], prompt, limits)
            tally = tallies[which]
            tally.wall += _now(model) - begun
            tally.model += session.model_seconds
            tally.tokens += len(run.tokens)
            tally.nfe += run.nfe
            tally.rows += sum(step.rows for step in run.steps)
            traced = TracedRequest(name, schedules[which].name, prompt, limits, run)
            record(traced)
            traced = traced._replace(width=width, start=_start(schedules[which], start))
            tally.runs.append((Output(name, prompt, expected, run.tokens), traced))
            if run.tokens == expected:
                tally.exact += 1
            else:
                tally.differences.append(first_difference(model, name, prompt, expected, run.tokens))
    return Validation(
        model.name,
        str(model.dtype).removeprefix("torch."),
        str(model.device),
        len(prompts),
        limits.max_new_tokens,
        width,
        start,
        reference,
        tallies,
    )


def issue(
    result: Validation,
    model: DualModeModel,
    reference: DualModeModel,
    schedules: Sequence[Schedule],
    limits: Limits,
    padded: bool | None = None,
    prompts: int = 2,
    progress: Callable[[Sequence[Tally]], Iterator[Tally]] = iter,
) -> None:
    """Certify every schedule of `result`, which came of `validate` with the same arguments.

    `reference`: the same weights in float64, or float32 where that does not fit; `prompts` as in `certify`.
    """
    judge = Judge(model, reference, 2 * (result.width + 1))
    for tally, schedule in zip(progress(result.schedules), schedules, strict=True):
        outputs, recorded = [output for output, _ in tally.runs], [traced for _, traced in tally.runs]
        start = _start(schedule, result.start)
        tally.certificate = certify(
            model, reference, schedule, outputs, limits, result.width, start,
            judge=judge, prompts=prompts, padded=padded, recorded=recorded,
        )  # fmt: skip


def _start(schedule: Schedule, start: str) -> str:
    """AR drafts nothing, so the starts that differ in the first draft are one to it."""
    return start if schedule.name != "ar" or start == "prompt" else "algorithm"


def first_difference(model: DualModeModel, name: str, prompt: Tokens, expected: Tokens, got: Tokens) -> Difference:
    """Where two different outputs part, with the logit gap there and the noise of plain AR runs on the same context."""
    index = next(
        (i for i, pair in enumerate(zip(expected, got, strict=False)) if pair[0] != pair[1]), min(len(expected), len(got))
    )
    want, have = (t[index] if index < len(t) else None for t in (expected, got))
    if want is None or have is None:  # one output goes on where the other has ended: never a tie
        return Difference(name, index + 1, want, have, float("inf"), 0.0, float("inf"))
    context = prompt + got[:-1]
    at_once, stepwise = causal_logits(model, context), causal_logits(model, context, one_by_one=True)
    rows = at_once[len(prompt) - 1 + index :]  # [tokens from here on, vocabulary]
    emitted = torch.tensor(got[index:], device=rows.device)[:, None]
    regret = (rows.max(-1).values - rows.gather(1, emitted)[:, 0]).max().item()
    gap = (rows[0, want] - rows[0, have]).item()
    # generate takes its argmax over float32 logits whatever the dtype.
    rounding = at_once.abs().max().item() * torch.finfo(torch.float32).eps
    noise = max((at_once - stepwise).abs().max().item(), rounding)
    return Difference(name, index + 1, want, have, gap, noise, regret)


def _now(model: DualModeModel) -> float:
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return time.perf_counter()
