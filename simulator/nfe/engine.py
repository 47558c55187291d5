"""Runs as arithmetic on positions: any left-to-right `Schedule`, on lags, about a dozen processor cycles a call.

Under ASM3.1 a greedy run depends on a drafter's thresholds alone, and only on lag_k = k - c*_k up to the width: the draft token
for position k, made at a context of m tokens, is right iff k - m <= lag_k. So a draft is two numbers, where it was made and
where it ends, and verifying it is a search for the first k with lag_k < k - m: one vector comparison of LANES positions.
A call waits for the one before it, so several runs take turns in one loop and their calls overlap in the processor.

A job is one schedule on one run. All jobs share a table of phases (`Asks` of a schedule one after the other, opening then
cycle), which `simulator.nfe.counting` builds; `simulator.schedule.Schedule.absorb` is what `advance` has to agree with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from simulator.nfe.coins import uniform

LANES = 32
TOGETHER = 8  # jobs that take turns

# Unsigned, so that numba does not look for negative indices; where a job's and a phase's numbers stand in flat arrays.
LENGTH, MADE_AT, END, PHASE, CALLS, UNTIL, STATE = (np.uint64(i) for i in range(7))  # STATE: how many they are
VERIFY, WIDTH, NEXT, WINDOWED, BEST = (np.uint64(i) for i in range(5))  # from BEST on: the branch after h accepted, or -1
_ZERO, _ONE = np.uint64(0), np.uint64(1)


_inline = njit(cache=True, forceinline=True)  # a call would count references to its arrays


def _instruction(function: Any) -> Any:
    return intrinsic(function)


@_instruction
def _shorter(typing_context: Any, lags: Any, at: Any, distance: Any) -> Any:
    """Bits j = 0 .. LANES - 1: is lags[at + j] < distance + j, modulo the range of lags' type? Reads LANES lags, unchecked."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        lane = context.get_data_type(signature.args[0].dtype)
        vector, mask = ir.VectorType(lane, LANES), ir.VectorType(ir.IntType(32), LANES)
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        found = builder.load(builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer()), align=1)
        undefined = ir.Constant(vector, ir.Undefined)
        first = builder.insert_element(undefined, builder.trunc(arguments[2], lane), ir.Constant(ir.IntType(32), 0))
        distances = builder.shuffle_vector(first, undefined, ir.Constant(mask, [0] * LANES))
        distances = builder.add(distances, ir.Constant(vector, list(range(LANES))))
        bits = builder.bitcast(builder.icmp_unsigned("<", found, distances), ir.IntType(LANES))
        return builder.zext(bits, ir.IntType(64))

    return types.uint64(lags, types.int64, types.int64), generate


@_instruction
def _lowest(typing_context: Any, bits: Any) -> Any:
    """The number of the lowest bit that is set; 64 if none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@_inline
def _accepted(lags: Any, at: int, distance: int, draft: int) -> int:
    """h: how many of `draft` tokens are right, the first one `distance` from where it was made, its lag at lags[at]."""
    h = 0
    while True:
        wrong = _shorter(lags, at + h, distance + h)
        if draft - h < LANES:
            wrong |= np.uint64(1) << np.uint64(max(0, draft - h))
        if wrong:
            break
        h += LANES
    accepted: int = h + _lowest(wrong)
    return accepted


@_inline
def flipped(share: float, begin: Any, step: Any, position: int, distance: int) -> bool:
    """Whether noise flips the draft for `position` made `distance` <= 65535 tokens before it; (begin, step) is a noise key."""
    within: bool = uniform(begin, step, np.uint64(position) << np.uint64(16) | np.uint64(distance)) < share
    return within


@_inline
def _accepted_noisy(lags: Any, at: int, distance: int, draft: int, share: float, begin: Any, step: Any, position: int) -> int:
    """The same where each draft token is flipped with probability `share`; the first one is for `position`."""
    h = 0
    while h < draft and (lags[at + h] >= distance + h) != flipped(share, begin, step, position + h, distance + h):
        h += 1
    return h


@njit(cache=True)
def advance(lags: Any, stride: int, rows: int, origin: int, phases: Any, states: Any, share: float, keys: Any) -> None:
    """Take every job on until its length is UNTIL or more.

    lags is flat: that of position k in run r stands at r * stride + k - 1 - origin; LANES more follow, of any value. states is
    flat, STATE numbers for each job; job j is on run j % rows. phases is flat; PHASE and NEXT say where in it a phase begins.
    keys[r] is the noise key of run r, looked at if share > 0.
    """
    job, base, run = np.empty(TOGETHER, np.uint64), np.empty(TOGETHER, np.int64), np.empty(TOGETHER, np.int64)
    g, active, waiting, jobs = _ZERO, _ZERO, _ZERO, np.uint64(len(states)) // STATE
    while True:
        if g == active:  # all have had their turn; let others in
            while active < np.uint64(TOGETHER) and waiting < jobs:
                j = waiting * STATE
                if states[j + LENGTH] < states[j + UNTIL]:
                    job[active], run[active] = j, waiting % np.uint64(rows)
                    base[active] = run[active] * stride - origin
                    active += _ONE
                waiting += _ONE
            if active == _ZERO:
                return
            g = _ZERO
        j = job[g]
        c, made_at, end = states[j + LENGTH], states[j + MADE_AT], states[j + END]
        phase, calls = np.uint64(states[j + PHASE]), states[j + CALLS] + 1
        while not phases[phase + VERIFY]:
            if phases[phase + BEST] >= 0:
                made_at, end = c, c + phases[phase + WIDTH]
            phase, calls = np.uint64(phases[phase + NEXT]), calls + 1
        at, distance, draft = base[g] + c, c + 1 - made_at, end - c
        if share > 0:
            h = _accepted_noisy(lags, at, distance, draft, share, keys[run[g], 0], keys[run[g], 1], c + 1)
        else:
            h = _accepted(lags, at, distance, draft)
        width, branch = phases[phase + WIDTH], phases[phase + BEST + np.uint64(h)]
        made_at, end, after = c + branch, c + branch + width, c + h + 1
        if branch < 0:
            end = c
        if phases[phase + WINDOWED]:
            end, after = min(end, c + width), min(after, c + width)
        states[j + LENGTH], states[j + MADE_AT], states[j + END] = after, made_at, end
        states[j + PHASE], states[j + CALLS] = phases[phase + NEXT], calls
        if after >= states[j + UNTIL]:
            active -= _ONE
            job[g], base[g], run[g] = job[active], base[active], run[active]
        else:
            g += _ONE
