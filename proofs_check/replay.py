"""What the replays of a trace share: what they report, the rules by name, and the counters that have to close."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from simulator.errors import InvalidInput
from simulator.records import Tokens
from simulator.trace import EndLine, RequestLine, StepLine

MOST_TOKENS = 1 << 23  # of one request
WIDEST = 1024  # W; a file that says more would have its drafts named, Quadratic-SS's W (W + 1) of them, one by one
RULES = {
    "ALG1.L2": "a call is made only while the output is shorter than L and has not ended",
    "ALG1.L5": "the accepted draft tokens are the leading ones that pass their test",
    "ALG1.L6": "an accepted block is the accepted draft tokens and one token of the verifier",
    "ALG1.L7": "the block is cut at the first stop: end of block, limit L, EOS or end marker",
    "ALG1.L10": "the next draft is what the declared policy keeps of the proposals",
    "ALG2.L7": "after a rejection the correction comes from [p - Q]+, which cannot hold the rejected token",
    "ALG3.L2": "a call is made only while a position up to E is unresolved",
    "ALG3.L5": "the order ranks the window, each unresolved position once; Linear-SS verifies in the order it drafted under",
    "ALG3.L10": "a call accepts the leading draft tokens that match and, unless the window ends there, one token more",
    "ALG3.L11": "E is where the first EOS or end marker stands, and nothing beyond it is kept",
    "ALG3.L15": "the next draft is what the declared policy proposed for the positions that are still unresolved",
    "INIT": "each call verifies, drafts or both, as the declared policy and start say",
    "TAB2": "a call evaluates at least the rows it verifies",
    "STOP": "the request ends where the first stop is",
    "NFE-CONV": "the counters close: tokens and calls reported are those of the steps",
}


class Violation(NamedTuple):
    """The first step of a request that no rule explains."""

    line: int
    request: int
    call: int  # the number of the forward pass; that of the last one if the end line is at fault
    rule: str  # id of the nearest rule, a key of RULES
    expected: str
    found: str


@dataclass
class TraceReport:
    """What a trace shows."""

    requests: int = 0
    calls: int = 0
    tokens: int = 0
    checked: Counter[str] = field(default_factory=Counter)  # comparisons made, by rule
    unchecked: Counter[str] = field(default_factory=Counter)  # what could not be checked, in words: how often
    violations: list[Violation] = field(default_factory=list)  # the first of each request, at most the first 20 requests
    violated: int = 0  # requests with a violation

    @property
    def verdict(self) -> str:
        """`violated`, `holds`, or `not run` when there was nothing to check."""
        return "violated" if self.violated else "holds" if self.calls else "not run"


class Broken(Exception):  # never leaves the replays
    pass


class Replay:
    """One request. `step` is the family's."""

    def __init__(self, head: RequestLine, report: TraceReport) -> None:
        self.number, self.limits, self.report = head.number, head.limits, report
        self.broken = False
        self.calls = 0
        self.output = array("q")
        self.stop: str | None = "length" if head.limits.max_new_tokens == 0 else None

    def step(self, line: StepLine) -> None:
        """Compare one call."""
        raise NotImplementedError

    def bounded(self, committed: Tokens) -> None:
        """Raise InvalidInput for an output too long to be replayed."""
        if len(self.output) + len(committed) > MOST_TOKENS:
            raise InvalidInput(f"request {self.number} has more than {MOST_TOKENS:,} output tokens: too long to be replayed")

    def end(self, line: EndLine) -> None:
        """Compare the request's totals."""
        self.expect("STOP", "another call: the output has not ended", "the end of the request", self.stop is not None)
        if line.stop is not None:
            self.expect("STOP", f"stop {self.stop!r}", f"stop {line.stop!r}", line.stop == self.stop)
        if line.tokens is not None:
            got = array("q", line.tokens)
            where = next(
                (i for i, (a, b) in enumerate(zip(got, self.output, strict=False)) if a != b), min(len(got), len(self.output))
            )
            expected = f"the {len(self.output)} tokens of the steps"
            self.expect(
                "NFE-CONV", expected, f"{len(got)} tokens, other from output position {where + 1} on", got == self.output
            )
        if line.nfe is not None:
            self.expect("NFE-CONV", f"{self.calls} calls", f"{line.nfe}", line.nfe == self.calls)
        for name in ("tokens", "nfe"):
            if getattr(line, name) is None:
                self.report.unchecked[f"the field {name!r} of the end line is missing"] += 1

    def expect(self, rule: str, expected: str, found: str, holds: bool) -> None:
        self.report.checked[rule] += 1
        if not holds:
            raise Broken(rule, expected, found)

    def same(self, rule: str, name: str, expected: Any, said: dict[str, Any], shown: str = "") -> None:
        """The field `name` has the expected value, if the step has it."""
        if name in said:
            self.expect(rule, f"{name} {shown or expected}", f"{name} {said[name]}", said[name] == expected)
        else:
            self.report.unchecked[f"the field {name!r} of the steps is missing"] += 1
