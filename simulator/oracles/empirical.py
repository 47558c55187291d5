"""Empirical: a real drafter's correctness matrix, measured by `packedss audit`, replayed as it is or resampled to any length.

`packedss audit --json FILE` writes one audit per width into the `rows` of FILE. What is read back of each:

    {"model": .., "dtype": .., "width": W, "start": .., "prompts": [
      {"name": .., "output": [x_1, .., x_L], "rows": [r_0, .., r_(L-1)], "wide": w, "measured": {"linear": calls, ..}}, ..]}

x is the greedy continuation of the prompt. r_c is a text of 0 and 1, min(W, L - c) long: its j-th character tells whether
position c + j is drafted right, as x_(c+j), from x_1 .. x_c. w is the same for the first draft of the start `wide`: W + 1 masks
after the prompt, min(W + 1, L) long. `measured` counts the calls that schedules needed on the model itself, under `start`.

A drafting block of W masks looks both ways, so drafts at one width say nothing exact about another: other widths are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from simulator.decode import Policy, generate
from simulator.errors import InvalidInput
from simulator.oracles.matrix import MatrixModel
from simulator.records import Call, Limits, Reply
from simulator.schedules import STARTS

Row: TypeAlias = tuple[int, ...]

_MAX_BYTES = 1 << 28
_MAX_WIDTH = 1024


class Recording(NamedTuple):
    """What was measured on one prompt."""

    name: str
    rows: tuple[Row, ...]  # rows[c][k - c - 1], as MatrixModel; L rows of min(W, L - c) cells
    wide: Row  # the first draft of the start `wide`, min(W + 1, L) cells
    measured: Mapping[str, int]  # schedule -> calls on the model itself

    @property
    def length(self) -> int:
        """L, the tokens of the greedy path."""
        return len(self.rows)


class Recordings(NamedTuple):
    """One audit: a drafter at one width."""

    model: str
    dtype: str
    width: int
    start: str  # of the measured calls
    prompts: tuple[Recording, ...]


class EmpiricalModel(MatrixModel):
    """A MatrixModel that knows how far it was measured: width `width`, contexts below len(rows).

    Tokens are placeholders: calls depend on the matrix alone. Whether Assumption 3.1 holds is the measured drafter's affair.
    Raises InvalidInput when it is asked to draft at another width, or from a context beyond the matrix.
    """

    def __init__(self, rows: Sequence[Sequence[int]], width: int, wide: Sequence[int] = ()) -> None:
        super().__init__(rows)
        self.width = width
        self._first = MatrixModel([wide])

    def __call__(self, call: Call) -> Reply:
        if call.branches and call.width != self.width + (not call.anchored):
            asked = call.width - (not call.anchored)
            raise InvalidInput(
                f"this drafter was measured at W = {self.width}; it cannot stand for W = {asked}, audit it there"
            )
        if len(call.prefix) >= len(self.rows):
            raise InvalidInput(f"this drafter was measured for {len(self.rows)} tokens, more were asked for; resample it")
        return super().__call__(call) if call.anchored else self._first(call)


def load_audits(file: Path) -> dict[int, Recordings]:
    """The audits in a file of `packedss audit --json`, by width.

    Raises InvalidInput, in one line, when the file cannot be read or is not what this module's docstring says.
    """
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise InvalidInput(f"{str(file)!r} is larger than {_MAX_BYTES >> 20} MiB: not an audit")
        content = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"cannot read {str(file)!r}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{str(file)!r} is not a JSON file") from None
    if not isinstance(content, dict) or content.get("command") != "audit" or not isinstance(content.get("rows"), list):
        raise InvalidInput(f"{str(file)!r} is not a result of `packedss audit --json`")
    found: dict[int, Recordings] = {}
    for index, audit in enumerate(content["rows"]):
        recordings = _recordings(audit, f"{str(file)!r}, audit {index + 1}")
        if recordings.width in found:
            raise InvalidInput(f"{str(file)!r} has two audits of W = {recordings.width}")
        found[recordings.width] = recordings
    if not found:
        raise InvalidInput(f"{str(file)!r} holds no audit")
    return found


def replay(recordings: Recordings) -> list[EmpiricalModel]:
    """The measured drafter, prompt by prompt: every schedule needs exactly the calls it would need on the model, ties aside."""
    return [EmpiricalModel(prompt.rows, recordings.width, prompt.wide) for prompt in recordings.prompts]


def replay_nfe(recordings: Recordings, schedules: Sequence[tuple[str, Policy]]) -> list[dict[str, int]]:
    """Simulated calls, prompt by prompt, of every (name, schedule) for the whole greedy path."""
    return [
        {name: generate(model, schedule, (), Limits.of(prompt.length)).nfe for name, schedule in schedules}
        for prompt, model in zip(recordings.prompts, replay(recordings), strict=True)
    ]


def resample(recordings: Recordings, runs: int, length: int, seed: int, block: int | None = None) -> list[EmpiricalModel]:
    """`runs` drafters of `length` contexts: blocks of consecutive rows of random prompts and places.

    `block` rows each, by default 4 W or as many complete ones as the longest path has.

    A moving-block bootstrap over contexts whose rows are complete. It preserves every row, so accuracy by offset and the law of
    what a fresh draft gains (up to the lesser weight of a path's ends), and what rows of one block have to do with each other.
    It does not preserve positions that two blocks share, about W - 1 in every `block`: there a surprise may be lost and a
    breach of Assumption 3.1 made up. The first draft of `wide` is that of a random prompt. The same seed gives the same
    drafters.

    Raises InvalidInput when no prompt has `block` complete rows, or a number is out of range.
    """
    width = recordings.width
    longest = max(prompt.length for prompt in recordings.prompts) - width + 1
    block = max(1, min(4 * width, longest)) if block is None else block
    for name, value, least in (("runs", runs, 1), ("length", length, 1), ("seed", seed, 0), ("block", block, 1)):
        if value < least:
            raise InvalidInput(f"{name} must be >= {least}, got {value}")
    complete = [prompt for prompt in recordings.prompts if prompt.length - width + 1 >= block]
    if not complete:
        raise InvalidInput(
            f"no prompt has {block} contexts with {width} drafts each, at most {max(0, longest)}: shorter blocks?"
        )
    places = np.array([prompt.length - width + 2 - block for prompt in complete])
    ends = places.cumsum()
    rng = np.random.default_rng(seed)
    models = []
    for _ in range(runs):
        rows: list[Row] = []
        for place in rng.integers(ends[-1], size=-(-length // block)):
            which = int(np.searchsorted(ends, place, side="right"))
            begin = int(place - ends[which] + places[which])
            rows += complete[which].rows[begin : begin + block]
        first = complete[rng.integers(len(complete))].wide
        models.append(EmpiricalModel(rows[:length], width, first))
    return models


def _recordings(audit: Any, where: str) -> Recordings:
    if not isinstance(audit, dict):
        raise InvalidInput(f"{where}: an audit is an object, got {_shown(audit)}")
    width, start, prompts = audit.get("width"), audit.get("start"), audit.get("prompts")
    if type(width) is not int or not 1 <= width <= _MAX_WIDTH:
        raise InvalidInput(f"{where}: width must be an integer in 1 .. {_MAX_WIDTH}, got {_shown(width)}")
    if start not in STARTS:
        raise InvalidInput(f"{where}: start must be one of {', '.join(STARTS)}, got {_shown(start)}")
    if not isinstance(prompts, list) or not prompts:
        raise InvalidInput(f"{where}: prompts must be a list of at least 1, got {_shown(prompts)}")
    model, dtype = (_text(audit.get(key), f"{where}: {key}") for key in ("model", "dtype"))
    read = tuple(_recording(prompt, width, f"{where}, prompt {index}") for index, prompt in enumerate(prompts, start=1))
    return Recordings(model, dtype, width, start, read)


def _recording(prompt: Any, width: int, where: str) -> Recording:
    if not isinstance(prompt, dict):
        raise InvalidInput(f"{where}: a prompt is an object, got {_shown(prompt)}")
    output, rows, measured = (prompt.get(key) for key in ("output", "rows", "measured"))
    if not isinstance(output, list) or not output or any(type(token) is not int or token < 0 for token in output):
        raise InvalidInput(f"{where}: output must be a list of at least 1 token id, got {_shown(output)}")
    length = len(output)
    if not isinstance(rows, list) or len(rows) != length:
        raise InvalidInput(f"{where}: rows must be a list of {length}, one for every output token, got {_shown(rows)}")
    if not isinstance(measured, dict) or any(type(calls) is not int or calls < 0 for calls in measured.values()):
        raise InvalidInput(f"{where}: measured must give a number of calls >= 0 per schedule, got {_shown(measured)}")
    cells = tuple(_cells(row, min(width, length - c), f"{where}, row of context {c}") for c, row in enumerate(rows))
    wide = _cells(prompt.get("wide"), min(width + 1, length), f"{where}, wide")
    return Recording(_text(prompt.get("name"), f"{where}: name"), cells, wide, dict(measured))


def _cells(text: Any, size: int, where: str) -> Row:
    if not isinstance(text, str) or len(text) != size or set(text) - {"0", "1"}:
        raise InvalidInput(f"{where}: a text of {size} characters 0 or 1 is needed, got {_shown(text)}")
    return tuple(map(int, text))


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{where} must be a text, got {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    """A hostile value, short and in one line."""
    if isinstance(value, list | dict):
        return f"{type(value).__name__} of {len(value)}"
    return ascii(value)[:40] if not isinstance(value, int) or abs(value) < 10**20 else "a huge number"
