"""An any-order model with a state: a running hash of every pair it was fed, in order, so that a stale one shows at once.

Attention can hide that a kept key was computed next to a pair that is gone; a running hash can not. When E shrinks, the
accepted pairs after the first one removed have seen it: a session has to read them again (`Reply.again`).
"""

from __future__ import annotations

from simulator.any_order.records import Call, Pairs
from simulator.laws import RationalLaw
from simulator.oracles.any_order import AnyOrderModel
from simulator.oracles.recurrent import HashRule
from simulator.records import Reply

_STRIDE = 1 << 20  # a pair as one number: position * _STRIDE + token
_QUERY = _STRIDE - 1


def fed(rule: HashRule, state: int, pair: tuple[int, int]) -> int:
    """The hash after one more pair."""
    position, token = pair
    return rule.feed(state, position * _STRIDE + token)


def verifier_law(rule: HashRule, state: int, position: int) -> RationalLaw:
    """The verifier at `position` after the pairs of this hash."""
    return rule.target(rule.feed(state, position * _STRIDE + _QUERY))


def drafter_law(rule: HashRule, state: int, position: int) -> RationalLaw:
    """The verifier's law after the same pairs for about half of all places, else an unrelated one."""
    slip = rule.feed(state, -position)
    return rule.target(slip) if slip & 1 else verifier_law(rule, state, position)


def stateless(rule: HashRule) -> AnyOrderModel:
    """The same answers with no state to keep."""

    def hashed(pairs: Pairs) -> int:
        state = rule.start
        for pair in pairs:
            state = fed(rule, state, pair)
        return state

    return AnyOrderModel(
        lambda pairs, j: verifier_law(rule, hashed(pairs), j), lambda pairs, j: drafter_law(rule, hashed(pairs), j)
    )


class RecurrentPairs:
    """One session: the hash after each pair that it was fed, accepted pairs and then the draft in rank order."""

    def __init__(self, rule: HashRule) -> None:
        self.rule = rule
        self.held: list[tuple[tuple[int, int], int]] = []

    def keep(self, accepted: Pairs) -> int:
        """How many of the pairs held stand where they are in `accepted`, so that none has seen what was removed."""
        pairs = [pair for pair, _ in self.held]
        return next(
            (n for n, (a, b) in enumerate(zip(pairs, accepted, strict=False)) if a != b), min(len(pairs), len(accepted))
        )

    def read(self, accepted: Pairs) -> int:
        """Forget what is not accepted and read what is not held. Returns how many pairs are read again."""
        kept = self.keep(accepted)
        known = {pair for pair, _ in self.held}
        del self.held[kept:]
        for pair in accepted[kept:]:
            self.feed(pair)
        return len(known & set(accepted[kept:]))

    def feed(self, pair: tuple[int, int]) -> None:
        """One row more."""
        self.held.append((pair, fed(self.rule, self.state, pair)))

    @property
    def state(self) -> int:
        """The hash of all rows held."""
        return self.held[-1][1] if self.held else self.rule.start

    def __call__(self, call: Call) -> Reply:
        again = self.read(call.accepted)
        states = [self.state]
        for pair in call.draft[: call.kappa]:
            states.append(fed(self.rule, states[-1], pair))
        if call.verify:
            for pair in call.draft[: call.kappa]:
                self.feed(pair)
        return Reply(
            target=tuple(verifier_law(self.rule, states[r], call.order[r]) for r in range(call.asked)),
            proposals=tuple(
                tuple(drafter_law(self.rule, states[b], j) for j in call.order[b:]) if b <= call.kappa else None
                for b in call.branches
            ),
            rows=call.padded_rows,
            again=again,
        )
