"""What a result was made on: versions, machine, source revision. Nothing that names the machine or its user."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "numba", "gmpy2", "z3-solver", "hypothesis", "networkx", "torch", "transformers", "tokenizers")


def package_version(name: str) -> str | None:
    """The installed version, None without the package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def environment() -> dict[str, Any]:
    """Python, system, cores, the versions of what computes, and the git revision of a checkout. Imports none of it."""
    found = {name: package_version(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "packages": {name: number for name, number in found.items() if number},
        "revision": revision(),
    }


@cache
def revision() -> str | None:
    """The git revision this code was run from, with `+` when files differ from it; None outside a checkout."""
    root = Path(__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        head, changed = (
            subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for words in (["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return head + ("+" if changed else "")
