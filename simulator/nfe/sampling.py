"""Lags of a family's runs, block by block and chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simulator.errors import InvalidInput
from simulator.nfe import coins, draw

if TYPE_CHECKING:
    from simulator.oracles.families.family import Family

MAX_CAP = 65535


class Sampler:
    """A family, a seed, and how far lags are counted. Raises InvalidInput for a seed or cap out of range."""

    def __init__(self, family: Family, seed: int, cap: int) -> None:
        if not 0 <= seed < 2**64:
            raise InvalidInput(f"the seed must lie in 0 .. 2^64 - 1, got {seed}")
        if not 1 <= cap <= MAX_CAP:
            raise InvalidInput(f"lags must be counted up to 1 .. {MAX_CAP}, got {cap}")
        self.seed, self.process = np.uint64(seed), family.process(cap)
        parts = np.arange(draw.GUIDE) / draw.GUIDE
        self._guide = np.stack([np.searchsorted(below, parts, side="right") for below in self.process.below])

    def keys(self, first: int, runs: int, purpose: int) -> npt.NDArray[np.uint64]:
        """Keys of runs first .. first + runs - 1, see `coins`. [runs, 2]"""
        found: npt.NDArray[np.uint64] = coins.keys(self.seed, first, runs, purpose)
        return found

    def block(self, first: int, runs: int) -> Callable[[npt.NDArray[Any], int], None]:
        """fill(lags [runs, n], position) writes the lags of positions position + 1 .. position + n; to be called in order."""
        keys, carried = self.keys(first, runs, coins.DRAFTER), np.tile(np.array([-1, 0]), (runs, 1))
        below, surprise, predictable, switch, turn = self.process

        def fill(lags: npt.NDArray[Any], position: int) -> None:
            draw.draw(switch, turn, surprise, predictable, below, self._guide, keys, position, carried, lags)

        return fill
