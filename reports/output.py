"""What every command does with its result besides showing it: progress, JSON, the line that repeats the run."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from reports.environment import environment, package_version
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
SCHEMA = 1  # of the JSON; a reader of one schema refuses another


def progress(items: Iterable[T], label: str, quiet: bool, total: int | None = None) -> Iterator[T]:
    """Iterate with a progress bar on standard error; silent off a terminal."""
    if quiet or not sys.stderr.isatty():
        return iter(items)
    from rich.console import Console
    from rich.progress import track

    return iter(track(items, label, total, console=Console(stderr=True), transient=True))


def write_json(file: Path | None, command: str, arguments: dict[str, Any], rows: list[Any]) -> None:
    """Write a result of schema 1 (docs/json.md) as `write_whole` does. Nothing happens without a file."""
    if file is None:
        return
    content = {
        "packedss": package_version("packedss") or "unknown",
        "schema": SCHEMA,
        "command": command,
        "arguments": arguments,
        "environment": environment(),
        "replay": _replay(),
        "rows": rows,
    }
    write_whole(file, [json.dumps(_plain(content), indent=1, allow_nan=False)])


def write_whole(file: Path, lines: Iterable[str]) -> None:
    """Write the lines to `file`: complete or not at all. Raises InvalidInput when the file cannot be written.

    A link is followed, a device or pipe is written to, and an old file keeps its mode.
    """
    part = None
    try:
        file = file.resolve()
        if file.exists() and not file.is_file():
            with file.open("w") as handle:
                handle.writelines(f"{line}\n" for line in lines)
            return
        with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}.", delete=False) as handle:
            part = handle.name
            handle.writelines(f"{line}\n" for line in lines)
        os.chmod(part, file.stat().st_mode & 0o777 if file.exists() else 0o666 & ~_umask())
        os.replace(part, file)
    except OSError as error:
        raise InvalidInput(f"cannot write {str(file)!r}: {error.strerror}") from error
    finally:
        if part is not None and os.path.exists(part):
            os.unlink(part)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def replay_line(quiet: bool) -> None:
    """Print the command that repeats this run."""
    if not quiet:
        print("replay:", _replay())


def _replay() -> str:
    return shlex.join(["packedss", *sys.argv[1:]])


def _plain(value: Any) -> Any:
    """What JSON can say of a value: rationals and numbers that are not finite become text."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Fraction) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    return value


def shown(text: str, limit: int = 2000) -> str:
    """Untrusted text for a person's eyes: control characters, which could drive a terminal or reverse the writing, as visible
    escapes, and what goes on beyond `limit` characters as its length."""
    rest = len(text) - limit
    kept = "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text[:limit])
    return kept if rest <= 0 else f"{kept}… ({rest:,} more characters)"


def terminal() -> Console:
    """Where tables go. rich leaves colours out off a terminal and under NO_COLOR."""
    from rich.console import Console

    # A log or a pipe has no width of its own; narrow columns would cut words there.
    return Console(width=None if shutil.get_terminal_size((0, 0)).columns else 160, highlight=False)
