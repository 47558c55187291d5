"""The exact law of a schedule, from the production code: propagate its Markov chain under enumerated coins.

States that are equal by value merge, layer by layer (one layer per call), and nothing is stored per transition. With rational
laws every number here is a rational: a verdict, not an estimate.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from simulator.chance import enumerated
from simulator.decode import Model, Policy
from simulator.errors import ContractError
from simulator.laws import Law
from simulator.records import Limits, State, Step, Tokens


class ExactLaw(NamedTuple):
    """What a schedule does on one request, exactly."""

    output: dict[Tokens, Fraction]  # law of the continuation
    nfe: dict[int, Fraction]  # law of the number of forward passes
    states: int  # distinct states per layer, summed
    transitions: int

    @property
    def expected_nfe(self) -> Fraction:
        return sum((count * weight for count, weight in self.nfe.items()), Fraction(0))


def exact_law(
    schedule: Policy,
    model: Model,
    prompt: Sequence[int],
    limits: Limits,
    observe: Callable[[Step], None] = lambda step: None,
    max_calls: int = 1000,
) -> ExactLaw:
    """The law of the output and of NFE; `observe` sees the Step of every transition, so that a check can tell what it reached.

    Raises ContractError when `max_calls` calls do not end every path.
    """
    output: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    nfe: defaultdict[int, Fraction] = defaultdict(Fraction)
    layer: dict[State, Fraction] = {schedule.init(prompt, limits): Fraction(1)}
    states = transitions = 0
    for calls in range(max_calls + 1):
        following: defaultdict[State, Fraction] = defaultdict(Fraction)
        for state, weight in layer.items():
            states += 1
            if state.stop is not None:
                output[state.prefix[state.prompt_length :]] += weight
                nfe[calls] += weight
                continue
            call = schedule.request(state)
            reply = model(call)
            for share, (after, step) in enumerated(partial(schedule.absorb, state, call, reply)):
                transitions += 1
                observe(step)
                following[after] += weight * share
        if not following:
            return ExactLaw(dict(output), dict(nfe), states, transitions)
        layer = following
    raise ContractError(f"some path is still running after {max_calls} calls")


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
