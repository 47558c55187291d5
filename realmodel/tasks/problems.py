"""A problem and its grade, and reading problems from a file: every row checked, each complaint with its file and line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from simulator.errors import InvalidInput


class Problem(NamedTuple):
    """One problem of a task.

    `messages` are for a model with a chat template (thinking off), `text` is for one without. `secret` is what the grader
    needs: a gold answer, or tests.
    """

    id: str
    messages: tuple[dict[str, str], ...]
    text: str
    secret: dict[str, str]


class Grade(NamedTuple):
    """Whether an answer is right, and one line that says why not. `correct` is None where the task does not grade."""

    correct: bool | None
    why: str = ""


class Row(NamedTuple):
    """One row of a task's file, and where it stands for complaints."""

    fields: dict[str, Any]
    where: str

    def text(self, *names: str) -> str:
        """The first of these fields that the row has: a text that is not empty."""
        for name in names:
            if name in self.fields:
                value = self.fields[name]
                if isinstance(value, str) and value.strip() and _encodable(value):
                    return value
                raise self.wrong(f"{name!r} must be a text that is not empty, not {_shown(value)}")
        raise self.wrong(
            f"needs the field {' or '.join(map(repr, names))}; it has {', '.join(map(repr, self.fields)) or 'none'}"
        )

    def texts(self, name: str, *, needed: bool) -> list[str]:
        """A field that is a list of texts; empty, or missing where it is not needed, is the empty list."""
        value = self.fields.get(name, None if needed else [])
        if (
            not isinstance(value, list)
            or not all(isinstance(one, str) and _encodable(one) for one in value)
            or (needed and not value)
        ):
            raise self.wrong(f"{name!r} must be a list of texts, not {_shown(value)}")
        return value

    def name(self, field: str) -> str:
        """A field that names the row: a text or a whole number."""
        value = self.fields.get(field)
        if (
            isinstance(value, bool)
            or not isinstance(value, str | int)
            or not (isinstance(value, int) or (value.isprintable() and value))
        ):
            raise self.wrong(f"{field!r} must be a printable text or a whole number, not {_shown(value)}")
        return str(value)

    def wrong(self, what: str) -> InvalidInput:
        return InvalidInput(f"{self.where}: {what}")


def user(text: str) -> tuple[dict[str, str], ...]:
    """The chat of one user turn."""
    return ({"role": "user", "content": text},)


def read(path: Path, limit: int | None, parse: Callable[[Row], Problem | None]) -> list[Problem]:
    """The problems of a file, in its order: JSON Lines (.jsonl, also .gz) or a JSON list (.json).

    parse turns a row into a problem, or into None for a row the task leaves out. At most `limit` problems are returned, and
    rows after the last of them are not looked at. Raises InvalidInput, naming file and line, for a file that cannot be read, a
    row that is malformed, an id that comes twice and a file without problems.
    """
    if limit is not None and limit < 1:
        raise InvalidInput(f"limit must be at least 1, not {limit}")
    problems: dict[str, Problem] = {}
    for row in _rows(path):
        problem = parse(row)
        if problem is None:
            continue
        if problem.id in problems:
            raise row.wrong(f"the id {problem.id!r} was there before; every row needs its own")
        problems[problem.id] = problem
        if len(problems) == limit:
            break
    if not problems:
        raise InvalidInput(f"{str(path)!r} holds no problem of this task")
    return list(problems.values())


def _rows(path: Path) -> Iterator[Row]:
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else open(path, encoding="utf-8") as lines:
            if path.suffix == ".json":
                yield from _listed(path, lines.read())
                return
            for number, line in enumerate(lines, 1):
                if line.strip():
                    where = f"{path}, line {number}"
                    yield _row(_json(line, where), where)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or "it is not what its name says"
        raise InvalidInput(f"cannot read the task file {str(path)!r}: {reason}") from error
    except UnicodeDecodeError as error:
        raise InvalidInput(f"cannot read the task file {str(path)!r}: it is not UTF-8 text") from error


def _listed(path: Path, text: str) -> Iterator[Row]:
    rows = _json(text, str(path))
    if not isinstance(rows, list):
        raise InvalidInput(f"{path}: must be a JSON list of rows")
    for number, row in enumerate(rows, 1):
        where = f"{path}, row {number}"
        yield _row(row, where)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it is nested or its numbers are too large"
        raise InvalidInput(f"{where}: not JSON: {reason}") from error


def _row(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise InvalidInput(f"{where}: must be a JSON object, not {_shown(value)}")
    return Row(value, where)


def _encodable(text: str) -> bool:
    """Whether it is Unicode text: JSON can write halves of characters, which no tokenizer takes."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _shown(value: Any) -> str:
    return "missing" if value is None else repr(value)[:40]
