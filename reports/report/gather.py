"""Reading a folder of results: JSON that a command wrote with --json, and traces. Files are untrusted."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reports.output import SCHEMA, shown
from simulator.errors import InvalidInput
from simulator.trace import HEADER

LARGEST = 64 << 20  # bytes of one file
DEEPEST = 100  # lists and objects within each other; ours need about 10


@dataclass(frozen=True)
class Result:
    """What one command wrote."""

    file: str  # relative to the folder
    command: str
    arguments: dict[str, Any]
    rows: list[Any]
    environment: dict[str, Any]
    replay: str
    package: str  # version of packedss


@dataclass(frozen=True)
class Gathered:
    """Everything a folder holds that a report can show."""

    folder: Path
    results: tuple[Result, ...]
    traces: tuple[Path, ...]
    skipped: tuple[tuple[str, str], ...]  # file, why it was not read


def gather(folder: Path) -> Gathered:
    """Read every .json and .jsonl file below `folder`, in the order of their names.

    A file that is no result of ours is listed with the reason. Raises InvalidInput when there is no such folder, or nothing
    in it can be shown.
    """
    if not folder.is_dir():
        raise InvalidInput(f"there is no folder {str(folder)!r}: name one that holds what the commands wrote with --json")
    results, traces, skipped = [], [], []
    for path in sorted(folder.rglob("*.json*")):
        name = shown(path.relative_to(folder).as_posix(), 300)
        if path.suffix not in (".json", ".jsonl") or not path.is_file():
            continue
        try:
            if path.stat().st_size > LARGEST:
                raise ValueError(f"larger than {LARGEST >> 20} MiB")
            if path.suffix == ".jsonl":
                with path.open(encoding="utf-8", errors="replace") as lines:
                    if json.loads(lines.readline(4096)) != HEADER:
                        raise ValueError("no trace: its first line is not a trace's")
                traces.append(path)
            else:
                result = _result(name, json.loads(path.read_text(encoding="utf-8", errors="replace")))
                results += [] if result.command == "report" else [result]  # a report is no result
        except (ValueError, OSError, RecursionError) as error:
            skipped.append((name, _reason(error)))
    if not results and not traces:
        why = "".join(f"; {file}: {reason}" for file, reason in skipped[:3])
        raise InvalidInput(f"nothing in {str(folder)!r} can be shown: no JSON of a command, no trace{shown(why)}")
    return Gathered(folder, tuple(results), tuple(traces), tuple(skipped))


def _result(name: str, content: Any) -> Result:
    _portable(content)
    if not isinstance(content, dict) or not isinstance(content.get("command"), str):
        raise ValueError("not the JSON of a command: it names none")
    if content.get("schema") != SCHEMA:
        raise ValueError(f"JSON of schema {content.get('schema')!r}; this version reads schema {SCHEMA}")
    arguments, rows, environment = (content.get(key) for key in ("arguments", "rows", "environment"))
    if not isinstance(arguments, dict) or not isinstance(rows, list) or not isinstance(environment, dict):
        raise ValueError("arguments and environment must be objects, rows a list")
    replay, package = str(content.get("replay", "")), str(content.get("packedss", "unknown"))
    return Result(name, content["command"], arguments, rows, environment, replay, package)


def _portable(content: Any) -> None:
    """Raises for what Python reads and a browser does not: numbers that are not finite, halves of characters, depth."""
    level, depth = [content], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise RecursionError
        nodes = [node.values() if isinstance(node, dict) else node for node in level if isinstance(node, dict | list)]
        level = [child for children in nodes for child in children]
    json.dumps(content, ensure_ascii=False, allow_nan=False).encode()


def _reason(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"no JSON: {error.msg} in line {error.lineno}"
    if isinstance(error, UnicodeEncodeError):
        return "a text in it holds half a character (a lone surrogate)"
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)
