"""`packedss check`, `check-acceptance`, `check-trace` and `check-outputs`: what users bring."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reports.commands.shared import load_model
from reports.options import Json, Quiet, Start, writable
from reports.output import progress, replay_line, write_json, write_whole
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    pass


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
    rows = vars(report) | {"violations": [found._asdict() for found in report.violations], "verdict": report.verdict}
    write_json(json_file, "check-trace", arguments, [rows])
    replay_line(quiet)
    return {"holds": 0, "violated": 1}.get(report.verdict, 2)


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
        _, loaded = load_model(reference, dtype, device)
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
