"""The physical rows of one packed any-order call (LAYD2): which token, at which position, sees what, and which rows are read.

A call's rows, in this order (u = |order|; every row stands at the position that it is about):

    catch-up  prompt and accepted pairs that the cache lacks, causal: the prompt in text order, pairs in acceptance order
    N         the accepted pairs that no call has been given yet, causal
    O_r       the draft token at rank r, MASK where there is none          u rows
    M_r       MASK: verifies rank r                                        u rows
    R_r       MASK: drafts the position of rank r, once for every branch   u rows each

Who attends to whom, beside the cache, the catch-up and N, which all rows see:

    O_r, M_r  the O rows of earlier ranks that hold a draft token, and itself
    R_r       itself; in branch b also the first b O rows that hold a draft token

For u = 2 with a full draft and branch 0 (x = attends):

                  cached  N   O1 O2   M1 M2   R1 R2
        N           x     x
        O1          x     x   x
        O2          x     x   x  x
        M1          x     x           x
        M2          x     x   x          x
        R1          x     x                   x
        R2          x     x                      x

A row predicts its own position, so M_r gives the law of EQ8 at rank r. M rows beyond the first missing draft token, O rows
without one, branches beyond it and ranks r <= b of a branch are padding: computed and never read. They fix the number of rows,
as TAB2 counts it. A CPU pays for every row: `padded=False` leaves the padding out, and nothing else changes.

The rows worth keeping, [catch-up | N | O_1 .. O_kappa], come first: dropping the others is a suffix crop of the cache.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from realmodel.layout import Rows
from simulator.any_order.records import Call

Entry: TypeAlias = tuple[int, int]
"""A cached row: its position id, 0 for the first token of the prompt, and its token."""


class Shape(NamedTuple):
    """What fixes the rows after the catch-up."""

    new: int  # |N|
    drafted: tuple[bool, ...]  # by O row: does it hold a draft token?
    verified: int  # M rows
    branches: tuple[int, ...]
    ranks: int  # u
    padded: bool  # a branch also has the ranks that it proposes nothing for


def sequence(call: Call) -> tuple[Entry, ...]:
    """The prompt and the accepted pairs, as rows of the cache."""
    return (*enumerate(call.prompt), *_at(call, call.accepted))


def fed(call: Call) -> tuple[Entry, ...]:
    """`sequence`, and behind it the draft pairs of the ranks before the first missing one."""
    return (*sequence(call), *_at(call, call.draft[: call.kappa if call.verify else 0]))


def shape_of(call: Call, padded: bool = True) -> Shape:
    """The shape of the rows after the catch-up."""
    ranks, kappa = len(call.order), call.kappa
    if not call.order:
        return Shape(call.unread, (), 0, (), 0, padded)
    if not padded:
        drafted = (True,) * kappa if call.verify else ()
        return Shape(call.unread, drafted, call.asked, tuple(b for b in call.branches if b <= kappa), ranks, False)
    have = {j for j, _ in call.draft}
    drafted = tuple(j in have for j in call.order) if call.verify else ()
    return Shape(call.unread, drafted, ranks if call.verify else 0, call.branches, ranks, True)


def rows_of(call: Call, cached: int, mask_token: int, padded: bool = True) -> Rows:
    """Lay out `call` after a cache that holds the first `cached` entries of its sequence, none of N among them."""
    shape = shape_of(call, padded)
    entries = sequence(call)[cached:]
    positions = [position for position, _ in entries]
    tokens = [token for _, token in entries]
    where, token_at = _positions(call), dict(call.draft)
    if shape.drafted:
        ranked = call.order[: len(shape.drafted)]
        positions += where[: len(ranked)]
        tokens += [token_at.get(j, mask_token) for j in ranked]
    keep = len(entries) + (call.kappa if call.verify else 0)
    verifier = list(range(len(tokens), len(tokens) + call.asked))
    positions += where[: shape.verified]
    tokens += [mask_token] * shape.verified
    first_proposal = len(tokens)
    proposals: list[list[int] | None] = []
    for b in call.branches:
        if b not in shape.branches:
            proposals.append(None)
            continue
        skipped = 0 if padded else b
        positions += where[skipped:]
        tokens += [mask_token] * (shape.ranks - skipped)
        proposals.append(list(range(len(tokens) - shape.ranks + b, len(tokens))) if b <= call.kappa else None)
    return Rows(tokens, positions, len(entries) - call.unread, keep, verifier, proposals, first_proposal)


@lru_cache(maxsize=256)
def fixed_attention(shape: Shape) -> npt.NDArray[np.bool_]:
    """Who sees whom among the rows after the catch-up, bool [rows, rows]; all of them also see the cache and the catch-up."""
    new, drafts, masks = shape.new, len(shape.drafted), shape.verified
    sizes = [shape.ranks - (0 if shape.padded else b) for b in shape.branches]
    sees = np.eye(new + drafts + masks + sum(sizes), dtype=bool)
    sees[:new, :new] |= np.tri(new, dtype=bool)
    sees[new:, :new] = True
    held = np.array(shape.drafted, dtype=bool)
    earlier = np.tri(max(drafts, masks), drafts, -1, dtype=bool) & held  # [rank, O row]
    begin = new + drafts
    sees[new:begin, new:begin] |= earlier[:drafts]
    sees[begin : begin + masks, new : new + drafts] |= earlier[:masks]
    begin += masks
    for b, size in zip(shape.branches, sizes, strict=True):
        sees[begin : begin + size, new : new + drafts] |= (np.arange(drafts) < b) & held
        begin += size
    return sees


def _positions(call: Call) -> list[int]:
    return [len(call.prompt) - 1 + j for j in call.order]


def _at(call: Call, pairs: tuple[tuple[int, int], ...]) -> tuple[Entry, ...]:
    return tuple((len(call.prompt) - 1 + j, token) for j, token in pairs)
