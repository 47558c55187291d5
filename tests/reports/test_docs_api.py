"""Every code block of docs/api.md is shorter than 20 lines, runs as it stands, and prints what the page shows after it."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
BLOCKS = re.findall(
    r"^## ([^\n]+)\n.*?```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE
)


def test_the_page_answers_four_questions() -> None:
    assert len(BLOCKS) == PAGE.read_text().count("```python") == PAGE.read_text().count("\n## ") == 4


@pytest.mark.parametrize(("title", "code", "shown"), BLOCKS, ids=[title for title, _, _ in BLOCKS])
def test_a_block_prints_what_is_shown(title: str, code: str, shown: str) -> None:
    assert len([line for line in code.splitlines() if line]) < 20
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, f"docs/api.md, {title}", "exec"), {"__name__": "docs"})
    assert printed.getvalue() == shown
    assert shown


def test_links_exist() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target
