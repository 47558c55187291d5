"""Recurrent: a stateful model whose every answer depends on every row it was fed, so that a wrong rollback shows at once.

Attention can hide a stale row behind a mask; a running hash can not. The model keeps its state as a real session keeps its
cache: causal rows stay, the others go, and what was accepted is found by comparing the next prefix with the rows held. The
check is that decoding with it equals decoding with `HashRule.stateless`, which hashes every context from the beginning.
"""

from __future__ import annotations

from simulator.errors import InvalidInput
from simulator.laws import RationalLaw
from simulator.oracles.tabular import TabularModel
from simulator.records import Call, Reply, Tokens

MASK = -1  # the token of a drafting row
_BITS = (1 << 64) - 1


class HashRule:
    """What to answer, from the running hash of a context alone.

    The target law has random weights and one clear favourite. The drafter follows the favourites from the hash of its own
    context and, for about half of all (context, offset) pairs, answers from an unrelated hash instead; so acceptance is
    neither rare nor certain, and Assumption 3.1 does not hold.

    Raises InvalidInput unless 2 <= vocabulary <= 16.
    """

    def __init__(self, vocabulary: int = 11, seed: int = 0) -> None:
        if not 2 <= vocabulary <= 16:
            raise InvalidInput(f"the vocabulary must have 2 .. 16 tokens, 4 bits of the hash each; got {vocabulary}")
        self.vocabulary = vocabulary
        self.start = self.feed(seed, 0)  # the hash of no rows

    def feed(self, state: int, token: int) -> int:
        """The hash after one more row: splitmix64's mixing of state and token."""
        x = (state + (token + 2) * 0x9E3779B97F4A7C15) & _BITS
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _BITS
        x = (x ^ x >> 27) * 0x94D049BB133111EB & _BITS
        return x ^ x >> 31

    def target(self, state: int) -> RationalLaw:
        favourite = state % self.vocabulary
        return RationalLaw.weighted((state >> 4 * x & 15) + 16 * (x == favourite) for x in range(self.vocabulary))

    def proposal(self, state: int, offset: int) -> RationalLaw:
        slip = self.feed(state, MASK - offset)
        for _ in range(1, offset):
            state = self.feed(state, state % self.vocabulary)
        return self.target(slip if slip & 1 else state)

    def stateless(self) -> TabularModel:
        """The same answers with no state to roll back."""

        def hashed(context: Tokens) -> int:
            state = self.start
            for token in context:
                state = self.feed(state, token)
            return state

        return TabularModel(
            lambda context: self.target(hashed(context)), lambda context, offset: self.proposal(hashed(context), offset)
        )


class RecurrentModel:
    """One session of a recurrent network that answers by `rule`; costs what `rule.stateless()` costs, call by call.

    `states[i]` is the running hash after i rows, in the order they were fed: the causal rows of prefix and draft, then the rows
    of the drafting blocks. Causal rows continue the newest state, whatever that is; a block starts from the row it follows.
    """

    def __init__(self, rule: HashRule) -> None:
        self.rule = rule
        self.states = [rule.start]
        self.cached: Tokens = ()  # tokens whose causal rows are held
        self.stale = 0  # rows held behind them

    def crop(self, rows: int) -> None:
        """Roll back: forget the last `rows` rows."""
        del self.states[len(self.states) - rows :]

    def __call__(self, call: Call) -> Reply:
        """Raises InvalidInput for an empty prefix: there is no row to answer from."""
        if not call.prefix:
            raise InvalidInput("a recurrent model needs a prompt of at least 1 token, got none")
        keep = _common_prefix(self.cached, call.prefix[:-1])
        surplus = len(self.cached) - keep + self.stale
        if surplus:
            self.crop(surplus)

        for token in call.prefix[keep:-1]:
            self.states.append(self.rule.feed(self.states[-1], token))
        causal = [self.states[-1]]  # the state before prefix[-1], after it, after d_1, ..
        for token in (call.prefix[-1], *call.draft):
            causal.append(self.rule.feed(causal[-1], token))
        self.cached = call.prefix[:-1]
        if call.verify:  # else only the drafting blocks process these tokens, and their rows do not stay
            self.cached = call.prefix + call.draft
            self.states += causal[1:]

        held = len(self.states)
        proposals: list[tuple[RationalLaw, ...] | None] = []
        for b in call.branches:
            if b > len(call.draft):
                proposals.append(None)
                continue
            state = causal[b + 1]
            for _ in range(call.width + call.anchored):
                # Even the row that repeats the last context token sees the masks beside it: its state is no causal one.
                state = self.rule.feed(state, MASK)
                self.states.append(state)
            proposals.append(tuple(self.rule.proposal(causal[b + 1], offset) for offset in range(1, call.width + 1)))
        self.stale = len(self.states) - held
        return Reply(tuple(map(self.rule.target, causal[1:])) if call.verify else (), tuple(proposals), call.padded_rows)


def _common_prefix(left: Tokens, right: Tokens) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))
