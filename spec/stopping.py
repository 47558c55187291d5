"""STOP: end at the first accepted EOS or after L new tokens; a block is cut where it ends, its call is not refunded."""

from __future__ import annotations

from typing import Any

from spec.run import Given, Tokens


def goes_on(P: Tokens, given: Given[Any]) -> bool:
    """The loop condition: is there another call after the verified prefix P?

    The paper's `t = 1` lets a prompt that ends in EOS be continued; under any start it reads: nothing has been emitted yet.
    """
    emitted = len(P) - len(given.prompt)
    return emitted < given.L and (emitted == 0 or P[-1] not in given.EOS)  # ALG1.L2 ALG2.L2


def ending(P: Tokens, C: Tokens, given: Given[Any]) -> int:
    """a: how many of the accepted tokens C (|C| = A >= 1) are appended to P. The earliest of block end, limit and EOS wins."""
    A = len(C)
    room = given.L + len(given.prompt) - len(P)
    return min([A, room] + [i for i in range(1, A + 1) if C[i - 1] in given.EOS])  # ALG1.L7 ALG2.L9
