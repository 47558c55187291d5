"""The pages under docs/: what they show runs and prints that, their pictures are what their program draws, and they build.

A page is one story: its blocks run in order, in one folder. Python blocks print exactly the text block that follows them; one
that begins with `# name.py` is that file, and one that begins with `# continued` knows the names of the block before. Shell
lines run, and print at least the lines of the text block that follows, where `...` stands for anything. A comment says what
differs: `exits with 1`, `minutes`, `a minute` (run by the slow test alone), `needs ...` (its options are known, no more).
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(page.name for page in DOCS.glob("*.md"))
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```(?:\n+```text\n(.*?)^```)?", flags=re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    language: str
    code: str
    shown: str


def blocks(page: str) -> list[Block]:
    return [Block(*found) for found in _FENCE.findall((DOCS / page).read_text())]


def slow_lines(page: str) -> bool:
    return any("minute" in block.code for block in blocks(page) if block.language == "sh")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_shows(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_along(page, tmp_path, monkeypatch, slow=False)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if slow_lines(page)])
def test_a_page_does_what_takes_minutes(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_along(page, tmp_path, monkeypatch, slow=True)


def read_along(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setenv("COLUMNS", "160")
    before, names = set(sys.modules), dict[str, Any]()
    try:
        for number, block in enumerate(blocks(page), start=1):
            where = f"{page}, block {number}"
            if block.language == "python":
                if "realmodel" in block.code or "import torch" in block.code:
                    pytest.importorskip("torch")
                names = names if block.code.startswith("# continued") else {"__name__": "docs"}
                assert run_python(block.code, folder, where, names) == block.shown, where
            elif block.language == "sh":
                run_shell(block, monkeypatch, where, slow)
            elif block.language == "json":
                for line in block.code.splitlines():
                    json.loads(line)
            else:
                assert block.language == "text", f"{where}: blocks are python, sh, json or text, not {block.language!r}"
    finally:
        for name in set(sys.modules) - before:  # another page may have a module of that name
            if getattr(sys.modules[name], "__file__", None) and str(folder) in str(sys.modules[name].__file__):
                del sys.modules[name]


def run_python(code: str, folder: Path, where: str, names: dict[str, Any]) -> str:
    if saved := re.match(r"# (\w+\.py)\b", code):
        (folder / saved.group(1)).write_text(code)
        return ""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, where, "exec"), names)
    return printed.getvalue()


def run_shell(block: Block, monkeypatch: pytest.MonkeyPatch, where: str, slow: bool) -> None:
    printed, ran = "", True
    for line in block.code.replace("\\\n", "").splitlines():
        command, _, comment = line.partition(" #")
        if not command.strip() or command.startswith("#"):
            continue
        program, *arguments = shlex.split(command)
        if program == "mkdir":
            Path(arguments[-1]).mkdir(parents=True, exist_ok=True)
        elif program == "make":
            assert re.search(rf"^{arguments[0]}:", (ROOT / "Makefile").read_text(), flags=re.MULTILINE), line
        elif program == "packedss":
            only_known = "needs " in comment or ("minute" in comment and not slow)
            ran &= not only_known
            if only_known:
                arguments.append("--help")
            code, output = packedss(arguments, monkeypatch)
            expected = 1 if "exits with 1" in comment and not only_known else 0
            assert code == expected, f"{where}: {line}: exit code {code}\n{output}"
            printed += output
        elif program == "pytest":
            ran &= slow
            printed += pytest_run(arguments) if slow else ""
        else:
            assert program in ("pip", "python", "apt-get") or (ROOT / program).is_file(), f"{where}: {line}"
    if ran:
        for shown in filter(None, map(str.strip, block.shown.splitlines())):
            pattern = re.escape(shown).replace(re.escape("..."), ".*")
            found = re.search(pattern, printed)
            assert found, f"{where}: {shown!r} is not printed by\n{block.code}which printed\n{printed}"
            printed = printed[found.end() :]


def pytest_run(arguments: list[str]) -> str:
    """pytest as where packedss is installed, in the page's folder."""
    command = [sys.executable, "-m", "pytest", "-p", "reports.pytest_plugin", "-p", "no:cacheprovider", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def packedss(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Any, str]:
    from reports import cli

    monkeypatch.setattr(sys, "argv", ["packedss", *arguments])
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), pytest.raises(SystemExit) as caught:
        cli.main()
    return caught.value.code or 0, printed.getvalue()


def test_what_differs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader above fails where a page lies."""
    lies = (
        Block("sh", "packedss simulate -n 8 --runs 2 --nonsense\n", ""),
        Block("sh", "packedss simulate -n 8 --runs 2  # exits with 1\n", ""),
        Block("sh", "packedss simulate -n 8 --runs 2\n", "no such line\n"),
        Block("sh", "curl x\n", ""),
    )
    for lie in lies:
        with pytest.raises(AssertionError):
            run_shell(lie, monkeypatch, "a lie", slow=False)
    assert run_python("print(1)\n", tmp_path, "a page", {}) == "1\n"


def test_blocks_of_the_api_page_are_short() -> None:
    for block in blocks("api.md"):
        assert len([line for line in block.code.splitlines() if line]) < 20


def test_pictures_have_words_and_are_used() -> None:
    images = [found for page in PAGES for found in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", (DOCS / page).read_text())]
    assert all(len(words) > 20 for words, _ in images), images
    assert {target for _, target in images} == {f"pictures/{file.name}" for file in (DOCS / "pictures").glob("*.svg")}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(file.stem, marks=[pytest.mark.slow] if file.stem == "prices" else [])
        for file in sorted((DOCS / "pictures").glob("*.svg"))
    ],
)
def test_pictures_are_what_their_program_draws(name: str) -> None:
    pytest.importorskip("torch")
    assert _module("pictures").PICTURES[name]().svg() == (DOCS / "pictures" / f"{name}.svg").read_text()


def test_the_pages_build_without_a_warning_and_load_nothing_from_elsewhere(tmp_path: Path) -> None:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: pip install 'packedss[dev]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    for page in PAGES:
        text = (tmp_path / page).with_suffix(".html").read_text()
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]*", text)
        assert not loaded, f"{page}: {loaded}"


def test_a_link_to_nowhere_in_the_repository_is_an_error() -> None:
    exceptions = pytest.importorskip("mkdocs.exceptions")
    hook = _module("hooks").on_page_markdown
    config = type("Config", (), {"config_file_path": str(ROOT / "mkdocs.yml")})
    assert hook("[rules](../spec/SPEC.md)", config=config) == "rules (`spec/SPEC.md`)"
    with pytest.raises(exceptions.PluginError, match="leads nowhere"):
        hook("[rules](../spec/NO.md)", config=config)


def _module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"docs_{name}", DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
