"""An any-order decoder in parts, and one run of it, watched call by call against serial decoding in its own orders (PROPC1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, TypeVar

from proofs_check.any_order_law import accepted_in
from proofs_check.findings import Symptom
from proofs_check.system import Found, Instance, described, found, in_time, traced
from simulator.any_order import Call, Pairs, Schedule
from simulator.decode import Model
from simulator.errors import ContractError
from simulator.laws import argmax
from simulator.oracles import HashRule
from simulator.oracles.any_order import AnyOrderModel
from simulator.oracles.recurrent_pairs import RecurrentPairs
from simulator.records import Limits, Reply, Step, Stop, Tokens
from spec import any_order as spec

T = TypeVar("T")
_STALL = 8  # calls in a row that accept nothing


@dataclass(frozen=True)
class AnyOrderSystem:
    """A user brings one of the parts, the others are ours."""

    schedule: Any
    declares: Schedule | None = None  # the policy whose calls it must make, in the same order; None leaves its counts open
    session: Callable[[HashRule], Model[Call]] = RecurrentPairs  # a model with a cache
    source: str = ""  # Python that defines `schedule`, for programs that show a finding again
    seed: int = 0  # of the tables, drafters and coins of every stage
    limit: float = 20.0  # seconds of wall time that a stage may take

    def in_time(self, items: Iterable[T], share: float = 0.5) -> Iterator[T]:
        """The items until that share of the limit is over."""
        return in_time(items, self.limit * share)

    @property
    def width(self) -> int | None:
        """W, where it is known."""
        return getattr(self.declares or self.schedule, "width", None)


class Made(NamedTuple):
    """A call that was made, and what came of it."""

    call: Call
    reply: Reply
    step: Step


class Run(NamedTuple):
    """A finished request."""

    tokens: Tokens  # the continuation
    stop: Stop | None
    made: tuple[Made, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(each.step for each in self.made)


def run(system: AnyOrderSystem, instance: Instance) -> Run:
    """Run the request. Ends the stage where it raises or makes no progress."""
    schedule, made, idle = system.schedule, list[Made](), 0
    evidence = described(instance)
    try:
        state = schedule.init(instance.prompt, instance.limits)
        while state.stop is None:
            call = schedule.request(state)
            reply = instance.model(call)
            state, step = schedule.absorb(state, call, reply, instance.chance.at(len(made) + 1))
            made.append(Made(call, reply, step))
            idle = 0 if step.advance else idle + 1
            if idle == _STALL or len(made) > 4 * instance.limits.max_new_tokens + _STALL:
                found("progress", f"it has made {len(made)} calls, {idle} in a row without a token", evidence)
    except Found:
        raise
    except ContractError as error:
        found("contract", str(error), evidence, program(system, instance))
    except Exception as error:
        found("contract", f"it raises {type(error).__name__}: {error}", evidence, program(system, instance))
    return Run(state.prefix[state.prompt_length :], state.stop, tuple(made))


def compare(system: AnyOrderSystem, instance: Instance) -> Run:
    """Run the request at temperature 0: every call accepts what serial decoding says at its leading ranks, a position at least,
    inside the window; E, what is kept and the output follow. Ends the stage with a finding otherwise.
    """
    model: AnyOrderModel = instance.model
    limits = instance.limits
    given = _given(limits, model)
    ran = run(system, instance)
    accepted, end = Pairs(), limits.max_new_tokens

    def complain(symptom: Symptom, statement: str) -> NoReturn:
        run_of_it = traced(instance, ran.steps, statement, number or None)
        found(symptom, statement, f"{described(instance)}\n{picture(ran.steps)}", program(system, instance), run_of_it)

    number = 0
    for number, (call, _, step) in enumerate(ran.made, start=1):
        text = dict(accepted)
        free = [j for j in range(1, end + 1) if j not in text]
        if not free:
            complain("stop", f"call {number} is made though all positions up to {end} are accepted")
        window = set(free if system.width is None else [j for j in free if j < free[0] + system.width])
        if call.accepted != accepted:
            beyond = [j for j, _ in call.accepted if j > end]
            what = f"keeps position {beyond[0]} beyond E = {end}" if beyond else f"asks about the pairs {list(call.accepted)}"
            complain("stop" if beyond else "order", f"call {number} {what}, accepted are {list(accepted)}")
        chosen: Pairs = ()
        for r, (j, token) in enumerate(accepted_in(step)):
            if j not in free or j in dict(chosen):
                complain("order", f"call {number} accepts position {j}, which is accepted already or beyond E = {end}")
            expected = argmax(model.verifier(accepted + chosen, j)).token
            if token not in (expected, None):
                complain(
                    "law", f"call {number} accepts {token} at position {j}, rank {r + 1}; serial decoding gives {expected}"
                )
            chosen += ((j, expected),)
        outside = [j for j in step.order if j not in window]
        if outside or len(set(step.order)) < len(step.order):
            complain("order", f"call {number} orders {list(step.order)}, the window is {sorted(window)}")
        if call.order != step.order:
            complain("order", f"call {number} asks in the order {list(call.order)} and accepts in {list(step.order)}")
        if call.verify and not chosen:
            complain("progress", f"call {number} verifies and accepts nothing")
        accepted, end = spec.append(accepted, chosen, end, given)
        if step.end != end:
            complain("stop", f"call {number} leaves E = {step.end}, an EOS, marker or the limit makes it {end}")
    output = tuple(token for _, token in sorted(accepted))
    if sorted(dict(accepted)) != list(range(1, end + 1)):
        complain("stop", f"it ends with positions {sorted(dict(accepted))} accepted, E = {end}")
    if ran.tokens != output:
        complain(
            "law" if len(ran.tokens) == len(output) else "stop", f"it returns {list(ran.tokens)}, accepted are {list(output)}"
        )
    if ran.stop != limits.reached(output, 0):
        complain("stop", f"it says that it stopped for {ran.stop!r}, the output ends for {limits.reached(output, 0)!r}")
    return ran


def _given(limits: Limits, model: AnyOrderModel) -> spec.Given:
    """What the specification needs to know to end an output."""

    def token(pairs: Pairs, j: int) -> tuple[int, float]:
        return argmax(model.verifier(pairs, j)).token, 1.0

    return spec.Given((), 1, limits.max_new_tokens, token, token, limits.eos, frozenset(limits.stop))


def picture(steps: tuple[Step, ...]) -> str:
    """A run, a line per call."""
    lines = []
    for number, step in enumerate(steps, start=1):
        draft = f"draft {list(step.verified)}, {step.accepted} accepted" if step.verified else "no draft"
        pairs = ", ".join(f"{j}: {'removed' if token is None else token}" for j, token in accepted_in(step))
        lines.append(f"call {number}: order {list(step.order)}, {draft}; accepts {{{pairs}}}, E = {step.end}")
    return "\n".join(lines)


def program(system: AnyOrderSystem, instance: Instance) -> str:
    """Python that runs the instance again; empty where the schedule or the model has no source."""
    if not system.source or "(" not in instance.source or " " in instance.source.split("(")[0]:
        return ""
    limits = instance.limits
    stop = [list(marker) for marker in limits.stop]
    return "\n".join(
        (
            "from simulator import *",
            "from simulator.oracles.any_order import *",
            system.source,
            f"model = {instance.source}",
            f"limits = Limits.of({limits.max_new_tokens}, {sorted(limits.eos)}, {stop})",
            f"run = generate(model, schedule, {instance.prompt!r}, limits, {instance.coins or 'Sampled(0)'})",
            "for step in run.steps:",
            "    print(step)",
        )
    )
