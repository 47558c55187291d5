"""Greedy decoding: Algorithm 1 (Packed-SS), and AR, Linear-SS and Quadratic-SS in the same words.

The paper counts tokens from 1 and Python from 0: v[0] is v^(1), and z[a:] is (z^(a+1), ..., z^(W)).
"""

from __future__ import annotations

from spec.run import Given, Phase, Record, Run, Schedule, Start, State, Tokens, first_phase
from spec.stopping import ending, goes_on


def run(schedule: Schedule, given: Given[int], start: Start = "algorithm") -> Run:
    """Algorithm 1 if the schedule is `packed`; the other schedules differ in the call only. Errors as `first_phase`."""
    state = State(given.prompt, (), (), first_phase(schedule, start))  # ALG1.L1
    call = {"ar": ar_call, "linear": linear_call, "packed": packed_call, "quadratic": quadratic_call}[schedule]
    states, records = [state], []
    while goes_on(state.P, given):  # ALG1.L2
        state, record = call(state, given)
        states.append(state)  # ALG1.L11
        records.append(record)
    return Run(tuple(states), tuple(records))  # ALG1.L13


def packed_call(state: State, given: Given[int]) -> tuple[State, Record]:
    """Packed-SS: verify the draft in hand, and draft from the prefix that was verified before this call."""
    P, D, _, phase = state
    if phase != "both":  # start `sampled` (E.2): call 1 emits one target token, call 2 only drafts, then the loop
        return _half(state, given, then="draft" if phase == "verify" else "both")
    v = given.verifier(P, D)  # ALG1.L3
    z = given.drafter(P)  # ALG1.L4
    P, record = _accept(P, D, v, given, phase)  # ALG1.L5-L9
    D = z[record.a :]  # ALG1.L10
    return State(P, D, (), "both"), record


def quadratic_call(state: State, given: Given[int]) -> tuple[State, Record]:
    """Quadratic-SS: verify, and draft a continuation of (P, d^(1), ..., d^(b)) for every b = 0..|D|."""
    P, D, _, phase = state
    if phase != "both":  # as Packed-SS
        return _half(state, given, then="draft" if phase == "verify" else "both")
    v = given.verifier(P, D)
    z = [given.drafter(P + D[:b]) for b in range(len(D) + 1)]  # [|D| + 1, W]
    P, record = _accept(P, D, v, given, phase)
    D = z[record.h][1:]  # the first proposal is for the place that the verifier's own token has just filled
    return State(P, D, (), "both"), record


def linear_call(state: State, given: Given[int]) -> tuple[State, Record]:
    """Linear-SS, half an iteration: draft W tokens from P, or verify them. Start `sampled` enters it at the second half."""
    return _half(state, given, then="verify" if state.phase == "draft" else "draft")


def ar_call(state: State, given: Given[int]) -> tuple[State, Record]:
    """AR: verify the empty draft, and so emit one token."""
    return _half(state, given, then="verify")


def _half(state: State, given: Given[int], then: Phase) -> tuple[State, Record]:
    """A call that only verifies or only drafts."""
    P, D, _, phase = state
    if phase == "draft":
        return State(P, given.drafter(P), (), then), Record(phase, h=0, A=0, a=0)
    P, record = _accept(P, D, given.verifier(P, D), given, phase)
    return State(P, (), (), then), record


def _accept(P: Tokens, D: Tokens, v: Tokens, given: Given[int], phase: Phase) -> tuple[Tokens, Record]:
    """EQ2. The accept rule of every schedule: the new verified prefix, and what happened."""
    h = max(h for h in range(len(D) + 1) if D[:h] == v[:h])  # ALG1.L5
    C, A = D[:h] + (v[h],), h + 1  # ALG1.L6
    a = ending(P, C, given)  # ALG1.L7
    C = C[:a]  # ALG1.L8
    return P + C, Record(phase, h, A, a)  # ALG1.L9
