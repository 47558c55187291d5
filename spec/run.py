"""What every algorithm is given, how a schedule begins, and what a run leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

Tokens = tuple[int, ...]
Phase = Literal["verify", "draft", "both"]  # what one call does
Schedule = Literal["ar", "linear", "packed", "quadratic"]
Start = Literal["algorithm", "sampled"]
# Each schedule, and what the first call of its loop does.
SCHEDULES: dict[Schedule, Phase] = {"ar": "verify", "linear": "draft", "packed": "both", "quadratic": "both"}
Answer = TypeVar("Answer")  # of a model: a token in `greedy`, a law in `sampling`


@dataclass(frozen=True)
class Given(Generic[Answer]):
    """Line 0 of Algorithms 1 and 2: what stays fixed during a run. AR reads neither W nor q.

    p(prefix) is the verifier at the position after `prefix`; q(prefix, i) is the drafter at the i-th position after
    `prefix`, i = 1..W. In `greedy` both answer with their argmax token, in `sampling` with a law: the probabilities of
    tokens 0, 1, ... as a tuple of Fractions or floats. EOS holds every id that ends the output, perhaps none.
    Raises ValueError if W < 1 or L < 0.
    """

    prompt: Tokens
    W: int
    L: int
    p: Callable[[Tokens], Answer]
    q: Callable[[Tokens, int], Answer]
    EOS: AbstractSet[int] = frozenset()

    def __post_init__(self) -> None:
        check(self.W, self.L)

    def verifier(self, P: Tokens, D: Tokens) -> tuple[Answer, ...]:
        """EQ1: p at the draft's positions and at one more, each given the draft before it. [|D| + 1]"""
        return tuple(self.p(P + D[: i - 1]) for i in range(1, len(D) + 2))  # ALG1.L3 ALG2.L3

    def drafter(self, P: Tokens) -> tuple[Answer, ...]:
        """EQ3: q at the W positions after P. [W]"""
        return tuple(self.q(P, i) for i in range(1, self.W + 1))  # ALG1.L4 ALG2.L4


class State(NamedTuple):
    """All that the next call depends on."""

    P: Tokens  # verified prefix, prompt included
    D: Tokens  # draft for the positions after P, perhaps empty
    Q: tuple[Any, ...]  # in `sampling` the law that each draft token was drawn from, |Q| = |D|; in `greedy` always ()
    phase: Phase  # what the next call does


class Record(NamedTuple):
    """What one call did. If it verified, 0 <= h < A and 1 <= a <= A; if it only drafted, h = A = a = 0."""

    phase: Phase
    h: int  # draft tokens accepted, EQ2
    A: int  # tokens accepted before stopping: h and the correction or bonus
    a: int  # tokens appended after stopping, ALG1.L7


class Run(NamedTuple):
    """A whole run. states[t] holds P_t, D_t and Q_t, states[0] is the start; records[t-1] tells of call t."""

    states: tuple[State, ...]
    records: tuple[Record, ...]

    @property
    def P(self) -> Tokens:
        """The output of the algorithm (ALG1.L13): the prompt and its continuation."""
        return self.states[-1].P

    @property
    def NFE(self) -> int:
        """The number of forward passes."""
        return len(self.records)


def first_phase(schedule: Schedule, start: Start) -> Phase:
    """What call 1 does. Start `algorithm` enters the schedule's loop; `sampled` first emits one target token (E.2).

    Raises ValueError for an unknown schedule or start, and for AR with another start than `algorithm`.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule is {schedule!r}: it must be one of {', '.join(SCHEDULES)}")
    if start not in (("algorithm",) if schedule == "ar" else ("algorithm", "sampled")):
        raise ValueError(f"start is {start!r}: it must be 'algorithm' or 'sampled', and 'algorithm' for the schedule ar")
    return "verify" if start == "sampled" else SCHEDULES[schedule]


def check(W: int, L: int, c_star: Sequence[int] = ()) -> None:
    """Raise ValueError unless W >= 1, L >= 0 and 0 <= c*_k <= k for every k."""
    if W < 1:
        raise ValueError(f"W is {W}: the speculative width must be at least 1")
    if L < 0:
        raise ValueError(f"L is {L}: the output length limit must be at least 0")
    for k, c_k in enumerate(c_star, 1):
        if not 0 <= c_k <= k:
            raise ValueError(f"c*_{k} is {c_k}: a threshold must be between 0 and its position, here {k}")
