"""Noisy: thresholds that hold only mostly, so that drafting from more context can be worse."""

from __future__ import annotations

from simulator.chance import Sampled
from simulator.errors import InvalidInput
from simulator.oracles.threshold import ThresholdModel


class NoisyModel(ThresholdModel):
    """`model` with the correctness of a `share` of all (position, context) pairs flipped, each by its own coin.

    Stands for a real drafter, which is nearly but not quite monotone. Assumption 3.1 fails where a pair is flipped and a later
    context of the same position is not, so Packed-SS is not promised to stay within Linear-SS's calls; the output is the
    target's all the same. The coin of a pair depends on the seed, the position and the length of the context only, so every
    schedule meets the same drafter. Share 0 is `model` itself, share 1 its opposite.

    Raises InvalidInput unless 0 <= share <= 1.
    """

    def __init__(self, model: ThresholdModel, share: float, seed: int) -> None:
        if not 0 <= share <= 1:
            raise InvalidInput(f"the share of flipped pairs must lie in 0 .. 1, got {share}")
        super().__init__(model.thresholds, model.truth, model.vocabulary, model.prompt_length)
        self.share, self.coins = share, Sampled(seed)

    def correct(self, k: int, c: int) -> bool:
        flipped = self.coins.at(c).uniform("draft", k) < self.share
        return super().correct(k, c) != flipped
