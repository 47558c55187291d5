"""Every command alike: --json and --quiet, documented JSON, exit codes, colours, completion."""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reports import cli, output
from reports.options import Json, Quiet

ROOT = Path(__file__).parents[2]
COMMANDS = {each.name or each.callback.__name__: each.callback for each in cli.app.registered_commands if each.callback}
Run = Callable[[str], tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """run("check packed") -> (exit code, standard output, standard error), in a folder with the files of FILES"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("NO_COLOR", "")  # undone after the test, whatever a command sets
    for name, text in FILES.items():
        Path(name).write_text(text)

    def run(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["packedss", *line.split()])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        code, captured = caught.value.code or 0, capsys.readouterr()
        assert isinstance(code, int)
        return code, captured.out, captured.err

    return run


_TRACE = """\
{"trace": "packedss", "version": 1}
{"type": "request", "request": 0, "schedule": "packed", "width": 2, "limits": {"max_new_tokens": 2}}
{"type": "step", "request": 0, "call": 1, "committed": [4], "verified": []}
{"type": "step", "request": 0, "call": 2, "committed": [5], "verified": [5], "accepted": 1}
{"type": "end", "request": 0, "tokens": [4, 5], "stop": "length", "nfe": 2}
"""
FILES = {
    "right.jsonl": _TRACE,
    "wrong.jsonl": _TRACE.replace('"nfe": 2', '"nfe": 1'),
    "empty.jsonl": _TRACE.splitlines()[0],
    "same.jsonl": '{"prompt": [0], "output": [1, 1], "temperature": 0, "max_new_tokens": 2}\n',
    "other.jsonl": '{"prompt": [0], "output": [0, 1], "temperature": 0, "max_new_tokens": 2}\n',
    "things_to_check.py": """
from simulator import Draft, Point, Schedule, packed
from simulator.oracles import TabularModel

class Forgetful(Schedule):
    def absorb(self, state, call, reply, chance):
        after, step = super().absorb(state, call, reply, chance)
        return after._replace(draft=Draft()), step._replace(retained=0)

forgetful = Forgetful("forgetful", (), packed(2).cycle)
ones = TabularModel(lambda context: Point(1), lambda context, offset: Point(1))

def rule(p, q, draft, coins):
    for i, token in enumerate(draft):
        if not coins.random() * q[i][token] < p[i][token]:
            left = [max(a - b, 0) for a, b in zip(p[i], q[i])]
            return [*draft[:i], coins.choose(left if any(left) else p[i])]
    return [*draft, coins.choose(p[-1])]

def gullible(p, q, draft, coins):
    return [*draft, coins.choose(p[-1])]
""",
}
LINES = {  # the exit code of each: 0 holds, 1 does not, 2 could not run or was not reached
    "prove --check chain/packed/algorithm --workers 1": 0,
    "prove --check nonsense": 2,
    "simulate --tokens 8 --runs 2 --width 2": 0,
    "simulate --runs 0": 2,
    "sweep --folder cells --drafter barrier:rate=0.2 --tokens 8 --runs 2 --width 2 --workers 1": 0,
    "sweep --folder cells --drafter nonsense": 2,
    "map --plot map.svg --steps 2 --width 2": 0,
    "map --plot sets.svg --steps 2 --width 2 --branches": 0,
    "map --plot map.gif": 2,
    "check ar": 0,
    "check things_to_check:forgetful --declares packed --width 2": 1,
    "check nonsense": 2,
    "check-acceptance things_to_check:rule": 0,
    "check-acceptance things_to_check:gullible": 1,
    "check-acceptance nonsense": 2,
    "check-trace right.jsonl": 0,
    "check-trace wrong.jsonl": 1,
    "check-trace empty.jsonl": 2,
    "check-outputs same.jsonl --reference things_to_check:ones": 0,
    "check-outputs other.jsonl --reference things_to_check:ones": 1,
    "check-outputs missing.jsonl --reference things_to_check:ones": 2,
    "faults --row F22 --workers 1": 0,
    "faults --row nonsense": 2,
    "report --from .": 0,
    "report --from missing": 2,
    "doctor": 0,
    "validate --prompts 1 --max-new-tokens 6 --width 2 --schedule packed": 0,
    "validate --dtype int8": 2,
    "audit --prompts 1 --max-new-tokens 8 --width 2": 0,
    "audit --maps -1": 2,
    "paper": 2,  # it must be told the tasks
    "subjects plain/greedy --tokens 100": 0,
    "subjects rule:_speculative_sampling --tokens 100": 1,
    "validate --model embedded-any-order --prompts 1 --max-new-tokens 6 --width 2 --schedule packed --order ltr": 0,
    "subjects q:AssistantVocabTranslatorCache": 2,
}
SLOW = ("faults --row F", "subjects rule", "validate --model embedded-any-order")
NEEDS = {
    "map": "matplotlib",
    "report": "jinja2",
    "validate": "torch",
    "audit": "torch",
    "paper": "torch",
    "subjects": "torch",
    "doctor": "rich",
}


@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=[pytest.mark.slow] if line.startswith(SLOW) else []) for line in LINES]
)
def test_exit_codes_and_json(run: Run, line: str) -> None:
    command = line.split()[0]
    pytest.importorskip(NEEDS.get(command, "typer"))
    code, out, err = run(f"{line} --quiet --json result.json")
    assert code == LINES[line], out + err
    assert out == ""
    if err:
        assert code == 2
        assert not Path("result.json").exists()
        return
    content = json.loads(Path("result.json").read_text())
    assert list(content) == ["packedss", "schema", "command", "arguments", "environment", "replay", "rows"]
    assert (content["schema"], content["command"]) == (output.SCHEMA, command)
    assert content["replay"] == f"packedss {line} --quiet --json result.json"
    documented = set(re.findall(r"`(\w+)`", _documented(command)))
    for row in content["rows"]:
        assert row.keys() <= documented, f"docs/json.md does not say what these are: {row.keys() - documented}"


def _documented(command: str) -> str:
    sections = re.split(r"^### ", (ROOT / "docs" / "json.md").read_text(), flags=re.MULTILINE)
    return next(text for text in sections if command in re.split(r",? and |, ", text.splitlines()[0]))


def test_every_command_is_in_the_table_and_has_json_and_quiet() -> None:
    assert {line.split()[0] for line in LINES} == COMMANDS.keys()
    for name, callback in COMMANDS.items():
        options = {each.annotation for each in inspect.signature(callback, eval_str=True).parameters.values()}
        assert {Json, Quiet} <= options, name


def test_the_documented_trace_is_one(run: Run) -> None:
    lines = re.search(r"```json\n(.*?)```", (ROOT / "docs" / "json.md").read_text(), flags=re.DOTALL)
    assert lines
    Path("shown.jsonl").write_text(lines.group(1))
    code, out, _ = run("check-trace shown.jsonl")
    assert code == 0, out


def test_exit_codes_are_in_the_help(run: Run) -> None:
    assert "Exit codes: 0 it holds, 1 " in " ".join(run("--help")[1].split())


@pytest.mark.parametrize(("option", "variable", "coloured"), [("", "", True), ("--no-color ", "", False), ("", "1", False)])
def test_colours_go_off(run: Run, monkeypatch: pytest.MonkeyPatch, option: str, variable: str, coloured: bool) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", variable)
    code, out, _ = run(f"{option}doctor")
    assert code == 0
    assert ("\x1b[32m" in out) == coloured


def test_off_a_terminal_there_are_no_colours(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert "\x1b" not in run("doctor")[1]


def test_shells_complete_commands() -> None:
    """As a shell asks: the script, and the words that it is then given."""
    script = "import sys; from reports import cli; sys.argv[0] = 'packedss'; cli.main()"

    def ask(*arguments: str, **variables: str) -> str:
        command = [sys.executable, "-c", script, *arguments]
        # A test may run where no shell is: bash is named, not looked for.
        env = os.environ | {"PYTHONPATH": str(ROOT), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"} | variables
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout

    shown = ask("--show-completion", "bash")
    assert "complete -o default -F _packedss_completion packedss" in shown
    words = ask(_PACKEDSS_COMPLETE="complete_bash", COMP_WORDS="packedss check", COMP_CWORD="1")
    assert set(words.split()) == {name for name in COMMANDS if name.startswith("check")}
