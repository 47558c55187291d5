"""The random numbers of transformers' generation, replaced by enumerated coins: a decoder's law is computed, not sampled.

transformers draws tokens with `torch.multinomial` and tests draft tokens with `torch.rand_like(ratio) <= ratio`; nothing else
is random in it. Under `coins` both ask a `proofs_check.coins.Coins`, and running a request once for every outcome gives the
joint law of its tokens, with the float32 rounding of the decoder's own arithmetic and no other error.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from proofs_check.coins import Coins
from simulator.chance import Chance, branching, rational
from simulator.records import Tokens

ROUNDING = 1e-6  # float32 laws of a few tokens differ by less; what is called biased differs by a thousand times more


class _Uniform:
    """What `torch.rand_like` returns: numbers that are only ever compared, as in `r <= ratio`."""

    def __init__(self, coin: Callable[[], Any]) -> None:
        self.coin = coin

    def __le__(self, ratio: torch.Tensor) -> torch.Tensor:
        # No coin is below a NaN, here as in torch; a comparison with an enumerated coin needs a number.
        passed = [ratio_i == ratio_i and bool(self.coin() <= ratio_i) for ratio_i in ratio.reshape(-1).tolist()]
        return torch.tensor(passed).reshape(ratio.shape)


@contextmanager
def replaced(choose: Callable[[list[float]], int], coin: Callable[[], Any]) -> Iterator[None]:
    """Within it `torch.multinomial` calls choose(weights) for every row, and `torch.rand_like` takes coins."""

    def multinomial(weights: torch.Tensor, num_samples: int, *_: object, **__: object) -> torch.Tensor:
        if num_samples != 1:
            raise NotImplementedError("one draw per row is all that generation asks for")
        drawn = [choose(row) for row in weights.reshape(-1, weights.shape[-1]).tolist()]
        return torch.tensor(drawn).reshape(*weights.shape[:-1], 1)

    with mock.patch.multiple(torch, multinomial=multinomial, rand_like=lambda _: _Uniform(coin)):
        yield


@contextmanager
def coins(source: Coins) -> Iterator[None]:
    """Within it every draw is `source.choose(weights)`, every test a coin of `source`."""
    with replaced(source.choose, source.uniform):
        yield


def output_law(request: Callable[[], Iterable[int]]) -> tuple[dict[Tokens, float], int]:
    """The probability of every output of `request`, and in how many runs it was found. It must draw as `replaced` says."""

    def run(chance: Chance) -> Tokens:
        with coins(Coins(chance)):
            return tuple(request())

    law: defaultdict[Tokens, Any] = defaultdict(rational)
    outcomes = branching(run)
    for weight, output in outcomes:
        law[output] += weight
    return {output: float(weight) for output, weight in law.items()}, len(outcomes)


def total_variation(first: dict[Tokens, float], second: dict[Tokens, float]) -> float:
    """Half the sum of the differences."""
    return sum(abs(first.get(x, 0.0) - second.get(x, 0.0)) for x in first.keys() | second.keys()) / 2
