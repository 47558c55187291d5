"""A folder of finished cells: one JSON file per prompt, named by the hash of everything its figures depend on.

A file is written whole or not at all and carries a digest of its content. So whatever ends a run, the next one with the same
parameters takes up the finished prompts, and a file that was damaged since is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeAlias

from simulator.errors import InvalidInput

Parameters: TypeAlias = dict[str, Any]
"""What a file's records depend on, in types that JSON knows."""


class Damaged(Exception):
    """A result file that does not hold what was written."""


class Results:
    """The folder at `path`, created if need be. Raises InvalidInput when it cannot be written to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInput(f"cannot keep results in {str(path)!r}: {error.strerror}") from error
        if not os.access(path, os.W_OK | os.X_OK):
            raise InvalidInput(f"cannot keep results in {str(path)!r}: not a writable folder")

    def file(self, parameters: Parameters) -> Path:
        """Where the records of `parameters` are, or would be."""
        return self.path / f"{digest(parameters)[:32]}.json"

    def read(self, parameters: Parameters) -> list[Any] | None:
        """The records of `parameters`, None when there are none yet. Raises Damaged, saying what is wrong."""
        try:
            content = json.loads(self.file(parameters).read_text())
            told, records = content["parameters"], list(content["records"])
            sealed, own = content["sha256"] == digest([told, records]), digest(told) == digest(parameters)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise Damaged(f"cannot be read as a result file ({type(error).__name__})") from error
        if not sealed:
            raise Damaged("its content does not match its digest")
        if not own:
            raise Damaged("it holds the results of other parameters than its name says")
        return records

    def write(self, parameters: Parameters, records: list[Any]) -> None:
        """Keep the records: the whole file appears at once. Raises InvalidInput when it cannot be written."""
        content = {"parameters": parameters, "records": records, "sha256": digest([parameters, records])}
        file = self.file(parameters)
        part = self.path / f".{file.stem}.{os.getpid()}.part"
        try:
            part.write_text(json.dumps(content, allow_nan=False))
            os.replace(part, file)
        except OSError as error:
            raise InvalidInput(f"cannot write {str(file)!r}: {error.strerror}") from error
        finally:
            part.unlink(missing_ok=True)


def digest(value: Any) -> str:
    """SHA-256 of a JSON value, whatever the order of its keys; tuples are lists."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()
