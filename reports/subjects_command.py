"""The command `packedss subjects`: the verdicts on transformers' own assisted decoding, one by one or as a table."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from reports.environment import package_version
from reports.options import Json, Quiet
from reports.output import progress, replay_line, write_json, write_whole
from simulator.errors import InvalidInput

if TYPE_CHECKING:
    from realmodel.subjects import Examined

TINY = "tiny"
_VERSIONS = ("transformers", "torch")
WRITTEN_UP: dict[str, str] = {
    "universal/*": "universal-decoding-law.md",
    "universal-subset/*": "universal-decoding-law.md",
    "q:UniversalSpeculativeDecodingGenerator": "universal-decoding-law.md",
    "single-position/*": "single-position-argmax.md",
    "q:SinglePositionMultiTokenCandidateGenerator": "single-position-argmax.md",
    "*/*guidance": "stateful-processors.md",
    "*/watermark": "stateful-processors.md",
    "*/stop-strings": "stop-strings.md",
    "mtp-short/*": "mtp-short-prompts.md",
    "rule:_speculative_sampling": "speculative-sampling-edge.md",
}
"""Where in reports/published a finding about a subject is reduced to its smallest case."""


def subjects(
    names: Annotated[
        list[str] | None, typer.Argument(help="Subjects, or patterns as in 'prompt-lookup/*'. None, and no --with: list all.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="tiny (random models of a few tokens), embedded, smollm2 or a local folder; repeatable. Default: tiny."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of random weights, prompts and the decoder's draws.")] = 0,
    tokens: Annotated[int, typer.Option(help="Output tokens of each sampled subject.")] = 2000,
    prompts: Annotated[int, typer.Option(help="Prompts of a loaded model.")] = 6,
    dtype: Annotated[str, typer.Option(help="Of a loaded model: float64, float32 or bfloat16.")] = "float32",
    earlier: Annotated[
        list[Path] | None, typer.Option("--with", help="JSON of an earlier run: its verdicts come first; repeatable.")
    ] = None,
    json_file: Json = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", help="Also write them to this file as a table.")] = None,
    quiet: Quiet = False,
) -> int:
    """transformers' own speculative decoders under examination: is their output that of plain generate?"""
    if seed < 0 or tokens < 1 or prompts < 1:
        raise InvalidInput(f"--seed must be >= 0, --tokens and --prompts >= 1, got {seed}, {tokens} and {prompts}")
    try:
        from realmodel.subjects import SUBJECTS
    except ModuleNotFoundError as error:
        raise InvalidInput(
            f"the subjects need the extra 'realmodel' ({error.name} is missing): pip install 'packedss[realmodel]'"
        ) from None
    if not names and not earlier:
        print(*SUBJECTS, sep="\n")
        return 0
    asked = [(on, name) for on in model or [TINY] for name in _matching(names or (), on)]
    verdicts = [verdict for file in earlier or () for verdict in _read(file)]
    for verdict in progress(_examined(asked, seed, tokens, prompts, dtype), "examining", quiet, len(asked)):
        verdicts.append(verdict)
        if not quiet:
            print(verdict.report if len(asked) == 1 and verdict.report else _line(verdict))
    write_json(
        json_file,
        "subjects",
        {"names": names, "model": model, "seed": seed, "tokens": tokens, "prompts": prompts, "dtype": dtype},
        [verdict.plain() for verdict in verdicts],
    )
    if markdown is not None:
        write_whole(markdown, list(table(verdicts)))
    replay_line(quiet)
    codes = {verdict.exit_code for verdict in verdicts}
    return 1 if 1 in codes else max(codes, default=0)


def _matching(names: Sequence[str], model: str) -> list[str]:
    from realmodel.subjects import REAL, SUBJECTS

    there = SUBJECTS if model == TINY else REAL
    for name in names:
        if not fnmatch.filter(SUBJECTS, name):
            raise InvalidInput(f"no subject matches {name!r}; `packedss subjects` lists them")
    chosen = [subject for subject in there if any(fnmatch.fnmatchcase(subject, name) for name in names)]
    if names and not chosen:
        raise InvalidInput(f"on {model} none of the subjects asked for can be examined; there are {', '.join(there)}")
    return chosen


def _examined(asked: Iterable[tuple[str, str]], seed: int, tokens: int, prompts: int, dtype: str) -> Iterator[Examined]:
    from realmodel.subjects import examine

    loaded: dict[str, tuple[Any, list[tuple[int, ...]]]] = {}
    for on, name in asked:
        if on == TINY:
            yield examine(name, seed, tokens)
            continue
        if on not in loaded:
            loaded[on] = _load(on, prompts, dtype)
        yield examine(name, seed, tokens, *loaded[on])


def _load(name: str, prompts: int, dtype: str) -> tuple[Any, list[tuple[int, ...]]]:
    from realmodel.loading import held_out_prompts, load

    model = load(name, dtype)
    if name.startswith("smollm2"):
        from realmodel.smollm2.chat import prompts as human_eval

        texts = human_eval()[:prompts]
    else:
        texts = held_out_prompts(prompts)
    return model, [tuple(model.tokenizer.encode(text.text).ids) for text in texts]


def _line(verdict: Examined) -> str:
    said = "; ".join(verdict.findings or verdict.missing)
    return f"{verdict.verdict:14} {verdict.model:9} {verdict.subject}  {_evidence(verdict)}" + (f"\n    {said}" if said else "")


def _evidence(verdict: Examined) -> str:
    parts = [f"{verdict.tokens:,} tokens"] if verdict.tokens else []
    if verdict.detectable is not None:
        parts.append(f"alpha {verdict.alpha:g}, sees {verdict.detectable:.2g}")
    if verdict.gap is not None:
        parts.append(f"enumerated gap {verdict.gap:.1e}")
    return ", ".join(parts)


def _read(file: Path) -> list[Examined]:
    """The verdicts of an earlier run. Raises InvalidInput when they are none, or were made with other versions."""
    from realmodel.subjects import Examined

    try:
        content = json.loads(file.read_text())
        made = content["environment"]["packages"]
        there = {name: package_version(name) for name in _VERSIONS}
        if any(made[name] != number for name, number in there.items()):
            raise InvalidInput(f"{str(file)!r} was made with other versions than {there}")
        rows: list[dict[str, Any]] = content["rows"]
        rows = [{key: tuple(item) if isinstance(item, list) else item for key, item in row.items()} for row in rows]
        return [Examined(**row) for row in rows]
    except OSError as error:
        raise InvalidInput(f"cannot read {str(file)!r}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{str(file)!r} is no result of `packedss subjects --json`: {error}") from None


def table(verdicts: Sequence[Examined]) -> Iterator[str]:
    """The verdicts in Markdown, with what each could not have seen."""
    versions = ", ".join(f"{name} {package_version(name)}" for name in _VERSIONS)
    runs = sorted({(verdict.model, verdict.seed, verdict.asked) for verdict in verdicts if verdict.asked})
    yield "# transformers' speculative decoders under examination"
    yield ""
    yield f"{versions}. Written by `packedss subjects`. A row again, with all that was said:"
    yield ""
    yield from (f"    packedss subjects NAME --model {model} --seed {seed} --tokens {asked}" for model, seed, asked in runs)
    yield ""
    yield from _EXPLAINED
    yield ""
    yield "| subject | model | verdict | n | alpha | sees | gap | not seen | findings |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    notes: dict[tuple[str, ...], str] = {}
    for verdict in verdicts:
        blind = notes.setdefault(verdict.blind, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[len(notes)]) if verdict.blind else ""
        cells = [
            f"`{verdict.subject}`",
            verdict.model,
            verdict.verdict,
            f"{verdict.tokens:,}" if verdict.tokens else "",
            "" if verdict.alpha is None else f"{verdict.alpha:g}",
            "" if verdict.detectable is None else f"{verdict.detectable:.2g}",
            "" if verdict.gap is None else f"{verdict.gap:.1e} ({verdict.enumerated} runs)",
            blind,
            _said(verdict),
        ]
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
    yield ""
    yield "What would not have been seen:"
    yield ""
    yield from (f"- **{letter}**: {'; '.join(blind)}." for blind, letter in notes.items())
    yield ""
    yield "What the subjects are:"
    yield ""
    abouts = {verdict.subject: verdict.about for verdict in verdicts}
    yield from (f"- `{subject}`: {about}." for subject, about in abouts.items())


_EXPLAINED = (
    "- **n**: output tokens compared with plain `generate` (tiny models) or a plain forward pass (loaded models).",
    "  Greedy: token for token, the shortfall of a token's logit counts. Sampled: every token is bet on, with false-alarm odds",
    "  **alpha**.",
    "- **sees**: the mean total variation per token below which a bias rarely shows in these n tokens. After a finding the",
    "  run stops, so n is small there.",
    "- **gap**: the total variation between the joint law of the first 3 output tokens and plain `generate`'s, on a random",
    "  model of 3 tokens. Both are computed, by running the decoder once for every outcome of its draws; float32 leaves 1e-8",
    "  to 1e-7.",
    "- A `q:` subject is exact up to rounding, or not: every outcome of a draft of up to 2 tokens in 3 contexts was run, as it",
    "  is and with temperature and top-p.",
)


def _said(verdict: Examined) -> str:
    said = "; ".join(verdict.findings or verdict.missing)
    file = next((file for pattern, file in WRITTEN_UP.items() if fnmatch.fnmatchcase(verdict.subject, pattern)), None)
    return f"{said} ([report]({file}))" if file and verdict.exit_code == 1 else said
