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

from spec.run import Given, Phase, Record, Run, Schedule, Start, State, Tokens, first_phase
from spec.stopping import ending, goes_on

Law = tuple[Fraction | float, ...]  # probability of each token id
Laws = tuple[Law, ...]
Uniform = Callable[[int, int], Any]  # a number, or whatever can be asked u < alpha
Draw = Callable[[Law, Literal["draft", "correct"], int, int], int]


def run(schedule: Schedule, given: Given[Law], uniform: Uniform, draw: Draw, start: Start = "algorithm") -> Run:
    """Algorithm 2 if the schedule is `packed`; the other schedules differ in the call only. Errors as `first_phase`."""
    state, t = State(given.prompt, (), (), first_phase(schedule, start)), 1  # ALG2.L1
    call = {"ar": ar_call, "linear": linear_call, "packed": packed_call, "quadratic": quadratic_call}[schedule]
    states, records = [state], []
    while goes_on(state.P, given):  # ALG2.L2
        state, record = call(state, given, t, uniform, draw)
        states.append(state)
        records.append(record)
        t = t + 1  # ALG2.L14
    return Run(tuple(states), tuple(records))  # ALG2.L16


def packed_call(state: State, given: Given[Law], t: int, uniform: Uniform, draw: Draw) -> tuple[State, Record]:
    """Packed-SS, call t: verify the draft in hand, and draft from the prefix that was verified before this call."""
    P, D, _, phase = state
    if phase != "both":  # start `sampled` (E.2): call 1 emits one target token, call 2 only drafts, then the loop
        return _half(state, given, t, uniform, draw, then="draft" if phase == "verify" else "both")
    p = given.verifier(P, D)  # ALG2.L3
    q = given.drafter(P)  # ALG2.L4
    P, record = _accept(state, p, given, t, uniform, draw)  # ALG2.L5-L11
    Q = q[record.a :]  # ALG2.L12
    D = _sample(Q, P, given, t, draw)  # ALG2.L12-L13
    return State(P, D, Q, "both"), record


def quadratic_call(state: State, given: Given[Law], t: int, uniform: Uniform, draw: Draw) -> tuple[State, Record]:
    """Quadratic-SS, call t: verify, and draft a continuation of (P, d^(1), ..., d^(b)) for every b = 0..|D|."""
    P, D, _, phase = state
    if phase != "both":  # as Packed-SS
        return _half(state, given, t, uniform, draw, then="draft" if phase == "verify" else "both")
    p = given.verifier(P, D)
    q = [given.drafter(P + D[:b]) for b in range(len(D) + 1)]  # [|D| + 1, W]
    P, record = _accept(state, p, given, t, uniform, draw)
    Q = q[record.h][1:]  # the first proposal is for the place that the verifier's own token has just filled
    return State(P, _sample(Q, P, given, t, draw), Q, "both"), record


def linear_call(state: State, given: Given[Law], t: int, uniform: Uniform, draw: Draw) -> tuple[State, Record]:
    """Linear-SS, half an iteration: draft W tokens from P, or verify them. Start `sampled` enters it at the second half."""
    return _half(state, given, t, uniform, draw, then="verify" if state.phase == "draft" else "draft")


def ar_call(state: State, given: Given[Law], t: int, uniform: Uniform, draw: Draw) -> tuple[State, Record]:
    """AR: verify the empty draft, and so emit one token."""
    return _half(state, given, t, uniform, draw, then="verify")


def residual(p: Law, Q: Law) -> Law:
    """LEMB3: [p - Q]+ normalised. If floats round its mass to 0, which exact laws never do after a rejection, it is p."""
    positive = [max(p_x - Q_x, 0) for p_x, Q_x in zip(p, Q, strict=True)]
    mass = sum(positive)
    return tuple(x / mass for x in positive) if mass > 0 else p


def _half(state: State, given: Given[Law], t: int, uniform: Uniform, draw: Draw, then: Phase) -> tuple[State, Record]:
    """A call that only verifies or only drafts."""
    P, D, _, phase = state
    if phase == "draft":
        Q = given.drafter(P)
        return State(P, _sample(Q, P, given, t, draw), Q, then), Record(phase, h=0, A=0, a=0)
    P, record = _accept(state, given.verifier(P, D), given, t, uniform, draw)
    return State(P, (), (), then), record


def _accept(state: State, p: tuple[Law, ...], given: Given[Law], t: int, uniform: Uniform, draw: Draw) -> tuple[Tokens, Record]:
    """The accept rule of every schedule: the new verified prefix, and what happened."""
    P, D, Q, phase = state
    emitted = len(P) - len(given.prompt)  # d^(i) is for output position emitted + i
    u = [uniform(t, emitted + i) for i in range(1, len(D) + 1)]  # ALG2.L5
    alpha = [min(1, p[i][D[i]] / Q[i][D[i]]) for i in range(len(D))]  # ALG2.L5; Q(d) > 0, since d was drawn from Q
    h = 0
    while h < len(D) and u[h] < alpha[h]:  # ALG2.L6; strict, so that alpha = 0 never accepts
        h = h + 1
    R = residual(p[h], Q[h]) if h < len(D) else p[h]  # ALG2.L7
    c = draw(R, "correct", t, emitted + h + 1)  # ALG2.L7
    C, A = D[:h] + (c,), h + 1  # ALG2.L8
    a = ending(P, C, given)  # ALG2.L9
    C = C[:a]  # ALG2.L10
    return P + C, Record(phase, h, A, a)  # ALG2.L11


def _sample(Q: Laws, P: Tokens, given: Given[Law], t: int, draw: Draw) -> Tokens:
    """One token from each law, for the positions after P."""
    emitted = len(P) - len(given.prompt)
    return tuple(draw(law, "draft", t, emitted + j) for j, law in enumerate(Q, 1))  # ALG2.L12
