"""The `packedss` command. Commands only gather arguments and print; the work is done in the rooms below.

Exit codes: 0 holds, 1 violated (or not exact), 2 could not run: bad input, a missing extra, a check that did not run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer
from typer.exceptions import TyperException

from reports.doctor import doctor
from reports.options import Json, Picture, Prompt, PromptIds, Quiet, Schedules, Seed, Start, Trace, Widths, distinct, writable
from reports.output import progress, replay_line, write_json, write_whole
from reports.paper_command import paper
from reports.report.command import report
from reports.subjects_command import subjects
from simulator.errors import ContractError, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.trace import TracedRequest

_MAX_WIDTH = 1024  # Quadratic-SS proposes W (W + 1) tokens a call: beyond this a slip of the keyboard eats the machine

app = typer.Typer(
    rich_markup_mode=None,
    help="Is a self-speculative decoding schedule exact, and what does it cost?",
    epilog="Exit codes: 0 it holds, 1 something was found that does not, 2 it could not run or a check did not reach its case.",
)


@app.callback()
def options(
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours; nor are there any off a terminal.")] = False,
) -> None:
    if no_color:
        os.environ["NO_COLOR"] = "1"


@app.command()
def prove(
    budget: Annotated[
        Literal["quick", "full"], typer.Option(help="Under a minute, or larger bounds in up to 20 minutes.")
    ] = "quick",
    check: Annotated[
        list[str] | None, typer.Option(help="Only the checks of this name or pattern, as in 'chain/*'; repeatable.")
    ] = None,
    claim: Annotated[list[str] | None, typer.Option(help="Only the checks about this claim, as in THM3.2; repeatable.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 2 when a claim of the paper has no check.")] = False,
    details: Annotated[bool, typer.Option("--details", help="Show the evidence of every check.")] = False,
    smt_lib: Annotated[
        str | None, typer.Option("--smt-lib", help="Only print this SMT obligation as SMT-LIB text, for another solver.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes; each needs up to 1 GiB. 0: one per core, at most 8.")] = 0,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """Check the claims of the paper, each by the strongest method that fits, and print the ledger."""
    import time

    import joblib

    from proofs_check.checks import run, select
    from proofs_check.ledger import Entry, exit_code, ledger

    if smt_lib is not None:
        from proofs_check import smt

        if smt_lib not in smt.OBLIGATIONS:
            raise InvalidInput(f"no SMT obligation is called {smt_lib!r}; allowed: {', '.join(smt.OBLIGATIONS)}")
        print(smt.smt_lib(smt_lib))
        return 0
    if workers < 0:
        raise InvalidInput(f"--workers must be >= 0, got {workers}")
    if strict and (check or claim):
        raise InvalidInput("--strict asks whether every claim has a check: leave out --check and --claim")
    checks = select(check or (), claim or ())
    entries: list[Entry] = []
    done = 0
    begun, peak = time.perf_counter(), 0
    try:
        results = run(checks, budget, workers or min(8, joblib.cpu_count()))
        for found, memory in progress(results, "checking", quiet, len(checks)):
            entries += found
            done += 1
            peak = max(peak, memory)
    finally:  # interrupted, it still shows what was found
        rows = ledger(entries, complete=done == len(checks) and not (check or claim))
        if not quiet:
            from reports.tables import print_ledger

            print_ledger(rows, time.perf_counter() - begun, peak, details)
            if done < len(checks):
                print(f"interrupted: {len(checks) - done} of {len(checks)} checks did not run")
    write_json(json_file, "prove", {"budget": budget, "check": check, "claim": claim}, [row.plain() for row in rows])
    replay_line(quiet)
    unproved = strict and any(row.verdict == "open" for row in rows)
    return exit_code(entries) or (2 if unproved else 0)


@app.command()
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
    by_width = _schedules(schedule, width, start)
    shown = partial(progress, label="simulating", quiet=quiet)
    traced: list[TracedRequest] = []
    recorders = {w: _recorder(traced, w, start, thresholds or drafter, seed) for w in by_width} if trace else {}
    if thresholds is not None:
        results = simulation.given(_integers("--thresholds", thresholds), by_width, request, shown, recorders)
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
    _write_trace(trace, traced)
    write_json(json_file, "simulate", arguments, [row for result in results for row in result.plain()])
    replay_line(quiet)
    return 0


@app.command()
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


@app.command("map")
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


class _Usual(NamedTuple):
    """What a validation looks at unless told otherwise: a few minutes on two cores, whatever the size of the model."""

    prompts: int = 6
    tokens: int = 64
    width: list[int] | None = None
    threads: int = 1
    certified: int = 2  # prompts that the certificates run again


_USUAL = _Usual()
_USUAL_OF = dict.fromkeys(("smollm2", "smollm2:plain"), _Usual(2, 24, [4], 2, 1))


@app.command()
def validate(
    model: Annotated[
        str,
        typer.Option(
            help="embedded, smollm2 (smollm2:plain: without its adapter), a local folder laid out like the embedded one,"
            " or nvidia/Nemotron-Labs-Diffusion-3B, its folder, ..."
        ),
    ] = "embedded",
    schedule: Schedules = None,
    width: Widths = None,
    prompts: Annotated[
        int | None, typer.Option(help="How many held-out prompts to decode. Default: 6; smollm2, HumanEval's first 2.")
    ] = None,
    prompt: Prompt = None,
    prompt_ids: PromptIds = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="Tokens per prompt, L. Default: 64; smollm2, 24.")] = None,
    dtype: Annotated[str, typer.Option(help="float64, float32 or bfloat16.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    padded: Annotated[
        bool | None,
        typer.Option("--padded/--compact", help="Fixed row counts as in the paper, or no padding. Default: compact on a CPU."),
    ] = None,
    repeats: Annotated[int, typer.Option(help="Runs of every schedule on every prompt.")] = 1,
    temperature: Annotated[float, typer.Option(help="0: greedy, against transformers' generate; else sampling.")] = 0.0,
    sampled: Annotated[
        int, typer.Option(help="Temperature > 0: tokens each schedule emits for its certificate; more see smaller biases.")
    ] = 2000,
    folder: Annotated[Path | None, typer.Option(help="Keep every finished prompt here, and go on with what is there.")] = None,
    workers: Annotated[int, typer.Option(help="Processes, a model each; times are no honest speeds with more than 1.")] = 1,
    threads: Annotated[
        int | None, typer.Option(help="CPU threads of the network. Default: 1, steadiest for a small model; smollm2, 2.")
    ] = None,
    start: Start = "algorithm",
    seed: Seed = 0,
    details: Annotated[
        bool, typer.Option("--details", help="Show the certificates' evidence and acceptance by position.")
    ] = False,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let the Python code run that a Nemotron release brings.")
    ] = False,
    baselines: Annotated[
        bool, typer.Option("--baselines", help="Also run transformers' prompt lookup and assisted generation (greedy).")
    ] = False,
    reference_dtype: Annotated[
        str, typer.Option(help="Of the reference: float64, or float32 where that does not fit.")
    ] = "float64",
    order: Annotated[
        list[str] | None,
        typer.Option(help="Any-order models: ltr, rtl, confidence, random:SEED, ...; repeatable. Default: ltr and confidence."),
    ] = None,
    horizon: Annotated[
        int | None,
        typer.Option(
            help="Any-order models: no position before an unresolved one that lies so far before it. SetDLM: its own."
        ),
    ] = None,
    output_positions: Annotated[
        int | None,
        typer.Option(help="SetDLM: so many output positions after any prompt, past the trained length too; the paper: 1024."),
    ] = None,
    checklist: Annotated[
        bool, typer.Option("--checklist", help="Only try out what the binding takes for granted of a Nemotron release.")
    ] = False,
    json_file: Json = None,
    trace: Trace = None,
    quiet: Quiet = False,
) -> int:
    """Run a real model: are its schedules exact (rule, conformance, numerics), and what do those cost that are?"""
    from functools import partial

    from simulator.records import Limits

    distinct(json_file, trace)
    if checklist:
        return _checklist(model, dtype, device, trust_remote_code, json_file, quiet)
    if reference_dtype not in ("float64", "float32"):
        raise InvalidInput(f"--reference-dtype must be float64 or float32, got {reference_dtype!r}")
    usual = _USUAL_OF.get(model, _USUAL)
    prompts, width = usual.prompts if prompts is None else prompts, width or usual.width
    max_new_tokens = usual.tokens if max_new_tokens is None else max_new_tokens
    threads = usual.threads if threads is None else threads
    any_order = _is_any_order(model)
    if not any_order and (order or horizon is not None or output_positions is not None):
        raise InvalidInput(f"--order, --horizon and --output-positions are for any-order models, and {model!r} is none")
    by_width = {} if any_order else _schedules(schedule, width, start)
    Limits.of(max_new_tokens)
    for option, value in (("threads", threads), ("repeats", repeats), ("workers", workers), ("sampled", sampled)):
        if value < 1:
            raise InvalidInput(f"--{option} must be >= 1, got {value}")
    if not 0 <= temperature < float("inf"):
        raise InvalidInput(f"--temperature must be >= 0 and finite, got {temperature}")
    if any_order:
        from reports.any_order_command import Asked
        from reports.any_order_command import validate as validate_any_order

        if temperature or baselines or trace is not None:
            raise InvalidInput("any-order models are validated at temperature 0, without --baselines or --trace")
        asked = Asked(
            model, schedule, width, order, horizon, max_new_tokens, dtype, reference_dtype, device, padded, repeats, folder,
            workers, threads, start, details, json_file, quiet, output_positions, prompt, prompt_ids is not None,
        )  # fmt: skip
        return validate_any_order(asked, lambda loaded: _texts(loaded, prompts, prompt, prompt_ids))
    torch, loaded = _load_model(model, dtype, device, trust_remote_code)
    from realmodel.baselines import baselines as of_transformers
    from realmodel.efficiency import Protocol, Source, arms
    from realmodel.validate import validate as run

    torch.set_num_threads(threads)
    texts = _texts(loaded, prompts, prompt, prompt_ids)
    protocol = Protocol(
        arms(
            schedule or ["ar", "linear", "packed", "quadratic"],
            list(by_width),
            start,
            reference=True,
            baselines=of_transformers(loaded) if baselines else (),
        ),
        Limits.of(max_new_tokens, loaded.eos),
        repeats,
        temperature,
        seed,
        padded,
    )
    _, reference = _load_model(model, reference_dtype, device, trust_remote_code)
    result = run(
        Source(model, dtype, device, threads, trust_remote_code) if workers > 1 else loaded,
        reference,
        texts,
        protocol,
        start,
        folder=folder,
        workers=workers,
        certified=usual.certified,
        sampled=sampled,
        progress=lambda done, total: progress(done, "running", quiet, total),
        certifying=partial(progress, label="certifying", quiet=quiet),
    )
    if not quiet:
        from reports.tables import print_validation

        print_validation(result, details)
    counts = _conventions(model, result, quiet)
    arguments = {"model": model, "dtype": dtype, "device": device, "threads": threads, "padded": padded, "prompts": dict(texts)}
    if trace is not None:
        from simulator.trace import trace_lines

        origin = f"{model}, {dtype}"
        write_whole(trace, trace_lines(run_._replace(model=origin, seed=seed) for run_ in result.traced()))
    write_json(json_file, "validate", arguments, [result.plain() | counts])
    replay_line(quiet)
    return {"EXACT": 0, "TIES": 0, "FAULT": 1}.get(result.verdict, 2)


@app.command()
def audit(
    model: Annotated[str, typer.Option(help="embedded, or a local folder laid out like it.")] = "embedded",
    schedule: Schedules = None,
    width: Widths = None,
    prompts: Annotated[int, typer.Option(help="How many held-out prompts to audit.")] = 12,
    prompt: Prompt = None,
    prompt_ids: PromptIds = None,
    max_new_tokens: Annotated[int, typer.Option(help="Tokens per prompt, L.")] = 64,
    dtype: Annotated[str, typer.Option(help="float64, float32 or bfloat16.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    threads: Annotated[int, typer.Option(help="CPU threads of the network; 1 is steadiest for a small model.")] = 1,
    start: Annotated[str, typer.Option(help="algorithm, wide or sampled.")] = "algorithm",
    maps: Annotated[int, typer.Option(help="How many prompts to draw cell by cell.")] = 1,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """How far is a real drafter from Assumption 3.1, and did Theorem 3.2 hold anyway? Its JSON can be simulated."""
    from functools import partial

    from simulator.records import Limits

    by_width = _schedules(schedule or ["linear", "packed", "quadratic"], width, start)
    Limits.of(max_new_tokens)
    if threads < 1:
        raise InvalidInput(f"--threads must be >= 1, got {threads}")
    if maps < 0:
        raise InvalidInput(f"--maps must be >= 0, got {maps}")
    torch, loaded = _load_model(model, dtype, device)
    _, reference = _load_model(model, "float64", device)
    from realmodel.audit import audit as run

    torch.set_num_threads(threads)
    texts = _texts(loaded, prompts, prompt, prompt_ids)
    limits = Limits.of(max_new_tokens, loaded.eos)
    audits = [
        run(loaded, reference, texts, schedules, limits, w, start, progress=partial(progress, label=f"W = {w}", quiet=quiet))
        for w, schedules in by_width.items()
    ]
    if not quiet:
        from reports.audit_view import print_audit

        for result in audits:
            print_audit(result, maps)
    arguments = {"model": model, "dtype": dtype, "device": device, "max_new_tokens": max_new_tokens, "start": start}
    write_json(json_file, "audit", arguments, [result.plain() for result in audits])
    replay_line(quiet)
    return 1 if any(result.faults for result in audits) else 0


@app.command()
def check(
    schedule: Annotated[
        str,
        typer.Argument(
            help="ar, linear, packed, quadratic, branches:0,2,..., or module:Object of yours; any-order:packed or"
            " any-order:module:Object; order:confidence or order:module:policy, an order policy by itself."
        ),
    ],
    declares: Annotated[
        str | None, typer.Option(help="The schedule whose calls it must make; a built-in one declares itself.")
    ] = None,
    order: Annotated[
        str | None,
        typer.Option(help="Any-order: ltr, rtl, confidence, peak, random:SEED, 3,1,2,... or module:policy. Default: ltr."),
    ] = None,
    width: Annotated[int, typer.Option("--width", "-w", help="Width W of a built-in schedule and of the declared one.")] = 3,
    start: Start = "algorithm",
    limit: Annotated[float, typer.Option(help="Seconds that one stage may take.")] = 20.0,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """The battery on a schedule: is it exact, and does it make the calls it declares? Yours runs in a child process."""
    from reports.schedule_check import checked

    report = checked(schedule, declares, width, order, start, limit)
    if not quiet:
        print(report)
    asked = {"schedule": schedule, "declares": declares, "order": order, "width": width, "start": start, "limit": limit}
    write_json(json_file, "check", asked, [report.plain()])
    replay_line(quiet)
    return report.exit_code


@app.command()
def faults(
    row: Annotated[list[str] | None, typer.Option(help="Only this row, as in F03 or C01; repeatable.")] = None,
    layer: Annotated[
        Literal["rule", "model"], typer.Option(help="Schedules, rules and samplers, or the binding of a real model.")
    ] = "rule",
    workers: Annotated[int, typer.Option(help="Processes. 0: one per core, at most 8.")] = 0,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """The power of the checks: planted faults they must kill by the right symptom, and right variants they must not flag."""
    import joblib

    from proofs_check.faults.matrix import exit_code, lines

    if workers < 0:
        raise InvalidInput(f"--workers must be >= 0, got {workers}")
    workers = workers or min(8, joblib.cpu_count())
    if layer == "model":
        try:
            from realmodel.faults.matrix import kill_matrix
        except ModuleNotFoundError as error:
            raise InvalidInput(_missing(error)) from None
    else:
        from proofs_check.faults.matrix import kill_matrix
    results = []
    for result in progress(kill_matrix(row or (), workers), "planting", quiet):
        results.append(result)
        if not quiet:
            print(result.line())
    if not quiet:
        print(*list(lines(results))[-2:], sep="\n")
    arguments = {"row": row, "layer": layer}
    write_json(json_file, "faults", arguments, [result.plain() for result in results])
    replay_line(quiet)
    return exit_code(results)


@app.command("check-acceptance")
def check_acceptance(
    rule: Annotated[str, typer.Argument(help="module:rule of yours, called as rule(p, q, draft, coins) -> tokens.")],
    one_hot: Annotated[bool, typer.Option("--one-hot", help="It is meant for point-mass proposals only.")] = False,
    rounding: Annotated[
        float, typer.Option(help="Largest difference of probabilities put down to the rule's own floats; 0 for none.")
    ] = 2.0**-45,
    limit: Annotated[float, typer.Option(help="Seconds that one stage may take.")] = 20.0,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """An accept-and-correct rule by itself: does a block of draft tokens come out with the target's law?"""
    from proofs_check import check_acceptance as battery
    from proofs_check.loading import load

    if not limit > 0:
        raise InvalidInput(f"--limit must be > 0 seconds, got {limit}")
    if not 0 <= rounding < 1:
        raise InvalidInput(f"--rounding must lie in 0 .. 1, got {rounding}")
    loaded = load(rule, "acceptance")
    report = battery(loaded.subject, one_hot=one_hot, rounding=rounding, limit=limit, name=rule, source=loaded.source)
    if not quiet:
        print(report)
    arguments = {"rule": rule, "one_hot": one_hot, "rounding": rounding, "limit": limit}
    write_json(json_file, "check-acceptance", arguments, [report.plain()])
    replay_line(quiet)
    return report.exit_code


@app.command("check-trace")
def check_trace(
    file: Annotated[Path, typer.Argument(help="A trace: JSON Lines of schema 1, as --trace writes it.")],
    policy: Annotated[
        str | None, typer.Option(help="The declared schedule, ar, linear, packed or quadratic, if the file does not name it.")
    ] = None,
    width: Annotated[int | None, typer.Option("--width", "-w", help="Its width W, if the file does not say.")] = None,
    start: Annotated[str | None, typer.Option(help="Its start, if the file does not say. Default: algorithm.")] = None,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """Replay a decoder's log against the rules, and name the first step that none of them explains."""
    from dataclasses import asdict

    from proofs_check.trace_check import check_trace as check
    from simulator.trace import bounded_lines

    try:
        with file.open(encoding="utf-8", errors="replace") as lines:
            report = check(progress(bounded_lines(lines), "replaying", quiet), policy, width, start)
    except OSError as error:
        raise InvalidInput(f"cannot read {str(file)!r}: {error.strerror}") from None
    if not quiet:
        from reports.tables import print_trace_report

        print_trace_report(report)
    arguments = {"file": str(file), "policy": policy, "width": width, "start": start}
    rows = asdict(report) | {"violations": [found._asdict() for found in report.violations], "verdict": report.verdict}
    write_json(json_file, "check-trace", arguments, [rows])
    replay_line(quiet)
    return {"holds": 0, "violated": 1}.get(report.verdict, 2)


@app.command("check-outputs")
def check_outputs(
    file: Annotated[
        Path, typer.Argument(help="JSON Lines, a request a line: prompt, output, temperature, ... (docs/checking.md).")
    ],
    reference: Annotated[str, typer.Option(help="The target model: embedded, a local folder, or module:Object.")],
    control: Annotated[
        Path | None, typer.Option(help="The same engine's plain AR outputs: a control for its own numerics.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Keep what was seen in this file, and go on from it when it is there.", callback=writable),
    ] = None,
    alpha: Annotated[float, typer.Option(help="False-alarm odds of all statistics together.")] = 0.01,
    tolerance: Annotated[float, typer.Option(help="Nats of regret at temperature 0 that are nobody's fault.")] = 0.0,
    dtype: Annotated[str, typer.Option(help="Of a model reference: float64, float32 or bfloat16.")] = "float64",
    device: Annotated[str, typer.Option(help="Of a model reference: cpu, cuda, ...")] = "cpu",
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """Logged outputs of any engine against a reference model: regrets at temperature 0, bets on every token above."""
    import json
    from contextlib import ExitStack

    from proofs_check.outputs import check_outputs as check
    from simulator.trace import bounded_lines

    if not 0 < alpha < 1:
        raise InvalidInput(f"--alpha must lie in 0 .. 1, got {alpha}")
    if ":" in reference:
        from proofs_check.loading import load as load_object

        model = load_object(reference, "models").subject
    else:
        _, loaded = _load_model(reference, dtype, device)
        from realmodel.reference import CausalReference

        model = CausalReference(loaded)
    known = None
    if state is not None and state.is_file():
        try:
            known = json.loads(state.read_text())
        except (OSError, ValueError) as error:
            raise InvalidInput(f"the state in {str(state)!r} cannot be read: {error}") from None

    def keep(seen: dict[str, Any]) -> None:
        if state is not None:
            write_whole(state, [json.dumps(seen)])

    try:
        with ExitStack() as files:
            logs = [
                bounded_lines(files.enter_context(path.open(encoding="utf-8", errors="replace"))) if path else None
                for path in (file, control)
            ]
            assert logs[0] is not None
            shown = progress(logs[0], "checking", quiet)
            report = check(
                shown, model, logs[1], alpha=alpha, tolerance=tolerance, state=known, checkpoint=keep, name=str(file)
            )
    except OSError as error:
        raise InvalidInput(f"cannot read {str(error.filename)!r}: {error.strerror}") from None
    keep(report.state)
    if not quiet:
        print(report)
    arguments = {"file": str(file), "reference": reference, "control": control and str(control), "alpha": alpha}
    write_json(json_file, "check-outputs", arguments, [report.plain()])
    replay_line(quiet)
    return report.exit_code


app.command()(report)
app.command()(doctor)
app.command()(subjects)
app.command()(paper)


def _texts(loaded: Any, prompts: int, prompt: list[str] | None, prompt_ids: str | None) -> list[tuple[str, tuple[int, ...]]]:
    """The prompts asked for, by name."""
    from realmodel.loading import held_out_prompts

    if prompt_ids is not None and prompt:
        raise InvalidInput("--prompt and --prompt-ids both name what to decode; give one of them")
    if prompt_ids is not None:
        return [("--prompt-ids", tuple(_integers("--prompt-ids", prompt_ids)))]
    if prompt:
        return [(f"--prompt {i}", tuple(loaded.tokenizer.encode(text).ids)) for i, text in enumerate(prompt, start=1)]
    return [(item.name, tuple(loaded.tokenizer.encode(item.text).ids)) for item in held_out_prompts(prompts, loaded.name)]


def _checklist(model: str, dtype: str, device: str, trust_remote_code: bool, json_file: Path | None, quiet: bool) -> int:
    """What a release of Nemotron-Labs-Diffusion is taken to be, tried out."""
    try:
        from realmodel import nemotron
    except ModuleNotFoundError as error:
        raise InvalidInput(_missing(error)) from None
    if not nemotron.is_nemotron(model):
        raise InvalidInput(f"--checklist is for Nemotron-Labs-Diffusion, a hub id or a folder of it; {model!r} is not")
    items = []
    for item in nemotron.checklist(model, dtype, device, trust_remote_code):
        items.append(item)
        if not quiet:
            print(item, flush=True)
    arguments = {"model": model, "dtype": dtype, "device": device}
    write_json(json_file, "checklist", arguments, [item._asdict() for item in items])
    replay_line(quiet)
    return nemotron.exit_code(items)


def _conventions(model: str, result: Any, quiet: bool) -> dict[str, Any]:
    """Of a Nemotron release: the calls as others count them, printed, and for JSON."""
    from realmodel.nemotron import conventions, is_nemotron

    if not is_nemotron(model):
        return {}
    counts = conventions.conventions(result.measurement.records, result.start)
    if not quiet:
        print("NFE per run, counted as above (every forward), without the prompt's call, and as the released decoders count:")
        for each in counts:
            print(conventions.line(each, len(result.prompts) * result.protocol.repeats))
    return {"nfe_conventions": [each._asdict() for each in counts]}


def _load_model(model: str, dtype: str, device: str, trust_remote_code: bool = False) -> Any:
    """torch and the loaded model. Raises InvalidInput when the extra is missing."""
    try:
        import torch

        from realmodel.loading import load

        return torch, load(model, dtype, device, trust_remote_code)
    except ModuleNotFoundError as error:
        raise InvalidInput(_missing(error)) from None


def _is_any_order(model: str) -> bool:
    try:
        from realmodel.any_order.loading import is_any_order
    except ModuleNotFoundError as error:
        raise InvalidInput(_missing(error)) from None
    return is_any_order(model)


def _missing(error: ModuleNotFoundError) -> str:
    return f"a real model needs the extra 'realmodel' ({error.name} is missing): pip install 'packedss[realmodel]'"


def _schedules(names: list[str] | None, widths: list[int] | None, start: str) -> dict[int, list[Any]]:
    """The schedules asked for, by width."""
    from simulator.schedules import STARTS, named

    names = names or ["ar", "linear", "packed", "quadratic"]
    for width in widths or []:  # asked here too, since AR has no width to complain about
        if not 1 <= width <= _MAX_WIDTH:
            raise InvalidInput(f"--width, the speculative width W, must lie in 1 .. {_MAX_WIDTH}, got {width}")
    if start not in STARTS:
        raise InvalidInput(f"unknown start {start!r}; allowed: {', '.join(STARTS)}")
    # AR drafts nothing, so the starts that differ in the first draft are one to it.
    ar_start = start if start == "prompt" else "algorithm"
    return {w: [named(name, w, ar_start if name == "ar" else start) for name in names] for w in widths or [8]}


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


def _recorder(
    traced: list[TracedRequest], width: int, start: str, model: str, seed: int | None = None
) -> Callable[[TracedRequest], None]:
    """What collects the runs of one width, with what the request lines say of their origin."""

    def record(request: TracedRequest) -> None:
        own_start = start if request.schedule != "ar" or start == "prompt" else "algorithm"
        traced.append(request._replace(width=width, start=own_start, model=model, seed=seed))

    return record


def _write_trace(file: Path | None, traced: list[TracedRequest]) -> None:
    if file is not None:
        from simulator.trace import trace_lines

        write_whole(file, trace_lines(traced))


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise InvalidInput(f"{option} takes integers separated by commas, got {text!r}") from None


def main() -> None:
    """Entry point of the `packedss` command."""
    try:
        code = app(standalone_mode=False)
    except (InvalidInput, ContractError, TyperException) as error:
        message = error.format_message() if isinstance(error, TyperException) else str(error)
        if message:
            print(f"packedss: {' '.join(message.split())}", file=sys.stderr)
        code = 2
    except (MemoryError, OverflowError):
        print("packedss: these sizes do not fit this machine; ask for fewer tokens, runs or a smaller width", file=sys.stderr)
        code = 2
    except KeyboardInterrupt:
        code = 130
    except Exception as error:  # 1 would claim that something was found not to hold
        print(f"packedss: could not run: {type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        code = 2
    sys.exit(code)


if __name__ == "__main__":
    main()
