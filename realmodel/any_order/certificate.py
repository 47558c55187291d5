"""The certificate of an any-order schedule on a real model: rule, conformance, numerics, as in `realmodel.certificate`.

    rule          the schedule's tokens on small tables against the serial reference under the same orders (PROPC1), at W <= 3
    conformance   does the binding compute what the schedule asks for? (`realmodel.any_order.conformance`)
    numerics      what does the tested dtype change? Every accepted token is judged as in `realmodel.numerics`, in the order in
                  which it was accepted; the baseline is the serial reference in the tested dtype, replayed under the same
                  orders and groups by plain forwards

The native decoder has no serial reference, and no certificate: of it, only conformance can be looked at.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch

from proofs_check.findings import Finding
from realmodel.any_order.conformance import conformance
from realmodel.any_order.paths import Path, at_once, one_by_one, path_of, readable, serial
from realmodel.binding import BoundModel
from realmodel.certificate import Certificate, flags
from realmodel.layers import Layer, Word
from realmodel.numerics import Divergence, Judged, Ties, concluded, judged, spread
from realmodel.watching import drafting, watch
from simulator.any_order import Pairs, Schedule
from simulator.decode import Generation, Policy, generate
from simulator.errors import InvalidInput
from simulator.oracles.any_order import AnyOrderModel as Tables
from simulator.oracles.any_order import random_tables
from simulator.records import Limits, Tokens

_RULE_WIDTH, _RULE_TOKENS, _RULE_SEEDS = 3, 9, 40


class Output(NamedTuple):
    """What a schedule emitted in the tested dtype."""

    name: str  # of the prompt
    prompt: Tokens
    run: Generation


@dataclass
class Judge:
    """Judges paths of one model; what was judged once is not computed again, whichever schedule took it.

    model       in the tested dtype: only plain forwards of its network
    reference   the same weights in float64, or in float32 where that does not fit
    """

    model: BoundModel
    reference: BoundModel
    _judged: dict[tuple[Tokens, Path], Judged] = field(default_factory=dict)
    _serial: dict[tuple[Tokens, Path], Path] = field(default_factory=dict)

    def __call__(self, prompt: Tokens, path: Path) -> Judged:
        """`path`, which is not empty, judged."""
        key = prompt, path
        if key not in self._judged:
            mask, network = self.model.mask_token, self.model.network
            exact = at_once(self.reference.network, prompt, path, mask).cpu()
            plain = [read(network, prompt, path, mask).cpu() for read in (one_by_one, at_once)]
            tokens = torch.tensor([token for _, token in path.predicted])
            self._judged[key] = judged(exact, tokens, plain, self.model.dtype)
            if (plain[0].argmax(-1) == tokens).all():  # the reference takes the same token everywhere and comes to the same end
                self._serial[key] = path
        return self._judged[key]

    def serial(self, prompt: Tokens, path: Path, limits: Limits) -> Path:
        """What the serial reference in the tested dtype accepts under the orders and groups of `path`, which is not empty."""
        self(prompt, path)
        key = prompt, path
        if key not in self._serial:
            self._serial[key] = serial(self.model.network, prompt, path, limits, self.model.mask_token)
        return self._serial[key]


def certify(
    model: BoundModel,
    reference: BoundModel,
    schedule: Schedule,
    outputs: Sequence[Output],
    limits: Limits,
    start: str = "algorithm",
    *,
    judge: Judge | None = None,
    binding: BoundModel | None = None,
    prompts: int = 2,
    samples: int = 5,
    padded: bool | None = None,
) -> Certificate:
    """The certificate of a greedy schedule; `model`, `reference`, `binding`, `prompts` and `samples` as in
    `realmodel.certificate.certify`.
    """
    few = [(output.name, output.prompt) for output in outputs[:prompts]]
    conforms = conformance(binding or reference, reference, schedule, few, limits, padded, samples)
    layers = (rule(schedule), conforms, numerics(judge or Judge(model, reference), schedule, outputs, limits, prompts, padded))
    tested, exact = (str(each.dtype).removeprefix("torch.") for each in (model, reference))
    seen = drafting(step for output in outputs for step in output.run.steps)
    return Certificate(schedule.name, schedule.width, start, tested, exact, 0.0, layers, flags(*seen))


def rule(schedule: Schedule) -> Layer:
    """The layer of a schedule alone. Asked again for a schedule of the same policy, it answers from memory."""
    subject = narrowed(schedule)
    return _rule(subject) if isinstance(subject, Hashable) else _rule.__wrapped__(subject)


@lru_cache(maxsize=64)
def _rule(subject: Schedule) -> Layer:
    begun = time.perf_counter()
    findings: tuple[Finding, ...] = ()
    accepted = rejected = shrunk = 0
    for seed in range(_RULE_SEEDS):
        tables = random_tables(vocabulary=2 + seed % 2, seed=seed).greedy()
        limits = Limits.of(_RULE_TOKENS, 0 if seed % 3 else None)
        try:
            run = generate(cast(Any, tables), cast(Policy, subject), (), limits)
        except InvalidInput:
            raise
        except Exception as error:
            finding = Finding("contract", f"tables {seed}: it raises {type(error).__name__}: {error}", stage="serial")
            findings = (finding,)
            break
        expected = _serial_on(tables, run, limits)
        if expected != run.tokens:
            text = f"serial {list(expected)}\ngot    {list(run.tokens)}"
            findings = (Finding("law", f"tables {seed}: not the serial reference's tokens", text, stage="serial"),)
            break
        accepted += sum(step.accepted for step in run.steps)
        rejected += sum(step.accepted < len(step.verified) for step in run.steps)
        path = path_of(run.steps)
        shrunk += len(path.predicted) > len(path.output)
    said = (
        f"W = {subject.width}; {_RULE_SEEDS} tables, {accepted} draft tokens accepted, {rejected} drafts rejected,"
        f" accepted pairs removed in {shrunk}"
    )
    drafts = any(ask.ranks != 1 for ask in subject.cycle)
    missing = drafts and not (accepted and rejected)
    verdict: Word = "FAULT" if findings else "NOT RUN" if missing else "EXACT"
    return Layer("rule", verdict, said, findings, {}, time.perf_counter() - begun)


def narrowed(schedule: Schedule) -> Schedule:
    """The policy at W <= 3, so that rejections, full windows and an end are all near."""
    width = min(schedule.width, _RULE_WIDTH)

    def narrow(asks: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(ask._replace(branches=tuple(b for b in ask.branches if b < width)) for ask in asks)

    return replace(schedule, width=width, opening=narrow(schedule.opening), cycle=narrow(schedule.cycle))


def _serial_on(tables: Tables, run: Generation, limits: Limits) -> Tokens:
    """One token after the other, at the positions that each call accepted."""
    held: Pairs = ()
    end = limits.max_new_tokens
    for step in run.steps:
        group: Pairs = ()
        for position in step.order[: step.advance]:
            token = tables.verifier(held + group, position).certain
            assert token is not None  # greedy tables
            group += ((position, token),)
        end = min([end, *(position for position, token in group if token in limits.eos)])
        held = tuple(pair for pair in held + group if pair[0] <= end)
    return tuple(token for _, token in sorted(held))


def numerics(
    judge: Judge,
    schedule: Schedule,
    outputs: Sequence[Output],
    limits: Limits,
    again: int = 2,
    padded: bool | None = None,
) -> Layer:
    """The layer of a greedy schedule, from its outputs on all prompts. The first `again` prompts are run once more, watched."""
    begun = time.perf_counter()
    findings: list[Finding] = []
    divergences: list[Divergence] = []
    ties, noise, largest, baselines = Ties(), 0.0, 0.0, list[Judged]()
    for output in outputs:
        if not output.run.steps:
            continue
        tokens = dict(enumerate(output.run.tokens, 1))
        if len(tokens) != (end := limits.end(tokens, tokens)):
            findings.append(Finding("stop", f"{output.name}: {len(tokens)} tokens, its end is position {end}", stage="end"))
        path = path_of(output.run.steps)
        if not path.segments:
            continue
        found, expected = judge(output.prompt, path), judge.serial(output.prompt, path, limits)
        baselines.append(judge(output.prompt, expected))
        ties.add(found)
        noise, largest = max(noise, found.noise), max(largest, float(found.regrets.max()))
        if expected.output != path.output:
            divergence = _diverged(output.name, path, expected.output, found)
            divergences.append(divergence)
            if divergence.verdict == "FAULT":
                text = f"serial {list(expected.output)}\ngot    {list(path.output)}"
                findings.append(Finding("law", str(divergence), text, stage="divergences"))
    pairs = []
    for output in outputs[:again]:
        try:
            each = watch(judge.model.session(padded=padded), cast(Policy, schedule), output.name, output.prompt, limits)
        except InvalidInput:
            raise
        except Exception as error:
            text = f"{output.name}: it raises {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
            findings.append(Finding("contract", text, stage="again"))
            break
        if each.run.tokens != output.run.tokens:
            text = f"first {list(output.run.tokens)}\nagain {list(each.run.tokens)}"
            findings.append(Finding("determinism", f"{output.name} gives other tokens when run again", text, stage="again"))
        path = path_of(each.run.steps)
        if path.segments:
            taken = zip(each.seen, each.run.steps, strict=True)
            logits = torch.cat([seen.logits[: step.advance].double() for seen, step in taken if step.predictions])
            pairs.append((judge(output.prompt, path), readable(logits, judge.model.mask_token)))
    equal = f"{len(outputs)} prompts, {len(outputs) - len(divergences)} equal to the serial reference's"
    return concluded(begun, equal, findings, divergences, ties, largest, noise, spread(pairs), baselines)


def _diverged(name: str, path: Path, expected: Pairs, found: Judged) -> Divergence:
    """The first accepted token that the serial reference did not take, and whether all tokens are as close as rounding is."""
    had, wanted = dict(path.predicted), dict(expected)
    index, position = next(
        ((i, j) for i, (j, token) in enumerate(path.predicted) if wanted.get(j) != token), (len(had) - 1, path.predicted[-1][0])
    )
    regret = float(found.regrets[index:].max())
    tie = float(found.regrets.max()) <= 2 * found.noise
    verdict: Word = "TIES" if tie else "FAULT"
    return Divergence(name, position, wanted.get(position), had.get(position), regret, found.noise, regret, verdict)
