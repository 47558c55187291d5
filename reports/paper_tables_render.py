"""Tables as Markdown and LaTeX (booktabs). Names, reasons and examples come from files and models: every text stays a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from reports.output import shown
from reports.paper_tables import Entry, PaperTable
from reports.report.markdown import escape

_LONGEST = 400  # characters of a cell
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    "-": r"{-}",  # or -- would become a dash
    "[": "{[}",  # or it would be an argument of the \\ before it
    "]": "{]}",
    "*": "{*}",
    "!": "{!}",  # or !` and ?` would become other signs
    "?": "{?}",
    ",": "{,}",
    "…": r"\ldots{}",
}
_PREAMBLE = r"""\documentclass{article}
\usepackage[T1]{fontenc}
\usepackage{textcomp}
\usepackage{booktabs}
\usepackage{graphicx}
\usepackage[margin=1.5cm,landscape]{geometry}
\setlength{\parindent}{0pt}
\begin{document}
"""


def markdown(tables: Sequence[PaperTable]) -> str:
    """All tables, one after the other."""
    return "\n".join(line for table in tables for line in _markdown(table)) + "\n"


def _markdown(table: PaperTable) -> Iterator[str]:
    yield f"## {escape(_heading(table))}\n"
    yield f"{escape(table.caption)}\n"
    yield "| " + " | ".join(map(escape, table.columns)) + " |"
    yield "|" + "".join(" --- |" if i < table.words else " ---: |" for i in range(len(table.columns)))
    for row in table.rows:
        yield "| " + " | ".join(f"**{_cut(entry)}**" if entry.best else _cut(entry) for entry in row) + " |"
    yield ""


def _cut(entry: Entry) -> str:
    return escape(shown(entry.text, _LONGEST))


def latex(table: PaperTable) -> str:
    """One table, for \\input in a document that loads booktabs and graphicx."""
    columns = "l" * table.words + "r" * (len(table.columns) - table.words)
    lines = [
        r"\begin{table}[htbp]",
        rf"\caption{{{latex_text(f'{table.title}. {table.caption}')}}}",
        r"\centering\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(latex_text, table.columns)) + r" \\",
        r"\midrule",
    ]
    groups = [tuple(entry.text for entry in row[:2]) for row in table.rows]
    for number, row in enumerate(table.rows):
        if number and groups[number] != groups[number - 1]:
            lines.append(r"\addlinespace")
        cells = [latex_text(shown(entry.text, _LONGEST)) for entry in row]
        lines.append(" & ".join(rf"\textbf{{{c}}}" if e.best else c for c, e in zip(cells, row, strict=True)) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}}", r"\end{table}"]) + "\n"


def latex_document(tables: Sequence[PaperTable]) -> str:
    """All tables as a document that compiles by itself."""
    return _PREAMBLE + "\n\\clearpage\n".join(latex(table) for table in tables) + "\\end{document}\n"


def latex_text(text: str) -> str:
    """Text as text in any LaTeX: no commands, no ligatures; what is not ASCII by its code point."""
    return "".join(_LATEX.get(c, c if " " <= c <= "~" else f"(U+{ord(c):04X})") for c in " ".join(shown(text).split()))


def _heading(table: PaperTable) -> str:
    number = table.id[1:]
    return f"Table {number}: {table.title}" if number.isdecimal() else table.title
