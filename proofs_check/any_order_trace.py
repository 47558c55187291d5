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
        self._keep(said, order, drafts_only)

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

    def _advance(self, said: dict[str, Any], order: Tokens, drafts_only: bool) -> tuple[int, int]:
        """h and A."""
        h = int(said.get("accepted", 0))
        if drafts_only or self.policy == "native":
            self.expect("ALG3.L10", "nothing verified", f"{h} accepted", h == 0 and not said.get("verified"))
            taken = int(said.get("advance", len(said["committed"])))
            least = 0 if drafts_only else 1
            self.expect("ALG3.L10", f"{'no' if drafts_only else 'at least 1'} token", f"advance {taken}", taken >= least)
            self.expect("ALG3.L10", f"at most {len(order) * least} tokens", f"advance {taken}", taken <= len(order) * least)
            return 0, taken
        if "verified" in said:
            length = len(said["verified"])
            if self.policy is not None and self.drafted is not None:
                kappa = next((r for r, j in enumerate(order) if j not in self.drafted), len(order))
                expected = f"a draft of {kappa} tokens, those of the leading ranks that have one"
                self.expect("ALG3.L15", expected, f"{length}", length == kappa)
            self.expect("ALG3.L10", f"at most {length} accepted, the draft that was verified", f"{h}", h <= length)
        advance = min(h + 1, len(order))
        self.same("ALG3.L10", "advance", advance, said)
        return h, advance

    def _tokens(self, said: dict[str, Any], order: Tokens, h: int, advance: int) -> list[int]:
        """The tokens of the first A ranks, _UNKNOWN where one was removed again and the log does not name it."""
        draft, predictions = said.get("verified", ()), said.get("predictions", ())
        if self.policy != "native":
            for rank, (token, prediction) in enumerate(zip(draft[: h + 1], predictions, strict=False)):
                if prediction is not None:
                    expected = f"the draft token {token} at position {order[rank]} tested against {prediction}"
                    self.expect("ALG3.L10", expected, f"accepted {h}", (token == prediction) == (rank < h))
        known = list(draft[:h]) if self.policy != "native" else []
        if h < advance and len(known) == h and h < len(predictions) and predictions[h] is not None:
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

    def _keep(self, said: dict[str, Any], order: Tokens, drafts_only: bool) -> None:
        """Which positions have a draft token now."""
        left = {j for j in order if j not in self.text and j <= self.last}
        drafting = drafts_only or self.policy in ("packed", "quadratic")
        if self.policy is None:
            self.drafted = None
            return
        self.drafted = left if drafting else set()
        self.same("ALG3.L15", "retained", len(self.drafted), said)
        self.fixed = order if drafts_only else ()
