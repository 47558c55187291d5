"""`packedss validate` on an any-order model: the same questions, asked order by order."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from reports.commands.shared import write_trace
from reports.output import progress, replay_line, write_json
from simulator.errors import InvalidInput
from simulator.records import Limits, Tokens

_MAX_WIDTH = 64  # Quadratic-SS evaluates W (W + 2) rows a call


class Asked(NamedTuple):
    """The options of the command."""

    model: str
    schedules: list[str] | None
    widths: list[int] | None
    orders: list[str] | None
    horizon: int | None
    max_new_tokens: int
    dtype: str
    reference_dtype: str
    device: str
    padded: bool | None
    repeats: int
    folder: Path | None
    workers: int
    threads: int
    start: str
    details: bool
    json_file: Path | None
    trace: Path | None
    quiet: bool
    output_positions: int | None = None  # SetDLM: allocated after the prompt, past the trained length too
    questions: list[str] | None = None  # SetDLM: of GSM8K
    ids_given: bool = False


def validate(asked: Asked, texts_of: Callable[[Any], list[tuple[str, Tokens]]]) -> int:
    """Run, certify, print. `texts_of` says what to decode with a loaded model. Raises InvalidInput for a wrong option."""
    import torch

    from realmodel.any_order.loading import load_any_order
    from realmodel.any_order.validate import SCHEDULES, arms
    from realmodel.any_order.validate import validate as run
    from realmodel.efficiency import Source
    from realmodel.setdlm import SetDLM

    for width in asked.widths or []:
        if not 1 <= width <= _MAX_WIDTH:
            raise InvalidInput(f"--width, the speculative width W, must lie in 1 .. {_MAX_WIDTH} here, got {width}")
    orders = asked.orders or ["ltr", "confidence"]
    loaded = load_any_order(asked.model, asked.dtype, asked.device)
    widths, horizon = asked.widths or [8], asked.horizon
    positions = asked.max_new_tokens
    if isinstance(loaded, SetDLM):
        widths, horizon = asked.widths or [loaded.window], loaded.horizon if horizon is None else horizon
        if asked.trace is not None:
            raise InvalidInput("--trace is not for SetDLM: its rule for the end of an answer has no place in a trace")
    chosen = arms(asked.schedules or SCHEDULES, widths, orders, asked.start, horizon)
    if asked.output_positions is not None:
        Limits.of(asked.output_positions)
        if not isinstance(loaded, SetDLM) or asked.workers > 1:
            raise InvalidInput("--output-positions is for SetDLM, in one process; --max-new-tokens is the length for others")
        positions = asked.output_positions
        loaded.beyond = True
    texts = _questions(asked, loaded) if isinstance(loaded, SetDLM) and not asked.ids_given else texts_of(loaded)
    torch.set_num_threads(asked.threads)
    source = Source(asked.model, asked.dtype, asked.device, asked.threads)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *rest: print(f"warning: {message}", file=sys.stderr)
        result = run(
            source if asked.workers > 1 else loaded,
            load_any_order(asked.model, asked.reference_dtype, asked.device),
            texts,
            chosen,
            loaded.limits(positions),
            asked.start,
            horizon=horizon,
            repeats=asked.repeats,
            padded=asked.padded,
            folder=asked.folder,
            workers=asked.workers,
            progress=lambda done, total: progress(done, "running", asked.quiet, total),
            certifying=partial(progress, label="certifying", quiet=asked.quiet),
        )
    if not asked.quiet:
        from reports.tables import print_any_order

        print_any_order(result, asked.details)
    arguments = {name: getattr(asked, name) for name in ("model", "dtype", "device", "threads", "padded")}
    write_trace(asked.trace, [run_._replace(model=loaded.name) for run_ in result.traced()])
    write_json(asked.json_file, "validate", arguments | {"prompts": dict(texts)}, result.rows())
    replay_line(asked.quiet)
    return {"EXACT": 0, "TIES": 0, "FAULT": 1}.get(result.verdict, 2)


def _questions(asked: Asked, loaded: Any) -> list[tuple[str, Tokens]]:
    if not asked.questions:
        raise InvalidInput(f"{loaded.name} answers questions of GSM8K: give one with --prompt, or token ids with --prompt-ids")
    return [(f"--prompt {i}", loaded.gsm8k_prompt(question)) for i, question in enumerate(asked.questions, start=1)]
