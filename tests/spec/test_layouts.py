"""Appendix D: row counts, the masks by hand, what each row that is read conditions on, and the production layout's masks."""

from __future__ import annotations

import importlib.util
import sys
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from simulator.records import Call
from spec.layouts import MASK, Row, nemotron, nemotron_wide, sees, setdlm

MASK_ID = 99


@pytest.fixture(scope="module")
def production() -> ModuleType:
    """realmodel/layout.py alone: it needs numpy, the package around it torch."""
    file = Path(__file__).parents[2] / "realmodel" / "layout.py"
    found = importlib.util.spec_from_file_location("production_layout", file)
    assert found
    assert found.loader
    module = sys.modules[found.name] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def mask(rows: list[Row]) -> list[list[int]]:
    return [[int(sees(x, y)) for y in rows] for x in rows]


def context(x: Row, rows: list[Row], cached: dict[int, int]) -> dict[int, int]:
    """The tokens that row x sees, itself included, by position id. Two tokens at one position must be the same one."""
    seen = dict(cached)
    for y in rows:
        if sees(x, y) and y.token is not MASK:
            assert seen.setdefault(y.position, y.token) == y.token
    return seen


# --- TAB2 -------------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("TAB2")
@pytest.mark.parametrize("W", range(1, 18))
def test_nemotron_rows(W: int) -> None:
    B = W + 1
    for drafted in {0, 1, W - 1, W}:
        P, D = (1, 2, 3), tuple(range(drafted))
        linear = len(nemotron(P, (), W, False, [0], 2)) + len(nemotron(P, D, W, True, [], 2))
        packed, quadratic = nemotron(P, D, W, True, [0], 2), nemotron(P, D, W, True, range(W + 1), 2)
        assert (linear, len(packed), len(quadratic)) == (2 * B, 2 * B, B * (B + 1))


@pytest.mark.claim("TAB2")
@pytest.mark.parametrize(("W", "maxima"), [(8, (25, 81, 25)), (16, (49, 289, 49))])
def test_setdlm_rows(W: int, maxima: tuple[int, int, int]) -> None:
    counts = []
    for p, u in product((0, 1), range(1, W + 1)):
        N, pi, D = dict([(1, 5)] * p), tuple(range(2, u + 2)), {2: 5}
        linear = len(setdlm(N, pi, {}, False, [0])) + len(setdlm({}, pi, D, True, []))
        packed, quadratic = setdlm(N, pi, D, True, [0]), setdlm(N, pi, D, True, range(u))
        assert (linear, len(packed), len(quadratic)) == (p + 3 * u, p + 3 * u, p + 2 * u + u**2)
        counts.append((linear, len(quadratic), len(packed)))
    assert max(counts) == maxima


# --- Nemotron ---------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("LAYD1")
def test_the_packed_call_by_hand() -> None:
    """[last, d1, MASK | last, MASK, MASK] under diag(T_3, J_3); W = 2, one draft token, nine tokens cached."""
    rows = nemotron((0, 1, 2, 3, 4, 5, 6, 7, 8, 40), (41,), 2, True, [0], 9)
    assert [(row.token, row.position) for row in rows] == [(40, 9), (41, 10), (None, 11), (40, 9), (None, 10), (None, 11)]
    assert mask(rows) == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [0, 0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1, 1],
        [0, 0, 0, 1, 1, 1],
    ]


@pytest.mark.claim("LAYQ")
def test_the_quadratic_call_by_hand() -> None:
    """[last, d1, d2 | last, MASK, MASK | d1, MASK, MASK | d2, MASK, MASK]: block b sees the verifier rows before d_b."""
    rows = nemotron((7,), (1, 2), 2, True, range(3), 0)
    assert [row.token for row in rows] == [7, 1, 2, 7, None, None, 1, None, None, 2, None, None]
    assert [row.position for row in rows] == [0, 1, 2, 0, 1, 2, 1, 2, 3, 2, 3, 4]
    assert ["".join(map(str, line)) for line in mask(rows)] == [
        "100" + "000" + "000" + "000",
        "110" + "000" + "000" + "000",
        "111" + "000" + "000" + "000",
        *["000" + "111" + "000" + "000"] * 3,
        *["100" + "000" + "111" + "000"] * 3,
        *["110" + "000" + "000" + "111"] * 3,
    ]


@pytest.mark.claim("LAYD1")
@pytest.mark.parametrize(("W", "n", "cached"), [(1, 1, 0), (2, 3, 2), (3, 4, 0), (4, 3, 1)])
def test_rows_that_are_read_condition_on_what_the_algorithms_say(W: int, n: int, cached: int) -> None:
    """Verifier row i on P and d^(<=i) (EQ1), branch b on P and d^(<=b) (EQ3, LAYQ), with masks only of its own block; PAD: no
    row that is read sees a padded slot. In every call of every schedule, a run's first call included."""
    P = tuple(range(10, 10 + n))
    before = dict(enumerate(P[:cached]))
    for drafted in range(W + 1):
        D = tuple(range(50, 50 + drafted))
        for verify, branches in [(True, [0]), (True, range(W + 1)), (False, [0]), (True, []), (True, [0, W])]:
            rows = nemotron(P, D, W, verify, branches, cached)
            read = [x for x in rows if (x.region == "V" and 0 <= x.i <= drafted) or (x.region == "Z" and x.b <= drafted)]
            assert len(read) == verify * (drafted + 1) + (W + 1) * sum(b <= drafted for b in branches)
            for x in read:
                assert context(x, rows, before) == dict(enumerate(P + D[: x.i if x.region == "V" else x.b]))
                masks = [y for y in rows if sees(x, y) and y.token is MASK]
                assert masks == [y for y in rows if x.region == y.region == "Z" and x.b == y.b and y.i > 0]


@pytest.mark.claim("INIT")
@pytest.mark.parametrize(("W", "n"), [(1, 1), (3, 5)])
def test_the_wide_first_call(W: int, n: int) -> None:
    """E.2: W + 1 masks, for the W + 1 positions after the prompt, each seeing the prompt and all of them; no second copy."""
    P = tuple(range(10, 10 + n))
    rows = nemotron_wide(P, W)
    assert [(row.token, row.position) for row in rows] == [(x, i) for i, x in enumerate((*P, *[None] * (W + 1)))]
    assert mask(rows) == [[int(j <= i) for j in range(len(rows))] for i in range(n)] + [[1] * len(rows)] * (W + 1)


# --- SetDLM -----------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("LAYD2")
def test_the_packed_setdlm_call_by_hand() -> None:
    """[N | O1 O2 O3 | M1 M2 M3 | R1 R2 R3], order (4, 2, 7), no draft at rank 2: it is in no K_r."""
    rows = setdlm({3: 30}, (4, 2, 7), {4: 40, 7: 70}, True, [0])
    assert [(row.token, row.position) for row in rows] == [
        (30, 3),
        *[(40, 4), (None, 2), (70, 7)],
        *[(None, 4), (None, 2), (None, 7)],
        *[(None, 4), (None, 2), (None, 7)],
    ]
    assert ["".join(map(str, line)) for line in mask(rows)] == [
        "1" + "000" + "000" + "000",
        "1" + "100" + "000" + "000",
        "1" + "110" + "000" + "000",
        "1" + "101" + "000" + "000",
        "1" + "000" + "100" + "000",
        "1" + "100" + "010" + "000",
        "1" + "100" + "001" + "000",
        "1" + "000" + "000" + "100",
        "1" + "000" + "000" + "010",
        "1" + "000" + "000" + "001",
    ]


@pytest.mark.claim("LAYQ")
def test_the_quadratic_setdlm_call_by_hand() -> None:
    """Its branches b = 0, 1, 2 of R, with the same order and drafts: what they see of O, and of themselves."""
    rows = setdlm({3: 30}, (4, 2, 7), {4: 40, 7: 70}, True, range(3))
    assert [(row.region, row.position, row.b) for row in rows[7:]] == [("R", j, b) for b in range(3) for j in (4, 2, 7)]
    assert ["".join(map(str, line)) for line in mask(rows)[7:]] == [
        "1" + seen_of_o + "000" + "".join(str(int(i == j)) for j in range(9))
        for i, seen_of_o in enumerate(["000"] * 3 + ["100"] * 6)  # rank 2 has no draft, so branch 2 sees no more than branch 1
    ]


@pytest.mark.claim("LAYD2")
@pytest.mark.parametrize("pi", [(2, 3, 5), (5, 2, 3), (3, 5, 2)])
@pytest.mark.parametrize("N", [{}, {4: 44}])
def test_setdlm_rows_that_are_read_condition_on_what_algorithm_3_says(pi: tuple[int, ...], N: dict[int, int]) -> None:
    """M_r on the accepted pairs and the drafts of earlier ranks (EQ8), R_r of branch b on those and the first b draft pairs;
    each on itself and no other mask. In Linear's second call the cache holds N."""
    accepted = {1: 11, **N}
    for kappa in range(4):
        D = {j: 10 * j for j in pi[:kappa]}
        u = len(pi)
        for verify, branches in [(True, [0]), (True, range(u)), (False, [0]), (True, [])]:
            new = N if branches else {}
            rows = setdlm(new, pi, D, verify, branches)
            read = [x for x in rows if (x.region == "M" and x.i <= kappa + 1) or (x.region == "R" and x.b <= kappa)]
            for x in read:
                drafts = pi[: x.i - 1] if x.region == "M" else pi[: x.b]
                assert context(x, rows, {j: y for j, y in accepted.items() if j not in new}) == accepted | {
                    j: D[j] for j in drafts
                }
                assert [y for y in rows if sees(x, y) and y.token is MASK] == [x]
                assert x.position == pi[x.i - 1]


# --- the production layout --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("W", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("schedule", ["packed", "quadratic", "linear"])
def test_the_production_layout_is_the_literal_one(schedule: str, W: int, production: Any) -> None:
    """Tokens, position ids and masks, row by row, for first and later calls and drafts of any length."""
    kinds: dict[str, list[tuple[bool, Any]]] = {
        "packed": [(True, (0,))],
        "quadratic": [(True, tuple(range(W + 1)))],
        "linear": [(False, (0,)), (True, ())],
    }
    for (verify, branches), n, drafted in product(kinds[schedule], (1, 2, 4), range(W + 1)):
        P, D = tuple(range(10, 10 + n)), tuple(range(50, 50 + drafted if verify else 50))
        for cached in {0, n // 2, n - 1}:
            call = Call(P, D, verify, branches, W)
            rows, literal = production.rows_of(call, cached, MASK_ID), nemotron(P, D, W, verify, branches, cached)
            assert rows.tokens == [MASK_ID if row.token is MASK else row.token for row in literal]
            assert rows.positions == [row.position for row in literal]
            seen = production.attention(call, cached, rows.catch_up)
            assert seen[:, :cached].all()
            assert np.array_equal(seen[:, cached:], np.array(mask(literal), dtype=bool))
            read = [r for r, row in enumerate(literal) if row.region == "V" and 0 <= row.i <= drafted and verify]
            assert rows.verifier == read
            assert rows.keep == max([*read, rows.catch_up - 1]) + 1
            for b, proposals in zip(branches, rows.proposals, strict=True):
                mine = [r for r, row in enumerate(literal) if row.region == "Z" and row.b == b and row.i > 0]
                assert proposals == (mine if b <= drafted else None)


@pytest.mark.claim("INIT")
@pytest.mark.parametrize(("W", "n"), [(1, 1), (3, 1), (4, 5)])
def test_the_production_layout_of_the_first_calls(W: int, n: int, production: Any) -> None:
    """Start `wide`, and a call that only reads the prompt: all of it, causally."""
    P = tuple(range(10, 10 + n))
    wide, prompt = Call(P, (), True, (0,), W + 1, anchored=False), Call(P, (), False, (), 0)
    for call, literal in [(wide, nemotron_wide(P, W)), (prompt, nemotron(P, (), 0, True, (), 0))]:
        rows = production.rows_of(call, 0, MASK_ID)
        assert rows.tokens == [MASK_ID if row.token is MASK else row.token for row in literal]
        assert rows.positions == [row.position for row in literal]
        assert np.array_equal(production.attention(call, 0, rows.catch_up), np.array(mask(literal), dtype=bool))
        assert rows.keep == n
        assert rows.proposals == ([list(range(n, n + W + 1))] if call.branches else [])
