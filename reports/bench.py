"""`make bench`: speeds as ratios measured in one run, since a machine's absolute speed drifts.

Each pair is timed in turns (A B A B ...) and the median of the per-turn ratios is printed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from simulator import Limits, ar, generate, linear, packed, quadratic
from simulator.nfe import count, simulate
from simulator.oracles import ThresholdModel
from simulator.oracles.families import Geometric, Mixture
from simulator.simulate import lag_drafters
from spec import Given, greedy
from spec.thresholds import threshold_model

LENGTH, WIDTH, TURNS = 400, 8, 9
RUNS, WIDE = 10_000, 31  # what the fast engine is timed on: 4 million tokens


def _seconds(run: Callable[[], object]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def compare(first: Callable[[], object], second: Callable[[], object]) -> tuple[float, float, float]:
    """(median seconds of `first`, of `second`, median ratio second / first) over `TURNS` turns after one warm-up of each."""
    first()
    second()
    pairs = [(_seconds(first), _seconds(second)) for _ in range(TURNS)]
    a, b = zip(*pairs, strict=True)
    return statistics.median(a), statistics.median(b), statistics.median(y / x for x, y in pairs)


def main() -> None:
    """Print the table."""
    table = Table(title="Ratios in one run (above 1: ours is faster)", title_justify="left")
    for column in ("ours", "against", "ours, ms", "against, ms", "ratio"):
        table.add_column(column, justify="left" if "," not in column and column != "ratio" else "right")

    def row(ours: str, against: str, first: Callable[[], object], second: Callable[[], object]) -> None:
        a, b, ratio = compare(first, second)
        table.add_row(ours, against, f"{1000 * a:.3f}", f"{1000 * b:.3f}", f"{ratio:.3g}")

    [drafter] = lag_drafters(1, LENGTH, 3.0, 0)
    model, limits = ThresholdModel(drafter), Limits.of(LENGTH)
    p, q = threshold_model(drafter)
    given = Given(prompt=(), W=WIDTH, L=LENGTH, p=p, q=q)
    array = np.array(drafter)
    row(
        f"scheduler, packed, {LENGTH} tokens",
        "spec's literal Algorithm 1",
        lambda: generate(model, packed(WIDTH), (), limits),
        lambda: greedy.run("packed", given),
    )
    row(
        f"scheduler, packed, {LENGTH} tokens",
        "memory scan of the thresholds",
        lambda: generate(model, packed(WIDTH), (), limits),
        lambda: array.sum(),
    )
    _engine(row, drafter, given)
    try:
        import torch

        from realmodel import held_out_prompts, load
        from realmodel.reference import greedy_reference
    except ModuleNotFoundError:
        Console().print("torch or transformers is missing: no bench of the embedded model")
    else:
        torch.set_num_threads(1)
        network = load()
        prompt = tuple(network.tokenizer.encode(held_out_prompts(1)[0].text).ids)
        short = Limits.of(64)
        for make in (ar(), linear(WIDTH), packed(WIDTH), quadratic(WIDTH)):
            row(
                f"embedded model, {make.name}, 64 tokens",
                "transformers generate",
                lambda make=make: generate(network.session(), make, prompt, short),  # type: ignore[misc]
                lambda: greedy_reference(network, prompt, short),
            )
    Console().print(table)


def _engine(
    row: Callable[[str, str, Callable[[], object], Callable[[], object]], None], drafter: list[int], given: Any
) -> None:
    """The fast engine on Linear-SS and Packed-SS together, against reading the same lags once and against spec's own run."""
    both = [linear(WIDE), packed(WIDE)]
    families = (Geometric(mean=3), Geometric(mean=40), Mixture(rate=0.0956, rho=0.7))
    for family in families:
        lags = np.stack([family.lags(0, run, LENGTH, WIDE + 1) for run in range(RUNS)]).astype(np.uint8)
        words = lags.view(np.uint64)
        size, scan = f"{lags.size / 1e6:g} M tokens", f"memory scan of {lags.nbytes / 1e6:g} MB of lags"
        row(f"engine, linear and packed, {size}, {family}", scan, lambda lags=lags: count(lags, both), words.sum)  # type: ignore[misc]
        row("the same, lags drawn", scan, lambda family=family: simulate(family, both, RUNS, LENGTH), words.sum)  # type: ignore[misc]
    given_lags = np.tile((np.arange(1, LENGTH + 1) - drafter).astype(np.uint8), (RUNS, 1))
    row(
        f"engine, packed, {RUNS} runs of {LENGTH} tokens",
        "spec's literal Algorithm 1, 1 run",
        lambda: count(given_lags, [packed(WIDTH)]),
        lambda: greedy.run("packed", given),
    )


if __name__ == "__main__":
    main()
