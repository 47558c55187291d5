"""Appendix C: Algorithm 3 (Packed-SS in any verification order, greedy), its neighbours, and Prop. C.1's serial reference.

A position is an output position, 1 after the prompt; a pair is (position, token).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import isfinite
from typing import Literal, NamedTuple

from spec import run as left_to_right
from spec.run import Run, Tokens, ends

Schedule = Literal["linear", "packed", "quadratic", "native"]
Pairs = tuple[tuple[int, int], ...]
Answer = tuple[int, float]  # of a model: its argmax token, and the probability of that token (for CONF and NATIVE)


@dataclass(frozen=True)
class Given(left_to_right.Given[Answer]):
    """Line 0 of Algorithm 3. p(pairs, j) is the verifier at position j after these pairs (EQ8), q(pairs, j) the drafter; the
    prompt is theirs to know. order(U, state) ranks the active positions, given in ascending order, by the state before a call.
    """

    order: Callable[[Tokens, State], Tokens] = lambda U, state: U


class State(NamedTuple):
    """All that the next call depends on."""

    P: Pairs  # accepted, in acceptance order
    D: Pairs  # draft
    S: tuple[tuple[int, float], ...]  # (position, score) of unresolved positions, for CONF
    E: int  # last position to generate
    pi: Tokens = ()  # the order fixed for a draft that Linear-SS is about to verify


class Record(NamedTuple):
    """What one call did. If it did not verify, h = 0, and C = () unless it is Native's."""

    pi: Tokens  # the order: pi[r - 1] is checked at rank r
    h: int  # draft tokens accepted
    C: Pairs  # accepted before stopping, |C| = A


def run(schedule: Schedule, given: Given, start: Literal["algorithm", "prompt"] = "algorithm") -> Run:
    """Algorithm 3 if the schedule is `packed`. Start `prompt` makes a call before the loop, which only reads the prompt."""
    states, records = [State((), (), (), given.L)], []  # ALG3.L1
    if start == "prompt" and given.L > 0:
        states, records = states * 2, [Record((), 0, ())]
    while not {*range(1, states[-1].E + 1)} <= dict(states[-1].P).keys():  # ALG3.L2
        state, record = call(schedule, states[-1], given)
        states.append(state)  # ALG3.L16
        records.append(record)
    return Run(given.prompt + tuple(x for _, x in sorted(states[-1].P)), tuple(states), tuple(records))  # ALG3.L18


def call(schedule: Schedule, state: State, given: Given) -> tuple[State, Record]:
    """One forward pass. Quadratic-SS drafts after P and the first b draft pairs of pi, for every b = 0..kappa that leaves it a
    position to draft. Linear-SS (ASSD) drafts in one call and verifies in the next, in the order fixed before the first.
    """
    if schedule == "native":
        return native_call(state, given)
    P, D, _, E, fixed = state
    U, draft = active(P, E, given), dict(D)
    pi, u = fixed or given.order(U, state), len(U)  # ALG3.L5
    if schedule == "linear" and not fixed:
        return State(P, tuple((j, given.q(P, j)[0]) for j in U), (), E, pi), Record(pi, 0, ())
    kappa = max(k for k in range(u + 1) if all(j in draft for j in pi[:k]))  # ALG3.L6
    d = tuple((j, draft[j]) for j in pi[:kappa])
    v = {pi[r]: given.p(P + d[:r], pi[r]) for r in range(min(kappa + 1, u))}  # EQ8 ALG3.L7
    branches = {"linear": 0, "packed": 1, "quadratic": min(kappa + 1, u)}[schedule]
    z = [{j: given.q(P + d[:b], j) for j in pi[b:]} for b in range(branches)]  # ALG3.L8
    h = max(h for h in range(kappa + 1) if all(v[j][0] == x for j, x in d[:h]))  # ALG3.L9
    A = min(h + 1, u)  # ALG3.L10
    C = tuple((j, v[j][0]) for j in pi[:A])  # ALG3.L10
    P, E = append(P, C, E, given)
    J = [j for j in U if j not in dict(P) and j <= E]  # ALG3.L14
    chosen = z[min(h, branches - 1)] if z else v  # Linear-SS keeps no draft, but the verifier's probabilities as scores
    D = tuple((j, chosen[j][0]) for j in J if z)  # ALG3.L15
    return State(P, D, tuple((j, chosen[j][1]) for j in J), E), Record(pi, h, C)


def native_call(state: State, given: Given) -> tuple[State, Record]:
    """NATIVE: draft every active position, and accept what has probability 0.9 or more, or else the most probable one."""
    U = active(state.P, state.E, given)
    z = {j: given.q(state.P, j) for j in U}
    accepted = [j for j in U if z[j][1] >= 0.9] or [max(U, key=lambda j: z[j][1])]  # the leftmost of equals
    C = tuple((j, z[j][0]) for j in accepted)
    P, E = append(state.P, C, state.E, given)
    return State(P, (), (), E), Record(U, 0, C)


def active(P: Pairs, E: int, given: Given) -> Tokens:
    """U_t, in ascending order."""
    l = min({*range(1, E + 1)} - dict(P).keys())  # ALG3.L3
    return tuple(j for j in range(l, min(E, l + given.W - 1) + 1) if j not in dict(P))  # ALG3.L4


def append(P: Pairs, C: Pairs, E: int, given: Given) -> tuple[Pairs, int]:
    """The new P and E."""
    E = min([E, *ends(dict(P + C), given)])  # ALG3.L11; the end marker that ends first wins (STOPSEQ)
    return tuple((j, x) for j, x in P + C if j <= E), E  # ALG3.L12-L13


def serial(records: Iterable[Record], given: Given) -> Tokens:
    """PROPC1's reference: at each call's first A positions, one token after the other, each given all tokens before it."""
    P, C, E = Pairs(), Pairs(), given.L
    for record in records:
        C = ()
        for j in record.pi[: len(record.C)]:
            C += ((j, given.p(P + C, j)[0]),)
        P, E = append(P, C, E, given)
    return given.prompt + tuple(x for _, x in sorted(P))


def confidence(U: Tokens, state: State) -> Tokens:
    """CONF, an order: by falling score, ties by position; positions without a finite score last, in textual order."""
    score = {j: s for j, s in state.S if isfinite(s)}
    return tuple(sorted(U, key=lambda j: (j not in score, -score.get(j, 0), j)))
