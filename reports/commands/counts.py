"""`packedss simulate`, `sweep` and `map`: call counts and costs without a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reports.commands.shared import integers, recorder, schedules, write_trace
from reports.options import Json, Picture, Quiet, Schedules, Seed, Start, Trace, Widths, distinct, writable
from reports.output import progress, replay_line, write_json
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from simulator.trace import TracedRequest


def simulate(
    schedule: Schedules = None,
    width: Widths = None,
    tokens: Annotated[int, typer.Option("--tokens", "-n", help="Tokens per run, L.")] = 256,
    runs: Annotated[int, typer.Option(help="Number of simulated requests.")] = 1000,
    drafter: Annotated[
        str,
        typer.Option(
            help="geometric, histogram, barrier, mixture, markov or drift with its parameters, as in mixture:rate=0.1,rho=0.7;"
            " empirical:FILE replays what `packedss audit --json` measured, resampled:FILE draws new requests from it."
            " With --any-order: neighbours:need=3,reach=4,after=1,honest=0.8."
        ),
    ] = "geometric:mean=3",
    any_order: Annotated[
        list[str] | None,
        typer.Option(help="Any-order schedules in this order: ltr, rtl, confidence, random:SEED, 3,1,2,...; repeatable."),
    ] = None,
    thresholds: Annotated[
        str | None, typer.Option(help="One request with these thresholds c*_1,c*_2,... instead of a drafter.")
    ] = None,
    eos_rate: Annotated[float, typer.Option(help="Probability that a position ends its run.")] = 0.0,
    start: Start = "algorithm",
    seed: Seed = 0,
    plot: Picture = None,
    json_file: Json = None,
    trace: Trace = None,
    quiet: Quiet = False,
) -> int:
    """How many model calls (NFE) does a schedule need under a drafter? With intervals, and exactly where there is a law."""
    from functools import partial

    from reports import simulation
    from simulator.records import Limits

    distinct(json_file, trace)
    Limits.of(tokens)
    if runs < 1:
        raise InvalidInput(f"--runs must be >= 1, got {runs}")
    if seed < 0:
        raise InvalidInput(f"--seed must be >= 0, got {seed}")
    if any_order:
        if thresholds or eos_rate or plot or trace:
            raise InvalidInput("--any-order goes with neither --thresholds nor --eos-rate, --plot or --trace")
        return _simulate_any_order(any_order, schedule, width, tokens, runs, drafter, start, seed, json_file, quiet)
    request = simulation.Request(tokens, runs, eos_rate, start, seed)
    by_width = schedules(schedule, width, start)
    shown = partial(progress, label="simulating", quiet=quiet)
    traced: list[TracedRequest] = []
    recorders = {w: recorder(traced, w, start, thresholds or drafter, seed) for w in by_width} if trace else {}
    if thresholds is not None:
        results = simulation.given(integers("--thresholds", thresholds), by_width, request, shown, recorders)
    elif drafter.startswith(("empirical:", "resampled:")):
        results = simulation.empirical(drafter, by_width, request, shown, recorders, quiet)
    else:
        results = simulation.family(drafter, by_width, request, shown, recorders)
    if not quiet:
        from reports.tables import print_simulations

        print_simulations(results, request, drafter if thresholds is None else "given thresholds")
    if plot is not None:
        simulation.draw(results, request, drafter if thresholds is None else "", plot)
    arguments = {"drafter": drafter, "thresholds": thresholds, **request._asdict()}
    write_trace(trace, traced)
    write_json(json_file, "simulate", arguments, [row for result in results for row in result.plain()])
    replay_line(quiet)
    return 0


def _simulate_any_order(
    orders: list[str],
    schedules: list[str] | None,
    widths: list[int] | None,
    tokens: int,
    runs: int,
    drafter: str,
    start: str,
    seed: int,
    json_file: Path | None,
    quiet: bool,
) -> int:
    from functools import partial

    from reports import any_order_simulation as simulation

    drafter = simulation.DEFAULT if drafter == "geometric:mean=3" else drafter
    names = schedules or ["linear", "packed", "quadratic", "native"]
    request = simulation.Request(drafter, orders, names, widths or [8], tokens, runs, start, seed)
    results = simulation.simulate(request, partial(progress, label="simulating", quiet=quiet))
    if not quiet:
        from reports.tables import print_any_order_simulations

        print_any_order_simulations(results, request)
    write_json(json_file, "simulate", request._asdict(), [row for result in results for row in result.plain()])
    replay_line(quiet)
    return 0


def sweep(
    folder: Annotated[Path, typer.Option(help="Where the cells are kept, a file each; a sweep goes on with what is there.")],
    drafter: Annotated[list[str], typer.Option(help="A drafter family with its parameters, as for simulate; repeatable.")],
    schedule: Schedules = None,
    width: Widths = None,
    tokens: Annotated[
        list[int] | None, typer.Option("--tokens", "-n", help="Tokens per run, L; repeatable. Default: 256.")
    ] = None,
    start: Annotated[list[str] | None, typer.Option(help="A start; repeatable. Default: algorithm.")] = None,
    seed: Annotated[list[int] | None, typer.Option(help="A seed; repeatable. Default: 0.")] = None,
    runs: Annotated[int, typer.Option(help="Simulated requests in every cell.")] = 1000,
    engine: Annotated[str, typer.Option(help="local, dask or ray.")] = "local",
    workers: Annotated[int, typer.Option(help="Processes, or workers of a local cluster. 0: one per core, at most 8.")] = 0,
    address: Annotated[str | None, typer.Option(help="Of a running cluster: tcp://host:8786 (dask), auto (ray).")] = None,
    plot: Picture = None,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """Simulate a whole grid, resumable, on one machine or a cluster: the same numbers everywhere."""
    from functools import partial

    import joblib

    from simulator.sweep import Grid
    from simulator.sweep import sweep as run

    grid = Grid(
        tuple(drafter),
        tuple(schedule or ("ar", "linear", "packed", "quadratic")),
        tuple(width or (8,)),
        tuple(tokens or (256,)),
        tuple(start or ("algorithm",)),
        tuple(seed or (0,)),
        runs,
    )
    shown = partial(progress, label="sweeping", quiet=quiet)
    swept = run(grid, folder, engine, workers or min(8, joblib.cpu_count()), address, shown)
    if not quiet:
        from reports.plots import print_sweep

        print_sweep(swept.results, swept.computed, swept.damaged)
    if plot is not None:
        from reports.plots import difficulty, save

        save(difficulty(swept.results), plot)
    write_json(json_file, "sweep", vars(grid) | {"folder": str(folder)}, [result.plain() for result in swept.results])
    replay_line(quiet)
    return 0


def cost_map(
    plot: Annotated[Path, typer.Option("--plot", help="The picture to draw: .svg or .png.", callback=writable)],
    drafter: Annotated[
        str, typer.Option(help="A drafter family with X in place of one number, as in mixture:rate=X,rho=0.7.")
    ] = "barrier:rate=X",
    low: Annotated[float, typer.Option("--from", help="Least X.")] = 0.02,
    high: Annotated[float, typer.Option("--to", help="Largest X.")] = 0.5,
    width: Widths = None,
    branches: Annotated[
        bool, typer.Option("--branches", help="The best branch set of one width instead of the winner.")
    ] = False,
    steps: Annotated[int, typer.Option(help="Columns and rows of the map.")] = 25,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """Which schedule gives the most tokens per unit of time, over the drafter and the price tau + delta n of a call (exact)."""
    import numpy as np

    from reports import plots
    from simulator import maps
    from simulator.nfe.laws import law_of
    from simulator.oracles.families import parse

    widths = width or ([8] if branches else [2, 4, 6, 8, 12])
    if not 2 <= steps <= 200:
        raise InvalidInput(f"--steps must lie in 2 .. 200, got {steps}")
    if not low < high:
        raise InvalidInput(f"--from must be below --to, got {low} and {high}")
    if "X" not in drafter:
        raise InvalidInput(f"--drafter needs an X where the number varies, got {drafter!r}")
    if not all(1 <= w <= 32 for w in widths) or (branches and len(widths) > 1):
        raise InvalidInput(f"--width must lie in 1 .. 32 here, and be one with --branches; got {widths}")
    xs = np.linspace(low, high, steps).tolist()
    ratios = np.geomspace(1, 1000, steps).tolist()
    cap = max(widths) + 1

    def law(x: float) -> Any:
        return law_of(parse(drafter.replace("X", repr(x))), cap)

    law(low), law(high)  # whatever is wrong with the family is said before the work
    drawn: maps.SetMap | maps.CostMap
    if branches:
        drawn = maps.set_map(law, xs, ratios, widths[0])
        figure = plots.best_set(drawn, "X", drafter)
    else:
        drawn = maps.cost_map(law, xs, ratios, widths)
        figure = plots.winner_map(drawn, "X", drafter)
    plots.save(figure, plot)
    if not quiet:
        print(f"drawn: {plot}")
    arguments = {"drafter": drafter, "from": low, "to": high, "width": widths, "branches": branches, "steps": steps}
    write_json(json_file, "map", arguments, drawn.plain())
    replay_line(quiet)
    return 0
