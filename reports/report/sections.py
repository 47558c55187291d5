"""A section per result: what of a command's JSON is shown. Files are untrusted: what does not fit is said, never guessed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from reports.output import shown
from reports.report.blocks import TONES, Bars, Block, Cell, Heat, More, Section, Text, table, verdict
from reports.report.charts import call_counts, speeds
from reports.report.gather import Result

Path = tuple[str | int, ...]
_MOST = 500  # rows of one table; the rest is in the JSON


def section(result: Result) -> Section:
    """The section of a result; a command this page does not know, or one whose JSON does not fit, gets a plain listing."""
    make = _MAKERS.get(result.command, _plain)
    try:
        return make(result)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        made = _plain(result)
        why = f"{type(error).__name__}: {error!s}"
        note = Text(f"This JSON is not as packedss {result.command} writes it ({why}).")
        return replace(made, verdict="NOT RUN", headline=f"{result.file} is damaged", blocks=(note, *made.blocks))


def _made(result: Result, title: str, word: str, headline: str, *blocks: Block) -> Section:
    facts = {"arguments": result.arguments, "environment": result.environment, "packedss": result.package}
    return Section(shown(title, 120), result.file, word, shown(headline, 400), blocks, result.replay, facts)


def _number(value: Any, digits: int = 3) -> str:
    if value is None or value == "nan":
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def _interval(value: Any, path: Path, digits: int = 3, scale: float = 1.0) -> Cell:
    """An estimate with its interval; `value` is {estimate or value, low, high}."""
    if value is None:
        return Cell("")
    middle = value.get("estimate", value.get("value"))
    if not isinstance(middle, int | float):
        return Cell("")
    low, high = value.get("low"), value.get("high")
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return Cell(f"{scale * middle:.{digits}f}", path)
    return Cell(f"{scale * middle:.{digits}f} [{scale * low:.{digits}f}, {scale * high:.{digits}f}]", path)


def _counted(words: Counter[str]) -> str:
    return ", ".join(f"{count:,} {word}" for word, count in sorted(words.items()))


# --- claims, checks and faults ----------------------------------------------------------------------------------------------


def _prove(result: Result) -> Section:
    rows = result.rows
    words = Counter(row["verdict"] for row in rows)
    checks = [check for row in rows for check in row["checks"]]
    holding = sum(check["outcome"] == "holds" for check in checks)
    methods = ("proved", "exact", "exhaustive", "SMT", "property", "statistical", "measured")
    found = [method for method in methods if any(check["method"] == method for check in checks)]
    found += sorted({check["method"] for check in checks} - set(found))
    matrix = []
    for at, row in enumerate(rows):
        cells = [Cell(row["id"], (at,), TONES.get(row["verdict"], "")), verdict(row["verdict"], (at, "verdict"))]
        for method in found:
            outcomes = [check["outcome"] for check in row["checks"] if check["method"] == method]
            worst = next((word for word in ("violated", "not run", "holds") if word in outcomes), "")
            held = sum(outcome == "holds" for outcome in outcomes)
            cells.append(Cell(f"{held}/{len(outcomes)}" if outcomes else "", (at, "checks"), TONES.get(worst, "")))
        matrix.append((*cells, Cell(row["statement"])))
    blocks: list[Block] = [table(("claim", "verdict", *found, "statement"), matrix, range(2, 2 + len(found)))]
    for at, row in enumerate(rows):
        evidence = [
            (
                verdict(check["outcome"], (at, "checks", index, "outcome")),
                Cell(check["method"]),
                Cell(check["check"], (at, "checks", index)),
                Cell(f"{check['statement']}; {check['bound']}"),
                Cell(check["detail"]),
                Cell(f"packedss prove --check {check['check']}"),
            )
            for index, check in enumerate(row["checks"])
        ]
        columns = ("outcome", "method", "check", "what was looked at", "evidence", "again")
        inner = table(columns, evidence) if evidence else Text("Nothing has checked this claim.")
        summary = f"{row['id']}: {row['verdict']}, {len(evidence)} checks. {row['statement']}"
        blocks.append(More(summary, (inner,), TONES.get(row["verdict"], "")))
    word = next((each for each in ("violated", "not run", "open") if words[each]), "holds")
    headline = (
        f"{len(rows)} claims: {_counted(words)}; {holding:,} of {len(checks):,} checks hold ({result.arguments.get('budget')})"
    )
    return _made(result, "Claims and evidence", word, headline, *blocks)


def _battery(result: Result) -> Section:
    blocks: list[Block] = []
    words = []
    for at, report in enumerate(result.rows):
        words.append(report["verdict"])
        stages = [
            (verdict(stage["outcome"], (at, "stages", i)), Cell(stage["name"]), Cell(stage["detail"]))
            for i, stage in enumerate(report["stages"])
        ]
        blocks.append(table(("outcome", "stage", "what was looked at"), stages, caption=str(report.get("subject", ""))))
        for finding in report["findings"]:
            inner: list[Block] = [Text(finding["counterexample"], code=True)] if finding["counterexample"] else []
            if finding.get("program"):
                inner += [Text("This program shows it again:"), Text(finding["program"], code=True)]
            blocks.append(More(f"{finding['symptom']} ({finding['stage']}): {finding['statement']}", tuple(inner), "bad"))
    word = words[0] if len(words) == 1 else "" if not words else max(words, key=lambda each: TONES.get(each) == "bad")
    findings = sum(len(report["findings"]) for report in result.rows)
    headline = f"{_counted(Counter(words))}; {findings} findings"
    named = str(next((result.arguments[k] for k in ("schedule", "rule", "file") if result.arguments.get(k)), ""))
    return _made(result, f"packedss {result.command} {named}", word, headline, *blocks)


def _faults(result: Result) -> Section:
    rows = result.rows
    faults = [row for row in rows if not row["control"]]
    controls = [row for row in rows if row["control"]]
    missed = [row for row in rows if not row["right"]]
    stages = list(dict.fromkeys(cell["stage"] for row in rows for cell in row["cells"]))
    lines = []
    for at, row in enumerate(rows):
        word = "ok" if row["right"] else "missed" if not row["control"] else "FLAGGED"
        tone = TONES.get(word, "bad")
        by_stage = {cell["stage"]: (index, cell) for index, cell in enumerate(row["cells"])}
        cells = [
            Cell(row["id"], (at,), tone),
            Cell(f"{row['planted']} {row['member']}".strip()),
            Cell(word, (at, "right"), tone),
        ]
        cells.append(Cell(", ".join(row["symptoms"]), (at, "symptoms")))
        for stage in stages:
            index, cell = by_stage.get(stage, (0, None))
            marks = {"killed": "killed", "survived": "·", "not run": "–"}
            cells.append(Cell(marks.get(cell["outcome"], cell["outcome"]), (at, "cells", index)) if cell else Cell(""))
        lines.append(cells)
    blocks: list[Block] = [table(("row", "planted", "", "symptoms", *stages), lines)]
    headline = (
        f"{sum(row['right'] for row in faults)} of {len(faults)} planted faults killed by the right symptom,"
        f" {sum(row['right'] for row in controls)} of {len(controls)} controls pass ({result.arguments.get('layer')} layer)"
    )
    return _made(result, "Kill matrix", "violated" if missed else "holds", headline, *blocks)


def _trace(result: Result) -> Section:
    blocks: list[Block] = []
    row = result.rows[0]
    for found in row["violations"]:
        where = f"line {found['line']}, request {found['request']}, call {found['call']}: rule {found['rule']}"
        text = f"expected {found['expected']}\nfound    {found['found']}"
        blocks.append(More(where, (Text(text, code=True),), "bad"))
    made = [(Cell(rule), Cell(_number(count), (0, "checked", rule))) for rule, count in sorted(row["checked"].items())]
    blocks.append(table(("rule", "comparisons"), made, (1,)))
    for missing, count in row["unchecked"].items():
        blocks.append(Text(f"not checked ({count:,} times): {missing}"))
    headline = f"{row['requests']:,} requests, {row['calls']:,} calls; {row['violated']:,} requests with an unexplained step"
    name = str(result.arguments.get("file", ""))
    return _made(result, f"Replay of {name}", row["verdict"], headline, *blocks)


# --- call counts --------------------------------------------------------------------------------------------------------------


def _simulate(result: Result) -> Section:
    rows = result.rows
    lines = []
    for at, row in enumerate(rows):
        gain = row.get("gain_over_linear")
        lines.append(
            (
                Cell(_number(row["width"])),
                Cell(_scheduled(row)),
                _interval(row["tokens_per_nfe"], (at, "tokens_per_nfe"), 4),
                Cell(_number(row.get("tokens_per_nfe_exact"), 4), (at, "tokens_per_nfe_exact")),
                Cell(_number(row["nfe"] / max(1, row["runs"]), 1), (at, "nfe")),
                _interval(gain, (at, "gain_over_linear"), 4) if row["schedule"] != "linear" else Cell(""),
                Cell(_number(row.get("runs_with_more_calls_than_linear")), (at, "runs_with_more_calls_than_linear")),
            )
        )
    columns = ("W", "schedule", "tokens/NFE", "exact", "NFE a run", "vs Linear", "runs with more calls than Linear")
    top = max((row["tokens_per_nfe"]["value"] for row in rows), default=1.0)
    items = tuple(
        (
            f"{_scheduled(row)}, W = {row['width']}",
            row["tokens_per_nfe"]["value"],
            f"{row['tokens_per_nfe']['value']:.3f}",
        )
        for row in rows
    )
    best = max(rows, key=lambda row: row["tokens_per_nfe"]["value"])
    drafter = str(result.arguments.get("thresholds") or result.arguments.get("drafter"))
    headline = f"{drafter}: most tokens a call with {best['schedule']}, {best['tokens_per_nfe']['value']:.3f}"
    blocks = (table(columns, lines, (0, 2, 3, 4, 5, 6)), Bars("Tokens per model call", items, top))
    return _made(result, "Simulated call counts", "", headline, *blocks, *call_counts(rows, drafter))


def _scheduled(row: Mapping[str, Any]) -> str:
    """The schedule of a row, and of an any-order one its order."""
    return f"{row['schedule']}, {row['order']}" if "order" in row else str(row["schedule"])


def _sweep(result: Result) -> Section:
    keys = ("drafter", "schedule", "width", "length", "start", "seed")
    rows = [
        (*(Cell(_number(row.get(key))) for key in keys), Cell(_number(row["nfe"]), (at, "nfe")),
         _interval(row["tokens_per_nfe"], (at, "tokens_per_nfe"), 4))
        for at, row in enumerate(result.rows[:_MOST])
    ]  # fmt: skip
    blocks: list[Block] = [table((*keys, "NFE", "tokens/NFE"), rows, (2, 3, 5, 6, 7))]
    if len(result.rows) > _MOST:
        blocks.append(Text(f"{len(result.rows) - _MOST:,} more cells are in the JSON."))
    return _made(result, "Sweep", "", f"{len(result.rows):,} cells", *blocks)


# --- real models --------------------------------------------------------------------------------------------------------------


def _validate(result: Result) -> Section:
    blocks: list[Block] = []
    for at in range(len(result.rows)):  # an order a row, for an any-order model
        blocks += _validated(result.rows[at], (at,))
    words = [row["verdict"] for row in result.rows]
    word = next(each for each in ("FAULT", "NOT RUN", "TIES", "EXACT") if each in words)
    model = f"{result.arguments.get('model')!s}"
    headline = f"{model}: {word}"
    for row in result.rows:
        rates = {
            each["name"]: each["figures"]["tokens_per_nfe"]["estimate"] for each in row["summary"]["rows"] if each["figures"]
        }
        if {"packed", "linear"} <= rates.keys():
            order = f" ({row['order']})" if "order" in row else ""
            headline += f"; tokens/NFE Packed {rates['packed']:.3f}, Linear {rates['linear']:.3f}{order}"
    return _made(result, f"Real model: {model}", word, headline, *blocks)


def _validated(found: Mapping[str, Any], at: Path) -> Iterator[Block]:
    summary = found["summary"]
    baselines = ("linear", "serial" if "order" in found else "ar")
    lines, charts = [], []
    for index, row in enumerate(summary["rows"]):
        path: Path = (*at, "summary", "rows", index)
        figures = row["figures"]
        word = Cell(row["verdict"]["words"], (*path, "verdict"), TONES.get(row["verdict"]["words"], ""))
        name = Cell(row["name"], path)
        width = Cell(_number(row["width"]) if row["width"] else "")
        if figures is None:
            lines.append((width, name, word, Cell("REFUSED", path, "bad"), *[Cell("")] * 6))
            continue
        against = {each["baseline"][0]: (i, each) for i, each in enumerate(row["comparisons"])}
        at_figures: Path = (*path, "figures")
        cells = [
            width,
            name,
            word,
            Cell(_number(figures["nfe"]), (*at_figures, "nfe")),
            _interval(figures["tokens_per_nfe"], (*at_figures, "tokens_per_nfe")),
            _interval(figures["time_per_nfe"], (*at_figures, "time_per_nfe"), 2, 1000),
            _interval(figures["throughput"], (*at_figures, "throughput"), 0),
            Cell(_number(figures["rows"] / max(1, figures["nfe"]), 1), (*at_figures, "rows")),
        ]
        for baseline in baselines:
            i, each = against.get(baseline, (0, None))
            cells.append(_interval(each["throughput"], (*path, "comparisons", i, "throughput"), 2) if each else Cell(""))
        lines.append(tuple(cells))
        charts += list(_acceptance(row, figures))
    columns = ("W", "schedule", "certificate", "NFE", "tokens/NFE", "ms/NFE", "tokens/s", "rows/NFE",
               *(f"tokens/s to {baseline}" for baseline in baselines))  # fmt: skip
    order = f"order {found['order']}; " if "order" in found else ""
    caption = f"{order}{summary['prompts']} prompts, {summary['repeats']} repeats; 95 % paired bootstrap over prompts"
    yield table(columns, lines, (0, 3, 4, 5, 6, 7, 8, 9), caption)
    yield from speeds(summary["rows"])
    yield from _trades(found.get("trades", ()), at)
    for index, certificate in enumerate(found["certificates"]):
        yield _certificate(certificate, (*at, "certificates", index))
    if charts:
        yield More("Acceptance by draft position, accepted lengths", tuple(charts))


def _trades(trades: Sequence[Mapping[str, Any]], at: Path) -> Iterator[Block]:
    """What another order costs: outputs that differ, and how likely they are left to right."""
    keys = ("schedule", "width", "calls", "ltr_calls", "different", "agreement", "nats", "ltr_nats")
    rows = [[Cell(_number(trade[key]), (*at, "trades", index, key)) for key in keys] for index, trade in enumerate(trades)]
    if rows:
        words = ("schedule", "W", "calls", "calls left to right", "prompts with another output", "tokens that agree",
                 "nats a token, left to right", "of its own outputs")  # fmt: skip
        yield table(words, rows, range(1, 8), "Against serial decoding left to right")


def _acceptance(row: Mapping[str, Any], figures: Mapping[str, Any]) -> Iterator[Block]:
    name = f"{row['name']}, W = {row['width']}"
    pairs = list(zip(figures["accepted"], figures["tested"], strict=True))
    if not any(tested for _, tested in pairs):
        return
    items = tuple(
        (f"position {i}", accepted / tested, f"{accepted / tested:.3f} of {tested:,} tested")
        for i, (accepted, tested) in enumerate(pairs, 1)
        if tested
    )
    yield Bars(f"{name}: share of tested draft tokens that were accepted", items, 1.0)
    lengths = figures["lengths"]
    counts = tuple((f"{i} accepted", float(count), f"{count:,} calls") for i, count in enumerate(lengths))
    yield Bars(f"{name}: accepted draft tokens a verifying call", counts, float(max(lengths, default=1)))


def _certificate(certificate: Mapping[str, Any], path: Path) -> Block:
    lines: list[Sequence[Cell]] = []
    findings: list[Block] = []
    for at, layer in enumerate(certificate["layers"]):
        lines.append((Cell(layer["name"]), verdict(layer["verdict"], (*path, "layers", at)), Cell(layer["detail"])))
        for finding in layer["findings"]:
            text = f"{finding['symptom']} ({finding['stage']}): {finding['statement']}\n{finding['counterexample']}"
            findings.append(Text(text, code=True))
        for tie in layer.get("figures", {}).get("divergences", ()):
            findings.append(Text(", ".join(f"{key} {value}" for key, value in tie.items()), code=True))
    name = f"{certificate['schedule']}, W = {certificate['width']}: {certificate['verdict']}"
    flags = [Text(f"flagged: {flag}") for flag in certificate.get("flags", ())]
    return More(
        name, (table(("layer", "verdict", "evidence"), lines), *findings, *flags), TONES.get(certificate["verdict"], "")
    )


def _audit(result: Result) -> Section:
    blocks: list[Block] = []
    faults = [fault for row in result.rows for fault in row["faults"]]
    for at, row in enumerate(result.rows):
        found = row["statistics"]
        shares = [
            (Cell(key.replace("_", " ")), Cell(_share(value), (at, "statistics", key)))
            for key, value in found.items()
            if isinstance(value, dict)
        ]
        blocks.append(table(("share", f"W = {row['width']}"), shares, (1,), f"{row['model']}, W = {row['width']}"))
        offsets = tuple((f"offset {i}", _of(share), _share(share)) for i, share in enumerate(found["by_offset"], 1))
        blocks.append(Bars("Drafted right, by offset from the context", offsets, 1.0))
        for prompt in row["prompts"]:
            blocks.append(More(f"{prompt['name']}: the matrix of its drafts", (_heat(prompt, row["width"]),)))
    held = [f"W = {row['width']}: {_share(row['held'])}" for row in result.rows]
    headline = f"Theorem 3.2 held on {'; '.join(held)} prompts"
    return _made(result, "How far the drafter is from Assumption 3.1", "violated" if faults else "", headline, *blocks)


def _share(value: Mapping[str, Any]) -> str:
    count, total = value["count"], value["total"]
    return f"{count:,} of {total:,} ({count / total:.1%})" if total else "none"


def _of(value: Mapping[str, Any]) -> float:
    return float(value["count"] / value["total"]) if value["total"] else 0.0


def _heat(prompt: Mapping[str, Any], width: int, bands: int = 48) -> Heat:
    """Contexts down, in at most `bands` groups, offsets across: the share drafted right."""
    rows = [[int(digit) for digit in row] for row in prompt["rows"]]
    width = min(width, max(map(len, rows), default=0))
    size = max(1, -(-len(rows) // bands))
    groups = [rows[i : i + size] for i in range(0, len(rows), size)]
    shares = []
    for group in groups:
        columns = [[row[j] for row in group if j < len(row)] for j in range(width)]
        shares.append(tuple(sum(column) / len(column) if column else None for column in columns))
    labels = tuple(f"{i * size}" for i in range(len(groups)))
    return Heat("Share drafted right; contexts down (tokens verified), offsets across", labels,
                tuple(str(j + 1) for j in range(width)), tuple(shares))  # fmt: skip


# --- the paper's protocol ---------------------------------------------------------------------------------------------------


def _paper(result: Result) -> Section:
    """The tables as `packedss paper` made them."""
    found = result.rows[0]
    blocks: list[Block] = []
    for study in found["studies"]:
        words = _counted(Counter(study["verdicts"]))
        shared = "; several processes shared the machine, so there are no times" if study["contended"] else ""
        blocks.append(Text(f"{study['model']}: {len(study['cells'])} cells, certificates: {words}{shared}"))
    for at, each in enumerate(found["tables"]):
        lines = [
            [Cell(entry["text"], (0, "tables", at, "rows", i, j), TONES.get(entry["text"], "")) for j, entry in enumerate(row)]
            for i, row in enumerate(each["rows"][:_MOST])
        ]
        numeric = range(each["words"], len(each["columns"]))
        number, title = each["id"][1:], each["title"]
        made = table([str(column) for column in each["columns"]], lines, numeric, f"{title}. {each['caption']}")
        blocks.append(More(f"Table {number}: {title}" if number.isdecimal() else title, (made,)))
    models = ", ".join(str(study["model"]) for study in found["studies"])
    word = found["verdict"]
    headline = f"{models}: {len(found['tables'])} tables; {'nothing at fault' if word == 'holds' else word}"
    return _made(result, f"The paper's protocol: {models}", word, headline, *blocks)


# --- decoders nobody here wrote -----------------------------------------------------------------------------------------------


def _subjects(result: Result) -> Section:
    rows = []
    for at, row in enumerate(result.rows):
        cells = [verdict(row["verdict"], (at, "verdict")), Cell(row["subject"], (at,)), Cell(row["about"]), Cell(row["model"])]
        cells += [Cell(_number(row[key], 5), (at, key)) for key in ("tokens", "alpha", "detectable", "gap")]
        rows.append([*cells, Cell("; ".join((*row["findings"], *row["missing"])))])
    columns = ("verdict", "subject", "what it is", "model", "tokens", "alpha", "sees", "exact gap", "findings")
    words = Counter(row["verdict"] for row in result.rows)
    blind = dict.fromkeys(each for row in result.rows for each in row["blind"])
    blocks: list[Block] = [table(columns, rows, (4, 5, 6, 7))]
    if blind:
        blocks.append(More("What these checks could not have seen", tuple(map(Text, blind))))
    return _made(result, "Decoders of transformers", "", f"{len(result.rows)} subjects: {_counted(words)}", *blocks)


# --- anything else ------------------------------------------------------------------------------------------------------------


def _plain(result: Result) -> Section:
    """A table of what is simple in the rows."""
    rows = [row for row in result.rows[:_MOST] if isinstance(row, dict)]
    keys = list(dict.fromkeys(k for row in rows for k, value in row.items() if isinstance(value, str | int | float | bool)))[
        :12
    ]
    lines = [[_any(row.get(key), (at, key)) for key in keys] for at, row in enumerate(rows)]
    words = [word for row in rows if (word := str(row.get("verdict"))) in TONES]
    word = next((each for each in words if TONES[each] == "bad"), next((each for each in words if TONES[each] == "open"), ""))
    blocks: list[Block] = [table(keys, lines)] if keys else [Text("Its figures are in the JSON.")]
    headline = f"{len(result.rows):,} rows" + (f": {_counted(Counter(words))}" if words else "")
    return _made(result, f"packedss {result.command}", word, headline, *blocks)


def _any(value: Any, path: Path) -> Cell:
    text = _number(value)
    return Cell(text, path, TONES.get(text, ""))


_MAKERS: dict[str, Callable[[Result], Section]] = {
    "prove": _prove,
    "faults": _faults,
    "check": _battery,
    "check-acceptance": _battery,
    "check-outputs": _battery,
    "check-trace": _trace,
    "simulate": _simulate,
    "sweep": _sweep,
    "validate": _validate,
    "audit": _audit,
    "subjects": _subjects,
    "paper": _paper,
}
