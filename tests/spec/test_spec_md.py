"""SPEC.md: its numbers, what it refers to, what refers to it, and its worked examples."""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path

import pytest

import spec
from spec import Given, greedy
from spec.claims import CLAIMS
from spec.thresholds import threshold_model

ROOT = Path(__file__).parents[2]
TEXT = (Path(spec.__file__).parent / "SPEC.md").read_text()
DEFINED = re.findall(r"^\*\*(R-[A-Z]+-\d+)\*\* ", TEXT, re.MULTILINE)
FAMILIES = """
    STATE CALL VERIFY STOP DRAFT SCHED START RANDOM NUMBER COUNT ORDER LAYOUT CACHE MODEL USER
"""


def test_numbers_count_up_in_each_family() -> None:
    families = [
        (family, [int(id.rsplit("-", 1)[1]) for id in ids]) for family, ids in groupby(DEFINED, lambda id: id.split("-")[1])
    ]
    assert [family for family, _ in families] == FAMILIES.split()
    assert all(numbers == list(range(1, len(numbers) + 1)) for _, numbers in families)
    assert len(DEFINED) > 70


@pytest.mark.parametrize("folder", ["spec", "simulator", "proofs_check", "realmodel", "reports", "tests"])
def test_cited_requirements_exist(folder: str) -> None:
    """In SPEC.md itself and wherever the code cites it."""
    for file in [*(ROOT / folder).rglob("*.py"), *(ROOT / folder).rglob("*.md")]:
        for id in re.findall(r"\bR-[A-Z]+-\d+\b", file.read_text()):
            assert id in DEFINED, f"{file.relative_to(ROOT)} cites {id}"


def test_cited_claims_exist() -> None:
    """The lists of ids in parentheses. `L9` continues an id of an algorithm; ASSD is another paper's name."""
    cited = set()
    for group in re.findall(r"\(([A-Z][^()]*)\)", TEXT):
        items = re.split(r"[,;:]\s|\sto\s|\sand\s", group)
        if all(re.fullmatch(r"[A-Z][A-Z0-9.-]+", item) for item in items):
            cited |= {item for item in items if not re.fullmatch(r"R-[A-Z]+-\d+|L\d+", item)}
    assert cited - set(CLAIMS) == {"ASSD"}
    assert len(cited) > 50


def tables(section: str) -> list[list[list[str]]]:
    """The tables of a section, cell by cell, without their heads."""
    body = TEXT.split(f"## {section}")[1].split("\n## ")[0]
    rows = [re.split(r" *\| *", line.strip("| ")) if line.startswith("|") else [] for line in body.splitlines()]
    return [[list(row) for row in group][2:] for filled, group in groupby(rows, bool) if filled]


def test_the_greedy_example() -> None:
    request, _ = tables("16. Examples")
    run = greedy.run("packed", Given((), 3, 5, *threshold_model((1, 0, 3, 2, 1))))
    assert len(request) == run.NFE == 4
    for t, (row, before, record, after) in enumerate(zip(request, run.states, run.records, run.states[1:], strict=False), 1):
        told = [f"({', '.join(map(str, tokens))})" for tokens in (before.D, after.P, after.D)]
        assert row == [str(t), told[0], f"{record.h}, {record.A}, {record.a}", told[1], told[2] if t < 4 else "ended: length"]


def test_the_example_of_the_starts() -> None:
    _, starts = tables("16. Examples")
    given = Given((), 4, 10, *threshold_model(()))
    names = {"Linear-SS": "linear", "Packed-SS": "packed", "Quadratic-SS": "quadratic"}
    assert [row[0] for row in starts] == list(names)
    for name, *cells in starts:
        for start, cell in zip(("algorithm", "wide", "sampled"), cells, strict=True):
            run = greedy.run(names[name], given, start)  # type: ignore[arg-type]
            calls = [f"({record.a}, {len(after.D)})" for record, after in zip(run.records, run.states[1:], strict=True)]
            calls[-1] = f"({run.records[-1].a}, -)"
            assert cells[1 if cell == "as `wide`" else ("algorithm", "wide", "sampled").index(start)] == " ".join(calls)
