"""The named any-order schedules and their starts.

    algorithm   the empty first draft (ALG3.L1)
    prompt      a counted call that only processes the prompt, then `algorithm` (E.2, SetDLM)

Compare schedules only under the same start (NFE-CONV).
"""

from __future__ import annotations

import re
from collections.abc import Callable

from simulator.any_order.native import Native
from simulator.any_order.orders import Order, along, confidence, left_to_right, peak, right_to_left, shuffled
from simulator.any_order.schedule import Ask, Schedule
from simulator.errors import InvalidInput

STARTS = ("algorithm", "prompt")
NAMES = ("serial", "linear", "packed", "quadratic", "native")
ORDERS = ("ltr", "rtl", "confidence", "peak", "random:SEED", "a permutation as 3,1,2")
_PROCESS_PROMPT = Ask(verify=False)


def serial(width: int, order: Order | str = "ltr", start: str = "algorithm") -> Schedule:
    """One token a call, at the first rank of the order over a window of `width`: the reference of the others."""
    return _schedule("serial", width, order, start, Ask(True, ranks=1))


def linear(width: int, order: Order | str = "ltr", start: str = "algorithm") -> Schedule:
    """Linear-SS, ASSD's two calls: draft the window, then verify it in the order fixed before the drafting call."""
    return _schedule("linear", width, order, start, Ask(False, (0,)), Ask(True))


def packed(width: int, order: Order | str = "ltr", start: str = "algorithm") -> Schedule:
    """Packed-SS, Algorithm 3: verify the draft and propose the next one from the pairs accepted before, in one call."""
    return _schedule("packed", width, order, start, Ask(True, (0,)))


def quadratic(width: int, order: Order | str = "ltr", start: str = "algorithm") -> Schedule:
    """Quadratic-SS: one call that prepares a draft for each number of accepted draft tokens; its branches follow the order."""
    return _schedule("quadratic", width, order, start, Ask(True, tuple(range(width))))


def native(width: int, start: str = "algorithm", threshold: float = 0.9) -> Native:
    """SetDLM's own decoder (NATIVE), greedy; the order is what its probabilities make it."""
    return Native("native", width, threshold, _start(start) == "prompt")


def named(name: str, width: int, order: Order | str = "ltr", start: str = "algorithm") -> Schedule | Native:
    """The schedule called `name` on the command line. Raises InvalidInput for an unknown name, order or start, or W < 1."""
    makers: dict[str, Callable[[int, Order | str, str], Schedule]] = {
        "serial": serial,
        "linear": linear,
        "packed": packed,
        "quadratic": quadratic,
    }
    if name == "native":
        return native(width, start)
    if name not in makers:
        raise InvalidInput(f"unknown any-order schedule {name!r}; allowed: {', '.join(NAMES)}")
    return makers[name](width, order, start)


def order_of(name: str) -> Order:
    """The order policy called `name`. Raises InvalidInput for an unknown one."""
    simple: dict[str, Order] = {"ltr": left_to_right, "rtl": right_to_left, "confidence": confidence, "peak": peak}
    if name in simple:
        return simple[name]
    if re.fullmatch(r"random:\d{1,18}", name):
        return shuffled(int(name.removeprefix("random:")))
    if re.fullmatch(r"\d{1,9}(,\d{1,9})*", name):
        return along(tuple(map(int, name.split(","))))
    raise InvalidInput(f"unknown order {name!r}; allowed: {', '.join(ORDERS)}")


def _schedule(name: str, width: int, order: Order | str, start: str, *cycle: Ask) -> Schedule:
    opening = (_PROCESS_PROMPT,) if _start(start) == "prompt" else ()
    return Schedule(name, width, order_of(order) if isinstance(order, str) else order, opening, cycle)


def _start(start: str) -> str:
    if start not in STARTS:
        raise InvalidInput(f"unknown start {start!r} of an any-order schedule; allowed: {', '.join(STARTS)}")
    return start
