"""What a report is made of: sections of blocks, rendered as HTML or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Tone: TypeAlias = Literal["", "good", "bad", "open", "head"]
TONES: dict[str, Tone] = {
    **dict.fromkeys(("holds", "EXACT", "passed", "NOTHING FOUND", "PASS", "killed", "ok"), "good"),
    **dict.fromkeys(("violated", "FAULT", "failed", "NOT EXACT", "FAIL", "missed", "REFUSED"), "bad"),
    **dict.fromkeys(("not run", "open", "TIES", "NOT RUN", "EXACT, OTHER COUNTS", "SKIPPED"), "open"),
}
"""How a verdict looks; a word that is no verdict has no tone. The word itself is always shown: tones are no information."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: text, and where in the JSON it comes from, as a path of keys and indices below the file."""

    text: str
    path: tuple[str | int, ...] | None = None
    tone: Tone = ""


@dataclass(frozen=True)
class Text:
    """A paragraph; `code` keeps its lines."""

    text: str
    code: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells of one file. `numeric` columns are set to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    numeric: frozenset[int] = frozenset()
    caption: str = ""


@dataclass(frozen=True)
class Bars:
    """Values 0 .. `top` under labels: a chart that is also a list of numbers."""

    caption: str
    items: tuple[tuple[str, float, str], ...]  # label, value, the value in words
    top: float


@dataclass(frozen=True)
class Heat:
    """Shares 0 .. 1 (None where there is nothing) in a grid, with what rows and columns are."""

    caption: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    shares: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True)
class Picture:
    """An SVG of our own plots, base64, with what it shows in words."""

    svg: str
    description: str


@dataclass(frozen=True)
class More:
    """Blocks behind a line that opens them."""

    summary: str
    blocks: tuple[Block, ...]
    tone: Tone = ""


Block: TypeAlias = Text | Table | Bars | Heat | Picture | More


@dataclass(frozen=True)
class Section:
    """What one file says."""

    title: str
    file: str
    verdict: str  # "" where the command gives none
    headline: str  # one sentence for the summary
    blocks: tuple[Block, ...] = ()
    replay: str = ""
    facts: dict[str, Any] = field(default_factory=dict)  # environment and arguments, for the foot of the section


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell | str]], numeric: Sequence[int] = (), caption: str = ""
) -> Table:
    """A table of cells; a plain string is a cell without a source."""
    cells = tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows)
    return Table(tuple(columns), cells, frozenset(numeric), caption)


def verdict(word: str, path: tuple[str | int, ...] | None = None) -> Cell:
    """A cell that holds a verdict."""
    return Cell(word, path, TONES.get(word, ""))
