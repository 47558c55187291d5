"""Audit a real drafter: where on greedy paths is it right, is Assumption 3.1 true of it, and did the bounds hold anyway?

The path x_1 .. x_L is transformers' greedy continuation. Whether the drafter gets position k right from c tokens is then a
matter of x alone, for every c < k <= c + W, and all those drafts fit one packed layout: the call of Quadratic-SS whose draft is
the path itself has a drafting block for every context (realmodel/layout.py), a few contexts at a time.

A greedy run depends on the model through this matrix only. So each schedule is run twice, on the model and on the matrix, and
the calls must agree, one by one, and every draft token that was verified with its cell. Where they do not, two tokens must have
been as close as rounding. How close that is is measured without any schedule: separate drafting forwards in the tested dtype
against the reference on the same contexts.

`Audit.plain()` is what `packedss audit --json` writes and `simulator.oracles.empirical` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypeAlias, cast

import torch

from proofs_check.joint import STARTS, Rows, Start
from realmodel.dualmode import DualModeModel
from realmodel.layout import common_prefix
from realmodel.monotonicity import Bounds, MeasuredRuns, Share, Statistics, bounds, columns, statistics, thresholds
from realmodel.parity import draft_logits
from realmodel.reference import greedy_reference
from realmodel.validate import first_difference
from simulator.decode import Generation, generate
from simulator.errors import InvalidInput
from simulator.oracles import EmpiricalModel
from simulator.records import Call, Limits, Tokens
from simulator.schedule import Schedule
from simulator.schedules import linear, packed
from simulator.trace import TracedRequest

_BLOCK_ROWS = 512  # drafting rows of one forward: each has a logit for every word of the vocabulary

Named: TypeAlias = tuple[str, Tokens]
"""A prompt: its name and its token ids."""


class Drafts(NamedTuple):
    """The drafter on one greedy path. Rows as in realmodel/monotonicity.py, cut at position L."""

    tokens: tuple[Tokens, ...]  # what it drafts; never MASK
    margins: tuple[tuple[float, ...], ...]  # logit of the path's token minus the largest other: how far it is from a tie
    targets: Tokens  # the causal argmax after every context, computed along

    def rows(self, output: Tokens) -> Rows:
        """1 where the drafted token is the path's."""
        return tuple(
            tuple(int(token == output[c + j]) for j, token in enumerate(drafted)) for c, drafted in enumerate(self.tokens)
        )


class RunComparison(NamedTuple):
    """One schedule on the model and on the matrix."""

    schedule: str
    measured: int  # NFE on the model
    simulated: int  # NFE on the matrix
    drafted: Share  # verified draft tokens that are right where the matrix says wrong, or the reverse, of all within the path
    verdict: str  # EQUAL call by call, TIE (differs within rounding), or DIFFERENT
    note: str  # why not EQUAL


class PromptAudit(NamedTuple):
    """One prompt. Plain tuples, so that prompts can be audited in different processes."""

    name: str
    prompt: Tokens
    output: Tokens  # x_1 .. x_L, stop token included
    rows: Rows
    wide: tuple[int, ...]  # the first draft of the start `wide`, min(W + 1, L) cells
    target_flips: int  # output positions whose argmax in the block layout is not the token that generate chose
    noise: float  # largest logit difference of separate drafting forwards, tested dtype against reference
    near_ties: int  # cells within 2 noise of a tie: rounding could turn them
    flips: Share  # cells whose drafted token differs between block layout and separate forwards, of the cells compared
    runs: tuple[RunComparison, ...]
    bounds: Bounds


@dataclass(frozen=True)
class Audit:
    """All prompts, at one width and under one start."""

    model: str
    dtype: str
    device: str
    reference: str  # dtype of the reference
    width: int
    start: str
    prompts: tuple[PromptAudit, ...]

    @property
    def statistics(self) -> Statistics:
        return statistics((prompt.rows for prompt in self.prompts), self.width)

    @property
    def held(self) -> Share:
        """Prompts on whose matrix Packed-SS needed no more calls than Linear-SS (THM3.2)."""
        return Share(sum(prompt.bounds.held for prompt in self.prompts), len(self.prompts))

    @property
    def held_on_model(self) -> Share:
        """The same of the calls measured on the model. They differ from the matrix's by ties only."""
        measured = ({run.schedule: run.measured for run in prompt.runs} for prompt in self.prompts)
        return Share(sum(calls["packed"] <= calls["linear"] for calls in measured), len(self.prompts))

    @property
    def faults(self) -> list[str]:
        """What no drafter can cause: a run that left its matrix for no tie, or a broken BOUND-2D."""
        found = []
        for prompt in self.prompts:
            found += [f"{prompt.name}, {run.schedule}: {run.note}" for run in prompt.runs if run.verdict == "DIFFERENT"]
            if prompt.bounds.slack < 0:
                found.append(f"{prompt.name}: BOUND-2D broken by {-prompt.bounds.slack} calls, {prompt.bounds}")
        return found

    def plain(self) -> dict[str, Any]:
        """For JSON: everything, and what simulator/oracles/empirical.py asks for."""
        found = self.statistics
        shares = {key: _share(value) if isinstance(value, Share) else value for key, value in found._asdict().items()}
        shares |= {"by_offset": [_share(share) for share in found.by_offset], "mean_lag": found.mean_lag}
        prompts = [_plain_prompt(prompt, self.width) for prompt in self.prompts]
        verdicts = {"held": _share(self.held), "held_on_model": _share(self.held_on_model), "faults": self.faults}
        return vars(self) | verdicts | {"statistics": shares, "prompts": prompts}


def audit(
    model: DualModeModel,
    reference: DualModeModel,
    prompts: Sequence[Named],
    schedules: Sequence[Schedule],
    limits: Limits,
    width: int,
    start: str = "algorithm",
    sample: int = 8,
    padded: bool | None = None,
    progress: Callable[[Iterable[Named]], Iterator[Named]] = iter,
    record: Callable[[TracedRequest], None] = lambda request: None,
) -> Audit:
    """Audit every (name, prompt), and compare `schedules` (of this width and start) between model and matrix.

    `reference`: the same weights in float64, or float32 where that does not fit. `sample`: contexts per prompt to draft from by
    separate forwards too. `padded`: layout of the runs, as in `DualModeModel.session`. `progress` wraps the iteration over
    prompts; `record` is handed every run on the model.

    Raises InvalidInput for a start without an audit (`prompt`), L = 0, or a prompt the model cannot take.
    """
    check(model, prompts, limits, width, start, sample)
    audited = tuple(
        audit_prompt(model, reference, prompt, schedules, limits, width, start, sample, padded, record)
        for prompt in progress(prompts)
    )
    dtype, exact = (str(each.dtype).removeprefix("torch.") for each in (model, reference))
    return Audit(model.name, dtype, str(model.device), exact, width, start, audited)


def check(model: DualModeModel, prompts: Sequence[Named], limits: Limits, width: int, start: str, sample: int) -> None:
    """Raise InvalidInput unless `audit` can run."""
    if start not in STARTS:
        raise InvalidInput(f"an audit knows the starts {', '.join(STARTS)}, got {start!r}")
    if width < 1:
        raise InvalidInput(f"the speculative width W must be >= 1, got {width}")
    if limits.max_new_tokens < 1:
        raise InvalidInput("an audit needs at least 1 new token per prompt, got 0")
    if sample < 1:
        raise InvalidInput(f"an audit compares at least 1 context per prompt with separate forwards, got {sample}")
    if not prompts:
        raise InvalidInput("an audit needs at least 1 prompt")
    for _, prompt in prompts:
        model.check_prompt(prompt, limits.max_new_tokens, width)


def audit_prompt(
    model: DualModeModel,
    reference: DualModeModel,
    prompt: Named,
    schedules: Sequence[Schedule],
    limits: Limits,
    width: int,
    start: str,
    sample: int,
    padded: bool | None = None,
    record: Callable[[TracedRequest], None] = lambda request: None,
) -> PromptAudit:
    """One prompt of `audit`, an independent piece of work; arguments as there, unchecked."""
    name, tokens = prompt
    output = greedy_reference(model, tokens, limits)
    drafts = path_drafts(model, tokens, output, width)
    first = first_draft(model, tokens, output, width)
    rows, (wide,) = drafts.rows(output), first.rows(output)
    noise, flips = _separate(model, reference, tokens, output, drafts, width, sample)
    margins = [margin for row in drafts.margins for margin in row]

    def cell(c: int, k: int) -> tuple[int, float]:
        from_masks = start == "wide" and c == 0
        return (wide[k - 1], first.margins[0][k - 1]) if from_masks else (rows[c][k - c - 1], drafts.margins[c][k - c - 1])

    names = {schedule.name for schedule in schedules}
    both = [schedule for schedule in (linear(width, start), packed(width, start)) if schedule.name not in names]
    matrix, whole = EmpiricalModel(rows, width, wide), Limits.of(len(output))
    comparisons = []
    for schedule in (*schedules, *both):
        run = generate(model.session(padded=padded), schedule, tokens, limits)
        record(TracedRequest(name, schedule.name, tokens, limits, run))
        simulated = generate(matrix, schedule, (), whole)
        tested = list(_verified(run, output))
        turned = [(c, k, cell(c, k)[1]) for c, k, right in tested if right != cell(c, k)[0]]
        verdict, notes = "EQUAL", []
        if run.tokens != output:
            difference = first_difference(model, name, tokens, output, run.tokens)
            verdict = "TIE" if difference.tie else "DIFFERENT"
            notes.append(
                f"left the greedy path at token {difference.position}, {difference.expected} there, {difference.got} here:"
                f" logit gap {difference.gap:.2e}, noise {difference.noise:.2e}"
            )
        elif _advances(run) != _advances(simulated):
            verdict = "TIE" if turned else "DIFFERENT"
            notes.append("other calls than on the matrix" + ("" if turned else ", though every draft is as there"))
        if turned:
            c, k, apart = max(turned, key=lambda cell: abs(cell[2]))
            verdict = verdict if abs(apart) <= 2 * noise else "DIFFERENT"
            notes.append(f"position {k} from context {c} is drafted otherwise: margin {apart:.2e}, noise {noise:.2e}")
        drafted = Share(len(turned), len(tested))
        comparisons.append(RunComparison(schedule.name, run.nfe, simulated.nfe, drafted, verdict, "; ".join(notes)))

    return PromptAudit(
        name=name,
        prompt=tokens,
        output=output,
        rows=rows,
        wide=wide,
        target_flips=sum(a != b for a, b in zip(drafts.targets, output, strict=True)),
        noise=noise,
        near_ties=sum(abs(margin) <= 2 * noise for margin in margins),
        flips=flips,
        runs=tuple(comparisons),
        bounds=bounds(MeasuredRuns(rows, width, cast(Start, start), wide)),
    )


def path_drafts(model: DualModeModel, prompt: Tokens, output: Tokens, width: int) -> Drafts:
    """What the drafter proposes from every context of the path prompt + output, in as few forwards as memory allows."""
    session = model.session(padded=False)
    step = max(1, _BLOCK_ROWS // (width + 1))
    tokens: list[Tokens] = []
    margins: list[tuple[float, ...]] = []
    targets: Tokens = ()
    for begin in range(0, len(output), step):
        end = min(begin + step, len(output))
        prefix, draft = prompt + output[:begin], output[begin : end - 1]
        rows, logits = session.logits(Call(prefix, draft, True, tuple(range(end - begin)), width))
        targets += tuple(logits[: len(rows.verifier)].argmax(-1).tolist())
        following = [output[c : c + width] for c in range(begin, end)]
        drafted, apart = _judged(model, logits[len(rows.verifier) :], following, width)
        tokens += drafted
        margins += apart
    return Drafts(tuple(tokens), tuple(margins), targets)


def first_draft(model: DualModeModel, prompt: Tokens, output: Tokens, width: int) -> Drafts:
    """The first draft of the start `wide`: W + 1 masks behind the prompt (E.2). One row."""
    rows, logits = model.session(padded=False).logits(Call(prompt, (), True, (0,), width + 1, anchored=False))
    targets = tuple(logits[:1].argmax(-1).tolist())
    tokens, margins = _judged(model, logits[len(rows.verifier) :], [output[: width + 1]], width + 1)
    return Drafts(tuple(tokens), tuple(margins), targets)


@torch.inference_mode()
def _judged(
    model: DualModeModel, logits: torch.Tensor, following: Sequence[Tokens], width: int
) -> tuple[list[Tokens], list[tuple[float, ...]]]:
    """Drafted tokens and margins per block; logits [blocks * width, vocabulary], `following` the path's tokens per block."""
    logits = logits.clone()
    logits[:, model.mask_token : model.mask_token + 1] = -torch.inf  # never proposed (PAD)
    drafted = logits.argmax(-1).view(-1, width).tolist()
    right = torch.tensor([[*tokens, *[0] * (width - len(tokens))] for tokens in following], device=logits.device).view(-1, 1)
    own = logits.gather(1, right)[:, 0].double()
    others = logits.scatter_(1, right, -torch.inf).max(-1).values.double()
    apart = (own - others).view(-1, width).tolist()
    sizes = list(map(len, following))
    return (
        [tuple(block[:size]) for block, size in zip(drafted, sizes, strict=True)],
        [tuple(block[:size]) for block, size in zip(apart, sizes, strict=True)],
    )


@torch.inference_mode()
def _separate(
    model: DualModeModel,
    reference: DualModeModel,
    prompt: Tokens,
    output: Tokens,
    drafts: Drafts,
    width: int,
    sample: int,
) -> tuple[float, Share]:
    """(noise, flips) from separate forwards without a cache, from contexts spread evenly over the path."""
    noise, flips = 0.0, Share()
    count = min(sample, len(output))
    for c in (index * len(output) // count for index in range(count)):
        context = prompt + output[:c]
        logits = draft_logits(model, context, width)
        exact = logits if reference is model else draft_logits(reference, context, width)
        rounding = logits.abs().max().item() * torch.finfo(model.dtype).eps
        noise = max(noise, (logits - exact.to(logits.device)).abs().max().item(), rounding)
        logits[:, model.mask_token : model.mask_token + 1] = -torch.inf
        drafted = drafts.tokens[c]
        flips += (sum(a != b for a, b in zip(drafted, logits.argmax(-1).tolist(), strict=False)), len(drafted))
    return noise, flips


def _verified(run: Generation, output: Tokens) -> Iterator[tuple[int, int, bool]]:
    """(c, k, right) of every draft token that the run verified: position k <= L, drafted from c tokens of the path `output`."""
    agreed = common_prefix(run.tokens, output)
    length = drafted_from = 0
    for step in run.steps:
        for k, token in enumerate(step.verified, start=length + 1):
            if drafted_from <= agreed and k <= len(output):
                yield drafted_from, k, token == output[k - 1]
        if step.branch is not None:
            drafted_from = length + step.branch
        length += len(step.committed)


def _advances(run: Generation) -> list[int]:
    return [len(step.committed) for step in run.steps]


def _plain_prompt(prompt: PromptAudit, width: int) -> dict[str, Any]:
    found = prompt.bounds
    return prompt._asdict() | {
        "rows": ["".join(map(str, row)) for row in prompt.rows],
        "wide": "".join(map(str, prompt.wide)),
        "flips": _share(prompt.flips),
        "thresholds": thresholds(prompt.rows, width),
        "non_monotone": [k for k, column in enumerate(columns(prompt.rows, width), start=1) if list(column) != sorted(column)],
        "measured": {run.schedule: run.measured for run in prompt.runs},
        "runs": [run._asdict() | {"drafted": _share(run.drafted)} for run in prompt.runs],
        "bounds": found._asdict()
        | {"held": found.held, "non_monotone": _share(found.non_monotone), "reach_drops": _share(found.reach_drops)},
    }


def _share(share: Share) -> dict[str, Any]:
    return asdict(share) | {"value": share.value}
