"""Options that several commands share, each with one meaning."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from simulator.errors import InvalidInput


def writable(file: Path | None) -> Path | None:
    """Refuse a result file that cannot be written before the work is done, not after."""
    if file is not None and (file.is_dir() or not file.parent.is_dir() or not os.access(file.parent, os.W_OK)):
        raise InvalidInput(f"cannot write the result to {str(file)!r}: not a file in a writable folder")
    return file


def distinct(json_file: Path | None, trace: Path | None) -> None:
    """Refuse to write two results to one file."""
    if json_file is not None and trace is not None and json_file.resolve() == trace.resolve():
        raise InvalidInput(f"both --json and --trace name {str(trace)!r}; one would replace the other")


Json = Annotated[Path | None, typer.Option("--json", help="Also write the result to this file as JSON.", callback=writable)]
Trace = Annotated[
    Path | None,
    typer.Option("--trace", help="Also write every call of every run to this file as JSON Lines.", callback=writable),
]
Picture = Annotated[Path | None, typer.Option("--plot", help="Also draw the result: .svg or .png.", callback=writable)]
Quiet = Annotated[bool, typer.Option("--quiet", help="No tables and no progress.")]
Seed = Annotated[int, typer.Option(help="Seed of every random choice.")]
Schedules = Annotated[
    list[str] | None,
    typer.Option(
        "--schedule", "-s", help="ar, linear, packed, quadratic or branches:0,2,...; repeatable. Default: the first four."
    ),
]
Widths = Annotated[list[int] | None, typer.Option("--width", "-w", help="Speculative width W; repeatable. Default: 8.")]
Prompt = Annotated[list[str] | None, typer.Option(help="Decode this text instead; repeatable.")]
PromptIds = Annotated[str | None, typer.Option(help="Decode these token ids instead, comma-separated.")]
Start = Annotated[str, typer.Option(help="algorithm (empty first draft), wide, sampled or prompt (the paper's E.2).")]
