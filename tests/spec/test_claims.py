"""The table of claims: complete, consistent, and the only vocabulary of `@pytest.mark.claim`."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from proofs_check.beyond import BEYOND
from spec import claims
from spec.claims import CLAIMS, TABLE

LINES = {"ALG1": 13, "ALG2": 16, "ALG3": 18}
OTHERS = """
    EQ1 EQ2 EQ3 EQ4 EQ5 EQ6 EQ7 EQ8 PROGRESS ASM3.1 LEMB1 LEMB2 THM3.2 LEMB3 LEMB4 THM3.3 COR-GREEDY PROPC1 STOP DRAFTLEN
    BRANCH0 SPARSEQ COST TAB2 LAYD1 LAYQ PAD LAYD2 INIT NFE-CONV STOPSEQ CONF NATIVE LORA METRICS BOOT PROTO
"""


def markers(tree: ast.AST) -> Iterator[object]:
    """The arguments of every pytest.mark.claim(..) in a file, None for one that is no literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("mark.claim"):
            yield from (arg.value if isinstance(arg, ast.Constant) else None for arg in node.args)


def test_the_ids_are_those_of_the_paper_each_once() -> None:
    ids = [claim.id for claim in TABLE]
    assert len(set(ids)) == len(ids) == len(CLAIMS)
    assert set(ids) == {f"{name}.L{line}" for name, last in LINES.items() for line in range(1, last + 1)} | set(OTHERS.split())
    assert all(CLAIMS[id].id == id for id in ids)


def test_assumptions_exist_and_never_lead_back() -> None:
    def grounds(id: str, above: tuple[str, ...] = ()) -> None:
        assert id not in above
        for assumed in CLAIMS[id].assumptions:
            grounds(assumed, (*above, id))

    for claim in TABLE:
        grounds(claim.id)


@pytest.mark.parametrize("claim", TABLE, ids=lambda claim: claim.id)
def test_every_entry_is_complete(claim: claims.Claim) -> None:
    """A kind, sections that the paper has, and one sentence."""
    assert claim.kind in ("C", "D", "P")
    assert all(re.fullmatch(r"[1-4](\.[12])?|C|[BDEF]\.[1-7](-[DE]\.[1-7])?", section) for section in claim.section.split(", "))
    assert re.fullmatch(r"\S.+[^.]\.", claim.statement)


def test_every_marker_in_the_tests_names_a_claim() -> None:
    used = {}
    for file in sorted(Path(__file__).parents[1].rglob("test_*.py")):
        for id in markers(ast.parse(file.read_text())):
            used.setdefault(id, file.name)
    assert {id: file for id, file in used.items() if id not in CLAIMS | BEYOND} == {}
    assert {"THM3.2", "THM3.3", "COR-GREEDY", "LAYD1"} <= set(used)


def test_the_search_for_markers_finds_them_everywhere() -> None:
    code = """
    pytestmark = [pytest.mark.claim("A"), pytest.mark.slow]
    @mark.claim("B", "C")
    class Test:
        cases = pytest.param(1, marks=pytest.mark.claim("D"))
        @pytest.mark.claim(f"E")
        def test(self): ...
    """
    assert sorted(map(str, markers(ast.parse("if 1:\n" + code)))) == ["A", "B", "C", "D", "None"]


def test_the_example() -> None:
    result = doctest.testmod(claims)
    assert (result.attempted, result.failed) == (2, 0)
