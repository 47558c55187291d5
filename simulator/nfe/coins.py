"""Pseudo-random numbers by address, compiled: SplitMix64 with a key for every run and purpose.

A key is two 64-bit numbers, as in Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014): where
a sequence begins, and an odd step of its own, so that sequences of different runs do not overlap. A coin is a function of key
and address alone: the same numbers come out in whatever order, chunks or processes they are asked for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

DRAFTER, NOISE, STOP = range(3)  # what coins are for
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, forceinline=True)
def _mix(x: Any) -> Any:
    """Stafford's variant 13 of the finaliser of MurmurHash3."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True)
def keys(seed: Any, first: int, runs: int, purpose: int) -> Any:
    """The keys of runs first .. first + runs - 1: where each begins, and its step. [runs, 2]"""
    found = np.empty((runs, 2), np.uint64)
    root = _mix(np.uint64(seed) + _GOLDEN)
    for r in range(runs):
        begin = _mix(root + _GOLDEN * np.uint64(4 * (first + r) + purpose + 1))
        found[r, 0], found[r, 1] = begin, _mix(begin + _GOLDEN) | np.uint64(1)
    return found


@njit(cache=True, forceinline=True)
def uniform(begin: Any, step: Any, address: Any) -> float:
    """The coin at `address`: in [0, 1), a multiple of 2^-53."""
    return float(_mix(begin + step * np.uint64(address)) >> np.uint64(11)) * 2.0**-53
