"""The physical rows against the paper's own description (D.1), written out by hand."""

import numpy as np
import pytest

from realmodel.layout import attention, common_prefix, fixed_attention, rows_of
from simulator.records import Call

MASK = 1


def test_packed_rows_are_those_of_d1():
    """[last, D, MASK.. | last, MASK^W] at positions n-1.. twice; padded draft slots hold MASK and are not read."""
    rows = rows_of(Call((10, 11, 12), (20,), True, (0,), 3), cached=2, mask_token=MASK)
    assert rows.tokens == [12, 20, MASK, MASK, 12, MASK, MASK, MASK]
    assert rows.positions == [2, 3, 4, 5, 2, 3, 4, 5]
    assert (rows.catch_up, rows.keep) == (0, 2)
    assert rows.verifier == [0, 1]
    assert rows.proposals == [[5, 6, 7]]


@pytest.mark.parametrize("width", [1, 3, 8])
def test_packed_attention_is_diag_t_j(width):
    """diag(T_B, J_B), and every row sees the cached prefix (LAYD1)."""
    b = width + 1
    sees = attention(Call((5,) * 7, (6,), True, (0,), width), cached=6, catch_up=0)
    assert sees[:, :6].all()
    expected = np.block([[np.tri(b), np.zeros((b, b))], [np.zeros((b, b)), np.ones((b, b))]])
    assert (sees[:, 6:] == expected.astype(bool)).all()


def test_quadratic_has_b_times_b_plus_1_rows_and_sees_the_verifier_rows_before_its_seed():
    """LAYQ, W = 2, |D| = 1: block b sees the rows of last, d_1 .. d_{b-1} and itself; branch 2 > |D| is inert padding."""
    call = Call((5, 6), (7,), True, (0, 1, 2), 2)
    rows = rows_of(call, cached=1, mask_token=MASK)
    assert len(rows.tokens) == 3 * 4  # B (B + 1)
    assert rows.tokens == [6, 7, MASK, 6, MASK, MASK, 7, MASK, MASK, MASK, MASK, MASK]
    assert rows.positions == [1, 2, 3, 1, 2, 3, 2, 3, 4, 3, 4, 5]
    assert rows.proposals == [[4, 5], [7, 8], None]
    sees = attention(call, cached=1, catch_up=0)[:, 1:].astype(int)
    assert sees[:3].tolist() == [[1, 0, 0] + [0] * 9, [1, 1, 0] + [0] * 9, [1, 1, 1] + [0] * 9]
    for b in (0, 1, 2):
        block = [0] * 12
        block[:b] = [1] * b
        block[3 + 3 * b : 6 + 3 * b] = [1, 1, 1]
        assert sees[3 + 3 * b : 6 + 3 * b].tolist() == [block] * 3


def test_without_padding_the_same_rows_are_left():
    """Rows, positions and sight of what is read are those of the padded call, with the padding taken out."""
    call = Call((5, 6), (7,), True, (0, 1, 2), 3)
    full, lean = (rows_of(call, cached=1, mask_token=MASK, padded=padded) for padded in (True, False))
    kept = [0, 1, *range(4, 12)]  # [last, d1 | branch 0 | branch 1]: no MASK in draft slots, no branch 2
    assert lean.tokens == [full.tokens[row] for row in kept]
    assert lean.positions == [full.positions[row] for row in kept]
    assert (lean.keep, lean.verifier) == (full.keep, full.verifier)
    assert lean.proposals == [[kept.index(row) for row in block] if block else None for block in full.proposals]
    padded, compact = (attention(call, cached=1, catch_up=0, padded=padded)[:, 1:] for padded in (True, False))
    assert (compact == padded[np.ix_(kept, kept)]).all()


def test_drafting_call_of_linear_has_b_rows():
    rows = rows_of(Call((5, 6), (), False, (0,), 4), cached=1, mask_token=MASK)
    assert rows.tokens == [6, MASK, MASK, MASK, MASK]
    assert rows.keep == 0  # proposal rows are bidirectional: the cache must not keep them (F27)
    assert fixed_attention(False, (0,), 4, 4).all()


def test_catch_up_rows_are_causal_and_seen_by_all_others():
    call = Call((5, 6, 7, 8), (), True, (0,), 1)
    rows = rows_of(call, cached=1, mask_token=MASK)
    assert rows.tokens[:2] == [6, 7]
    assert rows.positions[:2] == [1, 2]
    assert rows.keep == 3  # the catch-up and the last prefix token
    sees = attention(call, cached=1, catch_up=2)
    assert sees[:2, 1:3].tolist() == [[True, False], [True, True]]
    assert sees[2:, 1:3].all()
    assert not sees[:2, 3:].any()


def test_common_prefix():
    assert common_prefix((1, 2, 3), (1, 2, 4, 5)) == 2
    assert common_prefix((), (1,)) == 0
    assert common_prefix((1, 2), (1, 2, 3)) == 2
