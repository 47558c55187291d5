"""The any-order family (Appendix C): Algorithm 3, its baselines and serial decoding, over pairs of a position and a token.

    from simulator import Limits, generate
    from simulator.any_order import packed
    from simulator.oracles.any_order import random_tables

    run = generate(random_tables(vocabulary=5, seed=1).greedy(), packed(4, order="confidence"), (), Limits.of(16))

Driver, coins, laws, accept rule and Step are those of the left-to-right family; states and calls are of their own kind.
"""

from simulator.any_order.native import Native
from simulator.any_order.orders import Known, Order, along, confidence, left_to_right, peak, right_to_left, shuffled, within
from simulator.any_order.records import Call, Drafted, Pairs, State
from simulator.any_order.schedule import Ask, Schedule
from simulator.any_order.schedules import NAMES, STARTS, linear, named, native, packed, quadratic, serial

__all__ = [
    "NAMES",
    "STARTS",
    "Ask",
    "Call",
    "Drafted",
    "Known",
    "Native",
    "Order",
    "Pairs",
    "Schedule",
    "State",
    "along",
    "confidence",
    "left_to_right",
    "linear",
    "named",
    "native",
    "packed",
    "peak",
    "quadratic",
    "right_to_left",
    "serial",
    "shuffled",
    "within",
]
