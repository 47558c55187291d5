"""What runs a request, in parts: a user brings one of them, the others are ours. And one run of it, watched.

The battery looks at a `System` from outside: the calls that reach the model, the steps that come back, the tokens that come
out. So a fault is seen whichever part it sits in.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn, TypeVar

from proofs_check.findings import Finding, Symptom
from simulator.chance import Sampled, Source
from simulator.decode import Generation, Model, Policy, decode
from simulator.errors import ContractError
from simulator.laws import Law, argmax
from simulator.oracles import HashRule, RecurrentModel
from simulator.processing import processed
from simulator.records import Call, Limits, Step, Stop, Tokens
from simulator.schedule import Schedule
from simulator.trace import Noted, TracedRequest, read_trace, trace_lines

T = TypeVar("T")


def completed(model: Model, schedule: Policy, prompt: Tokens, limits: Limits, chance: Source) -> Generation:
    """`simulator.decode.generate`, for schedules that may not say why they stop."""
    steps = tuple(decode(model, schedule, prompt, limits, chance))
    tokens = tuple(token for step in steps for token in step.committed)
    stop: Any = steps[-1].stop if steps else schedule.init(prompt, limits).stop
    return Generation(tokens, steps, stop)


@dataclass(frozen=True)
class System:
    """A decoder in parts."""

    schedule: Policy
    declares: Schedule | None = None  # the policy whose calls it must make; None leaves its counts open
    processed: Callable[..., Model] = processed  # as `simulator.processing.processed`
    drive: Callable[..., Generation] = completed  # as `simulator.decode.generate`
    session: Callable[[HashRule], Model] = RecurrentModel  # a model with a cache, as `simulator.oracles.RecurrentModel`
    source: str = ""  # Python that defines `schedule`, for programs that show a finding again
    seed: int = 0  # of the tables, drafters and coins of every stage
    limit: float = 20.0  # seconds of wall time that a stage may take

    def in_time(self, items: Iterable[T], share: float = 0.5) -> Iterator[T]:
        """The items until that share of the limit is over: on a slow machine a stage looks at fewer, and is not taken for
        stuck."""
        return in_time(items, self.limit * share)


def in_time(items: Iterable[T], seconds: float) -> Iterator[T]:
    """The items until that much wall time is over."""
    begun = time.monotonic()
    for item in items:
        yield item
        if time.monotonic() - begun > seconds:
            return


class Instance(NamedTuple):
    """One request on one model, and the Python that makes the model."""

    model: Any  # an `Oracle`
    source: str
    limits: Limits
    prompt: Tokens = ()
    chance: Source = Sampled(0)  # greedy decoding needs no coin, but a schedule may ask
    coins: str = ""  # Python that makes `chance`; empty where coins decide nothing


class Found(Exception):  # carries a finding out of a stage
    """A stage found something."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.statement)
        self.finding = finding


class NotReached(Exception):  # a stage without its condition says nothing
    """The interesting branch of a stage was not reached; the message names it."""


def found(symptom: Symptom, statement: str, counterexample: str = "", program: str = "", run: tuple[str, ...] = ()) -> NoReturn:
    """End the stage with a finding."""
    raise Found(Finding(symptom, statement, counterexample, program, run=run))


def traced(instance: Instance, steps: Sequence[Step], statement: str, call: int | None = None) -> tuple[str, ...]:
    """The run as the lines of a trace that says what is wrong, and in which call; () if its steps do not fit into a trace.

    It declares no policy: what the steps of a schedule are called is no promise that it is that schedule.
    """
    tokens = tuple(token for step in steps for token in step.committed)
    stop: Any = steps[-1].stop if steps else None
    run = Generation(tokens, tuple(steps), stop)
    finding = Noted(statement, call)
    request = TracedRequest("counterexample", "checked", instance.prompt, instance.limits, run, None, None, instance.source)
    try:
        lines = tuple(trace_lines([request._replace(finding=finding)]))
        for _ in read_trace(lines):
            pass
    except Exception:  # the steps are the user's: anything may stand in them
        return ()
    return lines


class Run(NamedTuple):
    """A watched run."""

    generation: Generation
    calls: tuple[Call, ...]  # as they reached the model
    miscount: str  # what is wrong with its counters; of interest once its tokens are right


def watched(system: System, instance: Instance) -> Run:
    """Run the request and look at it from outside. Ends the stage where it raises, or asks about another context."""
    calls: list[Call] = []
    rows: list[int] = []

    def model(call: Call) -> Any:
        calls.append(call)
        reply = instance.model(call)
        rows.append(reply.rows)
        return reply

    try:
        run = system.drive(model, system.schedule, instance.prompt, instance.limits, instance.chance)
    except ContractError as error:
        stalled = "without emitting" in str(error)
        found("progress" if stalled else "contract", str(error), described(instance), program(system, instance))
    except Found:
        raise
    except Exception as error:
        found("contract", f"it raises {type(error).__name__}: {error}", described(instance), program(system, instance))

    prefix = instance.prompt
    if len(calls) == run.nfe:
        for number, (call, step) in enumerate(zip(calls, run.steps, strict=True), start=1):
            if call.prefix != prefix:
                statement = f"call {number} asks about the context {call.prefix}, the verified prefix is {prefix}"
                evidence = described(instance) + "\n" + picture(run.steps)
                found("order", statement, evidence, program(system, instance), traced(instance, run.steps, statement, number))
            prefix += step.committed
    return Run(run, tuple(calls), _miscount(run, calls, rows))


def _miscount(run: Generation, calls: Sequence[Call], rows: Sequence[int]) -> str:
    """The first counter that does not close, empty if all do."""
    if len(calls) != run.nfe:
        return f"it reports {run.nfe} calls, and the model answered {len(calls)}"
    tokens: Tokens = ()
    for number, (call, step) in enumerate(zip(calls, run.steps, strict=True), start=1):
        tokens += step.committed
        verified = call.draft if call.verify else ()
        if not 0 <= step.accepted <= len(step.verified):
            return f"call {number} reports {step.accepted} of {len(step.verified)} draft tokens accepted"
        if step.verified != verified:
            return f"call {number} reports {step.verified} as verified, the model was asked about {verified}"
        if (step.stop is None) == (number == run.nfe):
            return f"call {number} of {run.nfe} reports the stop {step.stop!r}"
        if step.rows != rows[number - 1]:
            return f"call {number} reports {step.rows} rows, the model evaluated {rows[number - 1]}"
        if not len(step.committed) <= step.advance <= step.accepted + 1:
            return f"call {number} reports {step.advance} tokens accepted of the {step.accepted} drafted and one more"
        if step.committed[: step.accepted] != verified[: min(step.accepted, len(step.committed))]:
            return f"call {number} reports {step.accepted} of the draft {verified} accepted, and commits {step.committed}"
    if run.tokens != tokens:
        return f"it returns the tokens {run.tokens}, its steps committed {tokens}"
    return ""


def expected_greedy(target: Callable[[Tokens], Law], prompt: Tokens, limits: Limits) -> tuple[Tokens, Stop]:
    """What AR decoding emits at temperature 0, the lowest id among equals, and why it stops."""
    output: Tokens = ()
    while (stop := limits.reached(prompt + output, len(prompt))) is None:
        output += (argmax(target(prompt + output)).token,)
    return output, stop


def compare_greedy(system: System, instance: Instance) -> Run:
    """Run the request at temperature 0 and compare tokens and stop with AR. Ends the stage with a finding otherwise."""
    expected, stop = expected_greedy(instance.model.target, instance.prompt, instance.limits)
    run = watched(system, instance)
    got = run.generation.tokens

    def complain(symptom: Symptom, statement: str, token: int | None = None) -> NoReturn:
        steps = run.generation.steps
        lines = (described(instance), picture(steps), f"expected {list(expected)}, got {list(got)}")
        # The call that emits output token `token`, from 0; where none is named, the last.
        ends = accumulate(len(step.committed) for step in steps)
        call = next((number for number, end in enumerate(ends, 1) if token is not None and end > token), len(steps)) or None
        found(
            symptom, statement, "\n".join(lines), program(system, instance, expected), traced(instance, steps, statement, call)
        )

    if got != expected:
        shared = next((i for i, (a, b) in enumerate(zip(got, expected, strict=False)) if a != b), min(len(got), len(expected)))
        if shared < min(len(got), len(expected)):
            complain(
                "law",
                f"greedy output differs from AR at output token {shared + 1}: {got[shared]}, not {expected[shared]}",
                shared,
            )
        # What stands beyond AR's end must still be what AR would have said, else more than the end is wrong.
        beyond = Limits.of(len(got))
        longer = expected_greedy(instance.model.target, instance.prompt, beyond)[0]
        symptom: Symptom = "stop" if got == longer[: len(got)] else "law"
        complain(symptom, f"greedy output has {len(got)} tokens, AR stops after {len(expected)} ({stop})", len(expected))
    if run.generation.stop != stop:
        complain("stop", f"it says that it stopped for {run.generation.stop!r}, AR stops for {stop!r}")
    if run.calls and not expected:
        complain("stop", "with L = 0 it makes a call")
    return run


def described(instance: Instance) -> str:
    """The instance in a few lines."""
    limits = instance.limits
    ends = f"L = {limits.max_new_tokens}"
    ends += f", EOS {sorted(limits.eos)}" if limits.eos else ""
    ends += f", end markers {[list(marker) for marker in limits.stop]}" if limits.stop else ""
    prompt = f", prompt {list(instance.prompt)}" if instance.prompt else ""
    coins = f", coins {instance.coins}" if instance.coins else ""
    return f"model {instance.source}\n{ends}{prompt}{coins}"


def picture(steps: tuple[Step, ...]) -> str:
    """A run, a line per call: the draft that was verified, how much of it was accepted, what was committed, what was kept."""
    lines = []
    for number, step in enumerate(steps, start=1):
        draft = f"draft {list(step.verified)}, {step.accepted} accepted" if step.verified else "no draft"
        end = f", stops for {step.stop!r}" if step.stop else ""
        lines.append(f"call {number}: {draft}; commits {list(step.committed)}, keeps {step.retained}{end}")
    return "\n".join(lines)


def program(system: System, instance: Instance, expected: Tokens | None = None) -> str:
    """Python that runs the instance again; empty where the schedule has no source."""
    if not system.source:
        return ""
    limits = instance.limits
    arguments = [str(limits.max_new_tokens)]
    arguments += [f"eos={sorted(limits.eos)}"] if limits.eos else []
    arguments += [f"stop={[list(marker) for marker in limits.stop]}"] if limits.stop else []
    coins = f", {instance.coins or 'Sampled(0)'}"
    check = "print(run)" if expected is None else f"assert run.tokens == {expected!r}, run.tokens"
    return "\n".join(
        (
            "from simulator import *",
            "from simulator.oracles import *",
            system.source,
            f"model = {instance.source}",
            f"run = generate(model, schedule, {instance.prompt!r}, Limits.of({', '.join(arguments)}){coins})",
            check,
        )
    )


def with_chance(instance: Instance, chance: Source, coins: str) -> Instance:
    """The same instance under other coins."""
    return instance._replace(chance=chance, coins=coins)


def only_schedule(system: System, schedule: Policy) -> System:
    """The same system around another schedule."""
    return replace(system, schedule=schedule)
