"""`packedss report`: what it reads and refuses, what it shows, and that hostile text stays text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from reports.output import shown
from reports.report.build import build
from reports.report.gather import gather
from reports.report.markdown import escape
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
    assert not re.search(r"(?<!\\)@you", outside)


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
