"""The page in a real browser, from disk: no errors, no requests, the explorer steps and compares, a faulty step is in sight.

Skips itself without playwright and a chromium. Accessibility is checked by axe-core where `npm pack axe-core` was unpacked and
AXE_CORE names its axe.min.js.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from proofs_check.any_order_battery import check_any_order
from reports.output import write_json
from reports.report.build import build
from simulator import Limits, any_order, generate, linear, packed
from simulator.any_order.schedules import order_of
from simulator.oracles import ThresholdModel
from simulator.oracles import any_order as any_order_oracles
from simulator.schedules import named
from simulator.trace import HEADER, TracedRequest
from spec import layouts

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


def test_a_finding_of_the_battery_opens_at_its_call(browser: Any, tmp_path: Path) -> None:
    found = check_any_order(any_order.named("native", 3, order_of("ltr")), limit=5, name="mine")
    write_json(tmp_path / "check.json", "check", {"schedule": "mine"}, [found.plain()])
    opened = Opened(browser, tmp_path)
    [greedy] = [finding for finding in found.findings if finding.stage == "greedy"]
    assert opened.page.locator(".fault").first.text_content() == f"Faulty step: call 1. {greedy.statement}"
    assert "FAULT" in str(opened.page.locator("tr.faulty.now th").first.text_content())
    assert "mine · check.json, finding" in str(opened.page.locator("option:checked").first.text_content())
    assert opened.complaints == []


def test_lies_about_sizes_do_not_hang_the_page(browser: Any, tmp_path: Path) -> None:
    """What a file says of widths, branches, counts and positions is drawn as far as a page can, or not at all."""
    large = (1 << 53) - 1
    heads: list[dict[str, Any]] = [{"schedule": name, "width": 60} for name in ("quadratic", "branches", "branches:x,999999")]
    heads += [{"schedule": name, "width": large} for name in ("mine", "ar ", "__proto__")]
    steps: list[dict[str, Any]] = [
        {"committed": [1], "branch": 0, "discarded": large, "retained": large},
        {"committed": [1], "end": large},
        {"committed": [1] * 150_000, "verified": [1] * 150_000, "accepted": 0},
    ]
    lines: list[dict[str, Any]] = [HEADER]
    for number, (head, step) in enumerate(product(heads, steps)):
        lines.append({"type": "request", "request": number, "limits": {"max_new_tokens": 9}} | head)
        lines += [{"type": "step", "request": number, "call": 1} | step, {"type": "end", "request": number}]
    (tmp_path / "run.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    opened = Opened(browser, tmp_path)
    chosen = opened.page.locator(".pane").first.locator("select")
    for index in range(chosen.locator("option").count()):
        chosen.select_option(str(index))
        opened.press("d")
        assert opened.words(0).startswith("Call 1 of 1.")
    assert opened.complaints == []


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


def _drawn(opened: Opened) -> Iterator[tuple[dict[str, Any], int, dict[str, Any], list[str], list[list[bool]]]]:
    """Every call of every request: its request, index, step, and the labels and cells of the mask that is drawn."""
    read = """pane => [...pane.querySelectorAll('table.mask tbody tr')].map(
        row => [row.querySelector('th').textContent, [...row.querySelectorAll('td')].map(cell => cell.className === 'sees')])"""
    data = opened.page.evaluate("JSON.parse(document.getElementById('traces').textContent)")
    pane = opened.page.locator(".pane").first
    for number, request in enumerate(data["requests"]):
        pane.locator("select").select_option(str(number))
        opened.press("Home")
        for index, values in enumerate(request["steps"]):
            rows = pane.evaluate(read)
            yield (
                request,
                index,
                dict(zip(data["fields"], values, strict=True)),
                [label for label, _ in rows],
                [cells for _, cells in rows],
            )
            opened.press("ArrowDown")


def _mask(rows: list[layouts.Row]) -> list[list[bool]]:
    return [[layouts.sees(x, y) for y in rows] for x in rows]


@pytest.mark.parametrize("start", ["algorithm", "wide", "sampled", "prompt"])
def test_every_mask_is_the_layout_of_the_specification(samples: Any, browser: Any, tmp_path: Path, start: str) -> None:
    limits, width, prompt = Limits.of(10), 3, (7, 7)
    model = ThresholdModel([1, 2, 1, 4, 2, 3, 6, 5, 8, 9], truth=(1, 0, 1, 1, 0, 1, 0, 1, 1, 0), prompt_length=len(prompt))
    found = []
    for name in (*(["ar"] if start == "algorithm" else []), "linear", "packed", "quadratic", "branches:0,2"):
        schedule = named(name, width, start)
        run = generate(model, schedule, prompt, limits)
        found.append(TracedRequest("one", name, prompt, limits, run, width, start))
    samples.write_trace(tmp_path / "run.jsonl", found)
    compared = 0
    for request, index, step, _, drawn in _drawn(Opened(browser, tmp_path)):
        [traced] = [each for each in found if each.schedule == request["schedule"]]
        prefix = (*prompt, *(token for each in traced.generation.steps[:index] for token in each.committed))
        name, draft, verify = request["schedule"], step["verified"] or [], bool(step["committed"])
        said = f"{name}, {start}, call {index + 1}"
        if not verify and step["branch"] is None:
            rows = []  # it only reads the prompt
        elif name == "ar" or (index == 0 and (start == "sampled" or (start, name) == ("wide", "linear"))):
            rows = layouts.nemotron(prefix, (), 0, True, (), len(prefix) - 1)
        elif start == "wide" and index == 0 and name != "linear":
            rows = layouts.nemotron_wide(prefix, width)[len(prefix) - 1 :]  # the prompt fills the cache
        else:
            branches = {"packed": [0], "quadratic": range(width + 1), "branches:0,2": [0, 2], "linear": [0]}[name]
            if not verify:
                branches = [0]
            elif name == "linear":
                branches = []
            rows = layouts.nemotron(prefix, draft, width, verify, branches, len(prefix) - 1)
        assert (step["rows"], drawn) == (len(rows), _mask(rows)), said
        compared += 1
    assert compared > 20


@pytest.mark.parametrize("start", ["algorithm", "prompt"])
@pytest.mark.parametrize("order", ["ltr", "confidence"])
def test_every_any_order_mask_and_state_is_right(samples: Any, browser: Any, tmp_path: Path, start: str, order: str) -> None:
    """Masks against the specification, but for rows that only fill the cache; columns of verified positions against the run."""
    limits, found = Limits.of(9, 1), []
    for name in any_order.NAMES:
        schedule = any_order.named(name, 3, order_of(order), start)
        run = generate(any_order_oracles.noisy_pairs(3, 5, 0.8, 0.3), schedule, (), limits)
        found.append(TracedRequest("one", name, (), limits, run, 3, start))
    samples.write_trace(tmp_path / "run.jsonl", found)
    opened = Opened(browser, tmp_path)
    compared, removed, states = 0, 0, dict[str, set[int]]()
    for request, index, step, _, drawn in _drawn(opened):
        name, order_now, draft = request["schedule"], step["order"] or [], step["verified"] or []
        known = states.get(name, set()) if index else set()
        row = opened.page.locator(".pane").first.locator("tr.now td")
        assert {j for j, css in enumerate(row.evaluate_all("cells => cells.map(cell => cell.className)"), 1) if css} == known, (
            name
        )
        end = step["end"] if step["end"] is not None else limits.max_new_tokens
        accepted = known | set(order_now[: step["advance"]])
        removed += any(j > end for j in accepted)
        states[name] = {j for j in accepted if j <= end}
        verify = step["advance"] > 0 and name != "native"
        branches = {
            "serial": [],
            "linear": [] if verify else [0],
            "packed": [0],
            "quadratic": range(len(order_now)),
            "native": [0],
        }
        rows = layouts.setdlm({}, order_now, dict(zip(order_now, draft, strict=False)), verify, branches[name])
        assert drawn == _mask(rows), (name, index, step)
        compared += 1
    assert compared > 15
    assert removed or order == "ltr"


def test_print_shows_what_is_folded(browser: Any, folder: Path) -> None:
    opened = Opened(browser, folder)
    evidence = opened.page.get_by_text("packedss prove --check c/x")
    assert not evidence.is_visible()
    opened.page.emulate_media(media="print")
    assert evidence.bounding_box()["height"] > 0
    assert opened.page.evaluate("document.querySelector('details').checkVisibility({contentVisibilityAuto: true})")
    assert evidence.evaluate("cell => cell.checkVisibility({contentVisibilityAuto: true})")
