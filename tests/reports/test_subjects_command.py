"""`packedss subjects` and the table it writes."""

import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from realmodel.subjects import REAL, SUBJECTS, Examined
from reports import cli
from reports.subjects_command import WRITTEN_UP, table

PUBLISHED = Path(__file__).parents[2] / "reports" / "published"


@pytest.fixture
def run(monkeypatch, capsys):
    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["packedss", "subjects", *arguments])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return caught.value.code or 0, captured.out, captured.err

    return run


def test_without_a_name_it_lists_them(run):
    code, out, _ = run()
    assert code == 0
    assert out.split() == list(SUBJECTS)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("beam/sample",), "no subject matches 'beam/sample'"),
        (("universal/sample", "--model", "embedded"), "on embedded none of the subjects asked for can be examined"),
        (("plain/greedy", "--model", "nowhere"), "unknown model 'nowhere'"),
        (("plain/greedy", "--tokens", "0"), "--tokens and --prompts >= 1"),
        (("plain/greedy", "--seed", "-1"), "--seed must be >= 0"),
    ],
)
def test_bad_input_is_one_clear_line(run, arguments, said):
    code, _, err = run(*arguments)
    assert code == 2
    assert said in err
    assert err.count("\n") == 1


def test_a_finding_a_result_that_did_not_run_and_the_files(run, tmp_path):
    json_file, markdown = tmp_path / "s.json", tmp_path / "s.md"
    found, did_not_run = "universal-subset/sample", "q:PromptLookupCandidateGenerator"
    code, out, _ = run(found, did_not_run, "--json", str(json_file), "--markdown", str(markdown))
    assert code == 1
    assert "AttributeError" in out
    rows = json.loads(json_file.read_text())["rows"]
    assert [(row["subject"], row["verdict"]) for row in rows] == [(found, "NOT EXACT"), (did_not_run, "NOT RUN")]
    text = markdown.read_text()
    assert f"| `{found}` | tiny | NOT EXACT |" in text
    assert "(universal-decoding-law.md)" in text
    code, _, _ = run("universal-subset/sample", "--with", str(json_file), "--json", str(json_file))
    assert [row["subject"] for row in json.loads(json_file.read_text())["rows"]] == [found, did_not_run, found]
    code, _, _ = run("--with", str(json_file), "--markdown", str(markdown))
    assert code == 1
    assert markdown.read_text().count(f"| `{found}` | tiny") == 2
    assert run(did_not_run, "--quiet") == (2, "", "")


def test_an_earlier_result_must_be_one(run, tmp_path):
    file = tmp_path / "s.json"
    assert "cannot read" in run("plain/greedy", "--with", str(file))[2]
    file.write_text('{"rows": []}')
    assert "is no result of" in run("plain/greedy", "--with", str(file))[2]
    file.write_text('{"environment": {"packages": {"transformers": "4.0", "torch": "2"}}, "rows": []}')
    assert "made with other versions" in run("plain/greedy", "--with", str(file))[2]


def test_every_report_named_is_there():
    assert {PUBLISHED / file for file in WRITTEN_UP.values()} <= set(PUBLISHED.glob("*.md"))


def test_published_table_is_that_of_the_published_json():
    """And it has every subject, on tiny models at least."""
    content = json.loads((PUBLISHED / "subjects.json").read_text())
    published = (PUBLISHED / "subjects.md").read_text().splitlines()
    rows = [Examined(**{key: tuple(v) if isinstance(v, list) else v for key, v in row.items()}) for row in content["rows"]]
    lines = ("|", "- ", "    packedss")
    assert [x for x in table(rows) if x.startswith(lines)] == [x for x in published if x.startswith(lines)]
    assert {row.subject for row in rows if row.model == "tiny"} == set(SUBJECTS)
    assert {row.subject for row in rows if row.model == "embedded"} == set(REAL)
    for row in rows:
        assert row.blind or row.missing or row.findings, row.subject
        assert row.tokens or row.gap is not None or not row.alpha or row.verdict == "NOT EXACT", row.subject
