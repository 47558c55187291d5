"""The replay of an any-order log: each call against Algorithm 3's rules, from the orders, acceptances and tokens it names.

An order policy is the decoder's own: any permutation of the window is one, and whether it was fixed before the call no log can
show. NATIVE's threshold is not in a log either; of its calls it is checked that what they take lies in the window.
"""

from __future__ import annotations

from array import array
from typing import Any

from proofs_check.replay import WIDEST, Replay, TraceReport
from simulator.errors import InvalidInput
from simulator.records import Tokens
from simulator.trace import EndLine, RequestLine, StepLine

POLICIES = ("serial", "linear", "packed", "quadratic", "native")
_UNKNOWN = -1  # no token id


class AnyOrder(Replay):
    """One request over positions."""

    def __init__(
        self, head: RequestLine, policy: str | None, width: int | None, start: str | None, report: TraceReport, explicit: bool
    ) -> None:
        super().__init__(head, report)
        if explicit and policy not in POLICIES:
            raise InvalidInput(f"unknown any-order policy {policy!r}; allowed: {', '.join(POLICIES)}")
        if start not in (None, "algorithm", "prompt"):
            raise InvalidInput(f"unknown start {start!r} of an any-order schedule; allowed: algorithm, prompt")
        if width is not None and not 1 <= width <= WIDEST:
            raise InvalidInput(f"request {self.number} declares W = {width}: it must lie in 1 .. {WIDEST}")
        self.policy = policy if policy in POLICIES else None
        self.width = width
        self.text: dict[int, int] = {}
        self.last = head.limits.max_new_tokens  # E
        self.drafted: set[int] | None = set()  # positions with a draft token; None when that is not known
        self.fixed: Tokens = ()  # the order that Linear-SS has drafted under
        self.prompt_call = start == "prompt"
        if self.policy is None:
            report.unchecked["lengths of drafts and kinds of calls: no any-order policy is declared"] += 1
        if width is None:
            report.unchecked["windows: no width is declared"] += 1

    def step(self, line: StepLine) -> None:
        """Compare one call."""
        self.calls = line.call
        said = line.fields
        committed, order = said["committed"], said.get("order", ())
        if said.get("end") is None:
            raise InvalidInput(f"request {self.number}, call {line.call}: a call over positions needs its end, E")
        self.expect("ALG3.L2", "no call after the end of the output", f"another call after {self.stop!r}", self.stop is None)
        self.bounded(committed)
        if self.prompt_call:
            self.prompt_call = False
            self.expect("INIT", "a call that only processes the prompt", f"order {list(order)}", not order and not committed)
            return
        self._order(order)
        drafts_only = self.policy == "linear" and not self.fixed
        h, advance = self._advance(said, order, drafts_only)
        tokens = self._tokens(said, order, h, advance)
        self._resolve(said, order[:advance], tokens)
        self._keep(said, order, drafts_only, h)

    def end(self, line: EndLine) -> None:
        """Compare the request's totals."""
        self.output = array("q", (self.text[j] for j in sorted(self.text)))
        super().end(line)

    def _order(self, order: Tokens) -> None:
        free = [j for j in range(1, self.last + 1) if j not in self.text]
        window = free if self.width is None else [j for j in free if j < free[0] + self.width]
        if self.policy == "serial":
            one = len(order) == 1 and order[0] in window
            self.expect("ALG3.L5", f"one position of the window {window[:40]}", f"{list(order)}", one)
        elif self.width is None:
            inside = len(set(order)) == len(order) and set(order) <= set(window) and bool(order)
            self.expect("ALG3.L5", "unresolved positions, each once", f"{list(order)}", inside)
        else:
            self.expect("ALG3.L5", f"a permutation of the window {window[:40]}", f"{list(order)}", sorted(order) == window)
        if self.fixed:
            self.expect("ALG3.L5", f"the order {list(self.fixed)} fixed before drafting", f"{list(order)}", order == self.fixed)

    def _advance(self, said: dict[str, Any], order: Tokens, drafts_only: bool) -> tuple[int | None, int]:
        """h, None where nothing was verified or the log does not tell, and A."""
        h, draft, predictions = said.get("accepted"), said.get("verified", ()), said.get("predictions", ())
        idle = drafts_only or self.policy == "native"
        if idle:
            found = f"{h or 0} accepted, {len(draft)} draft tokens, {len(predictions)} predictions"
            self.expect("ALG3.L10", "nothing verified", found, not (h or draft or predictions))
        else:
            for name in ("verified", "predictions"):
                if name not in said:
                    self.report.unchecked[f"the field {name!r} of the steps is missing"] += 1
        if not idle and "verified" in said and self.drafted is not None:
            kappa = next((r for r, j in enumerate(order) if j not in self.drafted), len(order))
            expected = f"a draft of {kappa} tokens, those of the leading ranks that have one"
            self.expect("ALG3.L15", expected, f"{len(draft)}", len(draft) == kappa)
        if idle or h is None or (self.policy is None and not (h or draft or predictions)):
            if not idle and h is None:
                self.report.unchecked["the field 'accepted' of the steps is missing"] += 1
            kept = (rank for rank, j in enumerate(order) if j <= said["end"])
            taken = int(
                said.get("advance", max((rank + 1 for rank, _ in zip(kept, said["committed"], strict=False)), default=0))
            )
            least, most = int(not drafts_only and self.policy is not None), 0 if drafts_only else len(order)
            self.expect("ALG3.L10", f"{least} .. {most} tokens accepted", f"advance {taken}", least <= taken <= most)
            return None, taken
        if "verified" in said:
            self.expect("ALG3.L10", f"at most {len(draft)} accepted, the draft that was verified", f"{h}", h <= len(draft))
            asked = min(len(draft) + 1, len(order))
            if "predictions" in said:
                expected = f"{asked} predictions for {len(draft)} draft tokens"
                self.expect("ALG3.L10", expected, f"{len(predictions)}", len(predictions) == asked)
            if "rows" in said:
                self.expect("TAB2", f"at least {asked} rows", f"{said['rows']} rows", said["rows"] >= asked)
        advance = min(h + 1, len(order))
        self.same("ALG3.L10", "advance", advance, said)
        return h, advance

    def _tokens(self, said: dict[str, Any], order: Tokens, h: int | None, advance: int) -> list[int]:
        """The tokens of the first A ranks, _UNKNOWN where one was removed again and the log does not name it."""
        draft, predictions = said.get("verified", ()), said.get("predictions", ())
        known: list[int] = []
        if h is not None:
            for rank, (token, prediction) in enumerate(zip(draft[: h + 1], predictions, strict=False)):
                if prediction is not None:
                    expected = f"the draft token {token} at position {order[rank]} tested against {prediction}"
                    self.expect("ALG3.L10", expected, f"accepted {h}", (token == prediction) == (rank < h))
            known += draft[:h]
            if len(known) == h < min(advance, len(predictions)) and predictions[h] is not None:
                known.append(predictions[h])
        tokens = known + [_UNKNOWN] * (advance - len(known))
        kept = [rank for rank in range(advance) if order[rank] <= said["end"]]
        found = f"{len(said['committed'])}: {list(said['committed'])}"
        expected = f"{len(kept)} committed tokens, those at positions up to E = {said['end']}"
        self.expect("ALG3.L11", expected, found, len(said["committed"]) == len(kept))
        for rank, token in zip(kept, said["committed"], strict=True):
            expected = f"the token {tokens[rank]} at position {order[rank]}"
            self.expect("ALG3.L10", expected, f"{token}", tokens[rank] in (_UNKNOWN, token))
            tokens[rank] = token
        if h is not None and h < min(advance, len(draft)) and not said.get("fallback", False):
            expected = f"another token than the rejected {draft[h]} at position {order[h]}"
            self.expect("ALG2.L7", expected, f"{tokens[h]}", tokens[h] != draft[h])
        return tokens

    def _resolve(self, said: dict[str, Any], positions: Tokens, tokens: list[int]) -> None:
        """E, what is discarded, and why the request stops."""
        text = self.text | dict(zip(positions, tokens, strict=True))
        last = min(self.last, self.limits.end(text, positions))
        self.expect("ALG3.L11", f"E = {last}", f"E = {said['end']}", said["end"] == last)
        self.last = last
        self.text = {j: token for j, token in text.items() if j <= last}
        done = len(self.text) == last
        stop = self.limits.reached(tuple(self.text[j] for j in sorted(self.text)), 0) if done else None
        self.same("STOP", "stop", stop, said, "none" if stop is None else stop)
        self.stop = stop

    def _keep(self, said: dict[str, Any], order: Tokens, drafts_only: bool, h: int | None) -> None:
        """Which positions have a draft token now, and whose proposals those are."""
        left = {j for j in order if j not in self.text and j <= self.last}
        drafting = drafts_only or self.policy in ("packed", "quadratic")
        if self.policy is None:
            self.drafted = None
            return
        self.drafted = left if drafting else set()
        self.same("ALG3.L15", "retained", len(self.drafted), said)
        branch = None if not self.drafted else h if self.policy == "quadratic" else 0
        dropped = len(order) if self.policy == "native" else 0 if branch is None else len(order) - branch - len(self.drafted)
        told = not self.drafted or branch is not None
        for name, expected in (("branch", branch), ("discarded", dropped)) if told else ():
            if name in said:
                self.expect("ALG3.L15", f"{name} {expected}", f"{name} {said[name]}", said[name] == expected)
        self.fixed = order if drafts_only else ()
