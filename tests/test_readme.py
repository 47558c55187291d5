"""The README's code blocks do what the README says."""

import contextlib
import io
import re
import shlex
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)


def _run(code):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    return printed.getvalue()


def test_python_example_prints_what_the_readme_shows():
    first = next(code for language, code in BLOCKS if language == "python")
    shown = README.split("prints\n\n```text\n")[1].split("```")[0]
    assert _run(first) == shown


def test_real_model_example():
    pytest.importorskip("torch")
    code = [code for language, code in BLOCKS if language == "python"][1]
    text, nfe = _run(code).rsplit(" ", 1)
    assert text.strip()
    assert 0 < int(nfe) <= 32


def test_commands_exist(monkeypatch, capsys):
    """Every `make` target is in the Makefile; the packedss lines are those of `make verify`, and their options are known."""
    from reports import cli

    makefile = (ROOT / "Makefile").read_text()
    lines = [line.split("#")[0].strip() for language, code in BLOCKS if language == "sh" for line in code.splitlines()]
    assert lines
    for line in lines:
        program, *arguments = shlex.split(line)
        if program == "make":
            assert re.search(rf"^{arguments[0]}:", makefile, flags=re.MULTILINE), line
            continue
        assert program == "packedss"
        assert f"$(BIN)/{line}\n" in makefile
        monkeypatch.setattr(sys, "argv", [program, *arguments, "--help"])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        assert not caught.value.code, line
        capsys.readouterr()


def test_links_and_folders_exist():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
    for folder in re.findall(r"^\| `(\w+)/` \|", README, flags=re.MULTILINE):
        assert (ROOT / folder).is_dir(), folder
