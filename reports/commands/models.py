"""`packedss validate` and `audit`: real models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from reports.commands.shared import integers, load_model, missing, schedules
from reports.options import Json, Prompt, PromptIds, Quiet, Schedules, Seed, Start, Trace, Widths, distinct
from reports.output import progress, replay_line, write_json, write_whole
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    pass


class _Usual(NamedTuple):
    """What a validation looks at unless told otherwise: a few minutes on two cores, whatever the size of the model."""

    prompts: int = 6
    tokens: int = 64
    width: list[int] | None = None
    certified: int = 2  # prompts that the certificates run again


_USUAL = _Usual()
_USUAL_OF = dict.fromkeys(("smollm2", "smollm2:plain"), _Usual(2, 24, [4], 1))


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
    threads: Annotated[int, typer.Option(help="CPU threads of the network; 1 is steadiest for a small model.")] = 1,
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
    any_order = _is_any_order(model)
    if not any_order and (order or horizon is not None or output_positions is not None):
        raise InvalidInput(f"--order, --horizon and --output-positions are for any-order models, and {model!r} is none")
    by_width = {} if any_order else schedules(schedule, width, start)
    Limits.of(max_new_tokens)
    for option, value in (("threads", threads), ("repeats", repeats), ("workers", workers), ("sampled", sampled)):
        if value < 1:
            raise InvalidInput(f"--{option} must be >= 1, got {value}")
    if not 0 <= temperature < float("inf"):
        raise InvalidInput(f"--temperature must be >= 0 and finite, got {temperature}")
    if any_order:
        from reports.any_order_command import Asked
        from reports.any_order_command import validate as validate_any_order

        if temperature or baselines:
            raise InvalidInput("any-order models are validated at temperature 0, without --baselines")
        asked = Asked(
            model, schedule, width, order, horizon, max_new_tokens, dtype, reference_dtype, device, padded, repeats, folder,
            workers, threads, start, details, json_file, trace, quiet, output_positions, prompt, prompt_ids is not None,
        )  # fmt: skip
        return validate_any_order(asked, lambda loaded: _texts(loaded, prompts, prompt, prompt_ids))
    torch, loaded = load_model(model, dtype, device, trust_remote_code)
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
    _, reference = load_model(model, reference_dtype, device, trust_remote_code)
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


def _texts(loaded: Any, prompts: int, prompt: list[str] | None, prompt_ids: str | None) -> list[tuple[str, tuple[int, ...]]]:
    """The prompts asked for, by name."""
    from realmodel.loading import held_out_prompts

    if prompt_ids is not None and prompt:
        raise InvalidInput("--prompt and --prompt-ids both name what to decode; give one of them")
    if prompt_ids is not None:
        return [("--prompt-ids", tuple(integers("--prompt-ids", prompt_ids)))]
    if prompt:
        return [(f"--prompt {i}", tuple(loaded.tokenizer.encode(text).ids)) for i, text in enumerate(prompt, start=1)]
    return [(item.name, tuple(loaded.tokenizer.encode(item.text).ids)) for item in held_out_prompts(prompts, loaded.name)]


def _checklist(model: str, dtype: str, device: str, trust_remote_code: bool, json_file: Path | None, quiet: bool) -> int:
    """What a release of Nemotron-Labs-Diffusion is taken to be, tried out."""
    try:
        from realmodel import nemotron
    except ModuleNotFoundError as error:
        raise InvalidInput(missing(error)) from None
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


def _is_any_order(model: str) -> bool:
    try:
        from realmodel.any_order.loading import is_any_order
    except ModuleNotFoundError as error:
        raise InvalidInput(missing(error)) from None
    return is_any_order(model)


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

    by_width = schedules(schedule or ["linear", "packed", "quadratic"], width, start)
    Limits.of(max_new_tokens)
    if threads < 1:
        raise InvalidInput(f"--threads must be >= 1, got {threads}")
    if maps < 0:
        raise InvalidInput(f"--maps must be >= 0, got {maps}")
    torch, loaded = load_model(model, dtype, device)
    _, reference = load_model(model, "float64", device)
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
