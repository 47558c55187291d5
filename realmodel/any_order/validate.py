"""Validate an any-order model: every schedule in every order on every prompt, certified, and only then what it cost.

The runs are those of `realmodel.efficiency` (interleaved, warmed up, resumable), the certificates those of
`realmodel.any_order.certificate`, the figures those of `realmodel.figures`. Schedules are compared within an order: PROPC1 says
nothing across orders, which lead to other outputs. What an order costs and changes is said beside it (`Trade`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from realmodel.any_order.certificate import Judge, Output, certify
from realmodel.any_order.conformance import conformance
from realmodel.any_order.reference import training_logits
from realmodel.binding import BoundModel
from realmodel.certificate import Certificate
from realmodel.efficiency import Arm, Key, Measurement, Prompt, Protocol, Record, Source, measure, opened
from realmodel.figures import Summary, Verdict, summarise
from realmodel.layers import Layer, Word, worst
from simulator.any_order import Native, Schedule, named, within
from simulator.records import Limits, Tokens
from simulator.trace import TracedRequest

SCHEDULES = ("serial", "linear", "packed", "quadratic", "native")
LTR = "ltr"


class AnyArm(NamedTuple):
    """A schedule in an order; serial decoding, which has no window, at width 0, and the native decoder, in no order."""

    name: str
    order: str  # "" for the native decoder, whose order is what its probabilities make it
    width: int
    arm: Arm


def arms(
    names: Iterable[str],
    widths: Iterable[int],
    orders: Iterable[str] = (LTR, "confidence"),
    start: str = "algorithm",
    horizon: int | None = None,
) -> tuple[AnyArm, ...]:
    """Every named schedule at every width in every order, serial decoding left to right once, and the native decoder.

    `horizon`: no order puts a position before an unresolved one that lies so many positions or more before it.
    Raises InvalidInput for an unknown name, order or start.
    """
    names, widths, orders, found = list(names), list(widths), list(dict.fromkeys(orders)), []
    for name in names:
        named(name, 1, LTR, start)
    if "serial" in names:
        found.append(_arm("serial", LTR, 0, named("serial", 1, LTR, start)))
    for width in widths:
        for order in orders:
            for name in names:
                if name in ("serial", "native"):
                    continue
                schedule = named(name, width, order, start)
                assert isinstance(schedule, Schedule)
                if horizon is not None:
                    schedule = replace(schedule, order=within(schedule.order, horizon))
                found.append(_arm(name, order, width, schedule))
        if "native" in names:
            found.append(_arm("native", "", width, named("native", width, LTR, start)))
    return tuple(found)


def _arm(name: str, order: str, width: int, schedule: Schedule | Native) -> AnyArm:
    return AnyArm(name, order, width, Arm(replace(schedule, name=f"{name} {order}".strip()), width))


class Trade(NamedTuple):
    """What outputs in an order are, against those of serial decoding left to right, all of them without error."""

    order: str  # "" for the native decoder
    width: int
    schedule: str
    calls: int
    ltr_calls: int | None  # of the same schedule left to right; None for the native decoder, which has no such thing
    different: int  # prompts with another output than left to right
    prompts: int
    agreement: float  # share of the output positions with the token of left to right
    nats: float  # mean -log p of its tokens under the serial left-to-right law, in the reference's dtype
    ltr_nats: float  # of the left-to-right outputs


@dataclass(frozen=True)
class AnyOrderValidation:
    """The result of `validate`."""

    model: str
    dtype: str
    device: str
    start: str
    horizon: int | None
    protocol: Protocol
    arms: tuple[AnyArm, ...]
    prompts: tuple[Prompt, ...]
    measurement: Measurement
    certificates: dict[Key, Certificate]  # by the key of the arm; of all but the native decoder
    native: dict[Key, Layer]  # the conformance of the native decoder, which is not exact by design
    summaries: dict[str, Summary]  # by order; their keys are (schedule, width)
    trades: tuple[Trade, ...]

    @property
    def verdict(self) -> Word:
        """FAULT if an arm is, else NOT RUN if one is, else TIES if one is, else EXACT."""
        return worst(tuple(self.verdict_of(key) for key in (*self.certificates, *self.native)))

    def verdict_of(self, key: Key) -> Word:
        """Of an arm: of its certificate, or of the native decoder's conformance."""
        return self.certificates[key].verdict if key in self.certificates else self.native[key].verdict

    def again(self, key: Key) -> int:
        """Rows that an arm encoded again."""
        return sum(step.again for record in self.measurement.records if record.key == key for step in record.steps)

    def traced(self) -> Iterator[TracedRequest]:
        """Every run, for a trace; the order is part of a request's name."""
        ids, arms = dict(self.prompts), {each.arm.key: each for each in self.arms}
        for record in self.measurement.records:
            each = arms[record.key]
            name = f"{record.prompt}, {each.order or 'its own order'}"
            run, limits = record.generation, self.protocol.limits
            yield TracedRequest(name, each.name, ids[record.prompt], limits, run, max(each.width, 1), self.start)

    def rows(self) -> list[dict[str, Any]]:
        """For JSON, a row an order: parameters, certificates, figures, and each run's tokens and times."""
        return [self._row(order, summary) for order, summary in self.summaries.items()]

    def _row(self, order: str, summary: Summary) -> dict[str, Any]:
        shown = {each.arm.key for each in self.arms if each.order in (order, "") or each.name == "serial"}
        runs = [
            {"prompt": r.prompt, "repeat": r.repeat, "schedule": r.name, "width": r.width, "turn": r.turn}
            | {"tokens": r.tokens, "stop": r.stop, "nfe": r.nfe, "rows": r.rows, "again": sum(s.again for s in r.steps)}
            | {"wall": r.wall, "model": sum(r.model)}
            for r in self.measurement.records
            if r.key in shown
        ]
        return {
            "parameters": self.measurement.parameters,
            "order": order,
            "start": self.start,
            "horizon": self.horizon,
            "verdict": worst(tuple(self.verdict_of(key) for key in shown)),
            "certificates": [each.plain() for key, each in self.certificates.items() if key in shown],
            "not_exact_by_design": [each.plain() | {"arm": key} for key, each in self.native.items()],
            "summary": summary.plain(),
            "trades": [trade._asdict() for trade in self.trades if trade.order in (order, "")],
            "runs": runs,
        }


def validate(
    model: Source | BoundModel,
    reference: BoundModel,
    prompts: Sequence[Prompt],
    chosen: Sequence[AnyArm],
    limits: Limits,
    start: str = "algorithm",
    *,
    horizon: int | None = None,
    repeats: int = 1,
    padded: bool | None = None,
    folder: Path | None = None,
    workers: int = 1,
    certified: int = 2,
    progress: Callable[[Iterable[None], int], Iterable[None]] = lambda done, total: done,
    certifying: Callable[[Sequence[AnyArm]], Iterable[AnyArm]] = iter,
) -> AnyOrderValidation:
    """Run the arms on the prompts, certify each, and sum up, order by order; arguments as in `realmodel.validate.validate`.

    start, horizon  those that the arms were made with, for what is printed
    Raises InvalidInput for no arm, and for what `measure` and `certify` refuse.
    """
    protocol = Protocol(tuple(each.arm for each in chosen), limits, repeats, padded=padded)
    measurement = measure(model, prompts, protocol, folder, workers, progress)
    loaded = opened(model) if isinstance(model, Source) else model
    judge = Judge(loaded, reference)
    certificates: dict[Key, Certificate] = {}
    native: dict[Key, Layer] = {}
    for each in certifying(chosen):
        outputs = _outputs(measurement.records, prompts, each.arm.key)
        if each.name == "native":
            few = [(output.name, output.prompt) for output in outputs[:certified]]
            native[each.arm.key] = conformance(reference, reference, each.arm.schedule, few, limits, padded)
            continue
        certificates[each.arm.key] = certify(
            loaded, reference, each.arm.schedule, outputs, limits, start, judge=judge, prompts=certified, padded=padded
        )
    verdicts = {key: Verdict(each.certified, each.verdict) for key, each in certificates.items()}
    verdicts |= {key: Verdict(each.verdict == "EXACT", "not exact by design") for key, each in native.items()}
    return AnyOrderValidation(
        loaded.name,
        str(loaded.dtype).removeprefix("torch."),
        str(loaded.device),
        start,
        horizon,
        protocol,
        tuple(chosen),
        tuple(prompts),
        measurement,
        certificates,
        native,
        _summaries(chosen, measurement.records, verdicts),
        tuple(_trades(reference, chosen, measurement.records, prompts, verdicts)),
    )


def _outputs(records: Sequence[Record], prompts: Sequence[Prompt], key: Key) -> list[Output]:
    """One a prompt, and more where a repeat went another way."""
    ids = dict(prompts)
    runs = {
        (r.prompt, r.tokens, tuple(s.order for s in r.steps)): Output(r.prompt, ids[r.prompt], r.generation)
        for r in records
        if r.key == key
    }
    return list(runs.values())


def _summaries(chosen: Sequence[AnyArm], records: Sequence[Record], verdicts: dict[Key, Verdict]) -> dict[str, Summary]:
    """By order: its arms, and those in no order beside them."""
    found = {}
    for order in dict.fromkeys(each.order for each in chosen if each.order) or [""]:
        names = {each.arm.key: each.name for each in chosen if each.order in (order, "") or each.name == "serial"}
        mine = [record._replace(name=names[record.key]) for record in records if record.key in names]
        found[order] = summarise(mine, {(name, key[1]): verdicts[key] for key, name in names.items()})
    return found


def _trades(
    reference: BoundModel,
    chosen: Sequence[AnyArm],
    records: Sequence[Record],
    prompts: Sequence[Prompt],
    verdicts: dict[Key, Verdict],
) -> Iterator[Trade]:
    """Of every certified arm that is not left to right, against the outputs left to right, which all schedules share."""
    ids = dict(prompts)
    runs = {(record.key, record.prompt): record for record in records if record.repeat == 0}
    straight = next((each for each in chosen if each.order == LTR and verdicts[each.arm.key].certified), None)
    if straight is None:
        return
    nats: dict[tuple[str, Tokens], float] = {}

    def total(name: str, output: Tokens) -> float:
        if (name, output) not in nats:
            nats[name, output] = _nats(reference, ids[name], output)
        return nats[name, output]

    for each in chosen:
        if each.order == LTR or not verdicts[each.arm.key].certified:
            continue
        mine = [runs[each.arm.key, name] for name in ids]
        theirs = [runs[straight.arm.key, name] for name in ids]
        pairs = [(a.tokens, b.tokens) for a, b in zip(mine, theirs, strict=True)]
        same = next((other for other in chosen if (other.name, other.order, other.width) == (each.name, LTR, each.width)), None)
        places = sum(max(len(a), len(b)) for a, b in pairs)
        yield Trade(
            each.order,
            each.width,
            each.name,
            sum(record.nfe for record in mine),
            sum(runs[same.arm.key, name].nfe for name in ids) if same else None,
            sum(a != b for a, b in pairs),
            len(ids),
            sum(x == y for a, b in pairs for x, y in zip(a, b, strict=False)) / max(1, places),
            sum(total(r.prompt, r.tokens) for r in mine) / max(1, sum(len(r.tokens) for r in mine)),
            sum(total(r.prompt, r.tokens) for r in theirs) / max(1, sum(len(r.tokens) for r in theirs)),
        )


def _nats(reference: BoundModel, prompt: Tokens, output: Tokens) -> float:
    """-log of the probability of an output under serial left-to-right decoding at temperature 1, in nats."""
    if not output:
        return 0.0
    logits = training_logits(reference.network, prompt, tuple(enumerate(output, 1)), reference.mask_token)
    laws = torch.log_softmax(logits, -1)
    return -float(laws.gather(1, torch.tensor(output, device=laws.device)[:, None]).sum())
