"""The paper's tables and figures from studies with known figures: each by its value, in every format, hostile text included."""

import importlib.util
import json
import re
import shutil
import subprocess

import numpy as np
import pytest

pytest.importorskip("torch")

from hypothesis import given
from hypothesis import strategies as st

from realmodel.paper import study
from realmodel.paper.study import BY_DESIGN, Cell, Evidence, Method, Reason, Study, Trajectory
from reports.paper_command import exit_code, write_tables
from reports.paper_tables import tables, views
from reports.paper_tables_figures import decomposition, figures
from reports.paper_tables_render import latex, latex_document, latex_text, markdown
from simulator import InvalidInput

LTR = (
    Method("linear", "", 31, "EXACT", 32, 32),
    Method("packed", "", 31, "TIES", 64, 32),
    Method("quadratic", "", 7, "EXACT", 72, 64),
)
ANY = (
    *(Method(name, order, 8, "EXACT") for order in ("ltr", "confidence") for name in ("linear", "packed", "quadratic")),
    Method("native", "", 8, BY_DESIGN),
)
TIMES = {"linear": 2.0, "packed": 1.8, "quadratic": 2.2, "native": 3.0}
CALLS = {"linear": 21, "packed": 16, "quadratic": 18, "native": 24}


def made(task, methods, temperature=0.0, kind="task", draws=1, scored=True, prompts=4, **changes):
    """100 tokens a response; calls and seconds by schedule, a tenth of the time outside the network; half the prompts right."""
    runs = np.empty((len(methods), prompts, draws, len(study.COLUMNS)))
    for place, method in enumerate(methods):
        name = method.schedule
        for prompt in range(prompts):
            wall = TIMES.get(name, 2.0) + prompt
            right = float(prompt % 2 == 0 or (name == "packed" and prompt == 1)) if scored else float("nan")
            calls = CALLS.get(name, 20)
            runs[place, prompt, :] = (100, calls, 64 * calls, wall, 0.9 * wall, calls - 1, 0.8 * wall, 64, right)
    names = tuple(f"p{i}" for i in range(prompts))
    cell = Cell(task, kind, temperature, 1024, "wide" if not temperature else "sampled", 1319, scored, names, methods, runs)
    return Cell(**(vars(cell) | changes))


def studied(model="nemotron-8b", any_order=False, contended=False, cells=None):
    if cells is None and any_order:
        cells = (made("gsm8k-setdlm", ANY),)
    elif cells is None:
        probe = tuple(Method(name, "", width, "EXACT", 1, 1) for name in ("linear", "packed") for width in (7, 31))
        parted = (Trajectory(1, 0, 4, 2, 2, 1, 1, ("p1, output token 3",), 1),)
        evidence = (Evidence(0, (("rule", "EXACT", "W = 3"),), ()),)
        cells = (
            made("gsm8k", probe, kind="probe"),
            made("gsm8k", LTR, trajectories=parted, evidence=evidence, reasons=(Reason(0, "stopped after 10 s", 2),)),
            made("math-500", LTR),
            made("writingbench", LTR, scored=False),
            made("humaneval", LTR, 1.0, draws=20),
        )
    return Study(model, "bfloat16", "cuda:0", "a GPU", contended, any_order, 0, {"torch": "2"}, cells)


BOTH = [studied(), studied("setdlm-smax16", any_order=True)]


@pytest.fixture(scope="module")
def by_id():
    return {table.id: table for table in tables(views(BOTH))}


def row(table, *words):
    """The only row that begins with these words."""
    rows = [each for each in table.rows if tuple(entry.text for entry in each[: len(words)]) == words]
    assert len(rows) == 1, words
    return dict(zip(table.columns, rows[0], strict=True))


def test_every_table_is_there(by_id):
    assert list(by_id) == [*(f"T{i}" for i in range(3, 14)), "trajectories", "certificates", "reasons"]
    assert all(len(each) == len(table.columns) for table in by_id.values() for each in table.rows)


def test_the_probe(by_id):
    """Table 3: the quotient of the means shown, and the most rows of a call."""
    rows = by_id["T3"].rows
    assert [(each[1].text, each[2].text) for each in rows] == [
        ("Linear-SS", "8"), ("Linear-SS", "32"), ("Packed-SS", "8"), ("Packed-SS", "32"),
    ]  # fmt: skip
    told = dict(zip(by_id["T3"].columns, rows[0], strict=True))
    assert told["wall (s)"].value == pytest.approx(3.5)
    assert told["tokens/s"].value == pytest.approx(100 / 3.5)
    assert (told["NFE"].text, told["tokens"].text, told["accuracy (%)"].text, told["rows/call"].text) == (
        "21.00", "100.0", "50.00", "64",
    )  # fmt: skip


def test_model_and_non_model_time(by_id):
    """Tables 4 and 5."""
    told = row(by_id["T4"], "nemotron-8b", "GSM8K (n = 4)", "Packed-SS")
    assert (told["wall (s)"].text, told["model time (s)"].text, told["non-model time (s)"].text) == ("3.300", "2.970", "0.330")
    told = row(by_id["T5"], "nemotron-8b", "GSM8K (n = 4)", "Linear-SS")
    assert told["ms/iteration"].value == pytest.approx(1000 * 0.8 * 3.5 / 20)
    rows = {entry[2].text: (entry[-2].text, entry[-1].text) for entry in by_id["T5"].rows}
    assert rows == {"Linear-SS": ("32", "32"), "Packed-SS": ("32", "64"), "Quadratic-SS": ("64", "72")}


def test_absolute_measurements(by_id):
    """Tables 6 and 7: rates of aggregates, and the fastest of each task marked."""
    told = row(by_id["T6"], "nemotron-8b", "GSM8K (n = 4)", "Packed-SS", "32")
    columns = ("tokens", "wall (s)", "NFE", "tokens/NFE", "ms/NFE", "tokens/s", "accuracy (%)")
    assert [told[column].text for column in columns] == [
        "100.0", "3.300", "16.00", "6.250", "206.25", "30.3", "75.00",
    ]  # fmt: skip
    assert told["tokens/s"].best
    assert sum(entry.best for each in by_id["T6"].rows for entry in each) == 3  # of GSM8K, MATH-500 and WritingBench
    assert row(by_id["T6"], "nemotron-8b", "WritingBench (n = 4)", "Packed-SS")["accuracy (%)"].text == "-"
    told = row(by_id["T7"], "nemotron-8b", "HumanEval (n = 4)", "Linear-SS")
    assert (told["accuracy (%)"].value, told["wall (s)"].text) == (50.0, "3.500")
    assert "HumanEval 20" in by_id["T7"].caption


def test_any_order_measurements(by_id):
    """Tables 8 to 10: left to right beside the native decoder, then all orders."""
    assert {each[2].text for each in by_id["T8"].rows} == {"ltr", "-"}
    assert {each[2].text for each in by_id["T9"].rows} == {"ltr", "confidence", "-"}
    assert len(by_id["T9"].rows) == 7
    told = row(by_id["T10"], "setdlm-smax16", "GSM8K (n = 4)", "confidence", "Native")
    assert told["wall difference (s)"].value == pytest.approx(-1.2)
    assert len(by_id["T10"].rows) == 6  # three baselines in each order


def test_paired_comparisons(by_id):
    """Tables 12 and 13: Packed-SS is 0.2 s faster than Linear-SS on every prompt, so the interval is a point."""
    told = row(by_id["T12"], "nemotron-8b", "GSM8K (n = 4)", "Linear-SS")
    assert told["wall difference (s)"].text == "-0.2000 [-0.2000, -0.2000]"
    ratio = told["throughput ratio"]
    assert ratio.value == pytest.approx(3.5 / 3.3)
    assert 1 < ratio.low < ratio.value < ratio.high
    assert {each[2].text for each in by_id["T13"].rows} == {"Linear-SS", "Quadratic-SS"}


def test_accuracy_differences(by_id):
    """Table 11: one of four prompts more; WritingBench has no accuracy."""
    told = row(by_id["T11"], "nemotron-8b", "GSM8K (n = 4)", "0", "Packed-SS - Linear-SS")
    assert told["difference (points)"].text.startswith("+25.00 [+0.00, ")
    assert (
        row(by_id["T11"], "setdlm-smax16", "GSM8K (n = 4)", "0", "Packed-SS - Native, ltr")["difference (points)"].value == 25.0
    )
    assert not any("WritingBench" in each[1].text for each in by_id["T11"].rows)


def test_trajectories_and_reasons(by_id):
    told = row(by_id["trajectories"], "nemotron-8b", "GSM8K", "Packed-SS, B = 32 / Linear-SS, B = 32")
    assert [told[column].value for column in ("different", "examined", "ties", "faults", "labels")] == [2, 2, 1, 1, 1]
    assert row(by_id["reasons"], "nemotron-8b", "GSM8K", "0", "Linear-SS", "stopped after 10 s")["responses"].value == 2


def test_a_method_without_a_certificate_has_no_figures():
    methods = (LTR[0], LTR[1]._replace(verdict="FAULT"), LTR[2])
    found = {table.id: table for table in tables(views([studied(cells=(made("gsm8k", methods),))]))}
    for number in ("T4", "T6"):
        told = row(found[number], "nemotron-8b", "GSM8K (n = 4)", "Packed-SS")
        assert {told[column].text for column in found[number].columns[4:]} == {"REFUSED"}
    for each in (*found["T12"].rows, *found["T11"].rows[:2]):
        assert each[-1].text == "REFUSED"
    assert not any(entry.best for each in found["T6"].rows for entry in each if each[2].text == "Packed-SS")
    assert exit_code([studied(cells=(made("gsm8k", methods),))]) == 1


def test_contended_times_are_left_out_and_counts_stand():
    found = {table.id: table for table in tables(views([studied(contended=True)]))}
    told = row(found["T6"], "nemotron-8b", "GSM8K (n = 4)", "Packed-SS")
    assert {told[column].text for column in ("wall (s)", "ms/NFE", "tokens/s")} == {"contended"}
    assert (told["tokens/NFE"].text, told["accuracy (%)"].text) == ("6.250", "75.00")
    assert {each[-1].text for each in found["T12"].rows} == {"contended"}
    assert not any(entry.best for table in found.values() for each in table.rows for entry in each)


def test_the_decomposition_weighs_tasks_equally():
    """F.3: shares of each task's Linear-SS total, then the mean; a task ten times as long changes nothing."""
    long = made("math-500", LTR)
    long.runs[..., [study.WALL, study.MODEL]] *= 10
    long.runs[1, ..., study.MODEL] *= 0.5
    shares = {schedule: (inside, outside) for _, schedule, inside, outside in
              decomposition(views([studied(cells=(made("gsm8k", LTR), long, made("humaneval", LTR)))]))}  # fmt: skip
    total = 3.3 / 3.5
    assert shares["linear"] == (pytest.approx(0.9), pytest.approx(0.1))
    assert shares["packed"] == (pytest.approx((0.9 + 0.45) / 2 * total), pytest.approx((0.1 + 0.55) / 2 * total))


# --- formats ------------------------------------------------------------------------------------------------------------------


def hostile(text):
    """Text of others wherever a study has text."""
    cells = (
        made("gsm8k", (LTR[0], Method(text, "", 7, "EXACT", 1, 1)), reasons=(Reason(0, text, 1),),
             trajectories=(Trajectory(1, 0, 4, 1, 1, 1, 0, (text,), None),),
             evidence=(Evidence(0, ((text, "NOT RUN", text),), (text,)),)),
        made(text, LTR),
    )  # fmt: skip
    return studied(model=text, cells=cells)


EVIL = (
    "\\input{/etc/passwd} $\\frac{a$ %&#_^~ }{ \\\\[9cm] `` '' | <script>alert(1)</script> ![x](javascript:1) \x1b[31m \u202e"
    " \u4e2d\n\n\\end{table}"
)


def cells_of(line):
    return len(re.findall(r"(?<!\\)\|", line)) - 1


def test_hostile_text_stays_text_in_markdown():
    made_tables = tables(views([hostile(EVIL)]))
    text = markdown(made_tables).replace("@<!-- -->", "@")  # ours: it keeps a name from being called
    assert not re.search(r"(?<!\\)[<$`]", text)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert not re.search(r"(?<!\\)!\[|(?<!\\)\]\(", text)
    lines = iter(text.splitlines())
    for table in made_tables:
        while not next(lines).startswith("| "):
            pass
        next(lines)
        for _ in table.rows:
            assert cells_of(next(lines)) == len(table.columns)


COMMANDS = {
    "begin", "end", "caption", "centering", "resizebox", "ifdim", "width", "linewidth", "else", "fi", "toprule", "midrule",
    "bottomrule", "addlinespace", "textbf", "textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater",
    "textbar", "textquotedbl", "textquotesingle", "textasciigrave", "ldots",
}  # fmt: skip


def sound(text):
    """Braces close, every row has its cells, and only known commands are there, with no file and no mathematics."""
    assert set(re.findall(r"\\([A-Za-z]+)", text)) <= COMMANDS
    assert text.isascii()
    depth = 0
    for mark in re.findall(r"\\.|[{}]", text, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(mark, 0)
        assert depth >= 0
    assert depth == 0
    assert not re.search(r"(?<!\\)[$#^~]", text.replace("\\%", ""))
    [columns] = re.findall(r"\\begin\{tabular\}\{(l*r*)\}", text)
    body = text[text.index("\\toprule") : text.index("\\bottomrule")]
    for line in body.splitlines():
        if line.endswith(r"\\"):
            assert len(re.findall(r"(?<!\\)&", line)) == len(columns) - 1


def test_latex_is_sound_whatever_the_text():
    for each in (*BOTH, hostile(EVIL)):
        for table in tables(views([each])):
            sound(latex(table))


def test_an_unescaped_text_is_seen(monkeypatch):
    from reports import paper_tables_render as render

    table = next(table for table in tables(views([hostile("a & b")])) if table.id == "T6")
    monkeypatch.setattr(render, "latex_text", lambda text: text)
    with pytest.raises(AssertionError):
        sound(render.latex(table))


def unescaped(text):
    """What LaTeX prints of escaped text."""
    from reports.paper_tables_render import _LATEX

    back = {escaped: sign for sign, escaped in _LATEX.items()}
    found = ""
    while text:
        known = next((escaped for escaped in sorted(back, key=len, reverse=True) if text.startswith(escaped)), None)
        found += back[known] if known else text[0]
        text = text[len(known) if known else 1 :]
    return found


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
def test_latex_prints_the_text_itself(text):
    assert unescaped(latex_text(text)) == " ".join(text.split())


@pytest.mark.skipif(not any(map(shutil.which, ("pdflatex", "tectonic", "lualatex"))), reason="no LaTeX here")
def test_the_document_compiles(tmp_path):
    (tmp_path / "tables.tex").write_text(latex_document([*tables(views(BOTH)), *tables(views([hostile(EVIL)]))]))
    program = next(filter(shutil.which, ("pdflatex", "lualatex", "tectonic")))
    words = [program, "tables.tex"] if program == "tectonic" else [program, "-halt-on-error", "-no-shell-escape", "tables.tex"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=120)
    assert ran.returncode == 0, ran.stdout[-2000:]


def test_everything_is_written(tmp_path):
    found = views([*BOTH, hostile(EVIL)])
    names = write_tables(tables(found), found, tmp_path)
    assert {"tables.md", "tables.tex", "tables.json", "tables/T6.tex"} <= set(names)
    assert all((tmp_path / name).stat().st_size for name in names)
    read = json.loads((tmp_path / "tables.json").read_text())
    assert [each["id"] for each in read][:2] == ["T3", "T4"]
    if importlib.util.find_spec("matplotlib"):
        assert {"figure3.svg", "figure4.svg", "figure5.svg"} <= set(names)


def test_figures_of_every_kind():
    pytest.importorskip("matplotlib")
    assert [name for name, *_ in figures(views(BOTH))] == ["figure3", "figure4", "figure5"]
    assert [name for name, *_ in figures(views([studied(contended=True)]))] == ["figure3", "figure4"]
    [(_, _, drawn), *_] = figures(views([studied()]))
    panels = [axis for axis in drawn.axes if axis.get_title()]
    assert [len(axis.patches) for axis in panels] == [6, 6, 6, 4]  # two bars a task; writing is not graded
    heights = [patch.get_height() + 1 for patch in panels[2].patches]
    assert heights[0] == pytest.approx(3.5 / 3.3)


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="cannot write tables"):
        write_tables([], [], tmp_path / "file")
