"""Lags of random drafters, compiled: every family of `simulator.oracles.families` is one `Process` with other numbers.

Coins are addressed by position, so a run can be drawn in chunks. What one chunk hands to the next is `carried`: the regime of
its last position (-1 before the first), and the last surprise (0 if none).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from simulator.nfe.coins import uniform

GUIDE = 1024  # parts of [0, 1) for which the search in a table of lags starts at a known lag


@njit(cache=True)
def draw(
    switch: Any,
    turn: float,
    surprise: Any,
    predictable: Any,
    below: Any,
    guide: Any,
    keys: Any,
    first: int,
    carried: Any,
    lags: Any,
) -> None:
    """Fill lags [runs, n] with those of positions first + 1 .. first + n, at most the last one of `below` [2, cap + 1].

    The other numbers are those of `Process`; guide[x, i] is the least lag g with below[x, g] > i / GUIDE.
    """
    runs, count = lags.shape
    cap = below.shape[1] - 1
    surprising = surprise[0] + surprise[1] > 0
    seen = (  # a coin below this is a surprise or predictable
        surprise[0] + (1 - surprise[0]) * predictable[0],
        surprise[1] + (1 - surprise[1]) * predictable[1],
    )
    for r in range(runs):
        begin, step = keys[r, 0], keys[r, 1]
        regime, last = carried[r, 0], carried[r, 1]
        for i in range(count):
            k = first + i + 1
            address = np.uint64(4) * np.uint64(k)
            if turn > 0:
                regime = 1 if uniform(begin, step, address) * turn < k - 1 else 0
            elif regime < 0:
                total = switch[0] + switch[1]
                regime = 1 if uniform(begin, step, address) * total < switch[0] else 0
            elif switch[regime] > 0 and uniform(begin, step, address) < switch[regime]:
                regime = 1 - regime

            lag = k
            if below[regime, cap - 1] > 0:
                u = uniform(begin, step, address + np.uint64(1))
                lag = guide[regime, int(u * GUIDE)]
                while below[regime, lag] <= u:
                    lag += 1
            if surprising:
                # Conditional expressions, since a processor cannot foresee these coins. Without a surprise, k - last is k.
                u = uniform(begin, step, address + np.uint64(2))
                lag = min(lag, k - last) if u >= seen[regime] else lag
                lag = 0 if u < surprise[regime] else lag
                last = k if u < surprise[regime] else last
            lags[r, i] = min(lag, k, cap)
        carried[r, 0], carried[r, 1] = regime, last


@njit(cache=True)
def stops(keys: Any, length: int, rate: float) -> Any:
    """The last position of each run: its end-of-sequence token, which stands at each position with probability `rate`, or L."""
    found = np.full(len(keys), length)
    for r in range(len(keys)):
        if rate > 0:
            u = uniform(keys[r, 0], keys[r, 1], 0)
            found[r] = min(float(length), 1 + np.floor(np.log1p(-u) / np.log1p(-rate)))
    return found
