"""The command `packedss paper`: the paper's protocol on a model, in a folder that it goes on from, and the tables of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reports.options import Json, Quiet, Seed
from reports.output import progress, replay_line, shown, write_json, write_whole
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from realmodel.paper.estimate import Memory, Time
    from realmodel.paper.run import Care, Engine, Prepared
    from realmodel.paper.study import Study
    from reports.paper_tables import PaperTable, View


def paper(
    model: Annotated[
        str,
        typer.Option(help="embedded, embedded-any-order, smollm2, a local folder, or nvidia/Nemotron-Labs-Diffusion-8B, ..."),
    ] = "embedded",
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            help="humaneval, mbpp=FILE, math-500=FILE, gsm8k=FILE, gsm8k-setdlm=FILE, writingbench=FILE; commas or repeated."
        ),
    ] = None,
    folder: Annotated[
        Path, typer.Option(help="Everything is kept here, and a run goes on with what is there; tables and figures too.")
    ] = Path("out/paper"),
    blocks: Annotated[
        str | None,
        typer.Option(
            help="Block sizes B = W + 1: linear=32,packed=32,quadratic=8, one number, or 'paper'. Default: the probe."
        ),
    ] = None,
    probe: Annotated[list[int] | None, typer.Option(help="Block sizes that the probe tries; repeatable.")] = None,
    schedule: Annotated[
        list[str] | None,
        typer.Option("--schedule", "-s", help="Repeatable; ar may be added. Default: linear, packed, quadratic (and native)."),
    ] = None,
    temperature: Annotated[list[float] | None, typer.Option(help="0 or 1; repeatable. Default: both.")] = None,
    order: Annotated[list[str] | None, typer.Option(help="Any-order models; repeatable. Default: ltr and confidence.")] = None,
    width: Annotated[
        int | None, typer.Option("--width", "-w", help="Any-order models: the window W. Default: SetDLM's own; 8 for others.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first problems of every task.")] = None,
    cap: Annotated[int | None, typer.Option(help="Output tokens, instead of each task's own cap.")] = None,
    draws: Annotated[
        int | None, typer.Option(help="Responses per prompt at temperature 1, instead of each task's own.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float64, float32 or bfloat16.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    padded: Annotated[
        bool | None, typer.Option("--padded/--compact", help="Fixed row counts as in the paper. Default: compact on a CPU.")
    ] = None,
    certify: Annotated[int, typer.Option(help="Prompts of every task on which every schedule is certified.")] = 4,
    sampled: Annotated[int, typer.Option(help="Tokens each schedule emits for its certificate at temperature 1.")] = 2000,
    ties: Annotated[
        int, typer.Option(help="Differing greedy outputs of every schedule that get a certificate of their own.")
    ] = 20,
    reference_dtype: Annotated[
        str, typer.Option(help="Of the reference: float64, or float32 where that does not fit.")
    ] = "float64",
    reference_device: Annotated[str | None, typer.Option(help="Of the reference. Default: the model's.")] = None,
    engine: Annotated[str, typer.Option(help="local, dask or ray.")] = "local",
    workers: Annotated[int, typer.Option(help="Processes, a model each; with more than 1 no times are shown.")] = 1,
    address: Annotated[str | None, typer.Option(help="Of a running cluster: tcp://host:8786 (dask), auto (ray).")] = None,
    threads: Annotated[int, typer.Option(help="CPU threads of the network.")] = 1,
    seed: Seed = 0,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let the Python code run that a Nemotron release brings.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan with its time and memory, and stop.")] = False,
    tables_only: Annotated[
        list[Path] | None,
        typer.Option(
            "--tables-only", help="Run nothing: tables and figures of this folder, or of several together; repeatable."
        ),
    ] = None,
    json_file: Json = None,
    quiet: Quiet = False,
) -> int:
    """The paper's whole protocol on a model: decode, grade, certify, and the tables and figures of it. Resumable."""
    if tables_only:
        return _tables_only(tables_only, folder, json_file, quiet)
    for option, value in (("threads", threads), ("certify", certify), ("sampled", sampled)):
        if value < 1:
            raise InvalidInput(f"--{option} must be >= 1, got {value}")
    if ties < 0:
        raise InvalidInput(f"--ties must be >= 0, got {ties}")
    if reference_dtype not in ("float64", "float32"):
        raise InvalidInput(f"--reference-dtype must be float64 or float32, got {reference_dtype!r}")
    if not tasks:
        raise InvalidInput("name the tasks: --tasks humaneval,gsm8k=test.jsonl")
    from simulator.engines import check

    check(engine, workers, address)
    try:
        from realmodel.efficiency import Source
        from realmodel.paper.plan import PROBE_BLOCKS, Plan, blocks_of, tasks_of
        from realmodel.paper.run import Care, Engine, estimate, prepare, run
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"a real model needs the extra 'realmodel' ({error.name} is missing): pip install 'packedss[realmodel]'"
        ) from None
    plan = Plan(
        Source(model, dtype, device, threads, trust_remote_code),
        tasks_of(tasks),
        tuple(schedule or ()),
        None if blocks is None else blocks_of(blocks),
        tuple(probe or PROBE_BLOCKS),
        tuple(dict.fromkeys(temperature or (0.0, 1.0))),
        tuple(order or ("ltr", "confidence")),
        width,
        limit,
        cap,
        draws,
        seed,
        padded,
    )
    care = Care(certify, sampled, ties, reference_dtype, reference_device)
    where = Engine(engine, workers, address)
    prepared = prepare(plan)
    if dry_run or not quiet:
        times, memory = estimate(prepared, care)
        print_plan(prepared, times, memory, where, care)
    if dry_run:
        return 0
    study = run(
        prepared,
        folder,
        where,
        care,
        lambda items, total, label: progress(items, label, quiet, total),
        (lambda text: None) if quiet else (lambda text: print(shown(text, 400), flush=True)),
    )
    arguments = {"model": model, "tasks": tasks, "folder": str(folder), "dtype": dtype, "device": device, "blocks": blocks}
    _finish([study], folder, arguments, json_file, quiet)
    replay_line(quiet)
    return exit_code([study])


def _tables_only(folders: Sequence[Path], to: Path, json_file: Path | None, quiet: bool) -> int:
    try:
        from realmodel.paper.study import read
    except ModuleNotFoundError as error:
        raise InvalidInput(f"this needs the extra 'realmodel' ({error.name} is missing)") from None
    studies = [read(folder) for folder in folders]
    target = folders[0] if len(folders) == 1 else to
    _finish(studies, target, {"tables_only": [str(each) for each in folders]}, json_file, quiet)
    replay_line(quiet)
    return exit_code(studies)


def exit_code(studies: Sequence[Study]) -> int:
    """1 if a schedule is at fault, else 2 if one could not be certified, else 0."""
    words = {word for study in studies for word in study.words}
    return 1 if "FAULT" in words else 2 if "NOT RUN" in words else 0


def _finish(studies: Sequence[Study], folder: Path, arguments: dict[str, Any], json_file: Path | None, quiet: bool) -> None:
    """Write the tables and figures, and show the tables."""
    from reports.paper_tables import tables, views

    found = views(studies)
    made = tables(found)
    written = write_tables(made, found, folder)
    rows = [
        {
            "model": study.model,
            "contended": study.contended,
            "verdicts": study.words,
            "cells": [f"{cell.kind}: {cell.task} at temperature {cell.temperature:g}" for cell in study.cells],
        }
        for study in studies
    ]
    verdict = {1: "FAULT", 2: "NOT RUN"}.get(exit_code(studies), "holds")
    write_json(json_file, "paper", arguments, [{"verdict": verdict, "studies": rows, "tables": [t.plain() for t in made]}])
    if not quiet:
        unsound = {"FAULT", "NOT RUN"} & {word for study in studies for word in study.words}
        for table in made:
            if table.id != "reasons" and (table.id != "certificates" or unsound):
                print_table(table)
        words = Counter(word for study in studies for word in study.words)
        print("certificates: " + ", ".join(f"{count} {word}" for word, count in sorted(words.items())))
        if any(study.contended for study in studies):
            print("Several processes shared the machine: counts and certificates stand, times are not shown.")
        print("written: " + ", ".join(written))


def write_tables(made: Sequence[PaperTable], found: Sequence[View], folder: Path) -> list[str]:
    """tables.md, tables.tex, tables.json, a .tex a table, and the figures if matplotlib is there; the files' names."""
    import json

    from reports.paper_tables_render import latex, latex_document, markdown

    try:
        (folder / "tables").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"cannot write tables in {str(folder)!r}: {error.strerror}") from error
    texts = {
        "tables.md": markdown(made),
        "tables.tex": latex_document(made),
        "tables.json": json.dumps([table.plain() for table in made], indent=1, allow_nan=False),
    } | {f"tables/{table.id}.tex": latex(table) for table in made}
    for name, text in texts.items():
        write_whole(folder / name, [text])
    names = list(texts)
    if find_spec("matplotlib"):
        from reports.paper_tables_figures import figures
        from reports.plots import save

        for name, _, figure in figures(found):
            save(figure, folder / f"{name}.svg")
            names.append(f"{name}.svg")
    return names


def print_plan(prepared: Prepared, times: Iterable[Time], memory: Memory, engine: Engine, care: Care) -> None:
    """What will be run, how long at most, and what memory it needs."""
    plan = prepared.plan
    print(f"{prepared.model.name}, {plan.source.dtype} on {plan.source.device}, {engine.workers} {engine.name} worker(s)")
    total = 0.0
    for each in times:
        total += each.most
        print(
            f"  {each.name}: {each.prompts:,} prompts x {each.draws} draws x {each.arms} schedules, cap {each.cap:,}; at most"
            f" {_hours(each.most)} ({1000 * each.per_token:.1f} ms a token of every schedule)"
        )
    print(
        f"  decoding at most {_hours(total)} one after the other, if every output reached its cap; certificates and grading"
        " come on top"
    )
    parts = ", ".join(f"{name} {_gib(getattr(memory, name))}" for name in ("weights", "reference", "cache", "logits"))
    there = "unknown" if memory.available is None else _gib(memory.available)
    print(f"  memory about {_gib(memory.needed)} ({parts}), there is {there}")
    if memory.available is not None and memory.needed > memory.available and care.device is None:
        print("  that may not fit: --reference-dtype float32 or --reference-device cpu need less")
    blocks = "by the probe; the estimate takes the paper's" if plan.blocks is None else dict(plan.blocks)
    if not plan.any_order:
        print(f"  block sizes: {blocks}")
    if prepared.past:
        print(f"  {prepared.past} prompts go, with their output positions, past the length that the model was trained on")
    if not engine.alone:
        print("  several processes share the machine: no times will be shown; counts, grades and certificates stand")


def print_table(table: PaperTable) -> None:
    """On the terminal."""
    from rich.markup import escape
    from rich.table import Table

    from reports.output import terminal

    drawn = Table(title=escape(f"{table.id}: {table.title}"), title_justify="left", caption=escape(table.caption),
                  caption_justify="left")  # fmt: skip
    for number, column in enumerate(table.columns):
        drawn.add_column(escape(column), justify="left" if number < table.words else "right")
    for row in table.rows:
        cells = (escape(" ".join(shown(entry.text, 120).split())) for entry in row)
        drawn.add_row(*(f"[bold]{cell}[/]" if entry.best else cell for cell, entry in zip(cells, row, strict=True)))
    terminal().print(drawn)


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.1f} s"


def _gib(count: int) -> str:
    return f"{count / 2**30:.2f} GiB"
