"""The `packedss` command. Commands only gather arguments and print; the work is done in the rooms below.

Exit codes: 0 holds, 1 violated (or not exact), 2 could not run: bad input, a missing extra, a check that did not run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer
from typer.exceptions import TyperException

from reports.commands.checks import check, check_acceptance, check_outputs, check_trace
from reports.commands.counts import cost_map, simulate, sweep
from reports.commands.models import audit, validate
from reports.commands.proofs import faults, prove
from reports.doctor import doctor
from reports.paper_command import paper
from reports.report.command import report
from reports.subjects_command import subjects
from simulator.errors import ContractError, InvalidInput

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


COMMANDS: dict[str, Callable[..., int]] = {
    "prove": prove,
    "simulate": simulate,
    "sweep": sweep,
    "map": cost_map,
    "validate": validate,
    "audit": audit,
    "check": check,
    "check-acceptance": check_acceptance,
    "check-trace": check_trace,
    "check-outputs": check_outputs,
    "faults": faults,
    "subjects": subjects,
    "paper": paper,
    "report": report,
    "doctor": doctor,
}
for name, command in COMMANDS.items():
    app.command(name)(command)


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
