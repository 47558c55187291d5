"""What a declared policy costs: the exact law of its number of calls, from the paper's algorithms as `spec` has them.

Nothing of the production scheduler, its models or its laws takes part, so that a schedule that keeps another draft than it
declares, which leaves its output law exact, shows in its calls.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any, cast

from simulator.chance import Chance, branching, fraction, rational
from simulator.errors import InvalidInput
from simulator.laws import Law
from simulator.oracles.answer import Oracle
from simulator.records import Limits, Tokens
from spec import SCHEDULES, Given, Phase, Schedule, Start, State, sampling
from spec.run import first_phase, goes_on


@dataclass(frozen=True)
class _Branches(Given[sampling.Law]):
    """Branches(S) in the words of Quadratic-SS: what is drafted after h accepted tokens comes from the largest b <= h in S."""

    counts: Tokens = ()
    verified: int = 0  # length of the verified prefix

    def drafter(self, P: Tokens, phase: Phase = "both") -> tuple[sampling.Law, ...]:  # noqa: N803
        h = len(P) - self.verified
        b = max((count for count in self.counts if count <= h), default=None)
        if b is None:
            return ()
        return tuple(self.q(P[: self.verified + b], i) for i in range(1 + h - b, self.W + 1))


def declared_nfe(
    policy: str, start: str, laws: Oracle, vocabulary: int, width: int, prompt: Tokens, limits: Limits
) -> dict[int, Fraction]:
    """The law of NFE of ar, linear, packed, quadratic or branches:0,2,... with laws of ids 0 .. `vocabulary` - 1.

    Raises InvalidInput for another policy and ValueError for a start that it does not have.
    """
    counts = re.fullmatch(r"branches:(\d+(?:,\d+)*)", policy)
    if not counts and policy not in SCHEDULES:
        raise InvalidInput(f"no policy is called {policy!r}; allowed: {', '.join(SCHEDULES)}, branches:0,2,...")
    schedule = cast(Schedule, "quadratic" if counts else policy)

    def row(law: Law) -> sampling.Law:
        return tuple(Fraction(law.probability(token)) for token in range(vocabulary))

    p: Callable[..., sampling.Law] = cache(lambda prefix: row(laws.target(prefix)))
    q: Callable[..., sampling.Law] = cache(lambda prefix, i: row(laws.proposal(prefix, i)))
    given: Given[sampling.Law] = Given(prompt, width, limits.max_new_tokens, p, q, limits.eos, frozenset(limits.stop))

    nfe: defaultdict[int, Any] = defaultdict(rational)
    layer: dict[State, Any] = {State(prompt, (), (), first_phase(schedule, cast(Start, start))): rational(1)}
    calls = 0
    while layer:
        following: defaultdict[State, Any] = defaultdict(rational)
        for state, weight in layer.items():
            if not goes_on(state.P, given):
                nfe[calls] += weight
                continue
            now = given
            if counts and state.phase == "both":  # the calls of a start draft from the prefix alone
                subset = tuple(map(int, counts[1].split(",")))
                now = _Branches(**vars(given), counts=subset, verified=len(state.P))
            for share, after in branching(partial(_after, schedule, state, now)):
                following[after] += weight * share
        layer, calls = following, calls + 1
    return {count: fraction(weight) for count, weight in nfe.items()}


def _after(schedule: Schedule, state: State, given: Given[sampling.Law], chance: Chance) -> State:
    """The state after one call of the spec. A call number means nothing here: coins never outlive their call."""

    def draw(law: sampling.Law, purpose: Any, call: int, position: int) -> int:
        total, coin = Fraction(0), chance.uniform(purpose, position)
        for token, mass in enumerate(law):
            total += Fraction(mass)
            if mass and coin < total:
                return token
        raise ValueError(f"the law {law} does not sum to 1")

    return sampling.call(schedule, state, given, 1, lambda call, position: chance.uniform("test", position), draw)[0]
