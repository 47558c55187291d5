"""The physical rows of one packed call (LAYD1, LAYQ): which token, at which position, sees what, and which rows are read.

A call's rows, in this order (n = |prefix|, B = W + 1, |D| <= W):

    catch-up    causal rows for the part of prefix[:-1] that the cache lacks (the prompt, in the first call)
    verifier    [ prefix[-1], D, MASK .. ]                      B rows, causal, positions n-1 .. n-1+W
    branch b    [ d_b, MASK^W ]  (d_0 = prefix[-1])             B rows, bidirectional, positions n-1+b .. n-1+b+W

Packed-SS has one branch, b = 0; who attends to whom, for W = 2 (x = attends):

                  cached  last d1 d2   last M  M
        last        x      x
        d1          x      x   x
        d2          x      x   x  x
        last        x                   x   x  x
        MASK        x                   x   x  x
        MASK        x                   x   x  x

Branch b > 0 also sees the verifier rows before d_b. Verifier row i predicts the token after it; a MASK row predicts its own
position. Padding (MASK in unused draft slots, branches b > |D|) is computed and never read: it cannot extend acceptance (PAD).
It keeps the number of rows fixed, as a device wants it and TAB2 counts it. A CPU pays for every row: `padded=False` leaves the
padding out, and nothing else changes.

The first call of the start `wide` (E.2) is not anchored: its verifier region is prefix[-1] alone and its block is masks alone,
[ MASK^(W+1) ] at positions n .. n+W, which also see the row of prefix[-1]. A call that only processes the prompt has only
catch-up rows, prefix[-1] included.

The rows worth keeping, [catch-up | prefix[-1], D], come first: dropping the others is a suffix crop of the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from simulator.records import Call


@dataclass(frozen=True)
class Rows:
    """The rows of one forward. R = catch_up + fixed rows."""

    tokens: list[int]  # [R]
    positions: list[int]  # [R]
    catch_up: int  # leading rows that only fill the cache
    keep: int  # leading rows that are causal rows of prefix + draft: what the cache may keep
    verifier: list[int]  # rows to read target laws from, |draft| + 1 or none
    proposals: list[list[int] | None]  # per branch: its W rows, None where b > |draft|
    first_proposal: int  # rows from here on are those of the branches, the copies of their last context token included
    again: int = 0  # Reply.again


def rows_of(call: Call, cached: int, mask_token: int, padded: bool = True) -> Rows:
    """Lay out `call` after a cache holding the causal rows of prefix[:cached], cached <= |prefix| - 1."""
    n, width, draft = len(call.prefix), call.width, call.draft
    last = call.prefix[-1]
    end = n - 1 if call.verify or (call.branches and call.anchored) else n  # does some later row process prefix[-1]?
    tokens, positions = list(call.prefix[cached:end]), list(range(cached, end))
    catch_up = keep = len(tokens)
    verifier: list[int] = []
    if call.verify:
        verifier = list(range(catch_up, catch_up + len(draft) + 1))
        keep += len(draft) + 1
        slots = call.slots if padded else len(draft)
        tokens += [last, *draft, *[mask_token] * (slots - len(draft))]
        positions += range(n - 1, n + slots)
    first_proposal = len(tokens)
    proposals: list[list[int] | None] = []
    for b in call.branches:
        if b > len(draft) and not padded:
            proposals.append(None)
            continue
        if call.anchored:
            tokens.append(last if b == 0 else draft[b - 1] if b <= len(draft) else mask_token)
            positions.append(n - 1 + b)
        start = len(tokens)
        tokens += [mask_token] * width
        positions += range(n + b, n + b + width)
        proposals.append(list(range(start, start + width)) if b <= len(draft) else None)
    return Rows(tokens, positions, catch_up, keep, verifier, proposals, first_proposal)


@lru_cache(maxsize=256)
def fixed_attention(
    verify: bool, branches: tuple[int, ...], width: int, slots: int, anchored: bool = True
) -> npt.NDArray[np.bool_]:
    """Who sees whom among the rows after the catch-up, bool [rows, rows]; all of them also see the cache and the catch-up."""
    b_rows, v_rows = width + anchored, slots + 1 if verify else 0
    rows = v_rows + b_rows * len(branches)
    sees = np.zeros((rows, rows), dtype=bool)
    sees[:v_rows, :v_rows] = np.tri(v_rows, dtype=bool)  # T_B
    for index, b in enumerate(branches):
        block = slice(v_rows + index * b_rows, v_rows + (index + 1) * b_rows)
        sees[block, block] = True  # J_B
        # The verifier rows before the block's first position: up to d_{b-1} when the block has d_b itself, else up to d_b.
        sees[block, : min(b + (not anchored), v_rows)] = True
    return sees


def attention(call: Call, cached: int, catch_up: int, padded: bool = True) -> npt.NDArray[np.bool_]:
    """Who sees whom, bool [R, cached + R], True = attends."""
    return behind(fixed_attention(*shape_of(call, padded)), cached, catch_up)


def behind(fixed: npt.NDArray[np.bool_], cached: int, catch_up: int) -> npt.NDArray[np.bool_]:
    """`fixed`, who sees whom among the rows after the catch-up, with a cache and causal catch-up rows before it, which all of
    them see: bool [R, cached + R]."""
    rows = catch_up + len(fixed)
    sees = np.zeros((rows, cached + rows), dtype=bool)
    sees[:, :cached] = True
    sees[:catch_up, cached : cached + catch_up] = np.tri(catch_up, dtype=bool)
    sees[catch_up:, cached : cached + catch_up] = True
    sees[catch_up:, cached + catch_up :] = fixed
    return sees


def shape_of(call: Call, padded: bool = True) -> tuple[bool, tuple[int, ...], int, int, bool]:
    """What fixes the rows after the catch-up: the arguments of `fixed_attention`."""
    if padded:
        return call.verify, call.branches, call.width, call.slots, call.anchored
    drafted = len(call.draft)
    return call.verify, tuple(b for b in call.branches if b <= drafted), call.width, drafted, call.anchored


def common_prefix(left: Sequence[object], right: Sequence[object]) -> int:
    """Length of the longest common prefix of two sequences of one type."""
    limit = min(len(left), len(right))
    if left[:limit] == right[:limit]:
        return limit
    return next(index for index in range(limit) if left[index] != right[index])
