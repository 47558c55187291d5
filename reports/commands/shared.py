"""What several commands do with their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.output import write_whole
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.trace import TracedRequest

MAX_WIDTH = 1024  # Quadratic-SS proposes W (W + 1) tokens a call: beyond this a slip of the keyboard eats the machine


def load_model(model: str, dtype: str, device: str, trust_remote_code: bool = False) -> Any:
    """torch and the loaded model. Raises InvalidInput when the extra is missing."""
    try:
        import torch

        from realmodel.loading import load

        return torch, load(model, dtype, device, trust_remote_code)
    except ModuleNotFoundError as error:
        raise InvalidInput(missing(error)) from None


def missing(error: ModuleNotFoundError) -> str:
    return f"a real model needs the extra 'realmodel' ({error.name} is missing): pip install 'packedss[realmodel]'"


def schedules(names: list[str] | None, widths: list[int] | None, start: str) -> dict[int, list[Any]]:
    """The schedules asked for, by width."""
    from simulator.schedules import STARTS, named

    names = names or ["ar", "linear", "packed", "quadratic"]
    for width in widths or []:  # asked here too, since AR has no width to complain about
        if not 1 <= width <= MAX_WIDTH:
            raise InvalidInput(f"--width, the speculative width W, must lie in 1 .. {MAX_WIDTH}, got {width}")
    if start not in STARTS:
        raise InvalidInput(f"unknown start {start!r}; allowed: {', '.join(STARTS)}")
    # AR drafts nothing, so the starts that differ in the first draft are one to it.
    ar_start = start if start == "prompt" else "algorithm"
    return {w: [named(name, w, ar_start if name == "ar" else start) for name in names] for w in widths or [8]}


def recorder(
    traced: list[TracedRequest], width: int, start: str, model: str, seed: int | None = None
) -> Callable[[TracedRequest], None]:
    """What collects the runs of one width, with what the request lines say of their origin."""

    def record(request: TracedRequest) -> None:
        own_start = start if request.schedule != "ar" or start == "prompt" else "algorithm"
        traced.append(request._replace(width=width, start=own_start, model=model, seed=seed))

    return record


def write_trace(file: Path | None, traced: list[TracedRequest]) -> None:
    if file is not None:
        from simulator.trace import trace_lines

        write_whole(file, trace_lines(traced))


def integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise InvalidInput(f"{option} takes integers separated by commas, got {text!r}") from None
