"""What came out of a run of the protocol: numbers per response, verdicts and names, without tokens, texts or a model.

It is one JSON file, `study.json`, written anew after every cell; tables are made of it alone.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from realmodel.bootstrap import Floats
from simulator.errors import InvalidInput

FILE = "study.json"
SCHEMA = 1
PROBE = "probe"
BY_DESIGN = "not exact by design"
"""The verdict of the native decoder, if it is what it is meant to be."""
SHOWN = ("EXACT", "TIES", BY_DESIGN)
"""Verdicts whose figures may be shown."""
VERDICTS = (*SHOWN, "FAULT", "NOT RUN")
_LARGEST = 1e15  # of any number of a response: sums of them are finite, and of counts exact
COLUMNS = ("tokens", "nfe", "rows", "wall", "model", "iterations", "iterations_model", "largest", "correct")
"""Of a response: output tokens, model calls, token rows, seconds, those inside the network, verifying calls after the first
call, seconds inside the network after it, most rows of a call after it, and 1 right, 0 wrong or NaN not graded."""
TOKENS, NFE, ROWS, WALL, MODEL, ITERATIONS, ITERATIONS_MODEL, LARGEST, CORRECT = range(len(COLUMNS))


class Method(NamedTuple):
    """An arm of a cell."""

    schedule: str
    order: str  # of an any-order schedule; "" for a left-to-right model, and for the native decoder
    width: int  # W; 0 for AR
    verdict: str  # of VERDICTS: that of its certificate, or BY_DESIGN
    evaluated: int | None = None  # rows of an iteration for which a proposal-only adapter computes updates (T5)
    selected: int | None = None  # rows that receive them

    @property
    def certified(self) -> bool:
        """Whether its figures may be shown."""
        return self.verdict in SHOWN

    @property
    def key(self) -> tuple[str, str, int]:
        return self.schedule, self.order, self.width


class Trajectory(NamedTuple):
    """Greedy outputs of a method beside Linear-SS's: on how many prompts they differ, and what was found of the differences."""

    method: int  # its place in the cell
    baseline: int
    prompts: int
    different: int
    examined: int  # differences that were held against the reference
    ties: int
    faults: int
    examples: tuple[str, ...]  # the first few, in words
    labels: int | None  # prompts on which one was graded right and the other wrong; None where nothing is graded


class Reason(NamedTuple):
    """Why answers of a method were wrong."""

    method: int
    why: str
    responses: int


class Evidence(NamedTuple):
    """A method's certificate in words."""

    method: int
    layers: tuple[tuple[str, str, str], ...]  # name, verdict, what was looked at
    findings: tuple[str, ...]


@dataclass(frozen=True)
class Cell:
    """One task at one temperature, or the block-size probe.

    runs  [methods, prompts, draws, columns]: see COLUMNS
    """

    task: str
    kind: str  # "task" or "probe"
    temperature: float
    cap: int
    start: str
    paper_size: int  # problems that the paper runs
    scored: bool
    prompts: tuple[str, ...]
    methods: tuple[Method, ...]
    runs: Floats
    trajectories: tuple[Trajectory, ...] = ()
    reasons: tuple[Reason, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    @property
    def draws(self) -> int:
        return int(self.runs.shape[2])

    def find(self, schedule: str, order: str = "") -> int | None:
        """The place of the first method of that schedule and order."""
        return next((i for i, each in enumerate(self.methods) if (each.schedule, each.order) == (schedule, order)), None)


@dataclass(frozen=True)
class Study:
    """All finished cells of one model."""

    model: str
    dtype: str
    device: str
    hardware: str
    contended: bool  # several processes shared the machine: counts stand, times are no honest speeds
    any_order: bool
    seed: int
    versions: dict[str, str]
    cells: tuple[Cell, ...]

    @property
    def words(self) -> list[str]:
        return [method.verdict for cell in self.cells for method in cell.methods]

    def plain(self) -> dict[str, Any]:
        """For JSON; NaN is null."""
        return {"schema": SCHEMA} | vars(self) | {"cells": [_plain_cell(cell) for cell in self.cells]}


def arranged(rows: Iterable[tuple[int, str, int, Sequence[float]]], methods: int, prompts: Sequence[str], draws: int) -> Floats:
    """(method, prompt, draw, columns) of every response, as [methods, prompts, draws, columns].

    Raises InvalidInput unless every method has every draw of every prompt exactly once: nothing could be paired else.
    """
    found = np.full((methods, len(prompts), draws, len(COLUMNS)), math.nan)
    seen = np.zeros((methods, len(prompts), draws), dtype=int)
    places = {name: place for place, name in enumerate(prompts)}
    for method, prompt, draw, columns in rows:
        if prompt not in places or not 0 <= draw < draws:
            raise InvalidInput(f"a response to {prompt!r}, draw {draw}, belongs to no prompt of this cell")
        found[method, places[prompt], draw] = columns
        seen[method, places[prompt], draw] += 1
    if (seen != 1).any():
        where = tuple(int(place) for place in np.argwhere(seen != 1)[0])
        raise InvalidInput(
            f"method {where[0]} has {seen[where]} responses to {prompts[where[1]]!r}, draw {where[2]}, not one: nothing can be"
            " paired"
        )
    return found


def write(study: Study, folder: Path) -> None:
    """`study.json` in the folder: whole or not at all. Raises InvalidInput when it cannot be written."""
    part = folder / f".{FILE}.{os.getpid()}.part"
    try:
        part.write_text(json.dumps(study.plain(), allow_nan=False))
        os.replace(part, folder / FILE)
    except OSError as error:
        raise InvalidInput(f"cannot write {str(folder / FILE)!r}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def read(folder: Path) -> Study:
    """The study in a folder. Raises InvalidInput, one line, when there is none or it is not what `write` wrote."""
    try:
        content = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        raise InvalidInput(f"no cell of a run is finished in {str(folder)!r}: it has no {FILE}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidInput(f"{FILE} in {str(folder)!r} cannot be read ({type(error).__name__})") from error
    try:
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']!r}, this version reads {SCHEMA}")
        return _study(content)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise InvalidInput(f"{FILE} in {str(folder)!r} is damaged: {type(error).__name__}: {error}") from error


def _study(content: Mapping[str, Any]) -> Study:
    texts = {name: _of(str, content[name]) for name in ("model", "dtype", "device", "hardware")}
    flags = {name: _of(bool, content[name]) for name in ("contended", "any_order")}
    versions = {_of(str, name): _of(str, value) for name, value in content["versions"].items()}
    cells = tuple(_cell(cell) for cell in content["cells"])
    if not cells:
        raise ValueError("no cell")
    return Study(**texts, **flags, seed=_of(int, content["seed"]), versions=versions, cells=cells)


def _cell(content: Mapping[str, Any]) -> Cell:
    methods = tuple(_method(each) for each in content["methods"])
    prompts = tuple(_of(str, name) for name in content["prompts"])
    runs = np.array(content["runs"], dtype=np.float64)  # null is NaN
    if runs.ndim != 4 or runs.shape[:2] != (len(methods), len(prompts)) or runs.shape[3] != len(COLUMNS) or not runs.size:
        raise ValueError(f"runs of shape {runs.shape}")
    if np.isnan(runs[..., :CORRECT]).any() or (runs[..., :CORRECT] < 0).any() or (runs[..., :CORRECT] > _LARGEST).any():
        raise ValueError("runs with a number that is missing, negative or beyond measure")
    if not set(np.unique(runs[..., CORRECT][~np.isnan(runs[..., CORRECT])])) <= {0.0, 1.0}:
        raise ValueError("grades other than 0 and 1")
    temperature = float(content["temperature"])
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature {temperature}")
    if len(set(prompts)) < len(prompts) or len({method.key for method in methods}) < len(methods):
        raise ValueError("a prompt or method twice")
    count = len(methods)
    return Cell(
        _of(str, content["task"]),
        _of(str, content["kind"]),
        temperature,
        _of(int, content["cap"]),
        _of(str, content["start"]),
        _of(int, content["paper_size"]),
        _of(bool, content["scored"]),
        prompts,
        methods,
        runs,
        tuple(_trajectory(each, count) for each in content["trajectories"]),
        tuple(Reason(_place(m, count), _of(str, why), _of(int, n)) for m, why, n in content["reasons"]),
        tuple(
            Evidence(
                _place(m, count),
                tuple((_of(str, name), _of(str, word), _of(str, detail)) for name, word, detail in layers),
                tuple(_of(str, finding) for finding in findings),
            )
            for m, layers, findings in content["evidence"]
        ),
    )


def _method(content: Sequence[Any]) -> Method:
    schedule, order, width, verdict, *adapter = content
    rows = [None if each is None else _of(int, each) for each in adapter]
    if verdict not in VERDICTS:
        raise ValueError(f"verdict {str(verdict)[:40]!r}")
    return Method(_of(str, schedule), _of(str, order), _of(int, width), _of(str, verdict), *rows)


def _trajectory(content: Sequence[Any], methods: int) -> Trajectory:
    method, baseline, prompts, different, examined, ties, faults, examples, labels = content
    return Trajectory(
        _place(method, methods),
        _place(baseline, methods),
        _of(int, prompts),
        _of(int, different),
        _of(int, examined),
        _of(int, ties),
        _of(int, faults),
        tuple(_of(str, each) for each in examples),
        None if labels is None else _of(int, labels),
    )


def _place(value: Any, count: int) -> int:
    if not 0 <= _of(int, value) < count:
        raise ValueError(f"method {value} of {count}")
    return int(value)


def _of(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:40]!r} is no {kind.__name__}")
    return value


def _plain_cell(cell: Cell) -> dict[str, Any]:
    runs = np.where(np.isnan(cell.runs), None, cell.runs.astype(object)).tolist()  # type: ignore[call-overload]
    return vars(cell) | {"runs": runs}
