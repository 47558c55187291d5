"""The drafter of Assumption 3.1: position k is drafted correctly exactly from contexts of at least c*_k verified tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from simulator.errors import InvalidInput
from simulator.laws import Point
from simulator.oracles.answer import answer
from simulator.records import Call, Reply, Tokens


class ThresholdModel:
    """A greedy target with continuation `truth` and a drafter with thresholds c*_1 .. c*_n (ASM3.1).

    Positions and contexts count output tokens. Positions beyond the vector are always drafted correctly. A draft made before
    its threshold is never right by accident: it is another token of 0 .. `vocabulary` - 1. Contexts off the greedy path are
    answered by position alone; no schedule can use what it learns there.

    Raises InvalidInput when a threshold lies outside 0 <= c*_k <= k, or the vocabulary has fewer than 2 tokens.
    """

    def __init__(
        self, thresholds: Sequence[int], truth: Sequence[int] = (), vocabulary: int = 2, prompt_length: int = 0
    ) -> None:
        for k, threshold in enumerate(thresholds, start=1):
            if not 0 <= threshold <= k:
                raise InvalidInput(f"threshold c*_{k} must lie in 0 .. {k}, got {threshold}")
        if vocabulary < 2:
            raise InvalidInput(f"a threshold model needs a vocabulary of at least 2, got {vocabulary}")
        if any(not 0 <= token < vocabulary for token in truth):
            raise InvalidInput(f"the greedy continuation must use ids 0 .. {vocabulary - 1}")
        self.thresholds, self.truth = tuple(thresholds), tuple(truth)
        self.vocabulary, self.prompt_length = vocabulary, prompt_length
        self._points = [Point(token) for token in range(vocabulary)]

    def __call__(self, call: Call) -> Reply:
        return answer(call, self.target, self.proposal)

    def target(self, context: Tokens) -> Point:
        return self._points[self._token(len(context) - self.prompt_length + 1)]

    def proposal(self, context: Tokens, offset: int) -> Point:
        c = len(context) - self.prompt_length
        k = c + offset
        return self._points[(self._token(k) + (not self.correct(k, c))) % self.vocabulary]

    def correct(self, k: int, c: int) -> bool:
        """Whether position k is drafted correctly from a context of c output tokens."""
        return k > len(self.thresholds) or c >= self.thresholds[k - 1]

    def _token(self, k: int) -> int:
        return self.truth[k - 1] if k <= len(self.truth) else 0


def random_lags(length: int, mean_lag: float, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Thresholds c*_k = max(0, k - lag_k) with independent geometric lags >= 0, shape [length].

    A lag of 0 means the position is never drafted correctly before it is verified (c*_k = k); a lag of g means it is drafted
    correctly from the g contexts before it. `mean_lag` is E[lag] >= 0: how far ahead the drafter sees, in tokens.
    """
    if not 0 <= mean_lag < np.inf:
        raise InvalidInput(f"the mean lag must be >= 0 and finite, got {mean_lag}")
    lags = rng.geometric(1 / (1 + mean_lag), size=length) - 1
    thresholds: npt.NDArray[np.int64] = np.maximum(np.arange(1, length + 1) - lags, 0)
    return thresholds
