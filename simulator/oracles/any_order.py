"""Any-order models given by two functions of the pairs before a position: tables of exact laws, drafters that are right at some
share of all places, and correctness by what was accepted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache

from simulator.any_order.records import Call, Pairs
from simulator.errors import InvalidInput
from simulator.laws import Law, Peak, RationalLaw, argmax
from simulator.oracles.tabular import random_law
from simulator.records import Reply


class AnyOrderModel:
    """verifier(pairs, j) is the law at position j after these ordered pairs (EQ8), drafter(pairs, j) the one it is drafted from
    when these are the accepted pairs. Both must be pure: answers are kept.
    """

    def __init__(self, verifier: Callable[[Pairs, int], Law], drafter: Callable[[Pairs, int], Law]) -> None:
        self.verifier = lru_cache(maxsize=1 << 16)(verifier)
        self.drafter = lru_cache(maxsize=1 << 16)(drafter)

    def __call__(self, call: Call) -> Reply:
        pairs = call.accepted
        return Reply(
            target=tuple(self.verifier(pairs + call.draft[:r], call.order[r]) for r in range(call.asked)),
            proposals=tuple(
                tuple(self.drafter(pairs + call.draft[:b], j) for j in call.order[b:]) if b <= call.kappa else None
                for b in call.branches
            ),
            rows=call.padded_rows,
        )

    def greedy(self) -> AnyOrderModel:
        """The same laws at temperature 0, each with the probability of its most likely token."""

        def peak(law: Law) -> Peak:
            token = argmax(law).token
            return Peak(token, float(law.probability(token)))

        return AnyOrderModel(
            lambda pairs, j: peak(self.verifier(pairs, j)),
            lambda pairs, j: peak(self.drafter(pairs, j)),
        )


def random_tables(vocabulary: int, seed: int, top_weight: int = 5) -> AnyOrderModel:
    """Laws proportional to pseudo-random integers 0 .. `top_weight`, fresh for every sequence of pairs and every position."""

    def law(*key: object) -> RationalLaw:
        return random_law(vocabulary, top_weight, (seed, *key))

    return AnyOrderModel(lambda pairs, j: law("p", pairs, j), lambda pairs, j: law("q", pairs, j))


def noisy_pairs(vocabulary: int, seed: int, share: float = 0.7, rigid: float = 0.5) -> AnyOrderModel:
    """Greedy. The verifier says a token that belongs to the position in a `rigid` share of all contexts, else one by context;
    the drafter says what the verifier does after the same pairs, but at a share 1 - `share` of all places another token.
    """

    def pick(*key: object) -> random.Random:
        return random.Random(repr((seed, *key)))

    def token(pairs: Pairs, j: int) -> int:
        rng = pick("p", pairs, j)
        return (pick("text", j) if rng.random() < rigid else rng).randrange(vocabulary)

    def drafted(pairs: Pairs, j: int) -> Peak:
        rng = pick("q", pairs, j)
        wrong = rng.random() >= share
        return Peak((token(pairs, j) + wrong * rng.randint(1, vocabulary - 1)) % vocabulary, rng.random())

    return AnyOrderModel(lambda pairs, j: Peak(token(pairs, j), pick("sure", pairs, j).random()), drafted)


def by_accepted(
    truth: Sequence[int],
    correct: Callable[[frozenset[int], int], bool],
    vocabulary: int = 2,
    certainty: Callable[[frozenset[int], int], float] = lambda accepted, j: 1.0,
) -> AnyOrderModel:
    """A greedy target that says truth[j - 1] at j whatever came before, and a drafter that is right at j exactly when
    correct(accepted positions, j): the any-order threshold oracle. A wrong draft is another token of 0 .. `vocabulary` - 1.
    `certainty` is the probability that the drafter gives its token, for orders by confidence.

    Raises InvalidInput when `truth` has an id outside the vocabulary, or that has fewer than 2.
    """
    if vocabulary < 2 or any(not 0 <= token < vocabulary for token in truth):
        raise InvalidInput(f"the greedy continuation must use ids 0 .. {vocabulary - 1}, of at least 2")

    def token(j: int) -> int:
        return truth[j - 1] if j <= len(truth) else 0

    def drafter(pairs: Pairs, j: int) -> Peak:
        accepted = frozenset(i for i, _ in pairs)
        return Peak((token(j) + (not correct(accepted, j))) % vocabulary, certainty(accepted, j))

    return AnyOrderModel(lambda pairs, j: Peak(token(j), 1.0), drafter)
