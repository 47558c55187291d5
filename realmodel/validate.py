"""Validate a real model: run every schedule on every prompt, certify what came out, and only then say what it cost.

The runs are those of `realmodel.efficiency` (interleaved, warmed up, resumable), the certificates those of
`realmodel.certificate`, the figures those of `realmodel.figures`: an arm without a certificate has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from realmodel.certificate import Certificate, certify, certify_sampling
from realmodel.dualmode import DualModeModel
from realmodel.efficiency import GENERATE, Arm, Key, Measurement, Prompt, Protocol, Record, Source, measure, opened
from realmodel.figures import Summary, Verdict, summarise
from realmodel.layers import Word, worst
from realmodel.numerics import Judge, Output
from realmodel.reference import causal_logits
from simulator.errors import InvalidInput
from simulator.records import Tokens
from simulator.trace import TracedRequest


@dataclass(frozen=True)
class Validation:
    """The result of `validate`."""

    model: str
    dtype: str
    device: str
    start: str
    protocol: Protocol
    prompts: tuple[Prompt, ...]
    measurement: Measurement
    certificates: dict[Key, Certificate]  # one for every arm but the reference
    summary: Summary

    @property
    def verdict(self) -> Word:
        """FAULT if an arm is, else NOT RUN if one is, else TIES if one is, else EXACT."""
        return worst(tuple(certificate.verdict for certificate in self.certificates.values()))

    def equal(self, key: Key) -> int:
        """Greedy: prompts on which every repeat of the arm emitted generate's tokens."""
        outputs = _outputs(self.measurement.records, self.prompts, key)
        wrong = {output.name for output in outputs if output.got != output.expected}
        return len(self.prompts) - len(wrong)

    def traced(self) -> Iterator[TracedRequest]:
        """Every run of a schedule, for a trace."""
        yield from _traced(self.measurement.records, self.prompts, self.protocol, self.start, self.protocol.arms)

    def plain(self) -> dict[str, Any]:
        """For JSON: parameters, certificates, figures, and each run's tokens and times."""
        certificates = [certificate.plain() for certificate in self.certificates.values()]
        runs = [
            {"prompt": r.prompt, "repeat": r.repeat, "schedule": r.name, "width": r.width, "turn": r.turn}
            | {"tokens": r.tokens, "stop": r.stop, "nfe": r.nfe, "rows": r.rows, "wall": r.wall, "model": sum(r.model)}
            for r in self.measurement.records
        ]
        return {
            "parameters": self.measurement.parameters,
            "start": self.start,
            "verdict": self.verdict,
            "certificates": certificates,
            "summary": self.summary.plain(),
            "runs": runs,
        }


def validate(
    model: Source | DualModeModel,
    reference: DualModeModel,
    prompts: Sequence[Prompt],
    protocol: Protocol,
    start: str = "algorithm",
    *,
    folder: Path | None = None,
    workers: int = 1,
    certified: int = 2,
    sampled: int = 2000,
    progress: Callable[[Iterable[None], int], Iterable[None]] = lambda done, total: done,
    certifying: Callable[[Sequence[Arm]], Iterable[Arm]] = iter,
) -> Validation:
    """Run `protocol` on the prompts, certify every schedule of it, and sum up.

    reference        the same weights in float64, or in float32 where that does not fit
    folder, workers  as in `measure`
    start            the start that the protocol's arms were made with, for what is printed and replayed
    certified        how many prompts the certificate runs again, in both dtypes, to look at single calls
    sampled          temperature > 0: tokens that each schedule emits for its certificate
    progress         wraps the prompts being run, `certifying` the arms being certified

    Certificates and figures are those of these prompts, widths, dtype and device; intervals from few prompts are too short
    (`realmodel.bootstrap`).

    Raises InvalidInput for a protocol without transformers' generate at temperature 0, and for what `measure` refuses.
    """
    greedy = protocol.temperature == 0
    if greedy and not any(arm.key == (GENERATE, 0) for arm in protocol.arms):
        raise InvalidInput("greedy runs are compared with those of transformers' generate: the protocol needs that arm")
    measurement = measure(model, prompts, protocol, folder, workers, progress)
    loaded = opened(model) if isinstance(model, Source) else model
    assert isinstance(loaded, DualModeModel)
    scheduled = [arm for arm in protocol.arms if arm.schedule is not None]
    judge = Judge(loaded, reference, 2 * (max((arm.width for arm in scheduled), default=0) + 1))
    certificates: dict[Key, Certificate] = {}
    for arm in certifying(scheduled):
        assert arm.schedule is not None
        width, own_start = max(arm.width, 1), _start(arm, start)
        if greedy:
            outputs = _outputs(measurement.records, prompts, arm.key)
            recorded = list(_traced(measurement.records, prompts, protocol, start, [arm]))
            certificates[arm.key] = certify(
                loaded, reference, arm.schedule, outputs, protocol.limits, width, own_start,
                judge=judge, prompts=certified, padded=protocol.padded, recorded=recorded,
            )  # fmt: skip
        else:
            certificates[arm.key] = certify_sampling(
                loaded, reference, arm.schedule, prompts, protocol.limits, width, own_start,
                temperature=protocol.temperature, tokens=sampled, seed=protocol.seed, padded=protocol.padded,
            )  # fmt: skip
    verdicts = {key: Verdict(each.certified, each.verdict) for key, each in certificates.items()}
    for key in [arm.key for arm in protocol.arms if arm.baseline]:
        verdicts[key] = _judged(loaded, _outputs(measurement.records, prompts, key))
    dtype = str(loaded.dtype).removeprefix("torch.")
    summary = summarise(measurement.records, verdicts)
    return Validation(
        loaded.name, dtype, str(loaded.device), start, protocol, tuple(prompts), measurement, certificates, summary
    )


def _outputs(records: Sequence[Record], prompts: Sequence[Prompt], key: Key) -> list[Output]:
    """What an arm emitted, beside generate; a repeat that emitted the same is not named again."""
    expected = {record.prompt: record.tokens for record in records if record.key == (GENERATE, 0)}
    ids = dict(prompts)
    runs = {
        (r.prompt, r.tokens): Output(r.prompt, ids[r.prompt], expected[r.prompt], r.tokens) for r in records if r.key == key
    }
    return list(runs.values())


def _judged(model: DualModeModel, outputs: Sequence[Output]) -> Verdict:
    """Of a baseline, whose calls nobody sees: its outputs beside generate's."""
    differences = [
        first_difference(model, output.name, output.prompt, output.expected, output.got)
        for output in outputs
        if output.got != output.expected
    ]
    if all(difference.tie for difference in differences):
        return Verdict(True, "TIES" if differences else "equal")
    return Verdict(False, "DIFFERS")


def _traced(
    records: Sequence[Record], prompts: Sequence[Prompt], protocol: Protocol, start: str, arms: Iterable[Arm]
) -> Iterator[TracedRequest]:
    ids, by_key = dict(prompts), {arm.key: arm for arm in arms if arm.schedule is not None}
    for record in records:
        if arm := by_key.get(record.key):
            run, width = record.generation, max(record.width, 1)
            yield TracedRequest(record.prompt, record.name, ids[record.prompt], protocol.limits, run, width, _start(arm, start))


def _start(arm: Arm, start: str) -> str:
    """AR drafts nothing, so the starts that differ in the first draft are one to it."""
    return start if arm.key[0] != "ar" or start == "prompt" else "algorithm"


class Difference(NamedTuple):
    """The first place where a schedule's output leaves the reference."""

    prompt: str
    position: int  # output position, 1 after the prompt
    expected: int | None  # the reference's token, None past its end
    got: int | None
    gap: float  # logit of `expected` minus that of `got` after their common context, plain causal forward in the tested dtype
    noise: float  # largest logit difference between two plain AR runs of the output (row by row, all at once)
    regret: float  # worst shortfall of an emitted token from the top logit, from here to the end of the output

    @property
    def tie(self) -> bool:
        """Whether the two tokens, and every later token against its own context, are as close as schedule-free runs are."""
        return abs(self.gap) <= 2 * self.noise and self.regret <= 2 * self.noise


def first_difference(model: DualModeModel, name: str, prompt: Tokens, expected: Tokens, got: Tokens) -> Difference:
    """Where two different outputs part, with the logit gap there and the noise of plain AR runs on the same context."""
    index = next(
        (i for i, pair in enumerate(zip(expected, got, strict=False)) if pair[0] != pair[1]), min(len(expected), len(got))
    )
    want, have = (t[index] if index < len(t) else None for t in (expected, got))
    if want is None or have is None:  # one output goes on where the other has ended: never a tie
        return Difference(name, index + 1, want, have, float("inf"), 0.0, float("inf"))
    context = prompt + got[:-1]
    at_once, stepwise = causal_logits(model, context), causal_logits(model, context, one_by_one=True)
    rows = at_once[len(prompt) - 1 + index :]  # [tokens from here on, vocabulary]
    emitted = torch.tensor(got[index:], device=rows.device)[:, None]
    regret = (rows.max(-1).values - rows.gather(1, emitted)[:, 0]).max().item()
    gap = (rows[0, want] - rows[0, have]).item()
    # generate takes its argmax over float32 logits whatever the dtype.
    rounding = at_once.abs().max().item() * torch.finfo(torch.float32).eps
    noise = max((at_once - stepwise).abs().max().item(), rounding)
    return Difference(name, index + 1, want, have, gap, noise, regret)
