"""ASM3.1 and EQ6: drafters that are right from a threshold on, and what Appendix B.1 says of them.

c_star[k-1] is c*_k, 0 <= c*_k <= k; positions beyond the vector have c*_k = 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spec.run import Tokens


def F(c: int, W: int, c_star: Sequence[int]) -> int:
    """EQ6: the verified output length after drafting W tokens from c verified ones and verifying that draft (LEMB1)."""
    return min([c + W + 1] + [k for k, c_k in enumerate(c_star, 1) if k > c and c_k > c])


def threshold_model(c_star: Sequence[int], prompt: Tokens = ()) -> tuple[Callable[[Tokens], int], Callable[[Tokens, int], int]]:
    """(p, q) for `greedy`, meeting ASM3.1 with exactly these thresholds after that prompt.

    The target's token at output position k is k itself, so that EOS={k} ends the output there; a wrong proposal is -k.
    Raises ValueError if a threshold is out of range.
    """
    for k, c_k in enumerate(c_star, 1):
        if not 0 <= c_k <= k:
            raise ValueError(f"c*_{k} is {c_k}: a threshold must be between 0 and its position, here {k}")

    def q(prefix: Tokens, i: int) -> int:
        c, k = len(prefix) - len(prompt), len(prefix) - len(prompt) + i
        return k if k > len(c_star) or c >= c_star[k - 1] else -k

    return lambda prefix: len(prefix) - len(prompt) + 1, q
