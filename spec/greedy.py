"""Greedy decoding: Algorithm 1 (Packed-SS), and AR, Linear-SS and Quadratic-SS in the same words.

The paper counts tokens from 1 and Python from 0: v[0] is v^(1), and z[a:] is (z^(a+1), ..., z^(W)). `sampling` shares the
loop and the calls; it hands in its own `accept` (for ALG1.L5-L9) and `keep` (to draw D_t from the laws kept in ALG1.L10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from spec.run import AFTER, SCHEDULES, Given, Record, Run, Schedule, Start, State, Tokens, ending, first_phase, goes_on

Accept = Callable[[tuple[Any, ...]], tuple[Tokens, Record]]
Keep = Callable[[tuple[Any, ...], Tokens], tuple[Tokens, tuple[Any, ...]]]


def run(schedule: Schedule, given: Given[int], start: Start = "algorithm") -> Run:
    """Algorithm 1 if the schedule is `packed`. Raises ValueError as `first_phase`."""
    return loop(schedule, given, start, lambda state, t: call(schedule, state, given))


def call(schedule: Schedule, state: State, given: Given[int]) -> tuple[State, Record]:
    """One forward pass."""
    P, D, _, phase = state

    def accept(v: Tokens) -> tuple[Tokens, Record]:
        """EQ2. The accept rule of every schedule."""
        h = max(h for h in range(len(D) + 1) if D[:h] == v[:h])  # ALG1.L5
        C, A = D[:h] + (v[h],), h + 1  # ALG1.L6
        a = ending(P, C, given)  # ALG1.L7
        C = C[:a]  # ALG1.L8
        return P + C, Record(phase, h, A, a)  # ALG1.L9

    return one_call(schedule, state, given, accept, keep=lambda z, P: (z, ()))


def loop(schedule: Schedule, given: Given[Any], start: Start, call: Callable[[State, int], tuple[State, Record]]) -> Run:
    """The whole run; call(state, t) is call t = 1, 2, ..."""
    states, records = [State(given.prompt, (), (), first_phase(schedule, start))], []  # ALG1.L1 ALG2.L1
    while goes_on(states[-1].P, given):  # ALG1.L2 ALG2.L2
        state, record = call(states[-1], len(states))
        states.append(state)  # ALG1.L11 ALG2.L14
        records.append(record)
    return Run(states[-1].P, tuple(states), tuple(records))  # ALG1.L13 ALG2.L16


def one_call(schedule: Schedule, state: State, given: Given[Any], accept: Accept, keep: Keep) -> tuple[State, Record]:
    """A call that does not both verify and draft does one of them (AR, Linear-SS) or only reads the prompt."""
    P, D, Q, phase = state
    if phase in ("both", "wide"):
        return (packed_call if schedule == "packed" else quadratic_call)(state, given, accept, keep)
    record = Record(phase, h=0, A=0, a=0)
    if phase == "verify":
        P, record = accept(given.verifier(P, D))
    D, Q = keep(given.drafter(P), P) if phase == "draft" else ((), ())
    return State(P, D, Q, AFTER.get((schedule, phase), SCHEDULES[schedule])), record


def packed_call(state: State, given: Given[Any], accept: Accept, keep: Keep) -> tuple[State, Record]:
    """Packed-SS: verify the draft in hand, and draft from the prefix that was verified before this call."""
    v = given.verifier(state.P, state.D)  # ALG1.L3 ALG2.L3
    z = given.drafter(state.P, state.phase)  # ALG1.L4 ALG2.L4
    P, record = accept(v)
    D, Q = keep(z[record.a :], P)  # ALG1.L10 ALG2.L12-L13
    return State(P, D, Q, "both"), record


def quadratic_call(state: State, given: Given[Any], accept: Accept, keep: Keep) -> tuple[State, Record]:
    """Quadratic-SS: verify, and draft a continuation of (P, d^(1), ..., d^(b)) for every b = 0..|D|."""
    v = given.verifier(state.P, state.D)
    z = [given.drafter(state.P + state.D[:b], state.phase) for b in range(len(state.D) + 1)]  # [|D| + 1, W]
    P, record = accept(v)
    D, Q = keep(z[record.h][1:], P)  # the first proposal is for the place that the verifier's own token has just filled
    return State(P, D, Q, "both"), record
