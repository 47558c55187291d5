"""What drafter families share: parameters with a meaning and a range, the process they set the numbers of, lags and models."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.errors import InvalidInput
from simulator.oracles.threshold import ThresholdModel

Table = npt.NDArray[np.float64]
Pair = tuple[float, float]


class Process(NamedTuple):
    """How thresholds come about, position by position; every family is one. Pairs belong to two regimes, 0 and 1.

    Position k is in some regime. With probability `surprise` it is a surprise s = k: c*_s = s, no context drafts it right.
    Else it has a lag of its own, with the law `below`; but with probability 1 - `predictable` it also needs to see the last
    surprise s before it, if there is one: c*_k >= s. Own lags, surprises and what needs them are independent.
    """

    below: Table  # [2, cap + 1]: P(lag <= g), and 1 in the last column; a lag of `cap` stands for all from there on
    surprise: Pair = (0.0, 0.0)
    predictable: Pair = (0.0, 0.0)
    switch: Pair = (0.0, 0.0)  # probability of leaving the regime of the position before; the first one's is stationary
    turn: float = 0.0  # > 0: instead, position k is in regime 1 with probability min(1, (k - 1) / turn), independently


@dataclass(frozen=True, kw_only=True)
class Family:
    """A kind of drafter; what is special to it is its `process`.

    ASM3.1 holds without noise, by construction: position k is right exactly from contexts >= c*_k, and so F is nondecreasing
    (LEMB1) and ASM-REACH holds too. With noise neither is promised.

    Raises InvalidInput, naming the parameter and its range, when one is out of it.
    """

    name: ClassVar[str]
    noise: float = field(
        default=0.0, metadata={"range": (0, 1), "is": "share of (position, context) pairs whose correctness is flipped"}
    )

    def __post_init__(self) -> None:
        for parameter in fields(self):
            _check(self.name, parameter.name, getattr(self, parameter.name), *parameter.metadata["range"])

    @property
    def monotone(self) -> bool:
        """Whether ASM3.1, and with it ASM-REACH, is promised."""
        return self.noise == 0

    def process(self, cap: int) -> Process:
        """The numbers of the process, lags counted up to `cap` >= 1."""
        raise NotImplementedError

    def lags(self, seed: int, run: int, length: int, cap: int) -> npt.NDArray[np.int64]:
        """min(k - c*_k, cap) for k = 1 .. `length` of run number `run`, before noise. [length]

        A width W tells no lags of W + 1 and more apart. The same (seed, run) gives the same drafter, whatever length and cap.
        Raises InvalidInput for a number out of range.
        """
        from simulator.nfe.sampling import Sampler

        for what, number in (("run", run), ("length", length)):
            if number < 0:
                raise InvalidInput(f"{what} must be >= 0, got {number}")
        found = np.empty((1, length), np.uint16)
        Sampler(self, seed, cap).block(run, 1)(found, 0)
        lags: npt.NDArray[np.int64] = found[0].astype(np.int64)
        return lags

    def model(self, seed: int, run: int, length: int, cap: int) -> ThresholdModel:
        """The drafter of that run as a model for the scheduler, noise included; `cap` > W of every schedule it is to meet."""
        lags = self.lags(seed, run, length, cap)
        thresholds = np.where(lags < cap, np.maximum(np.arange(1, length + 1) - lags, 0), 0).tolist()
        return _NoisyModel(thresholds, self.noise, seed, run) if self.noise else ThresholdModel(thresholds)

    def __str__(self) -> str:
        """The text that `parse` reads."""
        given = [(p.name, getattr(self, p.name)) for p in fields(self)]
        texts = [f"{name}={_text(value)}" for name, value in given[1:] + given[:1] if name != "noise" or value]
        return f"{self.name}:{','.join(texts)}"


class _NoisyModel(ThresholdModel):
    """A ThresholdModel with the noise of the fast engine."""

    def __init__(self, thresholds: list[int], share: float, seed: int, run: int) -> None:
        from simulator.nfe import coins, engine

        super().__init__(thresholds)
        flipped: Any = engine.flipped
        self._share, self._flipped, [self._key] = share, flipped, coins.keys(np.uint64(seed), run, 1, coins.NOISE)

    def correct(self, k: int, c: int) -> bool:
        return super().correct(k, c) != bool(self._flipped(self._share, *self._key, k, k - c))


def parameter(low: float, high: float, meaning: str) -> Any:
    """A parameter from `low` to `high`, both allowed unless infinite."""
    return field(metadata={"range": (low, high), "is": meaning})


def geometric(mean: float, cap: int) -> Table:
    """P(lag <= g) of a geometric lag >= 0 with that mean, for g = 0 .. cap - 1, and 1. [cap + 1]"""
    return np.append(1 - (mean / (1 + mean)) ** np.arange(1, cap + 1), 1.0)


def unlimited(cap: int) -> Table:
    """The same of a lag that is never short. [cap + 1]"""
    return np.append(np.zeros(cap), 1.0)


def _check(family: str, name: str, value: Any, low: float, high: float) -> None:
    for number in value if isinstance(value, tuple) else (value,):
        if not isinstance(number, int | float) or not low <= number <= high or abs(number) == np.inf:
            allowed = f"in {low:g} .. {high:g}" if high < np.inf else f">= {low:g} and finite"
            raise InvalidInput(f"{family}: {name} must be {allowed}, got {number!r}")


def _text(value: Any) -> str:
    return ":".join(map(_text, value)) if isinstance(value, tuple) else repr(value)
