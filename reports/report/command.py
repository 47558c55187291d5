"""The command `packedss report`."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from reports.options import Json, Quiet
from reports.output import shown, write_json, write_whole
from simulator.errors import InvalidInput


def report(
    folder: Annotated[Path, typer.Option("--from", help="Folder with the JSON and the traces of the runs.")] = Path("out"),
    to: Annotated[Path | None, typer.Option("--to", help="The page to write. Default: report.html in that folder.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Also write the same content as Markdown.")] = None,
    opened: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """One self-contained HTML page from what the commands wrote with --json and --trace, with a step-by-step explorer."""
    from reports.report.build import build

    target = to or folder / "report.html"
    if markdown is not None and markdown.resolve() == target.resolve():
        raise InvalidInput(f"both the page and --markdown would be written to {str(target)!r}")
    built = build(folder)
    write_whole(target, [built.html()])
    if markdown is not None:
        write_whole(markdown, [built.markdown()])
    row = {"page": target.name, "results": built.results, "traces": built.traces, "skipped": built.skipped}
    write_json(json_file, "report", {"from": str(folder)}, [row])
    if not quiet:
        for file, why in built.skipped:
            print(f"not read: {shown(file, 200)}: {shown(why, 300)}")
        print(f"{target}: {built.results} results, {built.traces} traces")
    if opened:
        webbrowser.open(target.resolve().as_uri())
    return 0
