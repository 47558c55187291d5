"""The self-contained page: one HTML file that needs no network and no build step. All text of a run is escaped."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from itertools import count
from typing import Any

from reports.output import shown
from reports.report import blocks
from reports.report.blocks import Section
from reports.report.explorer import FIELDS, Explored
from reports.report.gather import Result
from simulator.errors import InvalidInput

_LARGEST = 4 << 20  # characters of one result's JSON that the page carries along
_TOTAL = 24 << 20
_LONGEST = 20_000  # characters of one text that are shown


def page(sections: Sequence[Section], results: Sequence[Result], explored: Explored, skipped: Sequence[tuple[str, str]]) -> str:
    """The page as text. Raises InvalidInput without jinja2."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise InvalidInput("a report needs jinja2, which is not installed: pip install 'packedss[report]'") from None
    env = Environment(
        loader=PackageLoader("reports.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: shown(value, _LONGEST) if isinstance(value, str) and not isinstance(value, Markup) else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.globals["next_number"] = count(1).__next__  # regions need names of their own
    env.filters["pointer"] = _pointer
    env.tests["instance"] = lambda value, name: type(value).__name__ == name
    assets = files("reports.report") / "assets"
    template = env.get_template("page.html")
    return template.render(
        sections=sections,
        explored=explored,
        skipped=[*skipped, *explored.skipped],
        style=Markup((assets / "page.css").read_text()),
        script=Markup((assets / "sources.js").read_text() + (assets / "explorer.js").read_text()),
        sources=Markup(_embedded(_sources(results))),
        traces=Markup(_embedded({"fields": FIELDS, "requests": explored.requests})),
        tones=blocks.TONES,
    )


def _pointer(path: Sequence[str | int]) -> str:
    """A JSON pointer (RFC 6901) below `rows`."""
    return "/rows" + "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _embedded(value: Any) -> str:
    """JSON for a script element: nothing in it can end the element or begin a comment."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _sources(results: Sequence[Result]) -> dict[str, Any]:
    carried: dict[str, Any] = {}
    total = 0
    for result in results:
        size = len(json.dumps(result.rows))
        if size <= _LARGEST and total + size <= _TOTAL:
            carried[result.file] = {"rows": result.rows}
            total += size
    return carried
