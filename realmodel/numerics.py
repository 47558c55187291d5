"""The third layer: what the tested dtype changes, and whether that is all that changed.

Greedy. Every emitted token is held against the logits of the reference (float64, teacher-forced on the tokens emitted so far);
its regret is by how much the reference prefers another token. Regrets and divergences from transformers' generate are ties
only within the noise, which is measured on the same tokens between runs that contain no schedule: plain AR in the tested dtype,
one row at a time and in causal blocks of 2B rows. And ties must be no more and no larger than those of plain AR: a fault small
enough to pass for rounding token by token still makes too many of them. Those two tests have stated odds.

Sampling. The emitted tokens of all prompts are bets against the reference's laws (`proofs_check.eprocess`). Beside them two
identities of ALG2, a martingale each: a draft token drawn from q and tested against p is accepted with probability
sum_x min(p, q), and after it is known to be d, with min(1, p(d) / q(d)).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from proofs_check.decoder import wrong_end
from proofs_check.eprocess import Emitted, EProcess
from proofs_check.findings import Finding
from proofs_check.reference import Entries
from realmodel.dualmode import DualModeModel
from realmodel.laws import TorchLaw
from realmodel.layers import Layer, Word
from realmodel.reference import causal_logits
from realmodel.watching import Watched, drafting, watch
from simulator.acceptance import acceptance_probability
from simulator.chance import Sampled, Source
from simulator.decode import Model, Policy
from simulator.errors import ContractError, InvalidInput
from simulator.laws import Floats, Law, dense
from simulator.records import Limits, Tokens

ALPHA = 1e-3  # odds that the layer calls a right schedule FAULT for its number or size of ties, or for what it sampled
_LIKELY = 16  # tokens per row whose logits the noise is measured on: those that could be taken for the largest
SPREAD, SPREAD_LARGEST = 1.5, 3.0  # measured on right bindings: 0.9 .. 1.1 and at most 1.2
_MISMATCH = 5.0  # same weights: 0.9 .. 1.6, single tokens up to 3; 10 % off in one norm: 6 and more, even in bfloat16
_SLACK = 2.0  # a gap of two logits, each of them off by up to the noise


# --- greedy -----------------------------------------------------------------------------------------------------------------


class Divergence(NamedTuple):
    """The first place where an output leaves the baseline's."""

    prompt: str
    position: int  # output position, 1 after the prompt
    expected: int | None  # the baseline's token, None past its end
    got: int | None
    gap: float  # reference logit of `expected` minus that of `got`, after their common context
    noise: float  # largest error of a likely token's logit in the schedule-free runs of this output
    regret: float  # largest regret of an emitted token, from here to the end of the output
    verdict: Word  # TIES or FAULT

    def __str__(self) -> str:
        return (
            f"{self.verdict} on {self.prompt} at output token {self.position}: expected {self.expected}, got {self.got};"
            f" reference logit gap {self.gap:.2e}, noise of plain AR {self.noise:.2e},"
            f" largest regret from there on {self.regret:.2e}"
        )


@dataclass(frozen=True)
class Judged:
    """An output, token by token, against the reference, and schedule-free runs of the tested dtype on the same tokens."""

    likely: torch.Tensor  # the tokens that the reference prefers, [tokens, likely]
    logits: torch.Tensor  # theirs, by the reference, [tokens, likely]
    scale: float  # the largest logit, absolute
    rounding: float  # of the tested dtype, relative
    regrets: Floats  # [tokens]
    noise: float  # largest error of a likely token's logit in the schedule-free runs
    controls: tuple[Floats, ...]  # regrets of the tokens that plain AR prefers after the same contexts: [tokens] each
    errors: tuple[Floats, ...]  # of the likely logits of plain AR, [tokens, likely] each

    def error(self, logits: torch.Tensor) -> Floats:
        """By how much likely logits are off the reference's, the error that they share left out: [tokens, likely]."""
        error = logits.gather(1, self.likely) - self.logits
        centred: Floats = (error - error.mean(-1, keepdim=True)).numpy()
        return centred


class Judge:
    """Judges outputs of one model; what was judged once is not computed again, whichever schedule emitted it."""

    def __init__(self, model: DualModeModel, reference: DualModeModel, block: int) -> None:
        self.model, self.reference, self.block = model, reference, block
        self._judged: dict[tuple[Tokens, Tokens], Judged] = {}

    def __call__(self, prompt: Tokens, output: Tokens) -> Judged:
        """`output` is not empty."""
        key = (prompt, output)
        if key not in self._judged:
            self._judged[key] = self._judge(prompt, output)
        return self._judged[key]

    @torch.inference_mode()
    def _judge(self, prompt: Tokens, output: Tokens) -> Judged:
        logits = causal_logits(self.reference, prompt + output[:-1])[len(prompt) - 1 :].cpu()
        plain = (ar_logits(self.model, prompt, output, rows).cpu() for rows in (1, self.block))
        return judged(logits, torch.tensor(output), plain, self.model.dtype)


def judged(reference: torch.Tensor, tokens: torch.Tensor, plain: Iterable[torch.Tensor], dtype: torch.dtype) -> Judged:
    """`tokens` against the reference's logits, beside those of schedule-free runs in the tested dtype: [tokens, vocabulary]."""
    # generate takes its argmax over float32 logits whatever the dtype.
    scale = reference.abs().max().item()
    rounding = scale * torch.finfo(torch.float32).eps
    best, likely = reference.topk(min(_LIKELY, reference.shape[-1]), dim=-1)
    found = Judged(likely, best, scale, torch.finfo(dtype).eps, _regrets(reference, tokens), rounding, (), ())
    for logits in plain:
        error, regrets = found.error(logits), _regrets(reference, logits.argmax(-1))
        noise = max(found.noise, float(np.abs(error).max()))
        found = replace(found, noise=noise, controls=(*found.controls, regrets), errors=(*found.errors, error))
    return found


@torch.inference_mode()
def ar_logits(model: DualModeModel, prompt: Tokens, output: Tokens, rows: int) -> torch.Tensor:
    """Plain causal logits of every output token, [tokens, vocabulary], float64, cached, `rows` rows at a time.

    One row at a time, but the prompt at once: this is what a decoder does that has no schedule. Blocks take the prompt too.
    """
    inputs, first = torch.tensor([prompt + output[:-1]], device=model.device), len(prompt) - 1
    size = inputs.shape[1]
    edges = [0, *range(len(prompt) if rows == 1 else rows, size, rows), size]
    cache, read = None, []
    for begin, end in pairwise(edges):
        wanted = end - max(begin, first)
        answer = model.network(inputs[:, begin:end], cache=cache, use_cache=True, logits_to_keep=max(1, wanted))
        cache = answer.cache
        if wanted > 0:
            read.append(answer.logits[0].double())
    return torch.cat(read)


def mismatch(judged: Sequence[Judged]) -> float:
    """Errors of the schedule-free runs over their difference from each other, pooled: about 1, if the reference has the same
    weights; else the noise that is measured against it would excuse anything."""
    first, second = (np.concatenate([each.errors[run] for each in judged]) for run in (0, 1))
    least = max(each.scale * each.rounding for each in judged) / 8
    return max(_rms(first), _rms(second)) / max(_rms(first - second), least)


def _rms(error: Floats) -> float:
    return float(np.sqrt(np.square(error).mean()))


def _regrets(logits: torch.Tensor, tokens: torch.Tensor) -> Floats:
    best: torch.Tensor = logits.max(-1).values - logits.gather(1, tokens[:, None])[:, 0]
    return best.numpy()


class Output(NamedTuple):
    """An output, and that of the baseline."""

    name: str  # of the prompt
    prompt: Tokens
    expected: Tokens  # by transformers' generate
    got: Tokens


@dataclass
class Ties:
    """Regrets of the schedule's tokens and of plain AR's after the same contexts."""

    tokens: int = 0
    mine: list[Floats] = field(default_factory=list)
    theirs: list[tuple[Floats, ...]] = field(default_factory=list)

    def add(self, judged: Judged) -> None:
        self.tokens += len(judged.regrets)
        self.mine.append(judged.regrets)
        self.theirs.append(judged.controls)

    def odds(self) -> tuple[int, list[int], float, float]:
        """(ties, those of each control, odds of so many, odds of such large ones), of the milder control.

        Number: after each context, the schedule and plain AR are as likely as each other to be the only one that ties, so those
        contexts are fair coins. Size: ranks (Mann-Whitney).
        """
        from scipy.stats import binom, mannwhitneyu

        if not self.mine:
            return 0, [], 1.0, 1.0
        mine = np.concatenate(self.mine)
        counts, number, size = [], 0.0, 0.0
        for control in range(len(self.theirs[0])):
            theirs = np.concatenate([each[control] for each in self.theirs])
            counts.append(int((theirs > 0).sum()))
            only_mine = int(((mine > 0) & (theirs == 0)).sum())
            only_theirs = int(((mine == 0) & (theirs > 0)).sum())
            number = max(number, float(binom.sf(only_mine - 1, only_mine + only_theirs, 0.5)))
            ranks = 1.0
            if (mine > 0).any() and (theirs > 0).any():
                ranks = float(mannwhitneyu(mine[mine > 0], theirs[theirs > 0], alternative="greater").pvalue)
            size = max(size, ranks)
        return int((mine > 0).sum()), counts, number, size


class Spread(NamedTuple):
    """Errors of the logits that a schedule verified with, over those of plain AR on the same tokens; about 1 for rounding."""

    rows: int
    root_mean_square: float
    largest: float

    @property
    def beyond(self) -> bool:
        return self.root_mean_square > SPREAD or self.largest > SPREAD_LARGEST


def spread(pairs: Iterable[tuple[Judged, torch.Tensor]]) -> Spread:
    """Pooled over runs, against the worse of the two schedule-free runs: what was judged, and a schedule's logits on it."""
    mine, theirs, least = [], [], 0.0
    for judged, logits in pairs:
        mine.append(judged.error(logits.cpu()))
        theirs.append(judged.errors)
        least = max(least, judged.scale * judged.rounding / 16)
    if not mine:
        return Spread(0, 0.0, 0.0)
    ours, *others = (np.concatenate(errors) for errors in (mine, *zip(*theirs, strict=True)))
    size = max([least, *map(_rms, others)])
    largest = max([least, *(float(np.abs(other).max()) for other in others)])
    return Spread(len(ours), _rms(ours) / size, float(np.abs(ours).max()) / largest)


def greedy(
    judge: Judge,
    schedule: Policy,
    outputs: Sequence[Output],
    limits: Limits,
    again: int = 2,
    padded: bool | None = None,
    alpha: float = ALPHA,
) -> Layer:
    """The layer of a greedy schedule, from its outputs on all prompts. The first `again` prompts are run once more, watched."""
    begun = time.perf_counter()
    findings: list[Finding] = []
    divergences: list[Divergence] = []
    ties, noise, largest, baselines = Ties(), 0.0, 0.0, list[Judged]()
    for output in outputs:
        if problem := wrong_end(output.prompt, output.got, limits):
            findings.append(Finding("stop", f"{output.name}: {problem}", stage="end"))
        if not output.expected or not output.got:
            continue
        baseline = judge(output.prompt, output.expected)
        baselines.append(baseline)
        judged = judge(output.prompt, output.got)
        ties.add(judged)
        noise, largest = max(noise, judged.noise), max(largest, float(judged.regrets.max()))
        if output.got != output.expected:
            divergence = diverged(output, judged, baseline)
            divergences.append(divergence)
            if divergence.verdict == "FAULT":
                findings.append(Finding("law", str(divergence), _shown(output, divergence.position), stage="divergences"))
    watched: list[Watched] = []
    for output in outputs[:again]:
        try:
            watched.append(watch(judge.model.session(padded=padded), schedule, output.name, output.prompt, limits))
        except InvalidInput:
            raise
        except Exception as error:
            text = f"{output.name}: it raises {type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
            findings.append(Finding("contract", text, stage="again"))
            break
        if watched[-1].run.tokens != output.got:
            text = f"first {list(output.got)}\nagain {list(watched[-1].run.tokens)}"
            findings.append(Finding("determinism", f"{output.name} gives other tokens when run again", text, stage="again"))
    equal = f"{len(outputs)} prompts, {sum(o.got == o.expected for o in outputs)} equal to generate's"
    rows = spread((judge(each.prompt, each.run.tokens), each.verifier_logits()) for each in watched if each.run.tokens)
    return concluded(begun, equal, findings, divergences, ties, largest, noise, rows, baselines, alpha)


def concluded(
    begun: float,
    outputs: str,
    findings: Sequence[Finding],
    divergences: Sequence[Divergence],
    ties: Ties,
    largest: float,
    noise: float,
    rows: Spread,
    baselines: Sequence[Judged],
    alpha: float = ALPHA,
) -> Layer:
    """The layer, from what was found in each output: with too many or too large ties, or errors that are too large, a FAULT.

    `outputs` says what was looked at, `largest` is the largest regret.
    """
    found = list(findings)
    count, controls, number, size = ties.odds()
    if min(number, size) < alpha / 2:
        which, odds = ("many", number) if number <= size else ("large", size)
        theirs = f"plain AR in this dtype has {_either(controls)}"
        text = f"too {which} ties: {count} of {ties.tokens:,} tokens, {theirs}; odds {odds:.1g}"
        found.append(Finding("law", text, stage="ties"))
    if rows.beyond:
        found.append(Finding("law", f"{_spread(rows)}: no rounding is that large", stage="spread"))
    said = (
        f"{ties.tokens:,} tokens of {outputs};"
        f" largest regret {largest:.1e}, noise of plain AR {noise:.1e}; {count} tokens are not the reference's, of plain AR's"
        f" {_either(controls)}: odds of so many {number:.2g}, of such large ones {size:.2g} (limit {alpha / 2:g} each);"
        f" {_spread(rows)}"
    )
    figures = {
        "tokens": ties.tokens,
        "divergences": [divergence._asdict() for divergence in divergences],
        "noise": noise,
        "largest_regret": largest,
        "ties": count,
        "ties_of_plain_ar": controls,
        "odds_number": number,
        "odds_size": size,
        "alpha": alpha,
        "spread": rows._asdict(),
    }
    verdict: Word = "FAULT" if found else "TIES" if divergences else "EXACT"
    off = mismatch(baselines) if baselines else 0.0
    beyond = sum(bool(each.regrets.max() > _SLACK * each.noise) for each in baselines)
    if off > _MISMATCH or beyond:
        said = f"plain AR is not the reference's: off by {off:.1f} times its own noise, beyond it on {beyond} prompts"
        verdict = "NOT RUN"
    elif not ties.tokens and not found:
        verdict, said = "NOT RUN", "no token was compared"
    shown = tuple(found) if verdict == "FAULT" else ()
    return Layer("numerics", verdict, said, shown, figures, time.perf_counter() - begun)


def _either(counts: Sequence[int]) -> str:
    return " or ".join(map(str, dict.fromkeys(counts))) or "none"


def _spread(rows: Spread) -> str:
    return (
        f"errors of {rows.rows} verifier rows {rows.root_mean_square:.2f} times those of plain AR, the largest"
        f" {rows.largest:.2f} times (limits {SPREAD:g}, {SPREAD_LARGEST:g})"
    )


def diverged(output: Output, judged: Judged, baseline: Judged) -> Divergence:
    """The first divergence of an output, judged as the baseline's was: TIES or FAULT."""
    pairs = enumerate(zip(output.expected, output.got, strict=False))
    shorter = min(len(output.expected), len(output.got))
    index = next((i for i, (a, b) in pairs if a != b), shorter)
    if index == shorter:  # one output goes on where the other has ended: never a tie
        want, have = (each[index] if index < len(each) else None for each in (output.expected, output.got))
        return Divergence(output.name, index + 1, want, have, math.inf, judged.noise, math.inf, "FAULT")
    wanted, had = output.expected[index], output.got[index]
    gap = float(judged.regrets[index] - baseline.regrets[index])  # up to here their contexts are the same
    regret = float(judged.regrets[index:].max())
    tie = abs(gap) <= _SLACK * judged.noise and float(judged.regrets.max()) <= _SLACK * judged.noise
    return Divergence(output.name, index + 1, wanted, had, gap, judged.noise, regret, "TIES" if tie else "FAULT")


def _shown(output: Output, position: int) -> str:
    begin = max(0, position - 6)
    return (
        f"output tokens {begin + 1} .. {position + 3} of {output.name}\n"
        f"expected {list(output.expected[begin : position + 3])}\ngot      {list(output.got[begin : position + 3])}"
    )


# --- sampling ---------------------------------------------------------------------------------------------------------------

_STAKES = (0.03, 0.1, 0.3, 0.9)


class Bets:
    """Bets, of both signs, on a martingale difference that lies in [-1, 1]; their average is an e-value at all times."""

    def __init__(self) -> None:
        self._stakes = np.array([sign * stake for stake in _STAKES for sign in (1, -1)])
        self._wealth = np.zeros(len(self._stakes))  # logarithms
        self.count, self.total = 0, 0.0

    def observe(self, difference: float) -> None:
        self.count, self.total = self.count + 1, self.total + difference
        self._wealth += np.log1p(self._stakes * difference)

    @property
    def log_e(self) -> float:
        return float(np.logaddexp.reduce(self._wealth) - math.log(len(self._wealth)))


class SampledEvidence:
    """Three e-values of one sampler, fed run by run: its tokens, its acceptances, and those given the draft token.

    `alpha` is shared: half to the tokens, a quarter to each identity.
    """

    def __init__(self, alpha: float, eos: Iterable[int], mask: int) -> None:
        self.process = EProcess(alpha / 2, eos)
        self.expected, self.given = Bets(), Bets()
        self.alpha, self.mask, self.tokens = alpha, mask, 0
        self.rejected_at: int | None = None  # after so many tokens of whole requests
        self.by = ""

    def observe(self, each: Watched, laws: torch.Tensor) -> bool:
        """A run, and the reference's laws of its tokens, [tokens, vocabulary]. Whether the sampler is rejected by now."""
        rows = laws.numpy()
        emitted = (Emitted(token, _entries(row)) for token, row in zip(each.run.tokens, rows, strict=True))
        self.process.observe(emitted)
        stored: tuple[Law, ...] = ()
        place = 0
        for seen, step in zip(each.seen, each.run.steps, strict=True):
            for index, token in enumerate(step.verified[: min(step.accepted + 1, len(step.committed))]):
                p, q = TorchLaw(laws[place + index]), stored[index]
                overlap = float(torch.minimum(laws[place + index], torch.from_numpy(dense(q, laws.shape[-1]))).sum())
                accepted = float(index < step.accepted)
                self.expected.observe(accepted - overlap)
                self.given.observe(accepted - float(acceptance_probability(p, q, token)))
            place += len(step.committed)
            if step.branch is not None:
                proposals = seen.reply.proposals[seen.call.branches.index(step.branch)] or ()
                stored = proposals[step.discarded :][: step.retained]
        self.tokens += len(each.run.tokens)
        if self.rejected_at is None:
            limit = -math.log(self.alpha / 4)
            names = {"acceptances": self.expected, "acceptances given the draft token": self.given}
            self.by = next((name for name, bets in names.items() if bets.log_e >= limit), "")
            self.by = "tokens" if self.process.rejected else self.by
            if self.by:
                self.rejected_at = self.tokens
        return self.rejected_at is not None

    def __str__(self) -> str:
        drafts, overlap = self.expected.count, self.expected.count and self.expected.total / self.expected.count
        return (
            f"{self.tokens:,} tokens, e-value {_e(self.process.log_e)} (a shift of {self.process.detectable:.3f} is seen);"
            f" {drafts:,} draft tokens tested, accepted {overlap:+.4f} more often than sum min(p, q), e-value"
            f" {_e(self.expected.log_e)}, and given the token e-value {_e(self.given.log_e)}; alpha {self.alpha:g}"
        )


def _e(log_e: float) -> str:
    return f"{math.exp(min(log_e, 700.0)):.2g}"


def _entries(row: Floats) -> Entries:
    ids = np.flatnonzero(row)
    return Entries(ids, row[ids] / row[ids].sum())


@torch.inference_mode()
def reference_laws(reference: DualModeModel, prompt: Tokens, output: Tokens, temperature: float) -> torch.Tensor:
    """The law of every output token, [tokens, vocabulary], float64 on the host."""
    logits = causal_logits(reference, prompt + output[:-1])[len(prompt) - 1 :]
    return torch.softmax(logits / temperature, -1).cpu()


def gather_evidence(
    model: DualModeModel,
    reference: DualModeModel,
    schedule: Policy,
    prompts: Sequence[tuple[str, Tokens]],
    limits: Limits,
    temperature: float,
    tokens: int,
    seed: int,
    padded: bool | None = None,
    alpha: float = ALPHA,
    plant: Callable[[Model], Model] = lambda model: model,
    coins: Callable[[Source], Source] = lambda source: source,
) -> tuple[SampledEvidence, list[Watched]]:
    """Sample, prompt after prompt and round again, until the sampler is rejected or has emitted `tokens` tokens.

    `plant` and `coins` put a fault between the model, or chance, and the schedule. The runs returned are those of one round.
    """
    evidence, runs = SampledEvidence(alpha, limits.eos, model.mask_token), []
    request = 0
    while evidence.tokens < tokens:
        name, prompt = prompts[request % len(prompts)]
        chance = coins(Sampled(seed, request))
        each = watch(model.session(temperature, padded), schedule, name, prompt, limits, chance, plant=plant)
        if not each.run.tokens:
            break
        runs += [each] if request < len(prompts) else []
        request += 1
        if evidence.observe(each, reference_laws(reference, prompt, each.run.tokens, temperature)):
            break
    return evidence, runs


def sampled(
    model: DualModeModel,
    reference: DualModeModel,
    schedule: Policy,
    prompts: Sequence[tuple[str, Tokens]],
    limits: Limits,
    temperature: float,
    tokens: int,
    seed: int,
    padded: bool | None = None,
    alpha: float = ALPHA,
) -> tuple[Layer, tuple[int, int, int]]:
    """The layer of a schedule at a temperature above 0, and what was drafted in a round of the prompts (see `drafting`)."""
    begun = time.perf_counter()
    try:
        evidence, runs = gather_evidence(model, reference, schedule, prompts, limits, temperature, tokens, seed, padded, alpha)
    except ContractError as error:
        finding = Finding("contract", f"it raises: {error}", stage="tokens")
        return Layer("numerics", "FAULT", str(error), (finding,), {}, time.perf_counter() - begun), (0, 0, 0)
    seen = drafting(step for each in runs for step in each.run.steps)
    said = str(evidence)
    findings: tuple[Finding, ...] = ()
    verdict: Word = "EXACT" if evidence.tokens else "NOT RUN"
    if evidence.rejected_at is not None:
        statement = f"not the reference's law: rejected by its {evidence.by} after {evidence.rejected_at:,} tokens"
        findings = (Finding("law", statement, said, stage="tokens"),)
        verdict = "FAULT"
        if model.dtype != reference.dtype and _own_law_differs(model, reference, prompts, limits, temperature, evidence, seed):
            verdict, findings = "NOT RUN", ()
            said = f"plain AR in this dtype is told from the reference too, so nothing can be said of the schedule: {said}"
    figures = {
        "tokens": evidence.tokens,
        "tested": evidence.expected.count,
        "rejected_at": evidence.rejected_at,
        "log_e": [evidence.process.log_e, evidence.expected.log_e, evidence.given.log_e],
        "detectable": evidence.process.detectable,
        "alpha": alpha,
        "seed": seed,
    }
    return Layer("numerics", verdict, said, findings, figures, time.perf_counter() - begun), seen


def _own_law_differs(
    model: DualModeModel,
    reference: DualModeModel,
    prompts: Sequence[tuple[str, Tokens]],
    limits: Limits,
    temperature: float,
    evidence: SampledEvidence,
    seed: int,
) -> bool:
    """Whether as many tokens of transformers' own sampling are told from the reference."""
    from transformers import GenerationConfig

    how = GenerationConfig(
        do_sample=True,
        temperature=temperature,
        top_k=0,
        max_new_tokens=limits.max_new_tokens,
        eos_token_id=sorted(limits.eos) or None,
        pad_token_id=model.mask_token,
    )
    process, request = EProcess(evidence.alpha / 2, limits.eos), 0
    while process.tokens < evidence.tokens and not process.rejected:
        _, prompt = prompts[request % len(prompts)]
        torch.manual_seed(seed + request)
        inputs = torch.tensor([prompt], device=model.device)
        with torch.inference_mode():
            drawn = model.network.generate(inputs, attention_mask=torch.ones_like(inputs), generation_config=how)
        output = tuple(drawn[0, len(prompt) :].tolist())
        laws = reference_laws(reference, prompt, output, temperature).numpy()
        process.observe(Emitted(token, _entries(row)) for token, row in zip(output, laws, strict=True))
        request += 1
    return process.rejected
