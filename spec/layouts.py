"""Appendix D: the rows of one forward pass, and which row attends to which, from positions and ranks. Regions:

    V  Nemotron, causal: the last token of P and the draft slots; before it what of P is not cached yet
    Z  Nemotron, proposals of branch b: d_b (d_0 is the last token of P), then masks
    N  SetDLM: an accepted token that is not cached yet
    O  draft tokens by rank; M the masks that verify them; R masks that draft, in branch b

Every row also sees the cache: Nemotron's P but for its last token, SetDLM's prompt and accepted tokens but for N.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MASK = None


class Row(NamedTuple):
    """One row of the input."""

    region: str
    i: int  # its place in V or Z, where the last token of P and d_b have 0; its rank in O, M or R, from 1
    position: int  # its position id
    token: int | None  # or MASK
    b: int = 0  # the branch of Z and R


def sees(x: Row, y: Row) -> bool:
    """X <- Y: may row x attend to row y?"""
    rules = {
        "VV": y.i <= x.i,  # T_B
        "ZZ": y.b == x.b,  # J_B
        "ZV": y.i < x.b,  # LAYQ: the causal rows before d_b
        "OO": y == x or (y.i < x.i and y.token is not MASK),  # {O_s : s in K_r} and O_r
        "MO": y.i < x.i and y.token is not MASK,  # {O_s : s in K_r}
        "MM": y == x,
        "RR": y == x,
        "RO": y.i <= x.b and y.token is not MASK,  # Quadratic-SS: the first b draft tokens
    }
    return rules.get(x.region + y.region, y.region == "N")


def nemotron(P: Sequence[int], D: Sequence[int], W: int, verify: bool, branches: Iterable[int], cached: int) -> list[Row]:
    """Packed-SS (LAYD1): verify, branch 0. Quadratic-SS (LAYQ): verify, branches 0..W. Linear-SS: branch 0; then verify."""
    n, V = len(P), (P[-1], *D, *[MASK] * (W - len(D)))
    rows = [Row("V", i, n - 1 + i, P[n - 1 + i]) for i in range(cached - n + 1, 0)]
    rows += [Row("V", i, n - 1 + i, x) for i, x in enumerate(V) if verify]
    return rows + [Row("Z", i, n - 1 + b + i, V[b] if i == 0 else MASK, b) for b in branches for i in range(W + 1)]


def nemotron_wide(P: Sequence[int], W: int) -> list[Row]:
    """E.2, the first call of start `wide`: the prompt, whose last row verifies the empty draft, and W + 1 masks after it."""
    return nemotron(P, (), 0, True, (), 0) + [Row("Z", i, len(P) - 1 + i, MASK, 1) for i in range(1, W + 2)]


def setdlm(N: Mapping[int, int], pi: Sequence[int], D: Mapping[int, int], verify: bool, branches: Iterable[int]) -> list[Row]:
    """Packed-SS (LAYD2): verify, branch 0. Quadratic-SS: verify, branches 0..u-1. Linear-SS: branch 0; then, no N, verify."""
    rows = [Row("N", 0, j, x) for j, x in N.items()]
    rows += [Row("O", r, j, D.get(j, MASK)) for r, j in enumerate(pi, 1) if verify]
    rows += [Row("M", r, j, MASK) for r, j in enumerate(pi, 1) if verify]
    return rows + [Row("R", r, j, MASK, b) for b in branches for r, j in enumerate(pi, 1)]
