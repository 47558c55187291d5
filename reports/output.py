"""What every command does with its result besides showing it: progress, JSON, the line that repeats the run."""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from simulator.errors import InvalidInput

T = TypeVar("T")


def progress(items: Iterable[T], label: str, quiet: bool, total: int | None = None) -> Iterator[T]:
    """Iterate with a progress bar on standard error; silent off a terminal."""
    if quiet or not sys.stderr.isatty():
        return iter(items)
    from rich.console import Console
    from rich.progress import track

    return iter(track(items, label, total, console=Console(stderr=True), transient=True))


def write_json(file: Path | None, command: str, arguments: dict[str, Any], rows: list[Any]) -> None:
    """Write {"packedss", "command", "arguments", "rows"} as `write_whole` does. Nothing happens without a file."""
    if file is None:
        return
    try:
        package = version("packedss")
    except PackageNotFoundError:  # run from a checkout
        package = "unknown"
    content = {"packedss": package, "command": command, "arguments": arguments, "rows": rows}
    write_whole(file, [json.dumps(content, indent=1, default=_plain)])


def write_whole(file: Path, lines: Iterable[str]) -> None:
    """Write the lines to `file`: complete or not at all. Raises InvalidInput when the file cannot be written."""
    part = None
    try:
        with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}.", delete=False) as handle:
            part = handle.name
            handle.writelines(f"{line}\n" for line in lines)
        os.replace(part, file)
    except OSError as error:
        raise InvalidInput(f"cannot write {str(file)!r}: {error.strerror}") from error
    finally:
        if part is not None and os.path.exists(part):
            os.unlink(part)


def replay_line(quiet: bool) -> None:
    """Print the command that repeats this run."""
    if not quiet:
        print("replay:", shlex.join(["packedss", *sys.argv[1:]]))


def _plain(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
