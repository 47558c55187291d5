"""`packedss paper` from the command line: refusals in one line, the plan, tables of folders, and its section of a report."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

from realmodel.paper import study
from realmodel.paper.study import Cell, Method, Study
from reports import cli
from reports.report.build import build

DATA = Path(__file__).parents[1] / "realmodel" / "tasks_data"
GSM8K = f"gsm8k={DATA / 'gsm8k.jsonl'}"


@pytest.fixture
def run(monkeypatch, capsys):
    """run('paper ...') -> (exit code, standard output, standard error)"""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["packedss", "paper", *map(str, words)])
        monkeypatch.setenv("COLUMNS", "300")
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


def finished(folder, model="a model", verdict="EXACT", contended=False):
    """A folder with a study in it."""
    folder.mkdir(parents=True, exist_ok=True)
    methods = (Method("linear", "", 3, "EXACT", 4, 4), Method("packed", "", 3, verdict, 8, 4))
    runs = np.ones((2, 2, 1, len(study.COLUMNS)))
    cell = Cell("gsm8k", "task", 0.0, 8, "wide", 1319, True, ("p0", "p1"), methods, runs)
    study.write(Study(model, "float32", "cpu", "a CPU", contended, False, 0, {"torch": "2"}, (cell,)), folder)
    return folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name the tasks"),
        (["--tasks", "chess"], "unknown task 'chess'"),
        (["--tasks", "mbpp", "--blocks", "4"], "the task 'mbpp' needs a file"),
        (["--tasks", "mbpp=nowhere.jsonl", "--blocks", "4"], "cannot read the task file 'nowhere.jsonl'"),
        (["--tasks", "humaneval"], "the block-size probe runs on the first 10 problems of gsm8k"),
        (["--tasks", GSM8K, "--model", "nowhere"], "unknown model 'nowhere'"),
        (["--tasks", GSM8K, "--blocks", "linear"], "block sizes are given as"),
        (["--tasks", GSM8K, "--temperature", "0.5"], "temperatures are 0 and 1"),
        (["--tasks", GSM8K, "--engine", "slurm"], "unknown engine 'slurm'"),
        (["--tasks", GSM8K, "--workers", "0"], "workers must lie in 1"),
        (["--tasks", GSM8K, "--certify", "0"], "--certify must be >= 1"),
        (["--tasks", GSM8K, "--reference-dtype", "bfloat16"], "must be float64 or float32"),
        (["--tables-only", "nowhere"], "has no study.json"),
    ],
)
def test_what_cannot_be_run_is_one_line(run, words, said, tmp_path):
    code, out, error = run(*words, "--folder", tmp_path / "out")
    assert (code, out) == (2, "")
    assert said in error
    assert len(error.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()  # nothing was begun


def test_a_malformed_row_names_its_line(run, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"question": "q", "answer": "#### 4"}\n{"question": "q", "answer": "four"}\n')
    code, _, error = run("--tasks", f"gsm8k={tmp_path / 'bad.jsonl'}", "--blocks", "4", "--folder", tmp_path / "out")
    assert code == 2
    assert "bad.jsonl, line 2: 'answer' must end in" in error


def test_a_dry_run_prints_the_plan_and_stops(run, tmp_path):
    words = ("--tasks", GSM8K, "--probe", "4", "--limit", "2", "--cap", "8", "--dry-run", "--folder", tmp_path / "out")
    code, out, _ = run(*words)
    assert code == 0
    assert "the probe on gsm8k: 2 prompts x 1 draws x 3 schedules, cap 8; at most" in out
    assert "gsm8k at temperature 1: 2 prompts x 1 draws x 3 schedules" in out
    assert "memory about" in out
    assert not (tmp_path / "out").exists()


def test_tables_of_one_folder_and_of_several(run, tmp_path):
    one, other = finished(tmp_path / "3b", "three"), finished(tmp_path / "8b", "eight", contended=True)
    code, out, _ = run("--tables-only", one)
    assert code == 0
    assert "Table" in (one / "tables.md").read_text()
    assert "T6: Absolute measurements at temperature 0" in out
    code, out, _ = run(
        "--tables-only", one, "--tables-only", other, "--folder", tmp_path / "both", "--json", tmp_path / "x.json"
    )
    assert code == 0
    text = (tmp_path / "both" / "tables.md").read_text()
    assert "three" in text
    assert "eight" in text
    assert "contended" in text
    assert "times are not shown" in out


@pytest.mark.parametrize(("verdict", "code"), [("EXACT", 0), ("TIES", 0), ("FAULT", 1), ("NOT RUN", 2)])
def test_the_exit_code_is_that_of_the_certificates(run, tmp_path, verdict, code):
    assert run("--tables-only", finished(tmp_path / "f", verdict=verdict), "--quiet")[0] == code


def test_the_section_of_a_report(run, tmp_path, samples):
    results = tmp_path / "results"
    results.mkdir()
    run("--tables-only", finished(tmp_path / "f", samples.HOSTILE), "--json", results / "paper.json", "--quiet")
    built = build(results)
    page, text = built.html(), built.markdown()
    assert "Table 6: Absolute measurements at temperature 0" in page
    assert "1 cells, certificates: 2 EXACT" in page.replace("&#39;", "'")
    assert "<script>alert(1)" not in page
    assert "Table 12" in text
    damaged = json.loads((results / "paper.json").read_text())
    damaged["rows"][0]["tables"][0].pop("columns")
    (results / "paper.json").write_text(json.dumps(damaged))
    assert "is not as packedss paper writes it" in build(results).html()


@pytest.mark.slow
def test_the_whole_command(run, tmp_path):
    """Five tasks, the probe, both temperatures, the certificates whole: every table and figure of a left-to-right model."""
    tasks = [GSM8K, *(f"{name}={DATA / file}" for name, file in (
        ("humaneval", "humaneval.jsonl"), ("mbpp", "mbpp.jsonl"), ("math-500", "math500.jsonl"),
        ("writingbench", "writingbench.jsonl")))]  # fmt: skip
    words = ("--tasks", ",".join(tasks), "--probe", "4", "--limit", "2", "--cap", "8", "--draws", "2",
             "--certify", "2", "--sampled", "60", "--folder", tmp_path / "out")  # fmt: skip
    code, out, error = run(*words)
    assert code == 0, error
    written = {file.name for file in (tmp_path / "out" / "tables").iterdir()}
    assert {f"T{number}.tex" for number in (3, 4, 5, 6, 7, 11, 12, 13)} <= written
    assert "figure5.svg" in out
