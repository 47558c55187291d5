"""`packedss doctor` says what is there and what is missing, and never fails for it."""

from __future__ import annotations

import json
import platform
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from reports import cli, doctor


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["packedss", "doctor", *options])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert not caught.value.code


def test_it_says_what_is_here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "doctor.json"
    run(monkeypatch, "--json", str(file))
    out = capsys.readouterr().out
    version = ".".join(map(str, sys.version_info[:3]))
    assert f"Python {version}" in out
    assert f"numpy {doctor.package_version('numpy')}" in out
    content = json.loads(file.read_text())
    here = {row["what"]: row["here"] for row in content["rows"]}
    assert here["prove, check, simulate, sweep, check-trace"]
    assert here["report, --plot"] == bool(find_spec("matplotlib") and find_spec("jinja2"))
    assert content["environment"]["python"] == version
    for row in content["rows"]:
        assert row["why"], row
        assert row["what"] in out


def test_without_the_extras_it_says_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    light = ("numpy", "rich")
    monkeypatch.setattr(doctor, "find_spec", lambda name: find_spec(name) if name in light else None)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    run(monkeypatch)
    out = capsys.readouterr().out
    assert "pip install 'packedss[realmodel]'" in out
    assert "pip install 'packedss[report]'" in out
    assert "pip install 'packedss[dask]'" in out
    assert "apt-get install coq" in out
    assert "--device cuda" not in out  # that is asked of torch
    assert "cache:" not in out


def test_nothing_names_the_machine_or_its_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "doctor.json"
    run(monkeypatch, "--quiet", "--json", str(file))
    content = json.loads(file.read_text())
    text = json.dumps({key: content[key] for key in ("environment", "rows")})
    assert str(Path.home()) not in text
    assert platform.node() not in text
