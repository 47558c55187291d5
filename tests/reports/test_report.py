"""`packedss report`: what it reads and refuses, what it shows, and that hostile text stays text."""

from __future__ import annotations

import base64
import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from examples.broken_schedule import confident
from proofs_check import check_schedule
from reports.output import shown, write_json
from reports.report import explorer
from reports.report.build import build
from reports.report.gather import gather
from reports.report.markdown import LONGEST, escape
from simulator import Call, Chance, Reply, Schedule, State, Step, packed
from simulator.errors import InvalidInput
from simulator.trace import trace_lines


class Text(HTMLParser):
    """The elements of a page, and the text that is not in a script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_data(self, data: str) -> None:
        if self.inside not in ("script", "style"):
            self.text += data


def test_hostile_text_is_text_everywhere(samples: Any, tmp_path: Path) -> None:
    (tmp_path / "prove.json").write_text(
        samples.result("prove", [samples.ledger_row(statement=samples.HOSTILE, id=samples.HOSTILE)], budget=samples.HOSTILE)
    )
    (tmp_path / "odd.json").write_text(
        samples.result(samples.HOSTILE, [{samples.HOSTILE: samples.HOSTILE, "long": "x" * 1_000_000}])
    )
    samples.write_trace(tmp_path / "run.jsonl", samples.requests(name=samples.HOSTILE))
    page, words = build(tmp_path).html(), build(tmp_path).markdown()
    seen = Text(page)
    scripts = [attributes for tag, attributes in seen.elements if tag == "script"]
    assert len(scripts) == 3  # the data, twice, and our own
    assert not [attributes for _, attributes in seen.elements if any(name.startswith("on") for name in attributes)]
    assert "alert(1)" in seen.text
    assert len(seen.text) < 100_000  # the long token is cut; its JSON is carried along whole
    assert "\x1b" not in page + words
    assert "\u202e" not in page + words
    outside = re.sub(r"(?ms)^(`{3,})$.*?^\1$", "", words)
    assert not re.search(r"(?<!\\)<(script|img)", outside)
    assert not re.search(r"(?<!\\)\[x", outside)
    assert "@you" not in outside


def test_every_figure_of_a_table_leads_to_its_json(samples: Any, tmp_path: Path) -> None:
    (tmp_path / "prove.json").write_text(samples.result("prove", [samples.ledger_row()], budget="quick"))
    links = [a["href"] for tag, a in Text(build(tmp_path).html()).elements if tag == "a" and a.get("class") == "source"]
    assert "#json=prove.json/rows/0/verdict" in links
    assert "#json=prove.json/rows/0/checks/0" in links


def test_nothing_is_asked_of_a_network(samples: Any, tmp_path: Path) -> None:
    samples.write_trace(tmp_path / "run.jsonl", samples.requests())
    page = build(tmp_path).html()
    for tag, attributes in Text(page).elements:
        for name in ("src", "href"):
            assert not re.match(r"(https?:)?//", attributes.get(name) or ""), (tag, attributes)
    assert "default-src 'none'" in page


@pytest.mark.parametrize("faulty", [False, True])
def test_a_faulty_step_is_named_and_comes_first(samples: Any, tmp_path: Path, faulty: bool) -> None:
    samples.write_trace(tmp_path / "a.jsonl", samples.requests())
    samples.write_trace(tmp_path / "b.jsonl", samples.requests(faulty))
    page, words = build(tmp_path).html(), build(tmp_path).markdown()
    traces = json.loads(re.search(r'id="traces">(.*?)</script>', page).group(1))  # type: ignore[union-attr]
    first = traces["requests"][0]
    assert ("fault" in first) == faulty
    assert ("violated" in words) == faulty
    if faulty:
        assert (first["file"], first["schedule"], first["fault"]["call"]) == ("b.jsonl", "packed", 3)


def test_files_that_are_not_ours_are_said_and_skipped(samples: Any, tmp_path: Path) -> None:
    samples.write_trace(tmp_path / "run.jsonl", samples.requests())
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "other.json").write_text("[1]")
    (tmp_path / "deep.json").write_text("[" * 200_000)
    (tmp_path / "old.json").write_text(samples.result("prove", []).replace('"schema": 1', '"schema": 0'))
    (tmp_path / "log.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "cut.jsonl").write_text("\n".join(list(trace_lines(samples.requests()))[:5]))
    found = dict(build(tmp_path).skipped)
    assert set(found) == {"broken.json", "other.json", "deep.json", "old.json", "log.jsonl", "cut.jsonl"}
    assert "schema 0" in found["old.json"]
    assert "ends after line" in found["cut.jsonl"]
    assert "broken.json" in build(tmp_path).html()


@pytest.mark.parametrize("command", ["prove", "faults", "check", "check-trace", "simulate", "sweep", "validate", "audit"])
def test_json_that_does_not_fit_is_said_not_guessed(samples: Any, tmp_path: Path, command: str) -> None:
    (tmp_path / "x.json").write_text(samples.result(command, [{"verdict": "holds", "rows": 3}]))
    assert f"not as packedss {command} writes it" in build(tmp_path).html()


def test_an_empty_or_missing_folder_is_one_clear_error(samples: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"nothing in .* can be shown"):
        gather(tmp_path)
    with pytest.raises(InvalidInput, match="there is no folder"):
        gather(tmp_path / "none")


def test_shown_text_has_no_power_over_a_terminal() -> None:
    assert shown("a\x1b[2Jb\u202ec\x07") == "a\\x1b[2Jb\\u202ec\\x07"
    assert shown("x" * 10, 4) == "xxxx… (6 more characters)"


def test_markdown_of_untrusted_text_is_that_text() -> None:
    assert escape("a|b\n<i>`*") == r"a\|b \<i\>\`\*"


def test_the_markdown_fits_into_a_comment_and_says_what_it_left_out(samples: Any, tmp_path: Path) -> None:
    rows = [samples.ledger_row(id=f"C{number}", statement="\U0001f600" * 100) for number in range(600)]
    (tmp_path / "prove.json").write_text(samples.result("prove", rows, budget="quick"))
    samples.write_trace(tmp_path / "broken.jsonl", samples.requests(faulty=True))
    words = build(tmp_path).markdown()
    assert len(words.encode("utf-16-le")) // 2 <= LONGEST < 65_536
    assert "600 claims" in words
    assert "call 3" in words  # the fault, before what is left out
    assert re.search(r"\n[0-9,]+ parts are left out here for length; the page has them.\n$", words)
    assert words.count("<details>") == words.count("</details>") > 0


def test_a_mention_reaches_nobody() -> None:
    assert escape("@you") == r"\@<!-- -->you"


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ('{"x": NaN}', "not JSON compliant"),
        ('{"x": 1e999}', "not JSON compliant"),
        ('{"\\ud800": 1}', "lone surrogate"),
        ("[" * 300 + "]" * 300, "nested too deeply"),
    ],
)
def test_what_a_browser_cannot_read_is_not_carried_to_it(samples: Any, tmp_path: Path, row: str, why: str) -> None:
    samples.write_trace(tmp_path / "run.jsonl", samples.requests())
    (tmp_path / "odd.json").write_text(samples.result("odd", ["HERE"]).replace('"HERE"', row))
    built = build(tmp_path)
    assert why in dict(built.skipped)["odd.json"]
    assert "Infinity" not in built.html().split("<script>")[0]


def test_numbers_and_verdicts_of_any_kind_end_in_a_page(samples: Any, tmp_path: Path) -> None:
    huge = {"value": 10**400, "low": 10**400, "high": 10**400}
    row = {"width": 4, "schedule": "packed", "tokens_per_nfe": huge, "runs": 1, "nfe": 10**400, "nfe_histogram": {}}
    (tmp_path / "huge.json").write_text(samples.result("simulate", [row]))
    (tmp_path / "odd.json").write_text(samples.result("odd", [{"verdict": ["holds"], "__proto__": "x"}]))
    assert "not as packedss simulate writes it (OverflowError" in build(tmp_path).html()


def test_a_name_that_is_no_text_is_shown(samples: Any, tmp_path: Path) -> None:
    samples.write_trace(tmp_path / os.fsdecode(b"\xff.jsonl"), samples.requests())
    (tmp_path / os.fsdecode(b"\xfe.json")).write_text(samples.result("prove", [samples.ledger_row()], budget="quick"))
    built = build(tmp_path)
    (built.html() + built.markdown()).encode()
    assert "\\udcfe.json" in built.html()


def test_links_pipes_and_folders_named_like_results(samples: Any, tmp_path: Path) -> None:
    samples.write_trace(tmp_path / "run.jsonl", samples.requests())
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.jsonl").symlink_to("nowhere")
    (tmp_path / "folder.json").mkdir()
    assert build(tmp_path).skipped == ()


def test_pictures_are_whole(samples: Any, tmp_path: Path) -> None:
    """An SVG of more characters than a text of a run may show."""
    pytest.importorskip("matplotlib")
    counts = {str(calls): calls for calls in range(1, 60)}
    rate = {"value": 1.5, "low": 1.4, "high": 1.6}
    row = {"width": 4, "runs": 9, "nfe": 9, "nfe_histogram": counts, "tokens_per_nfe": rate}
    rows = [row | {"schedule": schedule} for schedule in ("linear", "packed")]
    (tmp_path / "calls.json").write_text(samples.result("simulate", rows, drafter="x"))
    [source] = [str(a["src"]) for tag, a in Text(build(tmp_path).html()).elements if tag == "img"]
    assert len(source) > 20_000
    assert base64.b64decode(source.split(",")[1], validate=True).rstrip().endswith(b"</svg>")


def test_too_much_for_a_page_is_left_out_and_said(samples: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples.write_trace(tmp_path / "run.jsonl", samples.requests())
    monkeypatch.setattr(explorer, "MOST_REQUESTS", 1)
    assert "1 requests more" in build(tmp_path).html()
    monkeypatch.setattr(explorer, "MOST_NUMBERS", 1)
    assert "2 requests more" in build(tmp_path).html()


def test_a_finding_of_the_battery_is_a_run_of_the_explorer(tmp_path: Path) -> None:
    """A schedule that keeps its draft as if a rejected token had been accepted: greedy output is wrong at a call."""

    class Shifted(Schedule):
        def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
            after, step = super().absorb(state, call, reply, chance)
            wrong = tuple(token + 1 for token in step.committed)
            if len(after.prefix) < 4:
                return after, step
            prefix = after.prefix[: len(after.prefix) - len(wrong)] + wrong
            return after._replace(prefix=prefix), step._replace(committed=wrong)

    found = check_schedule(Shifted("shifted", (), packed(3).cycle), limit=5)
    [greedy] = [finding for finding in found.findings if finding.stage == "greedy"]
    write_json(tmp_path / "check.json", "check", {"schedule": "shifted"}, [found.plain()])
    page, words = build(tmp_path).html(), build(tmp_path).markdown()
    traces = json.loads(re.search(r'id="traces">(.*?)</script>', page).group(1))  # type: ignore[union-attr]
    runs = [request for request in traces["requests"] if request["fault"].get("finding") == greedy.statement]
    assert [run["file"].startswith("check.json, finding ") for run in runs] == [True]
    call = runs[0]["fault"]["call"]
    token = int(re.search(r"at output token (\d+)", greedy.statement).group(1))  # type: ignore[union-attr]
    committed = [step[traces["fields"].index("committed")] for step in runs[0]["steps"]]
    assert sum(map(len, committed[: call - 1])) < token <= sum(map(len, committed[:call]))
    assert f"call {call}" in words
    assert runs[0]["schedule"] == found.subject
    assert "holds" not in words.split("##")[0]  # a counterexample whose steps keep the rules is no trace that holds
    (tmp_path / "odd.json").write_text(
        json.dumps(json.loads((tmp_path / "check.json").read_text()) | {"rows": [{"findings": [{"run": ["x"]}, 3]}]})
    )
    assert "odd.json, finding 1" in dict(build(tmp_path).skipped)


def test_a_law_finding_comes_with_a_run_and_blames_no_call() -> None:
    found = check_schedule(confident, limit=8)
    [finding] = [finding for finding in found.findings if finding.symptom == "law"]
    request = json.loads(finding.run[1])
    assert request["finding"]["call"] is None
    assert "AR: 12/25" in request["finding"]["text"]
    assert json.loads(finding.run[-1])["tokens"] == [0, 0]
