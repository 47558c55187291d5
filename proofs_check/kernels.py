"""All threshold vectors at machine speed: the position arithmetic of Appendix B.1, compiled by numba.

Under ASM3.1 a greedy run is arithmetic on positions. A draft is known by where it was made (its context, `made_at` verified
tokens) and where it ends; its token for position k is right iff c*_k <= made_at. c_star[k] is c*_k for k = 1, 2, ...; c_star[0]
is not used, and zeros follow the vector (positions beyond it are always drafted right).

Lengths are those of B.1: verified output tokens before EOS or the limit cuts the last block. A run with an EOS at position e,
or with L' = e, is the same run up to the first call after which the length is e or more.

Every function runs uncompiled too, as `function.py_func`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

LINEAR, PACKED, QUADRATIC = range(3)
ALGORITHM, WIDE, SAMPLED, PROMPT, TEXTUAL = range(5)  # starts; TEXTUAL is Algorithm 3 in textual order, its start `algorithm`

# What the sweeps count ...
VECTORS, NFE_LINEAR, NFE_PACKED, FEWER, EQUAL, REJECTED, SURVIVED, FULL, CUT = range(9)
PAIRS, BEYOND, WITHIN, BY_WIDTH, BY_ERROR, STATES, PAST, RETAINED, TIGHT = range(1, 10)
# ... and the kinds of failure of which they keep the first vector.
BEHIND, MORE_CALLS, DRAFT_LENGTH, IDLE = range(4)
NOT_FRESH, DECREASES, SHORT = range(3)


def machine(function: Any) -> Any:
    """numba's njit, compiled once for all processes and runs of this file."""
    return njit(cache=True)(function)


@machine
def next_vector(c_star: Any, length: int) -> bool:
    """Step to the next vector in lexicographic order, in place; False after the last one, from which it wraps to zeros."""
    k = length
    while k > 0 and c_star[k] == k:
        c_star[k] = 0
        k -= 1
    if k > 0:
        c_star[k] += 1
    return k > 0


@machine
def F(c: int, width: int, c_star: Any) -> int:  # noqa: N802 (the paper's name)
    """EQ6 by its words: the least of c + W + 1 and of all k > c with c*_k > c."""
    least = c + width + 1
    for k in range(c + 1, len(c_star)):
        if c_star[k] > c:
            least = min(least, k)
    return least


@machine
def verified(c_star: Any, made_at: int, c: int, end: int) -> int:
    """The length after verifying, from c tokens, the draft made at `made_at` for positions c + 1 .. `end` (EQ2, ALG1.L6).

    The last token accepted is the verifier's own, where the first draft token is wrong or after all of them.
    """
    k = c + 1
    while k <= end and c_star[k] <= made_at:
        k += 1
    return k


@machine
def record(calls: Any, n: int, length: int, draft: int, accepted: int) -> None:
    """calls[n] = length after call n, draft tokens it verified (-1 if it verifies nothing), and how many it accepted."""
    calls[n, 0] = length  # one assignment of a tuple takes a second to compile
    calls[n, 1] = draft
    calls[n, 2] = accepted


@machine
def left_to_right(c_star: Any, width: int, schedule: int, start: int, limit: int, calls: Any) -> int:
    """Run until the length is `limit`; the number of calls made. calls[0] is the beginning, calls[n] what `record` says.

    Gives up when `calls` is full, so that a machine without progress ends as well.
    """
    c = made_at = end = n = 0
    record(calls, 0, 0, -1, 0)
    if start == PROMPT and limit > 0:
        n = 1
        record(calls, n, 0, -1, 0)
    if start in (WIDE, SAMPLED) and limit > 0:
        c = verified(c_star, 0, 0, 0)
        n = 1
        record(calls, n, c, 0, 0)
    if start == WIDE and schedule != LINEAR:
        end = width + 1  # drafted in that first call, at 0
    if start == SAMPLED and schedule != LINEAR and c < limit:
        made_at, end = c, c + width
        n = 2
        record(calls, n, c, -1, 0)
    while c < limit and n + 2 < len(calls):
        if schedule == LINEAR:
            made_at, end = c, c + width
            n += 1
            record(calls, n, c, -1, 0)
        after = verified(c_star, made_at, c, end)
        n += 1
        record(calls, n, after, max(0, end - c), after - c - 1)
        if schedule == PACKED:
            made_at, end = c, c + width  # EQ3: from the prefix that this call began with
        if schedule == QUADRATIC:
            made_at, end = after - 1, after - 1 + width  # the branch of the accepted draft tokens
        c = after
    return n


@machine
def any_order(c_star: Any, width: int, schedule: int, limit: int, calls: Any) -> int:
    """The same for Algorithm 3 in textual order, PACKED or its two-call LINEAR, with E = `limit`.

    The accepted positions are 1 .. c, so U_t is c + 1 .. c + u. A window of u positions yields at most u tokens (no bonus
    after it), and nothing is drafted beyond E. An EOS ends the run with the call that accepts it, as in the other machine.
    """
    c = made_at = end = n = 0
    record(calls, 0, 0, -1, 0)
    while c < limit and n + 2 < len(calls):
        u = min(limit, c + width) - c  # ALG3.L4
        if schedule == LINEAR:
            made_at, end = c, c + u
            n += 1
            record(calls, n, c, -1, 0)
        kappa = min(max(0, end - c), u)  # ALG3.L6
        h = verified(c_star, made_at, c, c + kappa) - c - 1  # ALG3.L9
        if schedule == PACKED:
            made_at, end = c, c + u  # ALG3.L8, L14-L15
        c += min(h + 1, u)  # ALG3.L10
        n += 1
        record(calls, n, c, kappa, h)
    return n


@machine
def run(c_star: Any, width: int, schedule: int, start: int, limit: int, calls: Any) -> int:
    """`any_order` where start is TEXTUAL, else `left_to_right`."""
    if start == TEXTUAL:
        n: int = any_order(c_star, width, schedule, limit, calls)
    else:
        n = left_to_right(c_star, width, schedule, start, limit, calls)
    return n


@machine
def counts(vectors: Any, width: int, schedule: int, start: int, limit: int, position: int) -> Any:
    """The calls after which the length is `position` <= limit, for each row c*_1 .. c*_n of `vectors`. [rows]"""
    rows, size = vectors.shape
    c_star = np.zeros(max(size, limit) + width + 2, np.int64)
    calls = np.zeros((2 * limit + 4, 3), np.int64)
    nfe = np.zeros(rows, np.int64)
    for row in range(rows):
        for k in range(size):
            c_star[k + 1] = vectors[row, k]
        run(c_star, width, schedule, start, limit, calls)
        while calls[nfe[row], 0] < position:
            nfe[row] += 1
    return nfe


@machine
def note(failures: Any, kind: int, c_star: Any, length: int) -> None:
    """Keep the first vector that fails in this way: failures[kind] is 1, c*_1, .., c*_L; zeros while there is none."""
    if not failures[kind, 0]:
        failures[kind, 0] = 1
        for k in range(1, length + 1):  # assigned as a slice it takes seconds to compile
            failures[kind, k] = c_star[k]


@machine
def sweep_runs(length: int, width: int, start: int) -> Any:
    """Linear-SS and Packed-SS on every vector c*_1 .. c*_L: (how often what happened, first failures), see the constants.

    `start` is any but PROMPT.

    BEHIND        Packed-SS has fewer tokens than Linear-SS after the same number of calls
    MORE_CALLS    Packed-SS needs more calls to reach some position 1 .. L
    DRAFT_LENGTH  Packed-SS keeps another draft than of max(0, W - A) tokens after a call
    IDLE          a call that verifies accepts nothing, or the run does not end
    """
    c_star = np.zeros(length + width + 2, np.int64)
    linear, packed = np.zeros((2 * length + 4, 3), np.int64), np.zeros((2 * length + 4, 3), np.int64)
    tally, failures = np.zeros(9, np.int64), np.zeros((4, length + 1), np.int64)
    openings = 2 if start == SAMPLED else 1 if start == WIDE else 0  # after them Packed-SS holds W tokens
    going = True
    while going:
        n_linear = run(c_star, width, LINEAR, start, length, linear)
        n_packed = run(c_star, width, PACKED, start, length, packed)
        tally[VECTORS] += 1
        tally[NFE_LINEAR] += n_linear
        tally[NFE_PACKED] += n_packed
        tally[FEWER] += n_packed < n_linear
        tally[EQUAL] += n_packed == n_linear

        for n in range(min(n_linear, n_packed) + 1):
            if packed[n, 0] < linear[n, 0]:
                note(failures, BEHIND, c_star, length)

        n = m = 0
        for position in range(1, length + 1):
            while n < n_linear and linear[n, 0] < position:
                n += 1
            while m < n_packed and packed[m, 0] < position:
                m += 1
            if m > n:
                note(failures, MORE_CALLS, c_star, length)
            tally[CUT] += packed[m, 0] > position

        if linear[n_linear, 0] < length or packed[n_packed, 0] < length:
            note(failures, IDLE, c_star, length)
        for n in range(1, n_linear + 1):
            if linear[n, 0] <= linear[n - 1, 0] and linear[n, 1] >= 0:
                note(failures, IDLE, c_star, length)
        for n in range(1, n_packed + 1):
            gained, draft, accepted = packed[n, 0] - packed[n - 1, 0], packed[n, 1], packed[n, 2]
            if gained <= 0 and draft >= 0:
                note(failures, IDLE, c_star, length)
            tally[REJECTED] += accepted < draft
            tally[FULL] += accepted == draft and draft >= 2
            if n < n_packed:
                kept = width if n == openings else max(0, width - gained)
                tally[SURVIVED] += accepted < draft and kept > 0
                if n >= openings and packed[n + 1, 1] != kept:
                    note(failures, DRAFT_LENGTH, c_star, length)
        going = next_vector(c_star, length)
    return tally, failures


@machine
def sweep_lemmas(length: int, width: int) -> Any:
    """B.1 on every vector c*_1 .. c*_L, from every context 0 .. L: (how often what happened, first failures).

    NOT_FRESH  drafting W tokens at c and verifying them does not end at F(c)
    DECREASES  F(c) > F(c') for some c < c'
    SHORT      two passes of Packed-SS from c end before F(c): the first at c' = c + 1 + h for any h = 0 .. W accepted tokens
               of whatever draft was in hand, the second verifies what it drafted at c
    """
    c_star = np.zeros(length + width + 2, np.int64)
    reach = np.zeros(length + 1, np.int64)
    tally, failures = np.zeros(10, np.int64), np.zeros((3, length + 1), np.int64)
    going = True
    while going:
        by_width = pairs = beyond = states = past = retained = tight = 0  # plain numbers are faster than array elements
        for c in range(length + 1):
            reach[c] = F(c, width, c_star)
            if reach[c] != verified(c_star, c, c, c + width):
                note(failures, NOT_FRESH, c_star, length)
            by_width += reach[c] == c + width + 1
        for c in range(length + 1):
            for later in range(c + 1, length + 1):
                pairs += 1
                beyond += later >= reach[c]
                if reach[later] < reach[c]:
                    note(failures, DECREASES, c_star, length)
            for first in range(c + 1, c + width + 2):
                second = verified(c_star, c, first, c + width)
                states += 1
                past += first >= reach[c]
                retained += first + 1 < reach[c]
                tight += second == reach[c]
                if second < reach[c]:
                    note(failures, SHORT, c_star, length)
        tally[VECTORS] += 1
        tally[BY_WIDTH] += by_width
        tally[BY_ERROR] += length + 1 - by_width
        tally[PAIRS] += pairs
        tally[BEYOND] += beyond
        tally[WITHIN] += pairs - beyond
        tally[STATES] += states
        tally[PAST] += past
        tally[RETAINED] += retained
        tally[TIGHT] += tight
        going = next_vector(c_star, length)
    return tally, failures
