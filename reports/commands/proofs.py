"""`packedss prove` and `packedss faults`: what holds, and what the checks that say so would catch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from reports.commands.shared import missing
from reports.options import Json, Quiet
from reports.output import progress, replay_line, write_json
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    pass


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
            raise InvalidInput(missing(error)) from None
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
