"""The exact law of a schedule, from the production code: propagate its Markov chain under enumerated coins.

States that are equal by value merge, layer by layer (one layer per call), and nothing is stored per transition. With rational
laws every number here is a rational: a verdict, not an estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

from simulator.chance import branching, fraction, rational
from simulator.decode import C, Model, Policy, S
from simulator.errors import ContractError
from simulator.laws import Law
from simulator.records import Limits, Reply, Step, Stop, Tokens

K = TypeVar("K")
Weight: TypeAlias = Any
"""An exact probability of type `simulator.chance.rational`; `simulator.chance.fraction` makes it a Fraction."""


class Visit(NamedTuple, Generic[S, C]):
    """A state of the chain, with all that can happen in its next call."""

    calls: int  # made before
    state: S
    weight: Weight  # probability of being there after that many calls
    call: C | None  # None when the request has ended
    reply: Reply | None
    outcomes: Sequence[tuple[Weight, tuple[S, Step]]]  # unmerged; they sum to 1, or are none at the end


class Kind(NamedTuple):
    """What one call did, in numbers."""

    verified: int  # draft tokens tested
    accepted: int
    advance: int  # tokens accepted, correction or bonus included; 0 for a call that does not verify
    committed: int  # after the stopping rule
    branch: int | None  # whose proposals became the next draft
    retained: int  # their number
    stop: Stop | None


class ExactLaw(NamedTuple):
    """What a schedule does on one request, exactly."""

    output: dict[Tokens, Fraction]  # law of the continuation
    nfe: dict[int, Fraction]  # law of the number of forward passes
    states: int  # distinct states per layer, summed
    transitions: int
    expected_rows: Fraction  # token rows evaluated in all calls (TAB2)
    kinds: dict[Kind, Fraction]  # expected number of calls of each kind that occurs

    @property
    def expected_nfe(self) -> Fraction:
        return sum((count * weight for count, weight in self.nfe.items()), Fraction(0))


def visits(
    schedule: Policy[S, C], model: Model[C], prompt: Sequence[int], limits: Limits, max_calls: int = 1000
) -> Iterator[Visit[S, C]]:
    """Every state the request can be in, by the number of calls made, each with its outcomes.

    Raises ContractError when `max_calls` calls do not end every path.
    """
    layer: dict[S, Weight] = {schedule.init(prompt, limits): rational(1)}
    for calls in range(max_calls + 1):
        following: defaultdict[S, Weight] = defaultdict(rational)
        for state, weight in layer.items():
            if state.stop is not None:
                yield Visit(calls, state, weight, None, None, ())
                continue
            call = schedule.request(state)
            reply = model(call)
            outcomes = branching(partial(schedule.absorb, state, call, reply))
            for share, (after, _) in outcomes:
                following[after] += weight * share
            yield Visit(calls, state, weight, call, reply, outcomes)
        if not following:
            return
        layer = following
    raise ContractError(f"some path is still running after {max_calls} calls")


def exact_law(
    schedule: Policy[S, C],
    model: Model[C],
    prompt: Sequence[int],
    limits: Limits,
    observe: Callable[[Step], None] | None = None,
    max_calls: int = 1000,
) -> ExactLaw:
    """The laws of the output and of NFE; `observe` sees the Step of every transition.

    Raises ContractError when `max_calls` calls do not end every path.
    """
    return summed(visits(schedule, model, prompt, limits, max_calls), observe)


def summed(chain: Iterable[Visit[S, C]], observe: Callable[[Step], None] | None = None) -> ExactLaw:
    """What all visits of one request come to."""
    output: defaultdict[Tokens, Weight] = defaultdict(rational)
    nfe: defaultdict[int, Weight] = defaultdict(rational)
    kinds: defaultdict[Kind, Weight] = defaultdict(rational)
    rows = rational(0)
    states = transitions = 0
    for calls, state, weight, _, reply, outcomes in chain:
        states += 1
        transitions += len(outcomes)
        if reply is None:
            output[state.prefix[state.prompt_length :]] += weight
            nfe[calls] += weight
            continue
        rows += weight * reply.rows
        for share, (_, step) in outcomes:
            kinds[_kind(step)] += weight * share
            if observe:
                observe(step)
    return ExactLaw(_exact(output), _exact(nfe), states, transitions, fraction(rows), _exact(kinds))


def _exact(weights: dict[K, Weight]) -> dict[K, Fraction]:
    return {key: fraction(weight) for key, weight in weights.items()}


def _kind(step: Step) -> Kind:
    committed = len(step.committed)
    return Kind(len(step.verified), step.accepted, step.advance, committed, step.branch, step.retained, step.stop)


def autoregressive_law(target: Callable[[Tokens], Law], prompt: Sequence[int], limits: Limits) -> dict[Tokens, Fraction]:
    """The law of AR sampling stopped at the first EOS or at L, straight from the target laws (no schedule involved)."""
    finished: dict[Tokens, Fraction] = {}
    pending: list[tuple[Tokens, Fraction]] = [((), Fraction(1))]
    while pending:
        tokens, weight = pending.pop()
        if limits.reached(tokens, 0):
            finished[tokens] = weight
            continue
        law = target((*prompt, *tokens))
        pending += [((*tokens, token), weight * Fraction(law.probability(token))) for token in law.support]
    return finished
