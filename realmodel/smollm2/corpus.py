"""Training prompts in the shape of HumanEval's: signature and docstring of Python functions of the installed libraries.

Of each documented function: its signature, the first paragraphs of its docstring and up to three of its doctest examples, as in
HumanEval. Methods lose their `self`. A module is held out as a whole, by a hash of its path; nothing of HumanEval is used, and
functions with a name that occurs there are left out.
"""

from __future__ import annotations

import ast
import inspect
import platform
import random
import re
import sysconfig
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

from realmodel.corpus import held_out

# Beside the standard library: libraries with doctest examples, all under BSD licences.
PACKAGES = ("networkx", "sympy", "scipy", "numpy", "toolz", "mpmath", "dask")
_EXCLUDED_PARTS = {"site-packages", "lib2to3", "idlelib", "test", "tests", "testing", "__pycache__", "turtledemo", "_vendor"}
_CHARACTERS = 900  # of a prompt, at most
_PER_MODULE = 12
_EXAMPLES = 3


def libraries() -> dict[str, str]:
    """The libraries read, with the versions installed."""
    return {"CPython": platform.python_version(), **{package: version(package) for package in PACKAGES}}


class Function(NamedTuple):
    """A prompt: where it comes from and its text, which ends with the closing quotes of the docstring."""

    module: str  # path below the library
    name: str
    text: str


def functions(excluded: frozenset[str] = frozenset()) -> tuple[list[Function], list[Function]]:
    """(training, held out), each shuffled by a fixed seed, doctests first; no function has one of the `excluded` names."""
    paths = sysconfig.get_paths()
    found: dict[str, Function] = {}
    for root in [Path(paths["stdlib"]), *(Path(paths["purelib"]) / package for package in PACKAGES)]:
        for path in sorted(root.rglob("*.py")):
            relative = path.relative_to(root.parent)
            if _EXCLUDED_PARTS & set(path.relative_to(root).parts) or path.name.startswith("test_"):
                continue
            for function in _of_module(relative.as_posix(), path):
                if function.name not in excluded:
                    found.setdefault(function.text, function)
    rng = random.Random(0)
    kept = sorted(found.values())
    rng.shuffle(kept)
    kept.sort(key=lambda function: ">>>" not in function.text)  # stable
    return [f for f in kept if not held_out(f.module)], [f for f in kept if held_out(f.module)]


def _of_module(module: str, path: Path) -> Iterator[Function]:
    try:
        tree = ast.parse(path.read_text("ascii"))
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return
    count = 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("__") or count == _PER_MODULE:
            continue
        documented = ast.get_docstring(node)
        text = documented and _prompt(node, documented)
        if text and len(text) <= _CHARACTERS:
            count += 1
            yield Function(module, node.name, text)


def _prompt(node: ast.FunctionDef, documented: str) -> str | None:
    """The function as HumanEval would pose it; None if too little is said about it."""
    arguments = node.args
    for group in (arguments.posonlyargs, arguments.args):
        if group and group[0].arg in ("self", "cls"):
            del group[0]
            break
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    try:
        signature = f"def {node.name}({ast.unparse(arguments)}){returns}:"
    except IndexError:  # more defaults than arguments are left
        return None
    said = re.split(r"\n\s*\n(?=\S+\n\s*[-=~]{3})|\n\s*\n\s*(?=>>>)|\n\.\. ", documented)[0].strip()
    paragraphs = re.split(r"\n\s*\n", said)[:2]
    if len(said) < 20 or '"""' in said or "\\" in said:
        return None
    examples = re.findall(r"^[ ]*>>> .*(?:\n[ ]*\.\.\. .*)*(?:\n(?![ ]*>>>)[ ]*\S.*)*", documented, re.M)
    calls = [
        re.sub(rf"\b\w+\.(?={node.name}\()", "", inspect.cleandoc(e)) for e in examples if f"{node.name}(" in e and len(e) < 160
    ]
    body = "\n".join(["\n\n".join(paragraphs), *([""] if calls else []), *calls[:_EXAMPLES]])
    lines = [f"    {line}".rstrip() for line in body.splitlines()]
    lines[0] = f'    """ {lines[0].strip()}'
    return "\n".join([signature, *lines, '    """']) + "\n"
