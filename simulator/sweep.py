"""Sweeps: the calls of every schedule, width, start, drafter, length and seed of a grid, a file for each cell.

A file is named after its cell's numbers, written whole and once: a sweep that was interrupted, however, goes on where it was.

    from simulator.sweep import Grid, sweep

    grid = Grid(drafters=("geometric:mean=3", "geometric:mean=9"), schedules=("linear", "packed"), widths=(8, 16), runs=1000)
    swept = sweep(grid, Path("out/sweep"), workers=2)
    swept.results[0].tokens_per_nfe  # with its interval

Cells of one drafter, length and seed stand for the same requests, whatever else they differ in: `gain` compares them pairwise.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import product
from math import floor, log10
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from simulator import engines
from simulator.errors import InvalidInput
from simulator.nfe.counting import blocks
from simulator.oracles.families import parse
from simulator.schedule import Schedule
from simulator.schedules import STARTS, named

SEMANTICS = 1
"""Part of every name. One more whenever a change to the engine, its coins or the families changes numbers (a test sees it)."""

BATCHES = 32
MAX_WIDTH, MAX_LENGTH, MAX_RUNS, MAX_CELLS = 1024, 2**30, 2**30, 10**6
_TASK = 30_000_000  # tokens a task goes through: a fraction of a second, little to lose and little overhead
_TASK_CELLS = 64

Shown: TypeAlias = Callable[..., Iterable[Any]]


@dataclass(frozen=True, order=True)
class Cell:
    """One schedule under one drafter. AR drafts nothing: its width is 0, and its start `prompt` or `algorithm`."""

    drafter: str  # as `parse` reads it
    length: int  # L
    runs: int
    seed: int
    start: str
    width: int
    schedule: str

    @property
    def name(self) -> str:
        """Of the file: 128 bits of a hash of everything the numbers depend on."""
        return sha256(_canonical({"semantics": SEMANTICS, **asdict(self)})).hexdigest()[:32] + ".json"

    @property
    def requests(self) -> tuple[str, int, int, int]:
        """Cells that agree in it stand for the same requests."""
        return self.drafter, self.length, self.runs, self.seed

    def made(self) -> Schedule:
        """The schedule. Raises InvalidInput."""
        return named(self.schedule, self.width, self.start)


@dataclass(frozen=True)
class Grid:
    """Every combination is a cell, each once.

    Raises InvalidInput, naming the dimension, for one that is empty or holds something that is out of range or unknown.
    """

    drafters: tuple[str, ...]
    schedules: tuple[str, ...] = ("ar", "linear", "packed", "quadratic")
    widths: tuple[int, ...] = (8,)
    lengths: tuple[int, ...] = (256,)
    starts: tuple[str, ...] = ("algorithm",)
    seeds: tuple[int, ...] = (0,)
    runs: int = 1000

    def __post_init__(self) -> None:
        for name, values in asdict(self).items():
            if name != "runs" and not values:
                raise InvalidInput(f"{name}: a sweep needs at least 1")
        ranges = {"widths": (1, MAX_WIDTH), "lengths": (1, MAX_LENGTH), "seeds": (0, 2**64 - 1), "runs": (2, MAX_RUNS)}
        for name, (low, high) in ranges.items():
            values = getattr(self, name)
            for value in values if isinstance(values, tuple) else (values,):
                if type(value) is not int or not low <= value <= high:
                    why = ": one run has no interval" if name == "runs" and value == 1 else ""
                    raise InvalidInput(f"{name} must be integers in {low} .. {high}, got {value!r}{why}")
        for start in self.starts:
            if start not in STARTS:
                raise InvalidInput(f"starts: unknown start {start!r}; allowed: {', '.join(STARTS)}")
        size = int(np.prod([len(v) for v in asdict(self).values() if isinstance(v, tuple)], dtype=object))
        if size > MAX_CELLS:
            raise InvalidInput(f"a sweep may have {MAX_CELLS} cells, this one has {size}")
        for schedule, width in product(self.schedules, self.widths):
            named(schedule, width)
        for drafter in self.drafters:
            parse(drafter)

    def cells(self) -> list[Cell]:
        """In order: drafter, length, seed, start, width, schedule."""
        found: dict[Cell, None] = {}
        dimensions = (self.drafters, self.lengths, self.seeds, self.starts, self.widths, self.schedules)
        for drafter, length, seed, start, width, schedule in product(*dimensions):
            own = ("prompt" if start == "prompt" else "algorithm", 0) if schedule == "ar" else (start, width)
            found[Cell(str(parse(drafter)), length, self.runs, seed, *own, schedule)] = None
        return list(found)


class Interval(NamedTuple):
    """A figure and its 95 % interval, or the word exact.

    By batch means: a ratio of sums over runs, the spread taken from the at most 32 batches of consecutive runs (delta method),
    Student's t. No spread between batches gives an empty interval, which proves nothing about rare events.
    """

    value: float
    low: float
    high: float
    exact: bool = False

    @property
    def half(self) -> float:
        """Half the interval's length."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        if self.exact:
            return f"{self.value:.4g} exact"
        digits = max(0, min(9, 1 - floor(log10(self.half)))) if self.half > 0 else 3
        return f"{self.value:.{digits}f} ± {self.half:.{digits}f}"


@dataclass(frozen=True)
class Result:
    """What a cell's runs came to, batch by batch."""

    cell: Cell
    tokens: tuple[int, ...]  # of a batch
    calls: tuple[int, ...]
    histogram: tuple[tuple[int, int], ...]  # (NFE, runs with it), NFE ascending

    @property
    def tokens_per_nfe(self) -> Interval:
        """Aggregate (METRICS)."""
        return ratio(self.tokens, self.calls, self.cell.schedule == "ar")

    def plain(self) -> dict[str, Any]:
        """For JSON: the cell and its figures."""
        return {
            **asdict(self.cell),
            "tokens": sum(self.tokens),
            "nfe": sum(self.calls),
            "tokens_per_nfe": self.tokens_per_nfe._asdict(),
            "nfe_histogram": dict(self.histogram),
        }


def gain(result: Result, over: Result) -> Interval:
    """Tokens/NFE of one cell over that of another on the same requests, batch by batch.

    Raises InvalidInput for cells of other requests or starts (NFE-CONV).
    """
    one, other = result.cell, over.cell
    same_start = one.start == other.start or (
        "ar" in (one.schedule, other.schedule) and "prompt" not in (one.start, other.start)
    )
    if one.requests != other.requests or not same_start:
        raise InvalidInput(f"no gain of {one} over {other}: not the same requests and start")
    return ratio(over.calls, result.calls, one.schedule == other.schedule == "ar")


def pooled(results: Sequence[Result]) -> list[Result]:
    """Cells that differ in the seed alone as one, its seed that of the first; in the order of the first."""
    groups: dict[Cell, list[Result]] = {}
    for result in results:
        groups.setdefault(replace(result.cell, seed=0), []).append(result)
    found = []
    for group in groups.values():
        counts: dict[int, int] = {}
        for result in group:
            for calls, runs in result.histogram:
                counts[calls] = counts.get(calls, 0) + runs
        cell = replace(group[0].cell, runs=sum(result.cell.runs for result in group))
        tokens, calls_ = (tuple(n for result in group for n in getattr(result, field)) for field in ("tokens", "calls"))
        found.append(Result(cell, tokens, calls_, tuple(sorted(counts.items()))))
    return found


class Swept(NamedTuple):
    """A finished sweep."""

    results: list[Result]  # in the order of Grid.cells
    computed: int  # cells computed now; the others were there
    damaged: list[Path]  # files that could not be read as what they should be, computed again


def sweep(
    grid: Grid,
    folder: Path,
    engine: str = "local",
    workers: int = 1,
    address: str | None = None,
    progress: Shown = lambda items, total: items,
) -> Swept:
    """Every cell of `grid`: read from `folder` where it is there, computed and written where not.

    Results depend on neither engine nor number of workers (`simulator.engines.run` explains these and `address`).
    `progress(iterator, total=cells to compute)` passes on the iterator, an item for every cell computed.

    Raises InvalidInput, before anything is computed, for a bad engine or number of workers, and when `folder` cannot be used.
    """
    engines.check(engine, workers, address)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot use the folder {str(folder)!r}: {error.strerror}") from None
    cells = grid.cells()
    found: dict[Cell, Result] = {}
    damaged = []
    for cell in cells:
        file = folder / cell.name
        try:
            found[cell] = _read(file, cell)
        except FileNotFoundError:
            pass
        except (OSError, ValueError):
            damaged.append(file)
    missing = [cell for cell in cells if cell not in found]

    def computed() -> Iterator[Result]:
        for results in engines.run(compute, _tasks(missing), engine, workers, address):
            for result in results:
                _write(folder, result)
                yield result

    for result in progress(computed(), total=len(missing)):
        found[result.cell] = result
    return Swept([found[cell] for cell in cells], len(missing), damaged)


def load(folder: Path) -> tuple[list[Result], list[Path]]:
    """(all results in `folder`, sorted by cell; files that are damaged or of another version). Raises InvalidInput if none."""
    results, damaged = [], []
    for file in sorted(folder.glob("*.json")):
        try:
            results.append(_read(file))
        except (OSError, ValueError):
            damaged.append(file)
    if not results:
        raise InvalidInput(f"no sweep in {str(folder)!r}")
    return sorted(results, key=lambda result: result.cell), damaged


def compute(cells: Sequence[Cell]) -> list[Result]:
    """What a worker does: the cells of each (drafter, length, runs, seed) together, since they need the same lags."""
    found: dict[Cell, Result] = {}
    groups: dict[tuple[Any, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.requests, []).append(cell)
    for (drafter, length, runs, seed), group in groups.items():
        edges = np.linspace(0, runs, min(BATCHES, runs) + 1).astype(np.int64)
        sums = np.zeros((len(group) + 1, len(edges) - 1), np.int64)
        counts: list[dict[int, int]] = [{} for _ in group]
        first = 0
        for ends, nfe in blocks(parse(drafter), [cell.made() for cell in group], runs, length, seed):
            batch = np.searchsorted(edges, np.arange(first, first + len(ends)), side="right") - 1
            begins = np.flatnonzero(np.diff(batch, prepend=-1))
            sums[:, batch[begins]] += np.add.reduceat(np.vstack([ends, nfe]), begins, axis=1)
            for seen, row in zip(counts, nfe, strict=True):
                for calls, number in zip(*(x.tolist() for x in np.unique(row, return_counts=True)), strict=True):
                    seen[calls] = seen.get(calls, 0) + number
            first += len(ends)
        tokens = tuple(sums[0].tolist())
        for cell, row, seen in zip(group, sums[1:].tolist(), counts, strict=True):
            found[cell] = Result(cell, tokens, tuple(row), tuple(sorted(seen.items())))
    return [found[cell] for cell in cells]


def _tasks(cells: Sequence[Cell]) -> list[list[Cell]]:
    """The cells, cut into tasks of about _TASK tokens; those of the same requests stay together as far as they fit."""
    tasks: list[list[Cell]] = []
    size, last = 0, None
    for cell in sorted(cells, key=lambda cell: cell.requests):
        tokens = cell.length * cell.runs
        cost = tokens * (1 + (cell.requests != last))  # one for its lags, one for its calls
        if not tasks or size + cost > _TASK or len(tasks[-1]) == _TASK_CELLS:
            tasks.append([])
            size, cost = 0, 2 * tokens
        tasks[-1].append(cell)
        size, last = size + cost, cell.requests
    return tasks


def ratio(above: Sequence[int], below: Sequence[int], exact: bool = False) -> Interval:
    """sum(above) / sum(below) over batches, two at least."""
    from scipy.special import stdtrit

    a, b, n = sum(above), sum(below), len(above)
    value = a / b
    if exact:
        return Interval(value, value, value, True)
    # Of batches of about equal size: sum of (b above - a below)^2 in integers, so that nothing cancels.
    squares = sum((b * x - a * y) ** 2 for x, y in zip(above, below, strict=True))
    spread = float(stdtrit(n - 1, 0.975)) * (squares / b**4 * n / (n - 1)) ** 0.5
    return Interval(value, value - spread, value + spread)


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def _write(folder: Path, result: Result) -> None:
    """Whole or not at all. Raises InvalidInput."""
    content = {"semantics": SEMANTICS, **asdict(result)}
    data = _canonical({**content, "sha256": sha256(_canonical(content)).hexdigest()})
    part = None
    try:
        with tempfile.NamedTemporaryFile("wb", dir=folder, suffix=".part", delete=False) as handle:
            part = handle.name
            handle.write(data)
        os.replace(part, folder / result.cell.name)
    except OSError as error:
        raise InvalidInput(f"cannot write to the folder {str(folder)!r}: {error.strerror}") from error
    finally:
        if part is not None and os.path.exists(part):
            os.unlink(part)


def _read(file: Path, cell: Cell | None = None) -> Result:
    """Raises ValueError for anything but the file that `_write` writes, of `cell` if given."""
    try:
        content = json.loads(file.read_bytes())
        digest = content.pop("sha256")
        if digest != sha256(_canonical(content)).hexdigest() or content["semantics"] != SEMANTICS:
            raise ValueError
        tokens, calls = (tuple(content[field]) for field in ("tokens", "calls"))
        result = Result(Cell(**content["cell"]), tokens, calls, tuple((n, runs) for n, runs in content["histogram"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ValueError(f"{str(file)!r} is damaged") from None
    if cell not in (None, result.cell):
        raise ValueError(f"{str(file)!r} is the file of another cell")
    return result
