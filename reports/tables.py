"""The results as tables in the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING, get_args

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from proofs_check.ledger import Entry, Method, Row
from proofs_check.trace_check import RULES, TraceReport
from reports.output import terminal
from simulator.nfe.counting import Estimate

if TYPE_CHECKING:  # importing realmodel loads torch
    from realmodel.any_order.validate import AnyOrderValidation
    from realmodel.bootstrap import Interval
    from realmodel.validate import Validation
    from reports.any_order_simulation import Request as AnyOrderRequest
    from reports.any_order_simulation import Result as AnyOrderResult
    from reports.simulation import Request, Result

_COLOURS = {
    "holds": "green",
    "violated": "red",
    "not run": "yellow",
    "open": "yellow",
    "EXACT": "green",
    "TIES": "yellow",
    "FAULT": "red",
    "NOT RUN": "yellow",
}
_CONVENTION = "NFE: every forward pass counts, prompt processing and drafting calls included; all schedules under start"


def print_ledger(rows: Sequence[Row], seconds: float, peak: int, details: bool = False) -> None:
    """Every claim with its verdict; below it a line per kind of check that holds, and each check that does not in full.

    With `details`, every check in full: what was looked at, and what that showed.
    """
    console = terminal()
    for row in rows:
        by = f" ({row.method})" if row.method else ""
        console.print(f"[bold]{row.claim.id}[/] {_coloured(row.verdict)}{by}  ", end="")
        console.print(row.claim.statement, markup=False, style="bold")
        table = Table.grid(padding=(0, 2))
        for width in (12, 7, 7):
            table.add_column(min_width=width, no_wrap=True)
        table.add_column(no_wrap=not details, overflow="ellipsis")
        groups: dict[tuple[str, str], list[Entry]] = {}
        for entry in row.entries:
            name = entry.check if details or entry.outcome != "holds" else entry.check.split("/")[0]
            groups.setdefault((entry.method, name), []).append(entry)
        for (method, name), entries in sorted(groups.items(), key=lambda item: get_args(Method).index(item[0][0])):
            first = max(entries, key=lambda entry: entry.seconds)
            spent = f"{sum(entry.seconds for entry in entries):5.1f} s"
            if details or first.outcome != "holds":
                words = [f"{entry.statement}; {entry.bound}: {entry.detail}" for entry in entries]
                evidence = "\n".join(words)
            else:
                name += f"/* ({len(entries)})"
                evidence = f"{first.statement}; {first.bound}"
            table.add_row(f"  {method}", _coloured(first.outcome), spent, Text.assemble((name, "cyan"), "  ", evidence))
        console.print(table)
    verdicts = Counter(row.verdict for row in rows)
    entries = [entry for row in rows for entry in row.entries]
    console.print(
        f"{len(rows)} claims: {', '.join(f'{count} {word}' for word, count in verdicts.items())};"
        f" {sum(entry.outcome == 'holds' for entry in entries)} of {len(entries)} checks hold."
        f" {seconds:.0f} s, at most {peak / 2**20:.0f} MiB in a process."
    )
    console.print("Evidence, check by check: packedss prove --details. Some checks again: packedss prove --check NAME.")


def print_simulations(results: Sequence[Result], request: Request, drafter: str) -> None:
    """NFE per schedule and width with 95 % intervals over the runs, and against Linear-SS on the same drafters."""
    runs = results[0].tally.runs
    title = f"Model calls for {request.tokens} tokens, {runs:,} runs, drafter {escape(drafter)}"
    table = _table(
        title, "W", "schedule", "NFE / run", "tokens/NFE", "exact", "rows/NFE", "tokens/NFE vs Linear", "more calls than Linear"
    )
    for result in results:
        tally, linear = result.tally, result.linear
        for index, schedule in enumerate(result.schedules):
            calls = tally.sums[index + 1]
            exact = result.exact[index]
            against = ["", ""]
            if linear is not None and index != linear and calls:
                against = [_interval(tally.gain(index, linear)), f"{result.worse[index]:,} of {runs:,} runs"]
            table.add_row(
                str(result.width),
                schedule.name,
                f"{calls / max(1, runs):.1f}",
                _interval(tally.tokens_per_nfe(index)) if calls else "",
                "" if exact is None else f"{exact:.4f}",
                f"{result.rows(index) / max(1, calls):.1f}",
                *against,
            )
        table.add_section()
    console = terminal()
    console.print(table)
    console.print(f"{_CONVENTION} '{request.start}'. Intervals: 95 %, over runs; exact: without simulation, L / E[NFE].")


def print_any_order_simulations(results: Sequence[AnyOrderResult], request: AnyOrderRequest) -> None:
    """NFE per order, width and schedule, and against Linear-SS in the same order on the same drafters."""
    runs = request.runs
    title = f"Model calls for {request.tokens} tokens in any order, {runs:,} runs, drafter {escape(request.drafter)}"
    columns = ("order", "W", "schedule", "NFE / run", "tokens/NFE", "rows/NFE", "vs Linear", "more calls than Linear", "right")
    table = _table(title, *columns)
    for result in results:
        tally, linear = result.tally, result.linear
        for index, schedule in enumerate(tally.schedules):
            calls, tokens = tally.sums[index + 1], tally.sums[0]
            against = ["", ""]
            if linear is not None and index != linear and calls:
                against = [_interval(tally.gain(index, linear)), f"{result.worse[index]:,} of {runs:,} runs"]
            table.add_row(
                result.order,
                str(result.width),
                schedule,
                f"{calls / runs:.1f}",
                _interval(tally.tokens_per_nfe(index)) if calls else "",
                f"{result.rows[index] / max(1, calls):.1f}",
                *against,
                f"{result.right[index] / tokens:.1%}" if tokens else "",
            )
        table.add_section()
    console = terminal()
    console.print(table)
    console.print(
        f"{_CONVENTION} '{request.start}'. Intervals: 95 %, over runs. right: output tokens that are the verifier's. native"
        " verifies nothing, and chooses its positions itself, whatever the order."
    )


def _interval(estimate: Estimate) -> str:
    value, low, high = estimate
    return f"{value:.4f}" if isnan(low) else f"{value:.4f} [{low:.4f}, {high:.4f}]"


def print_trace_report(report: TraceReport) -> None:
    """What was replayed, every violation in words, and what the log did not let us check."""
    console = terminal()
    for found in report.violations:
        console.print(
            f"line {found.line}, request {found.request}, call {found.call}: no rule explains this step\n"
            f"  nearest rule  {found.rule}: {RULES[found.rule]}\n"
            f"  expected      {found.expected}\n  found         {found.found}",
            markup=False,
        )
    if report.violated > len(report.violations):
        console.print(f"and the first violation of {report.violated - len(report.violations)} more requests")
    for missing, count in report.unchecked.items():
        console.print(f"not checked ({count:,} times): {missing}", markup=False)
    made = ", ".join(f"{rule} {count:,}" for rule, count in sorted(report.checked.items()))
    console.print(f"comparisons: {made or 'none'}")
    console.print(
        f"{_coloured(report.verdict)}: {report.requests:,} requests, {report.calls:,} calls, {report.tokens:,} tokens,"
        f" {report.violated:,} requests with a step that no rule explains"
    )


def print_validation(result: Validation, details: bool = False) -> None:
    """The certificate of every schedule, and what those cost that have one."""
    from realmodel.efficiency import GENERATE

    summary = result.summary
    how = "greedy" if result.protocol.temperature == 0 else f"temperature {result.protocol.temperature:g}"
    title = (
        f"{escape(result.model)}, {result.dtype} on {result.device}: {summary.prompts} prompts x"
        f" {result.protocol.limits.max_new_tokens} tokens x {summary.repeats}, {how}"
    )
    table = _table(
        title, "W", "schedule", "certificate", "NFE", "tokens/NFE", "ms/NFE", "tokens/s", "non-model", "rows/NFE",
        "tokens/NFE, to Linear", "ms/NFE, to Linear", "tokens/s, to Linear", "tokens/s, to AR",
    )  # fmt: skip
    for row in summary.rows:
        certificate = result.certificates.get(row.key)
        word = _coloured(certificate.verdict) if certificate else row.verdict.words
        if row.name != GENERATE and how == "greedy":
            word += f" {result.equal(row.key)}/{summary.prompts}"
        width = str(row.width) if row.width else ""
        if row.figures is None:
            table.add_row(width, row.name, word, *["[red]REFUSED[/]"] * 10)
            continue
        figures = row.figures
        against = {comparison.baseline[0]: comparison for comparison in row.comparisons}
        linear, ar = against.get("linear"), against.get("ar")
        table.add_row(
            width,
            row.name,
            word,
            f"{figures.nfe:,}",
            f"{figures.tokens_per_nfe.estimate:.3f}",
            f"{1000 * figures.time_per_nfe.estimate:.2f}",
            f"{figures.throughput.estimate:.0f}",
            "" if figures.non_model is None else f"{figures.non_model / figures.wall:.1%}",
            f"{figures.rows / figures.nfe:.1f}",
            *([_ratio(linear.tokens_per_nfe), _ratio(linear.time_per_nfe), _ratio(linear.throughput)] if linear else [""] * 3),
            _ratio(ar.throughput) if ar else "",
        )
    console = terminal()
    console.print(table)
    for key, certificate in result.certificates.items():
        layers = ", ".join(f"{layer.name} {layer.verdict}" for layer in certificate.layers)
        if details or not certificate.certified:
            console.print(str(certificate), markup=False)
        else:
            console.print(f"{key[0]}{f', W = {key[1]}' if key[1] else ''}: {layers}", markup=False)
        found = summary.row(key).figures
        if details and found is not None and found.tested:
            shares = " ".join(f"{share:.3f}" for share in found.acceptance)
            console.print(f"  accepted by draft position {shares}; accepted lengths {list(found.lengths)}", markup=False)
        for flag in certificate.flags:
            console.print(f"  flagged: {flag}", markup=False)
    _print_side_accounts(console, result, details)
    console.print(f"{_CONVENTION} '{result.start}'. Reference: transformers' generate, same weights and dtype.")
    console.print(
        f"Intervals: 95 %, paired bootstrap over {summary.prompts} prompts ({summary.resamples:,} resamples); with few prompts"
        " they cover less (10: about 89 %). Times: wall clock, device-synchronised, prompts included, schedules interleaved."
    )
    if summary.contended:
        console.print("Several workers shared this machine: counts and certificates stand, times are no honest speeds.")
    for damaged in result.measurement.damaged:
        console.print(f"measured again: {damaged}", markup=False)


def print_any_order(result: AnyOrderValidation, details: bool = False) -> None:
    """A table an order, the certificates, and what the order changes."""
    screen = terminal()
    limits, keys = result.protocol.limits, {(a.name, a.order, a.width): a.arm.key for a in result.arms}
    for order, summary in result.summaries.items():
        within = f" within {result.horizon}" if result.horizon is not None else ""
        title = (
            f"{escape(result.model)}, {result.dtype} on {result.device}: {summary.prompts} prompts x {limits.max_new_tokens}"
            f" tokens x {summary.repeats}, greedy, order {escape(order)}{within}"
        )
        shown = _table(
            title, "W", "schedule", "certificate", "NFE", "tokens/NFE", "ms/NFE", "tokens/s", "rows/NFE", "again",
            "tokens/NFE, to Linear", "tokens/s, to Linear", "tokens/s, to serial",
        )  # fmt: skip
        for row in summary.rows:
            key = next(keys[row.name, o, row.width] for o in (order, "", "ltr") if (row.name, o, row.width) in keys)
            word = "not exact" if key in result.native and row.verdict.certified else _coloured(result.verdict_of(key))
            width = str(row.width) if row.width else ""
            if row.figures is None:
                shown.add_row(width, row.name, word, *["[red]REFUSED[/]"] * 9)
                continue
            figures = row.figures
            against = {comparison.baseline[0]: comparison for comparison in row.comparisons}
            linear, serial = against.get("linear"), against.get("serial")
            shown.add_row(
                width,
                row.name,
                word,
                f"{figures.nfe:,}",
                _spread(figures.tokens_per_nfe, 2),
                f"{1000 * figures.time_per_nfe.estimate:.2f}",
                _spread(figures.throughput, 0),
                f"{figures.rows / figures.nfe:.1f}",
                f"{result.again(key):,}",
                *([_ratio(linear.tokens_per_nfe), _ratio(linear.throughput)] if linear else [""] * 2),
                _ratio(serial.throughput) if serial else "",
            )
        screen.print(shown)
    for arm in result.arms:
        name = f"{arm.name}{f', {arm.order}' if arm.order else ''}{f', W = {arm.width}' if arm.width else ''}"
        if (layer := result.native.get(arm.arm.key)) is not None:
            said = f"{name}: not exact by design, it accepts tokens that nothing verified; conformance {layer.verdict}"
            screen.print(f"{said} {layer.detail}" if details or layer.verdict != "EXACT" else said, markup=False)
            for finding in layer.findings:
                screen.print(f"  {finding.symptom.upper()} ({finding.stage}): {finding.statement}", markup=False)
            continue
        certificate = result.certificates[arm.arm.key]
        if details or not certificate.certified:
            screen.print(str(certificate), markup=False)
            continue
        screen.print(f"{name}: {', '.join(f'{layer.name} {layer.verdict}' for layer in certificate.layers)}", markup=False)
        for flag in certificate.flags:
            screen.print(f"  flagged: {flag}", markup=False)
    for trade in result.trades:
        calls = "" if trade.ltr_calls is None else f"{trade.calls:,} calls, left to right {trade.ltr_calls:,}; "
        how = f"order {trade.order}" if trade.order else "its own order"
        screen.print(
            f"{trade.schedule}, W = {trade.width}, {how}: {calls}{trade.different} of {trade.prompts} outputs differ from those"
            f" left to right, {trade.agreement:.1%} of the tokens agree; {trade.nats:.3f} nats a token under the serial"
            f" left-to-right law (its own outputs {trade.ltr_nats:.3f})",
            markup=False,
        )
    screen.print(
        f"{_CONVENTION} '{result.start}'. Exact: the tokens of the serial reference under the same orders, which plain forwards"
        " replay one token at a time. rows/NFE: padding included, the prompt and rows encoded again ('again') excluded."
    )
    first = next(iter(result.summaries.values()))
    screen.print(
        f"Intervals: 95 %, paired bootstrap over {first.prompts} prompts ({first.resamples:,} resamples). Times: wall clock,"
        " device-synchronised, prompts included, schedules and orders interleaved."
    )
    if first.contended:
        screen.print("Several workers shared this machine: counts and certificates stand, times are no honest speeds.")
    for damaged in result.measurement.damaged:
        screen.print(f"measured again: {damaged}", markup=False)


def _print_side_accounts(console: Console, result: Validation, details: bool) -> None:
    """The fastest width of every schedule (F.1); with `details` adapter rows (F.2) and where the time goes (F.3)."""
    from realmodel.decomposition import adapter_rows, chosen_widths, iteration_calls, per_iteration, timing_decomposition

    summary = result.summary
    if len({row.width for row in summary.rows if row.width}) > 1:
        best = ", ".join(f"{name} W = {row.width}" for name, row in chosen_widths(summary).items())
        console.print(f"Highest tokens/s (block-size probe, F.1): {best or 'nothing certified'}", markup=False)
    if not details:
        return
    for arm in result.protocol.arms:
        figures = summary.row(arm.key).figures
        if arm.schedule is None or not arm.width or figures is None or not figures.iterations:
            continue
        rows, mean = adapter_rows(iteration_calls(arm.schedule)), per_iteration(figures)
        spent = "" if mean.model is None else f", {1000 * mean.model:.2f} ms model time"
        console.print(
            f"{arm.key[0]}, W = {arm.width}, an iteration (F.2): {mean.tokens:.2f} tokens{spent};"
            f" a proposal-only adapter, padded: computed for {rows.evaluated} rows, applied to {rows.selected}",
            markup=False,
        )
    for key in [row.key for row in summary.rows if row.name == "linear" and row.figures is not None]:
        shares = timing_decomposition({"prompts": summary}, key)
        parts = [
            f"{name}{f', W = {width}' if width else ''} {share.model:.3f} + {share.non_model:.3f}"
            for (name, width), share in shares.items()
            if share is not None and width in (0, key[1])
        ]
        console.print(f"Model + non-model time, Linear at W = {key[1]} is 1 (F.3): {'; '.join(parts)}", markup=False)


def _ratio(interval: Interval) -> str:
    if interval.low is None or interval.high is None:  # one prompt
        return f"{interval.estimate:.2f}"
    return f"{interval.estimate:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _spread(interval: Interval, digits: int) -> str:
    if interval.low is None or interval.high is None:  # one prompt has none
        return f"{interval.estimate:.{digits}f}"
    return f"{interval.estimate:.{digits}f} [{interval.low:.{digits}f}, {interval.high:.{digits}f}]"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in _WORDS else "right")
    return table


_WORDS = {"schedule", "certificate"}


def _coloured(word: str) -> str:
    return f"[{_COLOURS[word]}]{word}[/]"
