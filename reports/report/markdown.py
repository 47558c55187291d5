"""The same content as Markdown, for a comment under a pull request. All text of a run is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence

from reports.output import shown
from reports.report.blocks import Bars, Block, Cell, Heat, More, Section, Table, Text
from reports.report.explorer import Explored

_MARKS = {"good": "✅ ", "bad": "❌ ", "open": "⚠️ "}
LONGEST = 65_000  # characters; GitHub refuses a comment of more than 65,536
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&:@$])")


def markdown(sections: Sequence[Section], explored: Explored, skipped: Sequence[tuple[str, str]]) -> str:
    """The report as text of at most LONGEST characters: blocks that do not fit are left out, and said to be."""
    blocks = ["\n".join(lines) for lines in _parts(sections, explored, skipped)]
    kept, left = [], LONGEST - 100  # for the last line
    for block in blocks:
        if (size := len(block.encode("utf-16-le")) // 2 + 1) <= left:  # as JavaScript counts, which is never less
            kept.append(block)
            left -= size
    if len(kept) < len(blocks):
        kept.append(f"\n{len(blocks) - len(kept):,} parts are left out here for length; the page has them.")
    return "\n".join(kept) + "\n"


def _parts(sections: Sequence[Section], explored: Explored, skipped: Sequence[tuple[str, str]]) -> Iterator[list[str]]:
    """What is kept or left out as a whole, the summary and the faults first."""
    yield from ([line] for line in _summary(sections, explored))
    yield from ([line] for line in _faults(explored))
    for section in sections:
        yield [f"\n## {escape(section.title)}\n"]
        yield from (list(_block(block)) for block in section.blocks)
        if section.replay:
            yield ["\nAgain:\n", *_code(section.replay)]
    if skipped:
        yield ["\nNot read:\n"]
        yield from ([f"- {escape(file)}: {escape(why)}"] for file, why in skipped)


def _summary(sections: Sequence[Section], explored: Explored) -> Iterator[str]:
    yield "# packedss report"
    yield ""
    yield "| result | verdict | |"
    yield "| --- | --- | --- |"
    for section in sections:
        yield f"| {escape(section.title)} | {escape(section.verdict)} | {escape(section.headline)} |"
    for file, word, words in explored.verdicts:
        yield f"| {escape(file)} | {escape(word)} | {escape(words)} |"


def _faults(explored: Explored) -> Iterator[str]:
    for request in explored.requests:
        if fault := request.get("fault"):
            where = f"{request['file']}, {request['name']}" + (f", call {fault['call']}" if fault["call"] else "")
            if "finding" in fault:
                yield f"\n- {escape(where)}: {escape(fault['finding'])}"
                continue
            said = f"{escape(fault['rule'])}; expected {escape(fault['expected'])}, found {escape(fault['found'])}"
            yield f"\n- {escape(where)}: {said}"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        yield ""
        yield from _code(block.text) if block.code else [escape(block.text)]
    elif isinstance(block, Table):
        yield ""
        if block.caption:
            yield f"{escape(block.caption)}\n"
        yield "| " + " | ".join(map(escape, block.columns)) + " |"
        yield "|" + "".join(" ---: |" if i in block.numeric else " --- |" for i in range(len(block.columns)))
        yield from ("| " + " | ".join(map(_cell, row)) + " |" for row in block.rows)
    elif isinstance(block, Bars):
        yield f"\n{escape(block.caption)}: " + "; ".join(f"{escape(label)} {escape(words)}" for label, _, words in block.items)
    elif isinstance(block, More):
        yield f"\n<details><summary>{_MARKS.get(block.tone, '')}{_html(block.summary)}</summary>\n"
        for inner in block.blocks:
            yield from _block(inner)
        yield "\n</details>"
    elif isinstance(block, Heat):
        shares = [share for row in block.shares for share in row if share is not None]
        mean = f"{sum(shares) / len(shares):.3f}" if shares else "none"
        yield f"\n{escape(block.caption)}: mean {mean} (the page shows the grid)"


def _cell(cell: Cell) -> str:
    return _MARKS.get(cell.tone, "") + escape(cell.text)


def _code(text: str) -> Iterator[str]:
    """A fenced block that its content cannot end."""
    text = shown(text, 20_000)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield fence
    yield text
    yield fence


def escape(text: str) -> str:
    """Text as text: no Markdown, no HTML, no mention, on one line.

    GitHub looks for mentions after it has read the Markdown, so a backslash does not stop one; an empty comment does.
    """
    return _SPECIAL.sub(r"\\\1", " ".join(shown(text).split())).replace("\\@", "\\@<!-- -->")


def _html(text: str) -> str:
    """Text inside an HTML element of a Markdown page."""
    return html.escape(" ".join(shown(text).split())).replace("[", "&#91;").replace("@", "&#64;<!-- -->")
