"""Measuring harnesses under audit: do they say what a machine took whose times are known?

The machine is a tiny network on a device that is asynchronous as a GPU is: a forward costs the host the time to launch it, and
the device the time to run it, and only who waits for the device sees both. Its first forwards cost extra, as they do where
kernels are compiled. All of it runs on a clock of its own, so that the figures that a harness must report are known exactly.

    timing      model time and wall time of every run are those of the device
    warm-up     the extra cost of the first forwards is in no figure
    aggregates  a speed is all tokens over all time, whatever the runs' own speeds
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch

from proofs_check.findings import Finding, Report, Stage, worst_first
from realmodel.dualmode import DualModeModel
from realmodel.efficiency import Arm, Protocol, Record, measure, measure_prompt
from realmodel.figures import Verdict, summarise
from simulator.records import Limits, Tokens
from simulator.schedules import ar, packed

LAUNCH, RUN, COMPILE = 1.0, 10.0, 500.0  # seconds of the made-up clock
_COLD = 3  # first forwards that compile
_TOKENS = 6

Measure: TypeAlias = Callable[[DualModeModel, Sequence[tuple[str, Tokens]], Protocol], Sequence[Record]]
Throughput: TypeAlias = Callable[[Sequence[Record]], float]


class Device:
    """A clock of the host, and what the device still has to do."""

    def __init__(self) -> None:
        self.now = self.busy_until = 0.0
        self.forwards = 0

    def run(self) -> None:
        """Launch one forward."""
        self.forwards += 1
        self.now += LAUNCH
        self.busy_until = max(self.busy_until, self.now) + RUN + COMPILE * (self.forwards <= _COLD)

    def wait(self) -> None:
        """Until the device is idle."""
        self.now = max(self.now, self.busy_until)


class TimedModel(DualModeModel):
    """A tiny random network on such a device. Its clock waits, as a clock must."""

    def __init__(self, device: Device) -> None:
        from transformers import Qwen3Config, Qwen3ForCausalLM

        config = Qwen3Config(
            vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
            num_key_value_heads=1, head_dim=8, max_position_embeddings=128, eos_token_id=None, tie_word_embeddings=True,
        )  # fmt: skip
        torch.manual_seed(0)
        network = Qwen3ForCausalLM(config).eval()
        forward = network.forward

        def timed(*arguments: Any, **options: Any) -> Any:
            device.run()
            return forward(*arguments, **options)

        network.forward = timed
        super().__init__(network, None, mask_token=1, name="timed")
        self.timer = device

    def clock(self) -> float:
        self.timer.wait()
        return self.timer.now


class Impatient(TimedModel):
    """Its clock does not wait for the device."""

    def clock(self) -> float:
        return self.timer.now


class Harness(NamedTuple):
    """What measures, and what sums up."""

    model: Callable[[Device], DualModeModel]
    measure: Measure
    throughput: Throughput


def _measured(model: DualModeModel, prompts: Sequence[tuple[str, Tokens]], protocol: Protocol) -> Sequence[Record]:
    return measure(model, prompts, protocol).records


def _throughput(records: Sequence[Record]) -> float:
    key = records[0].key
    figures = summarise(records, {key: Verdict(True, "EXACT")}, resamples=10).row(key).figures
    assert figures is not None
    return figures.throughput.estimate


def ours() -> Harness:
    """The production harness."""
    return Harness(TimedModel, _measured, _throughput)


def unsynchronised() -> Harness:
    """Times are taken when a forward was launched, not when it was done."""
    return Harness(Impatient, _measured, _throughput)


def cold() -> Harness:
    """Nothing is warmed up."""

    def measured(model: DualModeModel, prompts: Sequence[tuple[str, Tokens]], protocol: Protocol) -> list[Record]:
        return [record for number, p in enumerate(prompts) for record in measure_prompt(model, protocol, p, number)]

    return Harness(TimedModel, measured, _throughput)


def averaging() -> Harness:
    """A speed is the mean of the runs' speeds."""
    return Harness(TimedModel, _measured, lambda records: sum(len(r.tokens) / r.wall for r in records) / len(records))


def audit_harness(harness: Harness, name: str) -> Report:
    """The audit of a harness."""
    begun = time.perf_counter()
    arms = (Arm(ar()), Arm(packed(3), 3))
    prompts = [("first", (2, 3, 4)), ("second", (5, 6, 7, 8))]
    records = harness.measure(harness.model(Device()), prompts, Protocol(arms, Limits.of(_TOKENS), repeats=2, padded=True))
    stages, findings = [], []
    judged = {
        "timing": (_timing(records), f"{len(records)} runs, {sum(record.nfe for record in records)} forwards"),
        "warm-up": (_warm_up(records), f"{_COLD} first forwards that cost {COMPILE:g} s more"),
        "aggregates": (_aggregates(harness.throughput, records[0]), "two runs, 10 tokens at 10 a second, 1000 at 100"),
    }
    for stage, (wrong, looked_at) in judged.items():
        stages.append(Stage(stage, "failed" if wrong else "passed", wrong or looked_at, time.perf_counter() - begun))
        findings += [Finding("count", wrong, stage=stage)] if wrong else []
    return Report(name, None, tuple(stages), worst_first(findings))


def _timing(records: Sequence[Record]) -> str:
    for record in records:
        spent = [took % COMPILE for took in record.model]
        if any(took != LAUNCH + RUN for took in spent):
            wrong = next(took for took in spent if took != LAUNCH + RUN)
            return f"a forward of {record.name} is said to take {wrong:g} s, it took {LAUNCH + RUN:g}: nobody waited for it"
        if record.wall < sum(record.model) or len(record.model) != record.nfe:
            return f"{record.name}: {record.nfe} forwards, {len(record.model)} timed, wall {record.wall:g} s"
    return ""


def _warm_up(records: Sequence[Record]) -> str:
    extra = sum(took >= COMPILE for record in records for took in record.model)
    return f"{extra} forwards of the figures are among the first of the process, which compile" if extra else ""


def _aggregates(throughput: Throughput, like: Record) -> str:
    tokens = ((0,) * 10, (0,) * 1000)
    runs = [
        like._replace(prompt=str(i), repeat=0, tokens=output, wall=wall, steps=(), model=(), name="x", width=0)
        for i, (output, wall) in enumerate(zip(tokens, (1.0, 10.0), strict=True))
    ]
    said, right = throughput(runs), 1010 / 11
    return "" if abs(said - right) < 1e-9 else f"throughput is said to be {said:.4g} tokens a second, it was {right:.4g}"
