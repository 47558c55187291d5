"""Is it three pure functions? States are values: not changed by being used, equal when they are equal, fit to be merged."""

from __future__ import annotations

import copy
from itertools import product
from typing import Any

from proofs_check.system import System, found
from simulator.chance import Sampled
from simulator.oracles import ThresholdModel
from simulator.records import Limits, Step

_THRESHOLDS = tuple(product(*(range(k + 1) for k in (1, 2, 3, 4))))[::7]


def contract(system: System) -> str:
    """Walk through small greedy runs, asking everything twice; L = 0 and a finished output make no call."""
    schedule = system.schedule
    if schedule.init((), Limits.of(0)).stop is None:
        found("stop", "with L = 0 its first state has not stopped: it would make a call")
    calls = 0
    for thresholds in _THRESHOLDS:
        model = ThresholdModel(thresholds, truth=(1, 2, 3, 4), vocabulary=5)
        state: Any = schedule.init((), Limits.of(4))
        value(state)
        for number in range(1, 100):
            if state.stop is not None:
                break
            before = copy.deepcopy(state)
            call = schedule.request(state)
            same(schedule.request(state), call, "request(state) gives two calls for one state")
            reply = model(call)
            chance = Sampled(0).at(number)
            after, step = schedule.absorb(state, call, reply, chance)
            same(schedule.absorb(state, call, reply, chance), (after, step), "absorb gives two outcomes for one call and reply")
            same(before, state, "it changes the state it was given")
            if not isinstance(step, Step):
                found("contract", f"absorb must return (state, Step), its step is a {type(step).__name__}")
            value(after)
            state = after
            calls += 1
        else:
            found("progress", "after 99 calls it has not emitted 4 tokens", f"ThresholdModel({thresholds})")
    return f"{calls} calls, each asked for twice"


def value(state: Any) -> None:
    """Find fault with a state that is no value, or lacks what the driver reads."""
    for name in ("prefix", "prompt_length", "stop"):
        if not hasattr(state, name):
            found("contract", f"its state has no {name!r}: the driver reads it")
    try:
        hash(state)
    except TypeError as error:
        found("contract", f"its state is not hashable, so equal situations cannot be merged: {error}")
    same(copy.deepcopy(state), state, "a copy of its state is not equal to it: states must be compared by value")


def same(left: Any, right: Any, statement: str) -> None:
    """Find fault, in the words of `statement`, with two things that should be equal."""
    if left != right:
        found("contract", statement, f"{left}\n{right}")
