"""The driver: one loop that runs any schedule on any model under any source of chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from simulator.chance import Chance, Scripted, Source
from simulator.errors import ContractError
from simulator.records import Call, Limits, Reply, State, Step, Stop, Tokens

Model: TypeAlias = Callable[[Call], Reply]
_NO_COINS = Scripted({})  # greedy decoding never asks for a coin
_STALL = 8  # calls in a row without a token; every built-in policy commits at least every third call


class Policy(Protocol):
    """What the driver needs of a schedule; `simulator.schedule.Schedule` is one."""

    def init(self, prompt: Sequence[int], limits: Limits) -> State: ...

    def request(self, state: State) -> Call: ...

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]: ...


class Resumption(NamedTuple):
    """Where a request goes on: see `Schedule.resume`. The state brings its own prompt and limits."""

    state: State
    calls: int  # calls made before, so that coins keep their addresses


class Generation(NamedTuple):
    """A finished request."""

    tokens: Tokens  # the continuation, prompt excluded, stop token included
    steps: tuple[Step, ...]
    stop: Stop

    @property
    def nfe(self) -> int:
        """Forward passes made: every call counts, a start's calls and drafting calls included (NFE-CONV)."""
        return len(self.steps)


def decode(
    model: Model,
    schedule: Policy,
    prompt: Sequence[int],
    limits: Limits,
    chance: Source = _NO_COINS,
    resume: Resumption | None = None,
) -> Iterator[Step]:
    """Run the request and yield one Step per forward pass.

    `resume` continues a request instead of beginning one. Without `chance` the model must be greedy (point masses), or
    ContractError names the first coin that is missing. Also raises ContractError when the schedule makes `_STALL` calls in a
    row without emitting a token.
    """
    state, number = resume or (schedule.init(prompt, limits), 0)
    idle = 0
    while state.stop is None:
        number += 1
        call = schedule.request(state)
        state, step = schedule.absorb(state, call, model(call), chance.at(number))
        yield step
        idle = 0 if step.committed else idle + 1
        if idle == _STALL:
            raise ContractError(f"the schedule made {_STALL} calls in a row without emitting a token (call {number})")


def generate(
    model: Model,
    schedule: Policy,
    prompt: Sequence[int],
    limits: Limits,
    chance: Source = _NO_COINS,
    resume: Resumption | None = None,
) -> Generation:
    """`decode` to the end. With `resume`, tokens and steps are those made since."""
    steps = tuple(decode(model, schedule, prompt, limits, chance, resume))
    tokens = tuple(token for step in steps for token in step.committed)
    # L = 0, or a request resumed at its end, makes no call.
    stop = steps[-1].stop if steps else (resume.state if resume else schedule.init(prompt, limits)).stop
    assert stop is not None
    return Generation(tokens, steps, stop)
