"""Calls counted at hundreds of millions of tokens a second, exactly as the scheduler would make them.

    from simulator import linear, packed
    from simulator.nfe import simulate
    from simulator.oracles.families import parse

    tally = simulate(parse("mixture:rate=0.0956,rho=0.7"), [linear(31), packed(31)], runs=1000, length=1000, seed=0)
    tally.gain(1, 0)  # tokens/NFE of Packed-SS over that of Linear-SS, with its interval

`engine` moves positions, `draw` makes lags from `coins`; numba is loaded with them, when the first run is counted.
"""

from simulator.nfe.counting import Estimate, Tally, blocks, count, rows, simulate

__all__ = ["Estimate", "Tally", "blocks", "count", "rows", "simulate"]
