"""An audit in the terminal: where the drafter is right, what that says of Assumption 3.1, what became of the call counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from reports.output import terminal
from simulator.oracles.empirical import Recordings

if TYPE_CHECKING:  # importing realmodel loads torch
    from realmodel.audit import Audit
    from realmodel.monotonicity import Share

_COLUMNS = 64  # positions in one line of a map
_SHADES = " ░▒▓█"


def print_audit(audit: Audit, maps: int = 1) -> None:
    """Everything, with the `maps` prompts on which Assumption 3.1 fails most often drawn cell by cell."""
    from realmodel.monotonicity import breaks, columns

    console = terminal()
    console.print(_title(audit), markup=False, style="bold")
    worst = sorted(audit.prompts, key=lambda prompt: -sum(map(breaks, columns(prompt.rows, audit.width))))
    for prompt in worst[:maps]:
        console.print(f"\n{prompt.name}, the position k drafted from k - 1, k - 2, .. tokens", markup=False)
        for line in heat_map(prompt.rows, audit.width):
            console.print(line, markup=False)
    if maps:
        console.print(
            "█ right   · wrong   × wrong, though an older context was right (ASM3.1)   ! a surprise: wrong from everywhere"
        )
    console.print()
    for line in bands([prompt.rows for prompt in audit.prompts], audit.width):
        console.print(line, markup=False)
    console.print()
    for line in _statistics(audit):
        console.print(line, markup=False)
    console.print(_bounds(audit))
    console.print(_calls(audit))
    for line in _ties(audit):
        console.print(line, markup=False)


def print_replay(recordings: Recordings, simulated: Sequence[Mapping[str, int]], start: str) -> None:
    """Calls simulated under `start` (`replay_nfe`) beside those measured on the model, where they were measured under it."""
    table = Table(
        "schedule", "prompts", "simulated NFE", "measured NFE", "prompts that differ",
        title=escape(f"{recordings.model}, {recordings.dtype}, W = {recordings.width}, start '{start}': replayed"),
        title_justify="left",
    )  # fmt: skip
    for name in simulated[0]:
        pairs = [(ours[name], prompt.measured.get(name)) for ours, prompt in zip(simulated, recordings.prompts, strict=True)]
        known = start == recordings.start and all(theirs is not None for _, theirs in pairs)
        table.add_row(
            escape(name),
            str(len(pairs)),
            str(sum(ours for ours, _ in pairs)),
            str(sum(theirs or 0 for _, theirs in pairs)) if known else "not measured",
            str(sum(ours != theirs for ours, theirs in pairs)) if known else "",
        )
    terminal().print(table)


def heat_map(rows: Sequence[Sequence[int]], width: int) -> Iterator[str]:
    """One column per position, one line per age of the context, the freshest first; long paths in several pieces.

    >>> print("\\n".join(heat_map([[0, 1, 1], [1, 0], [1]], 3)))  # position 3 is right from 0, wrong from 1, right from 2
    k =  1
         !
    k-1  ·██
    k-2   █×
    k-3    █
    """
    length = len(rows)
    for begin in range(1, length + 1, _COLUMNS):
        positions = range(begin, min(begin + _COLUMNS, length + 1))
        ticks = "".join(f"{k:<8}" for k in positions if (k - begin) % 8 == 0)
        yield f"k =  {ticks}".rstrip()
        surprises = ("!" if not any(rows[c][k - c - 1] for c in range(max(0, k - width), k)) else " " for k in positions)
        yield f"     {''.join(surprises)}".rstrip()
        for offset in range(1, width + 1):
            cells = "".join(_cell(rows, k, offset, width) for k in positions)
            yield f"k-{offset:<3}{cells}".rstrip()


def _cell(rows: Sequence[Sequence[int]], k: int, offset: int, width: int) -> str:
    if offset > k:
        return " "
    if rows[k - offset][offset - 1]:
        return "█"
    older = (rows[k - j][j - 1] for j in range(offset + 1, min(width, k) + 1))
    return "×" if any(older) else "·"


def bands(matrices: Sequence[Sequence[Sequence[int]]], width: int, size: int = 8) -> Iterator[str]:
    """Share right by context, `size` of them in a band, and offset, over all paths."""
    right: Counter[tuple[int, int]] = Counter()
    total: Counter[tuple[int, int]] = Counter()
    for rows in matrices:
        for c, row in enumerate(rows):
            for j, cell in enumerate(row):
                right[c // size, j] += cell
                total[c // size, j] += 1
    last = max((band for band, _ in total), default=-1)
    yield "drafts right, all prompts, in percent: context (tokens emitted) x offset"
    yield "context".ljust(11) + "".join(f"{f'+{j + 1}':>6}" for j in range(width))
    for band in range(last + 1):
        cells = []
        for j in range(width):
            seen = total[band, j]
            share = right[band, j] / max(1, seen)
            shade = _SHADES[min(4, int(share * 4 + 0.5))]
            cells.append(f"{f'{100 * share:.0f}{shade}':>6}" if seen else " " * 6)
        yield f"{band * size}-{band * size + size - 1}".ljust(11) + "".join(cells)


def _title(audit: Audit) -> str:
    tokens = sum(len(prompt.output) for prompt in audit.prompts)
    return (
        f"{audit.model}, {audit.dtype} on {audit.device}, W = {audit.width}, start '{audit.start}':"
        f" {len(audit.prompts)} prompts, {tokens} tokens of greedy path"
    )


def _statistics(audit: Audit) -> Iterator[str]:
    found = audit.statistics
    yield "accuracy by offset    " + "  ".join(f"+{j} {_of(share)}" for j, share in enumerate(found.by_offset, start=1))
    stood = _sum(prompt.bounds.non_monotone for prompt in audit.prompts)
    yield f"ASM3.1 fails at       {_of(found.non_monotone)} positions; {_of(stood)} counting contexts that a run stood at"
    stood = _sum(prompt.bounds.reach_drops for prompt in audit.prompts)
    yield f"ASM-REACH, reach drop {_of(found.reach_drops)} contexts; {_of(stood)} of those that a run stood at"
    lags = " ".join(f"{lag}:{count}" for lag, count in enumerate(found.lags))
    yield f"lags k - c*_k         mean {found.mean_lag:.2f}, {audit.width} or more as {audit.width}; lag:positions {lags}"
    yield (
        f"surprises             {_of(found.surprises)} positions wrong from every context;"
        f" behind one {_of(found.behind)} drafts are right (rho), else {_of(found.in_front)}"
    )


def _bounds(audit: Audit) -> Table:
    table = Table(
        "prompt", "tokens", "Linear", "Packed", "held", "lead", "ASM3.1 fails", "reach drops",
        "e", "o", "slack", "d", "slack 2d",
        title="Calls on the matrix, and the bounds NFE_linear + max(0, min(2e, 2o - 1)) and NFE_linear + 2d",
        title_justify="left",
    )  # fmt: skip
    for prompt in audit.prompts:
        found = prompt.bounds
        held = "[green]yes[/]" if found.held else "[yellow]no[/]"
        numbers = (found.in_step, found.out_of_step, found.slack, found.drops, found.slack_2d)
        table.add_row(
            escape(prompt.name), str(len(prompt.output)), str(found.linear), str(found.packed), held, str(found.lead),
            _short(found.non_monotone), _short(found.reach_drops), *map(str, numbers),
        )  # fmt: skip
    table.caption = (
        f"THM3.2 held on {_short(audit.held)} matrices, on the model {_short(audit.held_on_model)}."
        " lead: smallest lead of Packed-SS in tokens at any call."
    )
    table.caption_justify = "left"
    return table


def _calls(audit: Audit) -> Table:
    table = Table(
        "schedule", "NFE simulated", "NFE measured", "equal call by call", "ties", "different", "drafts turned",
        title="The schedules on the matrix and on the model", title_justify="left",
    )  # fmt: skip
    for runs in zip(*(prompt.runs for prompt in audit.prompts), strict=True):
        verdicts = Counter(run.verdict for run in runs)
        table.add_row(
            escape(runs[0].schedule),
            str(sum(run.simulated for run in runs)),
            str(sum(run.measured for run in runs)),
            f"{verdicts['EQUAL']}/{len(runs)}",
            str(verdicts["TIE"]),
            f"[red]{verdicts['DIFFERENT']}[/]" if verdicts["DIFFERENT"] else "0",
            _of(_sum(run.drafted for run in runs)),
        )
    return table


def _ties(audit: Audit) -> Iterator[str]:
    noise = max(prompt.noise for prompt in audit.prompts)
    near = sum(prompt.near_ties for prompt in audit.prompts)
    cells = sum(len(row) for prompt in audit.prompts for row in prompt.rows)
    flips = _sum(prompt.flips for prompt in audit.prompts)
    targets = sum(prompt.target_flips for prompt in audit.prompts)
    yield (
        f"noise of a draft logit, {audit.dtype} against {audit.reference}: at most {noise:.1e};"
        f" {near} of {cells} cells lie within twice their prompt's noise of a tie"
    )
    yield f"blocks against separate forwards: {_of(flips)} drafts differ, {targets} tokens of the path"
    for prompt in audit.prompts:
        for run in prompt.runs:
            if run.note:
                yield f"{run.verdict}: {run.schedule} on {prompt.name}: {run.note}"
    for fault in audit.faults:
        yield f"FAULT: {fault}"


def _sum(shares: Iterator[Share]) -> Share:
    from realmodel.monotonicity import Share

    return sum(shares, Share())


def _of(share: Share) -> str:
    return f"{share.count}/{share.total} ({share.value:.1%})" if share.total else "0/0"


def _short(share: Share) -> str:
    return f"{share.count}/{share.total}"
