"""The pictures of these pages, drawn from the scheduler, the layouts and the exact laws themselves.

    python docs/pictures.py          writes docs/pictures/*.svg again

Each has its own background, and another set of colours where the reader's system is dark. No meaning is in a colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from xml.sax.saxutils import escape

from realmodel.layout import attention, rows_of
from simulator import Call, Generation, Limits, branches, generate, linear, packed, quadratic
from simulator import any_order as any_order_schedules
from simulator.maps import cost_map
from simulator.nfe.laws import law_of
from simulator.oracles import ThresholdModel
from simulator.oracles.any_order import random_tables
from simulator.oracles.families import parse

FOLDER = Path(__file__).parent / "pictures"
_STYLE = """
svg{font:13px system-ui,sans-serif} text{fill:#1c2430} .card{fill:#fbfbfa} .line{stroke:#8a93a0;fill:none} .faint{fill:#5a6472}
.none{fill:#eef0f2} .good{fill:#bfe3c6} .new{fill:#bcd6f3} .bad{fill:#f3c4bf} .keep{fill:#f6e3a8} .drop{fill:#d9dce0}
@media (prefers-color-scheme:dark){text{fill:#e8eaed} .card{fill:#1d2229} .faint{fill:#aab2bd} .none{fill:#2a3038}
.good{fill:#275c35} .new{fill:#234a75} .bad{fill:#74302a} .keep{fill:#65530f} .drop{fill:#444b55}}
"""


class Drawing:
    """Shapes in document order."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height, self.title = width, height, title
        self.shapes = [f'<rect class="card" width="{width}" height="{height}" rx="8"/>']

    def text(self, x: float, y: float, text: str, anchor: str = "start", kind: str = "", size: int = 13) -> None:
        chosen = f' class="{kind}"' if kind else ""
        self.shapes.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size}"{chosen}>{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, kind: str, text: str = "", size: int = 12) -> None:
        self.shapes.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="2"/>')
        if text:
            self.text(x + width / 2, y + height / 2 + size / 3, text, "middle", size=size)

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        self.shapes.append(f'<path class="line" d="M{x1:g} {y1:g}L{x2:g} {y2:g}"/>')

    def legend(self, x: float, y: float, entries: Iterable[tuple[str, str, str]]) -> None:
        left = x
        for kind, mark, words in entries:
            taken = 44 + 6.3 * len(words)
            if x + taken > self.width:
                x, y = left, y + 22
            self.box(x, y - 12, 22, 16, kind, mark)
            self.text(x + 28, y, words, size=12)
            x += taken

    def svg(self) -> str:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img">'
        return f"{head}\n<title>{escape(self.title)}</title>\n<style>{_STYLE}</style>\n" + "\n".join(self.shapes) + "\n</svg>\n"


_MARKS = (
    ("good", "✓", "draft token accepted"),
    ("bad", "✗", "rejected, replaced"),
    ("new", "+", "the verifier's own"),
    ("keep", "○", "proposal kept"),
    ("drop", "×", "proposal discarded"),
)


def _calls(drawing: Drawing, x: float, y: float, name: str, run: Generation, length: int) -> None:
    """A run: a row per call, a column per output position; above what was tested, below what was proposed."""
    cell, height = 32, 38
    drawing.text(x, y, f"{name}: {run.nfe} calls", size=14)
    for j in range(1, length + 1):
        drawing.text(x + 44 + (j - 1) * cell + cell / 2, y + 20, str(j), "middle", "faint", 11)
    done: set[int] = set()
    for number, step in enumerate(run.steps):
        top = y + 26 + number * height
        drawing.text(x, top + 21, f"call {number + 1}", size=11)
        order = step.order or tuple(range(len(done) + 1, length + 1))
        at = {j: x + 44 + (j - 1) * cell for j in range(1, length + 1)}
        for j in range(1, length + 1):
            drawing.box(at[j] + 1, top, cell - 2, height - 4, "none", "·" if j in done else "")
        emitted = order[: len(step.committed)]
        for rank, j in enumerate(emitted):
            kind, mark = ("good", "✓") if rank < step.accepted else ("bad", "✗") if rank < len(step.verified) else ("new", "+")
            drawing.box(at[j] + 1, top, cell - 2, height / 2 - 2, kind, mark)
        done |= set(emitted)
        if step.branch is not None:
            proposed = step.order or tuple(
                range(order[0] + step.branch, order[0] + step.branch + step.discarded + step.retained)
            )
            for j in proposed:
                if j <= length:
                    kind, mark = ("drop", "×") if j in done else ("keep", "○")
                    drawing.box(at[j] + 1, top + height / 2 - 2, cell - 2, height / 2 - 2, kind, mark)


def steps() -> Drawing:
    drafter, limits = ThresholdModel([1, 2, 1, 2, 3, 3, 5, 8]), Limits.of(8)
    runs = {schedule.name: generate(drafter, schedule, (), limits) for schedule in (linear(4), packed(4))}
    drawing = Drawing(700, 420, "The same 8 tokens by Linear-SS in 8 calls and by Packed-SS in 6, call by call")
    _calls(drawing, 20, 28, "Linear-SS, W = 4", runs["linear"], 8)
    _calls(drawing, 370, 28, "Packed-SS, W = 4", runs["packed"], 8)
    drawing.legend(20, 384, _MARKS)
    return drawing


def packed_call() -> Drawing:
    call = Call(prefix=(5, 6, 7, 8), draft=(1, 2), verify=True, branches=(0,), width=3)
    cached = 3
    sees = attention(call, cached, catch_up=0)
    rows = rows_of(call, cached, mask_token=0)
    names = ["last", "d1", "d2", "pad", "last", "M1", "M2", "M3"]
    assert len(names) == len(rows.tokens)
    drawing = Drawing(640, 330, "Which rows of a packed call see which: W = 3, a draft of 2 tokens, a cache of 3")
    cell, left, top = 28, 80, 64
    for column, name in enumerate(["c1", "c2", "c3", *names]):
        drawing.text(left + column * cell + cell / 2, top - 8, name, "middle", "faint", 11)
    for row, name in enumerate(names):
        drawing.text(left - 10, top + row * cell + 18, name, "end", size=12)
        kind = "new" if row < rows.first_proposal else "keep"
        for column in range(sees.shape[1]):
            seen = sees[row, column]
            drawing.box(
                left + column * cell + 1,
                top + row * cell + 1,
                cell - 2,
                cell - 2,
                kind if seen else "none",
                "x" if seen else "",
            )
    drawing.text(20, 28, "A packed call: every row and what it attends to", size=14)
    x = left + sees.shape[1] * cell + 16
    drawing.text(x, top + 34, "verify the draft in hand:", size=12)
    drawing.text(x, top + 50, "causal, one row per token,", size=12)
    drawing.text(x, top + 66, "padded to B = W + 1 rows", size=12)
    drawing.text(x, top + 146, "draft the next tokens:", size=12)
    drawing.text(x, top + 162, "both ways among themselves,", size=12)
    drawing.text(x, top + 178, "blind to the draft in hand", size=12)
    drawing.text(
        20,
        312,
        "c1 to c3: rows in the cache. last: the newest verified token. M: a mask, which drafts its own position.",
        "start",
        "faint",
        12,
    )
    return drawing


def branch_sets() -> Drawing:
    width = 4
    drawing = Drawing(700, 316, "Which continuations a call prepares: Packed-SS one, a branch set some, Quadratic-SS all")
    cell, left = 52, 210
    drawing.text(20, 28, "What one call drafts, W = 4, for each number b of accepted draft tokens it prepares for", size=14)
    y = 46
    for name, schedule in (
        ("Packed-SS, {0}", packed(width)),
        ("Branches {0,2}", branches((0, 2), width)),
        ("Quadratic-SS, {0..4}", quadratic(width)),
    ):
        ask = schedule.cycle[0]
        drawing.text(20, y + 14, name)
        drawing.text(20, y + 30, f"{(1 + len(ask.branches)) * (width + 1)} rows", kind="faint", size=12)
        for b in ask.branches:
            drawing.text(left - 8, y + 14, f"b = {b}", "end", "faint", 12)
            for i in range(b):
                drawing.box(left + i * cell + 1, y, cell - 2, 18, "good", f"d{i + 1}")
            for i in range(width):
                drawing.box(left + (b + i) * cell + 1, y, cell - 2, 18, "keep", f"+{b + i + 1}")
            y += 22
        y += 20
    drawing.legend(
        20,
        300,
        (("good", "d1", "draft token it takes for accepted"), ("keep", "+2", "drafted, places after the verified prefix")),
    )
    return drawing


def stored_law() -> Drawing:
    target = [Fraction(5, 10), Fraction(2, 10), Fraction(2, 10), Fraction(1, 10)]
    proposal = [Fraction(2, 10), Fraction(5, 10), Fraction(1, 10), Fraction(2, 10)]
    drawing = Drawing(700, 290, "Accept or correct: the accepted part and the residual together are the target law")
    drawing.text(20, 28, "Why accept-or-correct gives the target law p, whatever law Q the draft token was drawn from", size=14)
    scale, base = 300, 220
    for token, (p, q) in enumerate(zip(target, proposal, strict=True)):
        x = 60 + token * 150
        low, p_, q_ = float(min(p, q)) * scale, float(p) * scale, float(q) * scale
        drawing.box(x, base - low, 46, low, "good", f"{min(p, q) * 10}/10")
        drawing.box(x + 50, base - low, 46, low, "good", f"{min(p, q) * 10}/10")
        if p > q:
            drawing.box(x, base - p_, 46, p_ - low, "new", f"{(p - q) * 10}/10")
        else:
            drawing.box(x + 50, base - q_, 46, q_ - low, "bad", f"{(q - p) * 10}/10")
        drawing.text(x + 23, base + 16, "p", "middle")
        drawing.text(x + 73, base + 16, "Q", "middle")
        drawing.text(x + 48, base + 34, f"token {token}", "middle", "faint", 12)
    drawing.line(40, base, 660, base)
    drawing.legend(
        20,
        276,
        (
            ("good", "", "drawn from Q, accepted: min(p, Q)"),
            ("bad", "", "drawn, rejected"),
            ("new", "", "correction from [p - Q]+"),
        ),
    )
    return drawing


def any_order() -> Drawing:
    run = generate(random_tables(3, seed=2).greedy(), any_order_schedules.packed(4, "confidence"), (), Limits.of(8))
    drawing = Drawing(400, 312, "Any-order Packed-SS: calls that accept positions in the order of confidence")
    _calls(drawing, 20, 28, "Any-order Packed-SS, W = 4, by confidence", run, 8)
    drawing.legend(
        20,
        276,
        (
            ("good", "✓", "accepted"),
            ("bad", "✗", "replaced"),
            ("new", "+", "own"),
            ("keep", "○", "kept"),
            ("drop", "×", "dropped"),
        ),
    )
    return drawing


def prices() -> Drawing:
    rates, ratios = [0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5], [1, 4, 8, 16, 32, 64, 128, 196, 300, 1000]
    found = cost_map(lambda x: law_of(parse(f"mixture:rate={x!r},rho=0.65"), 25), rates, ratios, (2, 4, 8, 16, 24))
    marks = {"ar": ("drop", "AR"), "linear": ("new", "L"), "packed": ("good", "P"), "quadratic": ("bad", "Q")}
    cell, height, left, top = 62, 24, 90, 60
    drawing = Drawing(
        left + cell * len(ratios) + 20, top + height * len(rates) + 84, "Who gives the most tokens per unit of time"
    )
    drawing.text(20, 28, "Most tokens per unit of time, each schedule at its best width of 2, 4, 8, 16, 24", size=14)
    for column, ratio in enumerate(ratios):
        drawing.text(left + column * cell + cell / 2, top - 6, str(ratio), "middle", "faint", 12)
    for row, rate in enumerate(rates):
        drawing.text(left - 10, top + row * height + 16, f"{rate:g}", "end", size=12)
        for column, contests in enumerate(found.contests):
            each = contests[row]
            kind, mark = marks.get(each.winner, ("keep", each.winner.removeprefix("branches:").join("{}")))
            best = {"linear": each.linear, "packed": each.packed, "quadratic": each.quadratic}.get(each.winner)
            if best is not None:
                mark += f" {best.schedule.cycle[0].width}"
            mark = mark if len(mark) <= 9 else f"set of {mark.count(',') + 1}"
            drawing.box(left + column * cell + 1, top + row * height + 1, cell - 2, height - 2, kind, mark)
    bottom = top + height * len(rates)
    drawing.text(
        20,
        bottom + 24,
        "down: share of surprising positions; across: tau / delta, how many rows a call's fixed cost is worth",
        kind="faint",
        size=12,
    )
    drawing.legend(
        20,
        bottom + 54,
        (
            ("drop", "AR", "AR"),
            ("new", "L", "Linear-SS, W"),
            ("good", "P", "Packed-SS, W"),
            ("bad", "Q", "Quadratic-SS, W"),
            ("keep", "{}", "a branch set beats all"),
        ),
    )
    return drawing


PICTURES = {
    "steps": steps,
    "packed-call": packed_call,
    "branches": branch_sets,
    "stored-law": stored_law,
    "any-order": any_order,
    "prices": prices,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg())
