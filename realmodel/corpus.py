"""The embedded model's text: the CPython standard library of the running interpreter.

A file is held out when a hash of its path says so, so the split needs no list and no random state: one file in
`HOLDOUT_ONE_IN`. Training never reads a held-out file; prompts and reported accuracies come only from them.
"""

from __future__ import annotations

import random
import sysconfig
import zlib
from pathlib import Path

HOLDOUT_ONE_IN = 20
MAX_FILE_BYTES = 200_000
_EXCLUDED_PARTS = {
    "site-packages",
    "lib2to3",
    "idlelib",
    "encodings",
    "pydoc_data",
    "ensurepip",
    "__pycache__",
    "turtledemo",
    "test",
    "tests",
    "idle_test",
}


def held_out(relative_path: str) -> bool:
    """Whether the file belongs to the held-out part (decided by CRC-32 of its path alone)."""
    return zlib.crc32(relative_path.encode()) % HOLDOUT_ONE_IN == 0


def stdlib_files(stdlib: str | Path | None = None) -> list[tuple[str, str]]:
    """Sorted (relative path, text) of the library's own modules, ASCII-decodable, at most `MAX_FILE_BYTES` long.

    Tests, generated tables and vendored packages are left out: they would dominate the corpus.
    """
    root = Path(stdlib or sysconfig.get_paths()["stdlib"])
    files = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if _EXCLUDED_PARTS & set(relative.parts) or path.stat().st_size > MAX_FILE_BYTES:
            continue
        try:
            text = path.read_text("ascii")
        except UnicodeDecodeError:
            continue
        if text.strip():
            files.append((relative.as_posix(), text))
    return files


def split(files: list[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(training files, held-out files)."""
    train = [item for item in files if not held_out(item[0])]
    return train, [item for item in files if held_out(item[0])]


def passages(files: list[tuple[str, str]], count: int, characters: int = 320) -> list[dict[str, str]]:
    """`count` passages of `characters` characters, as {"name": "path:line", "text": ...}, at random line starts (fixed seed).

    Files shorter than ten passages are skipped, longer ones are visited in turn.
    """
    rng = random.Random(0)
    long_files = [(path, text) for path, text in files if len(text) >= 10 * characters]
    found = []
    for index in range(count):
        path, text = long_files[index % len(long_files)]
        start = text.index("\n", rng.randrange(len(text) - 8 * characters)) + 1
        found.append({"name": f"{path}:{text.count(chr(10), 0, start) + 1}", "text": text[start : start + characters]})
    return found
