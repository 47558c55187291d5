"""ASM3.1 and EQ6: under threshold drafters a greedy run is arithmetic on c*_1, c*_2, ...

c_star[k-1] is c*_k, 0 <= c*_k <= k; positions beyond the vector have c*_k = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spec.run import Schedule, Tokens, check, first_phase


def is_right(k: int, c: int, c_star: Sequence[int]) -> bool:
    """ASM3.1: is a proposal for output position k, made from c < k verified output tokens, the target's own token?"""
    return k > len(c_star) or c >= c_star[k - 1]


def F(c: int, W: int, c_star: Sequence[int]) -> int:
    """EQ6: the verified output length after drafting W tokens from c verified ones and verifying that draft (LEMB1).

    Raises ValueError if W < 1 or a threshold is out of range.
    """
    check(W, 0, c_star)
    return min([c + W + 1] + [k for k, c_k in enumerate(c_star, 1) if k > c and c_k > c])  # EQ6


def lengths(schedule: Schedule, c_star: Sequence[int], W: int, L: int) -> list[int]:
    """The verified output length after each call of a run with start `algorithm` and no EOS, until it reaches L.

    Its len() is the NFE. The last length may exceed L: B.1 compares lengths before truncation. For an EOS at output
    position e < L, pass e as L. Raises ValueError as `F`, and for L < 0 or an unknown schedule.
    """
    check(W, L, c_star)
    first_phase(schedule, "algorithm")  # rejects an unknown schedule
    reached, c = [], 0
    e, end = 0, 0  # the draft in hand covers positions c + 1..end and was made from e verified tokens; at first it is empty
    while c < L:
        if schedule == "linear":
            reached.append(c)  # the drafting call
            e, end = c, c + W
        h = 0
        while c + h + 1 <= end and is_right(c + h + 1, e, c_star):
            h = h + 1
        if schedule == "packed":
            e, end = c, c + W  # Z_t is drafted from P_{t-1}, EQ3
        if schedule == "quadratic":
            e, end = c + h, c + h + W  # branch h knows the h accepted tokens too
        c = c + h + 1
        reached.append(c)
    return reached


def threshold_model(c_star: Sequence[int], prompt: Tokens = ()) -> tuple[Callable[[Tokens], int], Callable[[Tokens, int], int]]:
    """(p, q) for `greedy`, meeting ASM3.1 with exactly these thresholds after that prompt.

    The target's token at output position k is k itself, so that EOS={k} ends the output there; a wrong proposal is -k.
    Raises ValueError if a threshold is out of range.
    """
    check(1, 0, c_star)

    def q(prefix: Tokens, i: int) -> int:
        c = len(prefix) - len(prompt)
        return c + i if is_right(c + i, c, c_star) else -(c + i)

    return lambda prefix: len(prefix) - len(prompt) + 1, q
