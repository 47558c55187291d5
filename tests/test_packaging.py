"""What is shipped is what was written: the built wheel, the direction of imports, the pinned versions.

The wheel is built from a copy of the sources, so that no stale build/ folder can hide a missing file, and imported in a folder
where only the wheel can be found, so that the checkout cannot stand in for it.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

FLOORS = ("spec", "simulator", "proofs_check", "realmodel", "reports")  # each imports only those before it
LIGHT = ("spec", "simulator", "proofs_check")
HEAVY = {"torch", "transformers"}


# The wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources, built = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("built")
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, sources)
    for name in FLOORS:
        shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__", "*.part"))
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", built, sources)
    (path,) = built.glob("*.whl")
    return path


def _run(*command: object, **settings: object) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **settings)
    assert done.returncode == 0, f"{command} failed\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_wheel_holds_every_module_and_the_embedded_model(wheel: Path) -> None:
    shipped = set(zipfile.ZipFile(wheel).namelist())
    wanted = {f"{name}/py.typed" for name in FLOORS}
    for name in FLOORS:
        wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / name).rglob("*.py")}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "proofs_check" / "rocq").glob("*.v")}
    data = (ROOT / "realmodel" / "embedded").rglob("*")
    wanted |= {path.relative_to(ROOT).as_posix() for path in data if path.is_file() and path.suffix not in (".part", ".pyc")}
    assert wanted <= shipped, f"not in the wheel: {sorted(wanted - shipped)}"
    roots = {name.split("/")[0] for name in shipped}
    assert roots == {*FLOORS, f"packedss-{PROJECT['version']}.dist-info"}, "the wheel installs something else at top level"


PROBE = """
import importlib, json, sys

seen = {}
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    seen[name] = {"file": module.__file__, "heavy": sorted({"torch", "transformers"} & set(sys.modules))}
print(json.dumps(seen))
"""


def test_wheel_imports_in_a_foreign_directory(wheel: Path, tmp_path: Path) -> None:
    target, foreign = tmp_path / "target", tmp_path / "elsewhere"
    foreign.mkdir()
    _run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", target, wheel)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment["PYTHONPATH"] = str(target)
    # From the ground floor up in one process: what a floor loads is charged to it, and the heavy ones come last.
    seen = json.loads(_run(sys.executable, "-c", PROBE, *FLOORS, cwd=foreign, env=environment))
    for name in FLOORS:
        assert Path(seen[name]["file"]).is_relative_to(target), f"{name} was not imported from the wheel"
    for name in LIGHT:
        assert not seen[name]["heavy"], f"import {name} loads {seen[name]['heavy']}"


# The direction of imports


def _imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and top-level name of every absolute import. Relative ones cannot leave their package."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, str(node.module).split(".")[0]


def _upward(floor: str, source: str) -> list[tuple[int, str]]:
    above = FLOORS[FLOORS.index(floor) + 1 :]
    return [(line, name) for line, name in _imports(ast.walk(ast.parse(source))) if name in above]


def _heavy_on_import(source: str) -> list[tuple[int, str]]:
    """Imports of torch and transformers that run when the module does: outside functions and `if TYPE_CHECKING`."""

    def executed(node: ast.AST) -> Iterator[ast.AST]:
        yield node
        children = ast.iter_child_nodes(node)
        if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
            children = iter(node.orelse)
        for child in children:
            if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from executed(child)

    return [(line, name) for line, name in _imports(executed(ast.parse(source))) if name in HEAVY]


@pytest.mark.parametrize("floor", FLOORS)
def test_imports_go_down_only(floor: str) -> None:
    files = sorted((ROOT / floor).rglob("*.py"))
    assert files
    found = [(path.relative_to(ROOT), *hit) for path in files for hit in _upward(floor, path.read_text(encoding="utf-8"))]
    assert not found, f"{floor} imports from a floor above it: {found}"


@pytest.mark.parametrize("floor", LIGHT)
def test_light_floors_do_not_import_torch(floor: str) -> None:
    files = sorted((ROOT / floor).rglob("*.py"))
    assert files
    found = [(path.relative_to(ROOT), *hit) for path in files for hit in _heavy_on_import(path.read_text(encoding="utf-8"))]
    assert not found, f"{floor} loads torch or transformers when imported: {found}"


def test_planted_imports_are_caught() -> None:
    assert _upward("spec", "def late():\n    from simulator.chance import Sampled") == [(2, "simulator")]
    assert _upward("realmodel", "import numpy, reports.cli") == [(1, "reports")]
    assert _upward("realmodel", "import simulator\nfrom . import reports") == []
    assert _heavy_on_import("try:\n    import torch.nn\nexcept ImportError:\n    torch = None") == [(2, "torch")]
    assert _heavy_on_import("class Late:\n    from transformers import Cache") == [(2, "transformers")]
    deferred = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\ndef late():\n    import torch"
    assert _heavy_on_import(deferred) == []


# The pinned versions


def test_constraints_pin_every_dependency_within_its_bounds() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    pattern = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([0-9][0-9A-Za-z.]*)")  # no address, path, or local label such as +cpu
    pins = dict(match.groups() for line in lines if (match := pattern.fullmatch(line)))
    assert len(pins) == len(lines), f"not name==version: {[line for line in lines if not pattern.fullmatch(line)]}"
    wanted = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    for requirement in map(Requirement, wanted):
        if requirement.name != PROJECT["name"]:  # `all` only names the other extras
            pinned = Version(pins[canonicalize_name(requirement.name)])
            assert pinned in requirement.specifier, f"constraints.txt pins {requirement.name} {pinned}, outside {requirement}"
