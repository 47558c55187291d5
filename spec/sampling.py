"""Rejection sampling: Algorithm 2 (Packed-SS, stored Q), and AR, Linear-SS and Quadratic-SS in the same words.

Randomness comes from two arguments, so that a test can hand in any source:
    uniform(call, position)              the number in [0, 1) that tests the draft token at that position in that call
    draw(law, purpose, call, position)   a token drawn from a law; purpose 'draft' (a retained proposal; `call` is the call
                                         that proposed it) or 'correct' (a correction, a bonus, a start's first token)
`call` counts every forward pass from 1, Linear-SS's drafting calls too; `position` is 1 for the first token after the prompt.
All are independent. Draft tokens are drawn once the advance a is known, the retained ones only (E.4 for Quadratic-SS).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal

from spec.greedy import loop, one_call
from spec.run import Given, Record, Run, Schedule, Start, State, Tokens, ending

Law = tuple[Fraction | float, ...]  # probability of each token id
Uniform = Callable[[int, int], Any]  # a number, or whatever can be asked u < alpha
Draw = Callable[[Law, Literal["draft", "correct"], int, int], int]


def run(schedule: Schedule, given: Given[Law], uniform: Uniform, draw: Draw, start: Start = "algorithm") -> Run:
    """Algorithm 2 if the schedule is `packed`. Raises ValueError as `first_phase`."""
    return loop(schedule, given, start, lambda state, t: call(schedule, state, given, t, uniform, draw))


def call(schedule: Schedule, state: State, given: Given[Law], t: int, uniform: Uniform, draw: Draw) -> tuple[State, Record]:
    """Forward pass number t."""
    P, D, Q, phase = state
    emitted = len(P) - len(given.prompt)  # d^(i) is for output position emitted + i

    def accept(p: tuple[Law, ...]) -> tuple[Tokens, Record]:
        """The accept rule of every schedule."""
        u = [uniform(t, emitted + i) for i in range(1, len(D) + 1)]  # ALG2.L5
        alpha = [min(1, p[i][D[i]] / Q[i][D[i]]) for i in range(len(D))]  # ALG2.L5; Q(d) > 0, since d was drawn from Q
        h = max(h for h in range(len(D) + 1) if all(u[i] < alpha[i] for i in range(h)))  # ALG2.L6; alpha = 0 never accepts
        R = residual(p[h], Q[h]) if h < len(D) else p[h]  # ALG2.L7
        c = draw(R, "correct", t, emitted + h + 1)  # ALG2.L7
        C, A = D[:h] + (c,), h + 1  # ALG2.L8
        a = ending(P, C, given)  # ALG2.L9
        C = C[:a]  # ALG2.L10
        return P + C, Record(phase, h, A, a, fallback=h < len(D) and R is p[h])  # ALG2.L11

    def keep(Q: tuple[Law, ...], P: Tokens) -> tuple[Tokens, tuple[Law, ...]]:
        """One token from each law, for the positions after P."""
        emitted = len(P) - len(given.prompt)
        return tuple(draw(law, "draft", t, emitted + j) for j, law in enumerate(Q, 1)), Q  # ALG2.L12

    return one_call(schedule, state, given, accept, keep)


def residual(p: Law, Q: Law) -> Law:
    """LEMB3: [p - Q]+ normalised. If floats round its mass to 0, which exact laws never do after a rejection, p itself."""
    positive = [max(p_x - Q_x, 0) for p_x, Q_x in zip(p, Q, strict=True)]
    mass = sum(positive)
    return tuple(x / mass for x in positive) if mass > 0 else p
