"""Does a decoder's log obey the rules? A trace is replayed, call by call, against the literal statement in spec/.

The trace says how the coins fell: how many draft tokens were accepted, and which tokens came out. Everything else is decided
by the rules, so spec's own call is made with a verifier that answers as the trace says and a drafter whose proposals are
names for themselves; what the call must then commit, keep and do next is compared with what the log says it did. Without a
declared policy the rules about the length of drafts and the kind of call are left out, and said to be.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from proofs_check.any_order_trace import AnyOrder
from proofs_check.replay import RULES, WIDEST, Broken, Replay, TraceReport, Violation
from simulator.errors import InvalidInput
from simulator.records import Limits, Tokens
from simulator.trace import RequestLine, StepLine, read_trace
from spec import greedy
from spec.run import SCHEDULES, Given, Schedule, Start, State, ending, first_phase

__all__ = ["POLICIES", "RULES", "TraceReport", "Violation", "check_trace"]

POLICIES = tuple(SCHEDULES)
_SHOWN = 20
_UNKNOWN = -1  # no token id


def check_trace(
    lines: Iterable[str], policy: str | None = None, width: int | None = None, start: str | None = None
) -> TraceReport:
    """Replay a trace of schema 1 (see `simulator.trace`); the arguments override the policy that its request lines declare.

    What the trace leaves out is not checked; `TraceReport.unchecked` lists it. A log that lies consistently passes.

    Raises InvalidInput for a file that does not fit the schema, or a policy, W or start that spec/ does not know.
    """
    report = TraceReport()
    head: RequestLine | None = None
    replay: Replay | None = None
    for number, line in read_trace(lines):
        if isinstance(line, RequestLine):
            head, replay = line, None
            report.requests += 1
            continue
        assert head is not None  # read_trace: a request line comes first
        if replay is None:  # its first call tells the family
            over_positions = isinstance(line, StepLine) and (line.fields.get("end") is not None or line.fields.get("order"))
            family = AnyOrder if over_positions or head.schedule in ("serial", "native") else LeftToRight
            declared = (policy or head.schedule, head.width if width is None else width, start or head.start)
            replay = family(head, *declared, report, explicit=policy is not None)
        if not replay.broken:
            try:
                if isinstance(line, StepLine):
                    replay.step(line)
                else:
                    replay.end(line)
            except Broken as finding:
                replay.broken = True
                report.violated += 1
                if len(report.violations) < _SHOWN:
                    report.violations.append(Violation(number, replay.number, replay.calls, *finding.args))
        if isinstance(line, StepLine):
            report.calls += 1
            report.tokens += len(line.fields["committed"])
    return report


class LeftToRight(Replay):
    """One request."""

    def __init__(
        self, head: RequestLine, policy: str | None, width: int | None, start: str | None, report: TraceReport, explicit: bool
    ) -> None:
        super().__init__(head, report)
        self.retained: int | None = 0  # what the step before said it kept; None when it did not say
        self.policy: Schedule | None = None
        self.state: State | None = None
        if policy in POLICIES:
            if policy != "ar" and (width is None or width < 1):
                raise InvalidInput(f"replaying {policy} needs its width W >= 1: in the request lines, or as --width")
            if policy != "ar" and width is not None and width > WIDEST:
                raise InvalidInput(f"request {self.number} declares W = {width}: more than {WIDEST} is not replayed")
            self.policy, self.width = policy, width or 1
            try:
                self.state = State((), (), (), first_phase(self.policy, cast(Start, start or "algorithm")))
            except ValueError as error:
                raise InvalidInput(str(error)) from None
        elif explicit:
            raise InvalidInput(f"unknown policy {policy!r}; allowed: {', '.join(POLICIES)}")
        else:
            name = f"spec/ has no schedule {policy!r}" if policy else "no policy is declared"
            report.unchecked[f"lengths of drafts and kinds of calls: {name}"] += 1

    def step(self, line: StepLine) -> None:
        """Compare one call."""
        self.calls = line.call
        said = line.fields
        committed: Tokens = said["committed"]
        self.expect("ALG1.L2", "no call after the end of the output", f"another call after {self.stop!r}", self.stop is None)
        self.bounded(committed)
        verifies = self._verifies(said)
        h = self._accepted(said, verifies)
        advance = h + 1 if verifies else 0
        self.same("ALG1.L6", "advance", advance, said)
        if verifies:
            self._tokens(said, h)
        stop = self._stop(committed, advance)
        self.same("STOP", "stop", stop, said, "none" if stop is None else stop)
        if "rows" in said and "verified" in said and verifies:
            rows, least = said["rows"], len(said["verified"]) + 1
            self.expect("TAB2", f"at least {least} rows", f"{rows} rows", rows >= least)
        if self.state is not None:
            self._replayed(said, h, committed, verifies, stop)
        else:
            self._kept(said)
        self.output.extend(committed)
        self.stop = stop

    def _verifies(self, said: dict[str, Any]) -> bool:
        if self.state is not None:
            verifies = self.state.phase in ("both", "wide", "verify")
            if not verifies:
                found = f"{len(said['committed'])} committed tokens, {len(said.get('verified', ()))} verified"
                nothing = not said["committed"] and not said.get("verified")
                self.expect("INIT", f"a call that verifies nothing (phase {self.state.phase})", found, nothing)
            else:
                self.expect("ALG1.L6", "at least 1 committed token", "none", bool(said["committed"]))
            return verifies
        return bool(said["committed"])

    def _accepted(self, said: dict[str, Any], verifies: bool) -> int:
        """h: said, or what follows from the other fields."""
        a = len(said["committed"])
        if not verifies:
            self.same("ALG1.L5", "accepted", 0, said)
            return 0
        h = int(said.get("accepted", said.get("advance", max(a, 1)) - 1))
        self.expect("ALG1.L6", "an advance of at least 1", f"advance {h + 1}", h >= 0)
        if "accepted" not in said:
            self.report.unchecked["the field 'accepted' of the steps is missing"] += 1
        if "verified" in said:
            drafted = len(said["verified"])
            self.expect("ALG1.L5", f"at most {drafted} accepted, the draft that was verified", f"{h}", h <= drafted)
        return h

    def _tokens(self, said: dict[str, Any], h: int) -> None:
        """The committed tokens are the accepted draft tokens and one of the verifier."""
        committed, draft, predictions = said["committed"], said.get("verified"), said.get("predictions")
        a = len(committed)
        for name in ("verified", "predictions"):
            if name not in said:
                self.report.unchecked[f"the field {name!r} of the steps is missing"] += 1
        if draft is not None and predictions is not None:
            rows = f"{len(draft) + 1} predictions for {len(draft)} draft tokens"
            self.expect("ALG1.L6", rows, f"{len(predictions)}", len(predictions) == len(draft) + 1)
            for i, (token, prediction) in enumerate(zip(draft[: h + 1], predictions, strict=False)):
                if prediction is not None:  # the verifier is certain, so no coin decides
                    fate = "accepted" if token == prediction else "rejected"
                    expected = f"draft token {i + 1} ({token}) {fate}: the verifier's is {prediction}"
                    self.expect("ALG1.L5", expected, f"accepted {h}", (token == prediction) == (i < h))
        self.expect("ALG1.L6", f"at most {h + 1} committed tokens, {h} accepted and one more", f"{a}", a <= h + 1)
        if draft is not None:
            kept = draft[: min(h, a)]
            same = committed[: len(kept)] == kept
            self.expect("ALG1.L6", f"the accepted draft tokens {list(kept)}", f"{list(committed[: len(kept)])}", same)
        if a <= h:  # the stopping rule cut the verifier's own token off
            return
        own = committed[h]
        if predictions is not None and h < len(predictions) and predictions[h] is not None:
            self.expect("ALG1.L6", f"the verifier's token {predictions[h]} after {h} accepted", f"{own}", own == predictions[h])
        if draft is not None and h < len(draft) and not said.get("fallback", False):
            self.expect("ALG2.L7", f"another token than the rejected {draft[h]}", f"{own}", own != draft[h])

    def _stop(self, committed: Tokens, advance: int) -> str | None:
        """Where the block has to be cut (ALG1.L7), and why. Tokens that were cut off are not in the log: they end nothing."""
        before = tuple(self.output[-max((len(marker) for marker in self.limits.stop), default=1) :])
        room = self.limits.max_new_tokens - len(self.output) + len(before)
        given = Given((), 1, room, len, len, self.limits.eos, frozenset(self.limits.stop))
        # One of them is enough to show that the block goes on, however many the file says there were.
        cut_off = advance - len(committed)
        a = ending(before, committed + (_UNKNOWN,) * min(cut_off, 1), given) if advance else 0
        if a > len(committed):
            a = min(advance, self.limits.max_new_tokens - len(self.output))
        found = f"{len(committed)}: {list(committed)}"
        self.expect("ALG1.L7", f"{a} committed tokens, where the block or the output ends", found, len(committed) == a)
        return Limits(room, *self.limits[1:]).reached(before + committed, 0) if a else None

    def _kept(self, said: dict[str, Any]) -> None:
        """Without a policy: the draft verified is as long as the step before said it kept."""
        if "verified" in said and self.retained is not None and said["verified"]:
            length = len(said["verified"])
            self.expect(
                "ALG1.L10", f"a draft of the {self.retained} tokens retained before", f"{length}", length == self.retained
            )
        self.retained = said.get("retained")

    def _replayed(self, said: dict[str, Any], h: int, committed: Tokens, verifies: bool, stop: str | None) -> None:
        """Make spec's call with the trace's coins and compare the draft it verifies and the one it keeps."""
        assert self.state is not None
        assert self.policy is not None
        state = self.state
        drafted = len(state.D)
        if verifies:
            if "verified" in said:
                length = len(said["verified"])
                self.expect("ALG1.L10", f"a draft of {drafted} tokens to verify", f"{length}", length == drafted)
            self.expect("ALG1.L5", f"at most {drafted} accepted, the draft of the declared policy", f"{h}", h <= drafted)
        # The stopping rule has been compared already, so the spec's call is given room. Its draft tokens are names, below 0.
        answers = (*state.D[:h], 0)
        after, record = greedy.call(
            self.policy,
            state._replace(P=()),
            Given((), self.width, h + 1, lambda prefix: answers[min(len(prefix), h)], lambda prefix, i: -i),
        )
        kept = 0 if stop else len(after.D)
        self.same("ALG1.L10", "retained", kept, said)
        self.state = after
        assert record.h == h
