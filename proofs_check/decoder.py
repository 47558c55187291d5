"""An opaque decoder against a reference model: all that can be seen is which tokens come out.

>>> report = check_decoder(my_generate, reference, prompts, processing=Processing(temperature=0.8))
>>> report.verdict
'NOTHING FOUND'

`generate(prompt, max_new_tokens, seed)` returns the ids of the continuation, stop token included. At temperature 0 each token's
regret is compared with 0; above it, every token is bet on (`proofs_check.eprocess`). Where outputs end, and that a seed means
what it says, is checked as it stands. A decoder that passes has shown nothing but that: `BLIND` says what stays unseen.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Any, NamedTuple, TypeAlias

from proofs_check.eprocess import Emitted, EProcess
from proofs_check.findings import Finding, Report, Stage, Symptom, Verdict, worst_first
from proofs_check.reference import UNPROCESSED, Reference, as_reference, entries_of, regret, rows
from proofs_check.sandbox import ChildEnded, in_child
from simulator.errors import InvalidInput
from simulator.processing import Processing
from simulator.records import Limits, Stop, Tokens

Generate: TypeAlias = Callable[[list[int], int, int], Iterable[int]]
BLIND = (
    "calls made and rows evaluated, and so whether it is any faster than AR",
    "how a law comes about: whatever has the reference's law passes, and should",
    "biases below the size stated, or in contexts that these prompts do not lead to",
    "dependence between tokens further apart than neighbours, or between requests, that leaves all of these bets fair",
)
BLIND_GREEDY = (BLIND[0], "which of several equally likely tokens it takes", "prompts other than these")
LEAST_UNCERTAIN = 20.0  # expected tokens that are not the most likely one; with fewer there was too little to bet on
_ALPHA_SEEDS = 0.1  # the share of alpha for the question whether seeds matter
_SAME_PROMPT = 8  # requests that ask it
_FIRST_REQUESTS = _SAME_PROMPT + 2  # and those that ask whether a request comes out again
_SHOWN = 12


@dataclass(frozen=True)
class OpaqueReport(Report):
    """What the tokens of a decoder show."""

    alpha: float = 0.0  # the probability of a finding from a right sampler, all its statistics together
    tokens: int = 0  # output tokens compared with the reference
    blind: tuple[str, ...] = ()  # what would not have been seen

    @property
    def verdict(self) -> Verdict:
        """Never EXACT: tokens cannot show that."""
        if self.findings:
            return "NOT EXACT"
        return "NOT RUN" if any(stage.outcome == "not run" for stage in self.stages) else "NOTHING FOUND"

    def __str__(self) -> str:
        tail = [f"{self.tokens:,} tokens, false-alarm odds {self.alpha:g}. Not seen: {'; '.join(self.blind)}."]
        return "\n".join([super().__str__(), "", *tail])


def check_decoder(
    generate: Generate,
    reference: Any,
    prompts: Sequence[Sequence[int]],
    *,
    processing: Processing = UNPROCESSED,
    max_new_tokens: int = 64,
    eos: Iterable[int] = (),
    stop: Iterable[Sequence[int]] = (),
    tokens: int = 5000,
    alpha: float = 0.01,
    tolerance: float = 0.0,
    seed: int = 0,
    limit: float | None = 20.0,
    name: str = "",
) -> OpaqueReport:
    """Check what `generate` emits against the reference (see `as_reference`), under the processing it was asked for.

    max_new_tokens, eos, stop   what `generate` was told to end at
    tokens                      at temperature > 0: how many to ask for; prompts are repeated under new seeds, and the run ends
                                with the token that rejects the reference. At temperature 0 each prompt is asked once
    alpha                       false-alarm odds of all statistics together
    tolerance                   nats of regret that are the decoder's own numerics, at temperature 0
    seed                        the first seed handed to `generate`; the others follow it
    limit                       wall seconds one output may take, in a child process; None runs `generate` in this process, as
                                for a decoder on a device, which does not survive a fork

    Tokens cannot show that a decoder is exact, nor its calls or its speed: NOTHING FOUND is as good as it gets (`BLIND`).

    Raises InvalidInput for arguments that make no sense and for a reference that gives no laws.
    """
    asked = [tuple(int(token) for token in prompt) for prompt in prompts]
    if not asked or max_new_tokens < 1 or tokens < 1 or tolerance < 0:
        raise InvalidInput("check_decoder needs a prompt, max_new_tokens and tokens >= 1, and a tolerance >= 0")
    limits = Limits.of(max_new_tokens, eos, stop)
    trial = _Trial(as_reference(reference), asked, processing, limits, alpha, tolerance)
    trial.run(generate, seed, tokens, limit)
    return trial.report(name or getattr(generate, "__name__", type(generate).__name__))


class _Request(NamedTuple):
    prompt: int  # its index
    seed: int
    same_as: int | None = None  # the earlier request that it repeats


class _Answer(NamedTuple):
    tokens: Tokens | None
    problem: str = ""


def _plan(prompts: int, seed: int, greedy: bool) -> Iterator[_Request]:
    """First whether a request comes out again, after another one; then new ones: each prompt once, or without end."""
    yield _Request(0, seed)
    yield _Request(min(1, prompts - 1), seed + 1, same_as=0 if greedy and prompts == 1 else None)
    yield _Request(0, seed, same_as=0)
    if greedy:
        yield _Request(0, seed + 2, same_as=0)
        yield from (_Request(index, seed + index + 1) for index in range(2, prompts))
        return
    yield from (_Request(0, seed + number) for number in range(2, _SAME_PROMPT + 1))
    yield from (_Request(number % prompts, seed + number) for number in count(_SAME_PROMPT + 1))


def _answers(generate: Generate, prompts: Sequence[Tokens], plan: Iterator[_Request], length: int) -> Iterator[_Answer]:
    for request in plan:
        try:
            output = generate(list(prompts[request.prompt]), length, request.seed)
        except Exception as error:
            yield _Answer(None, f"it raises {type(error).__name__}: {error}")
            continue
        try:  # a little beyond the limit, to see an overshoot, but not without end
            yield _Answer(tuple(map(operator.index, islice(output, 2 * length + 16))))
        except Exception as error:
            shown = repr(output)[:60]
            yield _Answer(None, f"it returns no list of token ids but {shown} ({type(error).__name__}: {error})")


def first_stop(output: Tokens, limits: Limits) -> tuple[int, Stop | None]:
    """The length at which an output should have ended, and why; all of it and None when it should have gone on."""
    window = max(map(len, limits.stop), default=1)
    within = limits._replace(max_new_tokens=len(output) + 1)
    if limits.max_new_tokens == 0:
        return 0, "length"
    for length in range(1, len(output) + 1):
        stop = within.reached(output[max(0, length - window) : length], 0)
        if stop or length == limits.max_new_tokens:
            return length, stop or "length"
    return len(output), None


def wrong_end(prompt: Tokens, output: Tokens, limits: Limits) -> str:
    """What is wrong with where an output ends (STOP); empty if nothing is."""
    length, stop = first_stop(output, limits)
    if stop is None:
        ends = ["an EOS"] * bool(limits.eos) + ["an end marker"] * bool(limits.stop) + ["the length limit"]
        return f"an output ends after {len(output)} tokens without {' or '.join(ends)}"
    if length == len(output):
        return ""
    echo = prompt and output[: len(prompt)] == prompt
    hint = "; it begins with the prompt, and only the continuation is asked for" if echo else ""
    return f"an output goes on for {len(output) - length} tokens after the stop {stop!r} at output token {length}{hint}"


@dataclass
class _Trial:
    """One run of `check_decoder`: what was seen so far."""

    reference: Reference
    prompts: list[Tokens]
    processing: Processing
    limits: Limits
    alpha: float
    tolerance: float
    requests: list[_Request] = field(default_factory=list)
    outputs: list[Tokens] = field(default_factory=list)
    findings: dict[str, Finding] = field(default_factory=dict)  # the first of each stage
    seconds: float = 0.0
    broken: str = ""  # why the run ended before its time
    tokens: int = 0
    worst: dict[int, tuple[float, int, int]] = field(default_factory=dict)  # by prompt: regret, output token, the top token
    ties: int = 0
    waiting: list[tuple[_Request, Tokens]] = field(default_factory=list)  # not bet on before it is clear that seeds matter
    seeds: tuple[str, str] = ("", "it was not asked whether seeds matter")  # what was seen of them, what was missing

    def __post_init__(self) -> None:
        self.greedy = self.processing.temperature == 0
        self.process = EProcess(self.alpha * (1 - _ALPHA_SEEDS), self.limits.eos)

    def run(self, generate: Generate, seed: int, tokens: int, limit: float | None) -> None:
        begun = time.perf_counter()

        def plan() -> Iterator[_Request]:
            return _plan(len(self.prompts), seed, self.greedy)

        def work(send: Callable[[_Answer], None]) -> None:
            for answer in _answers(generate, self.prompts, plan(), self.limits.max_new_tokens):
                send(answer)

        here = limit is None
        answers = _answers(generate, self.prompts, plan(), self.limits.max_new_tokens) if here else in_child(work, limit or 0.0)
        pending = plan()
        try:
            for request, answer in zip(pending, answers, strict=False):
                self.requests.append(request)
                if not self._take(request, answer) or self.process.rejected or (not self.greedy and self.tokens >= tokens):
                    break
        except ChildEnded as ended:
            where = f"request {len(self.requests) + 1}"
            self._found("contract", "progress", f"in {where} {ended}", "")
            self.broken = f"{where} did not come back"
        self.seconds = time.perf_counter() - begun

    def _take(self, request: _Request, answer: _Answer) -> bool:
        """Look at one answer. Whether to go on."""
        prompt, output = self.prompts[request.prompt], answer.tokens
        size = self.reference.vocabulary
        if output is not None:
            alien = next((token for token in output if token < 0 or (size is not None and token >= size)), None)
            if alien is not None:
                answer = _Answer(
                    None, f"it emits the id {alien}, outside the vocabulary 0 .. {'' if size is None else size - 1}"
                )
        if answer.tokens is None or output is None:
            self._found("contract", "contract", answer.problem, self._described(request, output or ()))
            self.broken = f"request {len(self.requests)} failed"
            return False
        self.outputs.append(output)
        if request.same_as is not None:
            self._compare(request, output, self.outputs[request.same_as])
            return True
        if problem := wrong_end(prompt, output, self.limits):
            self._found("stop", "stop", problem, self._described(request, output))
        if not output:  # more of them would show nothing, without end
            self.broken = f"request {len(self.requests)} came back empty"
            return False
        output = output[: first_stop(output, self.limits)[0]]
        if self.greedy:
            self._regrets(request, output)
        else:
            self.waiting.append((request, output))
            if len(self.requests) == _FIRST_REQUESTS and not self._seeds_matter():
                self.broken = "outputs that do not depend on the seed are no independent samples"
                return False
            if len(self.requests) >= _FIRST_REQUESTS:
                for each in self.waiting:
                    self._bets(*each)
                self.waiting.clear()
        return True

    def _compare(self, request: _Request, output: Tokens, before: Tokens) -> None:
        if output == before:
            return
        assert request.same_as is not None
        first = self.requests[request.same_as]
        also = "the same seed" if first.seed == request.seed else "another seed, at temperature 0,"
        shown = f"{self._described(request, output)}\nand before, with seed {first.seed}: {short(before)}"
        self._found("determinism", "determinism", f"the same prompt and {also} give another output", shown)

    def _regrets(self, request: _Request, output: Tokens) -> None:
        prompt = self.prompts[request.prompt]
        worst = (0.0, 0, 0)
        for position, (token, row) in enumerate(zip(output, rows(self.reference, prompt, output), strict=True), start=1):
            gap, top = regret(row, token)
            self.ties += gap == 0 and token != top
            worst = max(worst, (gap, position, top), key=lambda item: item[0])
        self.tokens += len(output)
        self.worst[request.prompt] = worst
        gap, position, top = worst
        if gap > self.tolerance:
            said = f"output token {position} of prompt {request.prompt} is {output[position - 1]}, {gap:.4g} nats below {top}"
            self._found("law", "law", said + ", the reference's most likely token", self._described(request, output[:position]))

    def _bets(self, request: _Request, output: Tokens) -> None:
        if self.process.rejected:
            return
        prompt, before = self.prompts[request.prompt], self.process.tokens
        laws = (entries_of(row, self.processing) for row in rows(self.reference, prompt, output))
        self.process.observe(map(Emitted, output, laws))
        self.tokens = self.process.tokens
        if self.process.rejected:
            self._found("law", "law", rejection(self.process), self._described(request, output[: self.tokens - before]))

    def _found(self, stage: str, symptom: Symptom, statement: str, counterexample: str) -> None:
        self.findings.setdefault(stage, Finding(symptom, statement, counterexample, stage=stage))

    def _described(self, request: _Request, output: Tokens) -> str:
        ends = f"L = {self.limits.max_new_tokens}"
        ends += f", EOS {sorted(self.limits.eos)}" if self.limits.eos else ""
        ends += f", end markers {[list(marker) for marker in self.limits.stop]}" if self.limits.stop else ""
        settings = f"{ends}, {self.processing}, seed {request.seed}"
        return f"prompt {request.prompt}: {short(self.prompts[request.prompt])}\n{settings}\noutput {short(output)}"

    def report(self, name: str) -> OpaqueReport:
        stages = [
            self._stage("contract", f"{len(self.requests)} requests came back with lists of token ids"),
            self._stage("determinism", *self._determinism()),
            self._stage("stop", f"{len(self.outputs)} outputs end at their first stop", "no output" * (not self.outputs)),
            self._stage("law", *self._law()),
        ]
        stages[-1] = replace(stages[-1], seconds=self.seconds)
        blind = BLIND_GREEDY if self.greedy else BLIND
        alpha = 0.0 if self.greedy else self.alpha
        return OpaqueReport(name, None, tuple(stages), worst_first(self.findings.values()), alpha, self.tokens, blind)

    def _stage(self, name: str, detail: str, missing: str = "") -> Stage:
        if name in self.findings:
            return Stage(name, "failed", self.findings[name].statement)
        return (
            Stage(name, "not run", f"{missing}; {self.broken}" if self.broken else missing)
            if missing
            else Stage(name, "passed", detail)
        )

    def _determinism(self) -> tuple[str, str]:
        """What was looked at, and what was not reached."""
        repeats = sum(request.same_as is not None for request in self.requests)
        if not repeats:
            return "", "no request was repeated"
        said = f"{repeats} repeated request{'s' * (repeats > 1)}, with another one between, came out the same"
        if self.greedy:
            return said, ""
        seen, missing = self.seeds
        return f"{said}; {seen}", missing

    def _seeds_matter(self) -> bool:
        others = self.outputs[3:]
        if any(output != self.outputs[0] for output in others):
            self.seeds = f"{_SAME_PROMPT} seeds did not all give the same output", ""
            return True
        prompt, output = self.prompts[0], self.outputs[0]
        log_share = 0.0  # of the first output, given which the others are equal with this probability each
        for token, row in zip(output, rows(self.reference, prompt, output), strict=True):
            law = entries_of(row, self.processing)
            log_share += math.log(max(float(law.p[law.ids == token].sum()), 1e-300))
        odds = math.exp(log_share * len(others))
        if odds > self.alpha * _ALPHA_SEEDS:
            self.seeds = (
                "",
                f"{_SAME_PROMPT} seeds gave the same output, no wonder (odds {odds:.2g}): give a less certain first prompt",
            )
            return True
        statement = f"{_SAME_PROMPT} seeds give the same output: odds of {odds:.2g} for independent samples of the reference"
        self._found("determinism", "determinism", statement, self._described(self.requests[0], output))
        return False

    def _law(self) -> tuple[str, str]:
        if self.greedy:
            worst = max((gap for gap, _, _ in self.worst.values()), default=0.0)
            good = sum(gap <= self.tolerance for gap, _, _ in self.worst.values())
            said = f"{good} of {len(self.prompts)} prompts token by token at the top, worst regret {worst:.3g} nats"
            said += f" (tolerance {self.tolerance:g})" * (self.tolerance > 0) + f", {self.ties} exact ties broken otherwise" * (
                self.ties > 0
            )
            return said, "" if len(self.worst) == len(
                self.prompts
            ) else f"only {len(self.worst)} of {len(self.prompts)} prompts"
        return bets(self.process), too_little(self.process)


def rejection(process: EProcess) -> str:
    """A rejected e-process in a sentence."""
    if process.impossible:
        return f"token {process.impossible.token} is impossible under the reference (token {process.tokens} of this run)"
    odds = f"an e-value of {math.exp(min(process.log_e, 700)):.3g} against the reference after {process.tokens:,} tokens"
    return f"the tokens are not sampled from the reference: {odds}, false-alarm odds {process.alpha:.2g}; {process.best}"


def bets(process: EProcess) -> str:
    """An e-process that has not rejected, with what it could have seen."""
    return (
        f"e-value {math.exp(process.log_e):.2g} after {process.tokens:,} tokens, rejection at {1 / process.alpha:,.0f}; "
        f"biases of total variation below about {process.detectable / 2:.2g} rarely show, larger ones where a bet is on them"
    )


def too_little(process: EProcess) -> str:
    """Why an e-process says nothing; empty if it does."""
    if process.uncertain >= LEAST_UNCERTAIN:
        return ""
    return (
        f"too little to bet on: in {process.tokens:,} tokens the reference expects {process.uncertain:.1f} that are not the "
        f"likeliest, {LEAST_UNCERTAIN:g} are needed"
    )


def short(tokens: Tokens) -> str:
    """Ids for a person: the last ones matter."""
    return str(list(tokens)) if len(tokens) <= _SHOWN else f"[... {', '.join(map(str, tokens[-_SHOWN:]))}] ({len(tokens)} ids)"
