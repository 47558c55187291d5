"""The page in a real browser, from disk: no errors, no requests, the explorer steps and compares, a faulty step is in sight.

Skips itself without playwright and a chromium. Accessibility is checked by axe-core where `npm pack axe-core` was unpacked and
AXE_CORE names its axe.min.js.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reports.report.build import build
from simulator import Limits, generate, linear, packed
from simulator.oracles import ThresholdModel
from simulator.trace import TracedRequest

CHROMIUM = next((path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None)
sync = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


class Opened:
    """A page from disk, with what it complained of and asked for."""

    def __init__(self, browser: Any, folder: Path, width: int = 1280, dark: bool = False, anchor: str = "") -> None:
        file = folder / "report.html"
        file.write_text(build(folder).html())
        scheme = "dark" if dark else "light"
        self.page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append("a dialog"))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri() + anchor)

    def words(self, pane: int) -> str:
        return str(self.page.locator(".pane").nth(pane).locator("p[aria-live]").first.text_content())

    def press(self, key: str) -> None:
        self.page.locator(".pane").first.locator(".scroll").first.press(key)


@pytest.fixture
def folder(samples: Any, tmp_path: Path) -> Path:
    (tmp_path / "prove.json").write_text(
        samples.result("prove", [samples.ledger_row(statement=samples.HOSTILE)], budget="quick")
    )
    samples.write_trace(tmp_path / "run.jsonl", samples.requests())
    return tmp_path


def test_it_loads_from_disk_without_a_word(samples: Any, browser: Any, folder: Path) -> None:
    samples.write_trace(folder / "hostile.jsonl", samples.requests(name=samples.HOSTILE))
    opened = Opened(browser, folder)
    assert opened.complaints == []
    assert [url for url in opened.asked if not url.startswith(("file:", "data:"))] == []
    assert opened.page.locator("h2").count() >= 3


def test_the_explorer_steps_and_follows(samples: Any, browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder)
    assert opened.words(0).startswith("Call 1 of ")
    opened.press("ArrowDown")
    opened.press("ArrowDown")
    assert opened.words(0).startswith("Call 3 of ")
    assert not opened.words(1).startswith("Call 1 of ")  # the other request goes along
    opened.press("End")
    assert "Stops: length." in opened.words(0)
    opened.press("ArrowDown")
    assert "Stops: length." in opened.words(0)
    assert opened.page.locator("tr.now").count() == 2
    opened.page.locator(".pane").first.locator("th.call").nth(2).click()
    assert opened.page.locator(".pane").first.locator("tr.now").count() == 1
    assert opened.complaints == []


def test_the_mask_is_that_of_the_paper(samples: Any, browser: Any, folder: Path) -> None:
    """Packed at W = 3: 2B = 8 rows, T_4 beside J_4: 10 + 16 filled cells."""
    opened = Opened(browser, folder)
    mask = opened.page.locator(".pane").nth(1).locator("table.mask")
    assert mask.locator("tbody tr").count() == 8
    assert mask.locator("td.sees").count() == 26


def test_the_first_difference_is_found(samples: Any, browser: Any, tmp_path: Path) -> None:
    limits, found = Limits.of(8), []
    for schedule, last in ((linear(3), 0), (packed(3), 1)):
        model = ThresholdModel([1, 2, 3, 4, 5, 6], truth=(1, 0, 1, 0, last, 0, 0, 0))
        found.append(TracedRequest("one", schedule.name, (), limits, generate(model, schedule, (), limits), 3, "algorithm"))
    samples.write_trace(tmp_path / "run.jsonl", found)
    opened = Opened(browser, tmp_path)
    opened.press("d")
    assert opened.page.get_by_text("First difference: output position 5, 0 against 1.").count() == 1


@pytest.mark.parametrize("width", [1280, 400])
def test_a_broken_schedule_opens_at_its_faulty_step(samples: Any, browser: Any, tmp_path: Path, width: int) -> None:
    samples.write_trace(tmp_path / "good.jsonl", samples.requests())
    samples.write_trace(tmp_path / "broken.jsonl", samples.requests(faulty=True))
    opened = Opened(browser, tmp_path, width)
    assert opened.words(0).startswith("Call 3 of ")
    note = opened.page.locator(".fault").first
    assert note.is_visible()
    assert "Faulty step: call 3." in str(note.text_content())
    assert "FAULT" in str(opened.page.locator("tr.faulty th").first.text_content())
    # Tables scroll in their own frames: the page itself is never wider than the window.
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_figure_leads_to_its_json(samples: Any, browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder)
    opened.page.locator("a.source", has_text="holds").first.click()
    assert opened.page.locator("#source").is_visible()
    assert opened.page.locator("#source-value").text_content() == '"holds"'
    opened.page.keyboard.press("Escape")
    assert not opened.page.locator("#source").is_visible()


def test_a_long_trace_keeps_little_in_the_document(samples: Any, browser: Any, tmp_path: Path) -> None:
    """10,000 calls: what is drawn does not depend on the length, which is what keeps a step quick."""
    limits = Limits.of(10_000)
    model = ThresholdModel(range(1, 10_001), truth=[0] * 10_000)
    found = [TracedRequest("long", "packed", (), limits, generate(model, packed(4), (), limits), 4, "algorithm")]
    samples.write_trace(tmp_path / "run.jsonl", found)
    opened = Opened(browser, tmp_path)
    assert opened.words(0).startswith("Call 1 of 10000.")
    opened.press("End")
    opened.press("ArrowUp")
    assert opened.words(0).startswith("Call 9999 of 10000.")
    assert opened.page.locator("*").count() < 3000


@pytest.mark.parametrize("dark", [False, True])
def test_accessibility(samples: Any, browser: Any, folder: Path, dark: bool) -> None:
    axe = os.environ.get("AXE_CORE")
    if not axe:
        pytest.skip("AXE_CORE names no axe.min.js")
    opened = Opened(browser, folder, dark=dark)
    opened.page.evaluate(Path(axe).read_text())
    found = opened.page.evaluate("axe.run()")["violations"]
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
