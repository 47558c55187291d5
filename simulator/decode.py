"""The driver: one loop that runs any schedule on any model under any source of chance."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, Protocol, TypeAlias

from typing_extensions import TypeVar

from simulator.chance import Chance, Scripted, Source
from simulator.errors import ContractError
from simulator.records import Call, Limits, Reply, State, Step, Stop, Tokens, text

S = TypeVar("S", bound="Situation", default=State)
C = TypeVar("C", default=Call)
Model: TypeAlias = Callable[[C], Reply]
_NO_COINS = Scripted({})  # greedy decoding never asks for a coin
_STALL = 8  # calls in a row without a token; every built-in policy commits at least every third call


class Situation(Protocol):
    """What the driver and the exact chain need of a state, which is hashable and compared by value."""

    @property
    def prefix(self) -> Tokens: ...

    @property
    def prompt_length(self) -> int: ...

    @property
    def stop(self) -> Stop | None: ...


class Policy(Protocol[S, C]):
    """What the driver needs of a schedule: `simulator.schedule.Schedule` is one, `simulator.any_order.Schedule` another, whose
    states and calls are of another kind.
    """

    def init(self, prompt: Sequence[int], limits: Limits) -> S: ...

    def request(self, state: S) -> C: ...

    def absorb(self, state: S, call: C, reply: Reply, chance: Chance) -> tuple[S, Step]: ...


class Resumption(NamedTuple, Generic[S]):
    """Where a request goes on: see `Schedule.resume`. The state brings its own prompt and limits."""

    state: S
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
    model: Model[C],
    schedule: Policy[S, C],
    prompt: Sequence[int],
    limits: Limits,
    chance: Source = _NO_COINS,
    resume: Resumption[S] | None = None,
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
    model: Model[C],
    schedule: Policy[S, C],
    prompt: Sequence[int],
    limits: Limits,
    chance: Source = _NO_COINS,
    resume: Resumption[S] | None = None,
) -> Generation:
    """`decode` to the end. With `resume`, tokens and steps are those made since."""
    steps = tuple(decode(model, schedule, prompt, limits, chance, resume))
    tokens = text(steps)
    # L = 0, or a request resumed at its end, makes no call.
    stop = steps[-1].stop if steps else (resume.state if resume else schedule.init(prompt, limits)).stop
    assert stop is not None
    return Generation(tokens, steps, stop)
