"""`packedss report`: from a folder of results to a page and a Markdown text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reports.report.explorer import explore
from reports.report.gather import gather
from reports.report.html import page
from reports.report.markdown import markdown
from reports.report.sections import section


@dataclass(frozen=True)
class Report:
    """A report, not yet written."""

    html: Callable[[], str]
    markdown: Callable[[], str]
    results: int
    traces: int
    skipped: tuple[tuple[str, str], ...]  # files that were not read, and why


def build(folder: Path) -> Report:
    """Everything in `folder` that can be shown. Raises InvalidInput when nothing can."""
    gathered = gather(folder)
    explored = explore(folder, gathered.traces, gathered.results)
    sections = [section(result) for result in gathered.results]
    skipped = (*gathered.skipped, *explored.skipped)
    return Report(
        lambda: page(sections, gathered.results, explored, gathered.skipped),
        lambda: markdown(sections, explored, skipped),
        len(gathered.results),
        len(explored.verdicts),
        skipped,
    )
