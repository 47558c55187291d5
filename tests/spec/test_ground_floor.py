"""What makes spec/ the ground floor: the standard library only, every line of the algorithms marked, its example true."""

from __future__ import annotations

import ast
import doctest
import re
import sys
from pathlib import Path

import spec

FILES = sorted(Path(spec.__file__).parent.glob("*.py"))


def test_only_the_standard_library_is_imported() -> None:
    imported = set()
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0
                imported.add(str(node.module).split(".")[0])
    assert imported - set(sys.stdlib_module_names) == {"spec"}


def test_every_line_of_the_algorithms_is_marked() -> None:
    """Only `end while` has no statement of its own: ALG1.L12, ALG2.L15, ALG3.L17."""
    code = "\n".join(file.read_text() for file in FILES if file.stem in ("run", "greedy", "sampling", "any_order"))
    marked = {"ALG1": {*range(1, 14)} - {12}, "ALG2": {*range(1, 17)} - {15}, "ALG3": {*range(1, 19)} - {17}}
    for algorithm, lines in marked.items():
        marks = re.findall(rf"#.*?\b{algorithm}\.L(\d+)(?:-L(\d+))?", code)
        assert {line for first, last in marks for line in range(int(first), int(last or first) + 1)} == lines


def test_the_example() -> None:
    result = doctest.testmod(spec)
    assert result.attempted == 3
    assert result.failed == 0
