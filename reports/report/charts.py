"""Pictures for the page, drawn from the JSON by `reports.plots`; none without matplotlib, for the tables say the same."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reports.report.blocks import Block, Picture


def call_counts(rows: Sequence[Mapping[str, Any]], setting: str) -> Iterator[Block]:
    """How many calls a run takes, a picture a width; nothing for results that cannot be drawn."""
    widths = dict.fromkeys(row["width"] for row in rows)
    for width in widths if find_spec("matplotlib") else ():
        from reports.plots import nfe_histogram

        found = [row for row in rows if row["width"] == width and row["schedule"] != "ar" and row["nfe_histogram"]]
        if found:
            histograms = [{int(calls): int(runs) for calls, runs in row["nfe_histogram"].items()} for row in found]
            names = [str(row["schedule"]) for row in found]
            figure = nfe_histogram(names, histograms, [None] * len(found), f"W = {width}, {setting}")
            yield _picture(figure, f"Histogram of the model calls a run takes at W = {width}; the table above has the means")


def speeds(rows: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """Tokens per call and tokens per second by width, with intervals."""
    drawn = [row for row in rows if row["figures"] and row["width"]]
    if drawn and find_spec("matplotlib"):
        from reports.plots import by_width

        figures = [(str(row["name"]), int(row["width"]), row["figures"]) for row in drawn]
        yield _picture(by_width(figures), "Tokens per model call and per second by width; the table above has the figures")


def _picture(figure: Any, description: str) -> Picture:
    from reports.plots import save

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "picture.svg"
        save(figure, file)
        return Picture(base64.b64encode(file.read_bytes()).decode(), description)
