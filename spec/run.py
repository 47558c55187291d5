"""What every algorithm is given, how a run begins, goes on and ends, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

Tokens = tuple[int, ...]
Phase = Literal["prompt", "verify", "draft", "both", "wide"]  # what one call does; `wide` does both and drafts W + 1
Schedule = Literal["ar", "linear", "packed", "quadratic"]
Start = Literal["algorithm", "wide", "sampled", "prompt"]
# Each schedule, and what the first call of its loop does; and which calls do not lead (back) to that one, but to another.
SCHEDULES: dict[Schedule, Phase] = {"ar": "verify", "linear": "draft", "packed": "both", "quadratic": "both"}
AFTER: dict[tuple[Schedule, Phase], Phase] = {("linear", "draft"): "verify"}
AFTER |= {("packed", "verify"): "draft", ("quadratic", "verify"): "draft"}  # start `sampled`
Answer = TypeVar("Answer")  # of a model: a token in `greedy`, a law in `sampling`


@dataclass(frozen=True)
class Given(Generic[Answer]):
    """Line 0 of Algorithms 1 and 2: what stays fixed during a run. AR reads neither W nor q.

    p(prefix) is the verifier at the position after `prefix`; q(prefix, i) is the drafter at the i-th position after
    `prefix`, i = 1..W. In `greedy` both answer with their argmax token, in `sampling` with a law: the probabilities of
    tokens 0, 1, ... as a tuple of Fractions or floats. EOS holds every id that ends the output, `markers` every sequence of
    one or more ids that does (STOPSEQ). Raises ValueError if W < 1, L < 0 or a marker is empty.
    """

    prompt: Tokens
    W: int
    L: int
    p: Callable[..., Answer]
    q: Callable[..., Answer]
    EOS: AbstractSet[int] = frozenset()
    markers: AbstractSet[Tokens] = frozenset()

    def __post_init__(self) -> None:
        if self.W < 1:
            raise ValueError(f"W is {self.W}: the speculative width must be at least 1")
        if self.L < 0:
            raise ValueError(f"L is {self.L}: the output length limit must be at least 0")
        if () in self.markers:
            raise ValueError("an end marker is empty: it must have at least 1 token")

    def verifier(self, P: Tokens, D: Tokens) -> tuple[Answer, ...]:
        """EQ1: p at the draft's positions and at one more, each given the draft before it. [|D| + 1]"""
        return tuple(self.p(P + D[: i - 1]) for i in range(1, len(D) + 2))  # ALG1.L3 ALG2.L3

    def drafter(self, P: Tokens, phase: Phase = "both") -> tuple[Answer, ...]:
        """EQ3: q at the W positions after P, or W + 1 in the first call of start `wide`. [W]"""
        return tuple(self.q(P, i) for i in range(1, self.W + (phase == "wide") + 1))  # ALG1.L4 ALG2.L4


class State(NamedTuple):
    """All that the next call depends on."""

    P: Tokens  # verified prefix, prompt included
    D: Tokens  # draft for the positions after P, perhaps empty
    Q: tuple[Any, ...]  # in `sampling` the law that each draft token was drawn from, |Q| = |D|; in `greedy` always ()
    phase: Phase  # what the next call does


class Record(NamedTuple):
    """What one call did. If it verified, 0 <= h < A and 1 <= a <= A; else h = A = a = 0."""

    phase: Phase
    h: int  # draft tokens accepted, EQ2
    A: int  # tokens accepted before stopping: h and the correction or bonus
    a: int  # tokens appended after stopping, ALG1.L7
    fallback: bool = False  # in `sampling`: a residual was rounded to 0, so the correction was drawn from p


class Run(NamedTuple):
    """A whole run. states[0] is the start, states[t] what call t left (P_t, D_t, Q_t); records[t-1] tells of call t."""

    P: Tokens  # the output of the algorithm: the prompt and its continuation
    states: tuple[Any, ...]
    records: tuple[Any, ...]

    @property
    def NFE(self) -> int:
        """The number of forward passes."""
        return len(self.records)


def first_phase(schedule: Schedule, start: Start) -> Phase:
    """INIT, what call 1 does. Start `algorithm` enters the schedule's loop, `prompt` after a call that only reads the prompt;
    `wide` drafts one position more; `sampled` only emits one target token, which is also what `wide` is for Linear-SS.

    Raises ValueError for an unknown schedule or start, and for AR with another start than `algorithm` or `prompt`.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"schedule is {schedule!r}: it must be one of {', '.join(SCHEDULES)}")
    loop = SCHEDULES[schedule]
    starts: dict[Start, Phase] = {"algorithm": loop, "prompt": "prompt"}
    if schedule != "ar":
        starts |= {"wide": "wide" if loop == "both" else "verify", "sampled": "verify"}
    if start not in starts:
        raise ValueError(f"start is {start!r}: it must be one of {', '.join(starts)} for the schedule {schedule}")
    return starts[start]


def goes_on(P: Tokens, given: Given[Any]) -> bool:
    """STOP, the loop condition: is there another call after the verified prefix P?

    The paper's `t = 1` lets a prompt that ends in EOS be continued; under any start it reads: nothing has been emitted yet.
    """
    output = P[len(given.prompt) :]
    return len(output) < given.L and len(output) not in ends(dict(enumerate(output, 1)), given)  # ALG1.L2 ALG2.L2


def ending(P: Tokens, C: Tokens, given: Given[Any]) -> int:
    """a: how many of the accepted tokens C (|C| = A >= 1) are appended to P. The earliest of block end, limit and EOS wins."""
    A, emitted = len(C), len(P) - len(given.prompt)
    stops = [j - emitted for j in ends(dict(enumerate((P + C)[len(given.prompt) :], 1)), given) if j > emitted]
    return min([A, given.L - emitted, *stops])  # ALG1.L7 ALG2.L9


def ends(output: dict[int, int], given: Given[Any]) -> list[int]:
    """STOPSEQ: the positions where an EOS id stands, or the last token of an end marker whose other tokens stand before it."""
    markers = {(x,) for x in given.EOS} | set(given.markers)
    return [j for j in output for m in markers if tuple(output.get(i) for i in range(j - len(m) + 1, j + 1)) == m]
