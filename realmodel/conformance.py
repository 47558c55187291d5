"""The second layer: does the binding compute what the schedule asks for? Judged in float64, where rounding hides nothing.

Requests are run through the binding, and then every part of what it did is computed again by plain forwards that know no
packing and no cache:

    calls      the session makes no call that raises, and reads its logits as the laws that they are
    verifier   the logits it verified with, against one causal forward of the same tokens
    proposals  the logits it drafted with, against separate drafting forwards of each branch
    cache      the rows in its cache, against the keys and values of one causal forward: one wrong row far back is seen
               here even when no logit would show it
    resumed    a call behind a cache that holds half its prefix, as after a request that was resumed
    requests   the same tokens again in a fresh session, and in one that has served another request
    trace      its own log, replayed against spec/

The tolerance is 16 times the difference between two runs without a schedule: plain AR in blocks and in one forward.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from proofs_check.findings import Finding, Symptom
from proofs_check.trace_check import POLICIES, RULES, check_trace
from realmodel.comparing import REQUEST_TOKENS, SAMPLED, TOLERANCE, Broken, Noise, concluded, first_line, within
from realmodel.dualmode import DualModeModel, Session
from realmodel.layers import Layer
from realmodel.parity import draft_logits
from realmodel.watching import KeysValues, Seen, Watched, snapshot, watch
from simulator.chance import Sampled
from simulator.decode import Policy
from simulator.errors import ContractError, InvalidInput
from simulator.records import Call, Limits, Tokens
from simulator.trace import TracedRequest, trace_lines


class Named(NamedTuple):
    """A prompt, its name first."""

    name: str
    prompt: Tokens


class Checked(NamedTuple):
    """What was compared, and the largest differences found."""

    calls: int = 0
    verifier_rows: int = 0
    verifier: float = 0.0
    proposal_rows: int = 0
    proposals: float = 0.0
    cache_rows: int = 0
    cache: float = 0.0
    resumed: float = 0.0


def conformance(
    binding: DualModeModel,
    plain: DualModeModel,
    schedule: Policy,
    prompts: Sequence[tuple[str, Tokens]],
    limits: Limits,
    width: int,
    start: str,
    temperature: float = 0.0,
    seed: int = 0,
    padded: bool | None = None,
    samples: int = 5,
    recorded: Sequence[TracedRequest] = (),
) -> Layer:
    """The layer of a schedule on a binding.

    binding    makes the sessions, in float64 (float32 where that does not fit)
    plain      the same weights in the same dtype, for the plain forwards
    samples    calls per prompt whose proposals, rejected rows and cache are looked at: the 1st, 2nd, 3rd, 5th, 8th .. and the
               last; verifier rows that led to output tokens are looked at in every call
    recorded   runs in the tested dtype, whose logs are replayed too
    """
    begun = time.perf_counter()
    findings: list[Finding] = []
    checked = Checked()
    watched: list[Watched] = []
    noise = Noise(0.0, 0.0)
    said = ""
    # Sessions first, plain forwards after them: what one request leaves behind must have its chance to spoil the next.
    try:
        session: Session | None = None
        for number, (name, prompt) in enumerate(prompts):
            session = binding.session(temperature, padded)
            chance = Sampled(seed, number)
            watched.append(_run(session, schedule, name, prompt, limits, chance, samples))
        assert session is not None
        repeated = _requests(binding, session, schedule, watched, limits, temperature, seed, padded)
        noise = _noise(plain, watched, width)
        for each in watched:
            checked = _compare(plain, binding, each, noise, checked, temperature, padded)
        if isinstance(repeated, Finding):
            findings.append(repeated)
        said = f"; {repeated} requests repeated"
    except Broken as broken:
        findings.append(broken.finding)
    runs = [TracedRequest(w.name, getattr(schedule, "name", ""), w.prompt, limits, w.run, width, start) for w in watched]
    replayed, finding = _trace([*runs, *recorded])
    findings += [finding] if finding else []

    dtype = str(plain.dtype).removeprefix("torch.")
    detail = (
        f"{dtype}: {checked.calls:,} calls of {len(watched)} prompts; {checked.verifier_rows:,} verifier rows within"
        f" {checked.verifier:.1e}, {checked.proposal_rows:,} proposal rows within {checked.proposals:.1e} (schedule-free runs:"
        f" {noise.logits:.1e}), {checked.cache_rows:,} cached rows within {checked.cache:.1e} (schedule-free runs:"
        f" {noise.cache:.1e}); {replayed} calls replayed{said}"
    )
    return concluded(findings, checked._asdict(), noise, watched, dtype, detail, begun)


def _run(
    session: Session, schedule: Policy, name: str, prompt: Tokens, limits: Limits, chance: Sampled, samples: int
) -> Watched:
    try:
        return watch(session, schedule, name, prompt, limits, chance, lambda call: call in SAMPLED[: samples - 1])
    except InvalidInput:
        raise
    except Exception as error:
        symptom: Symptom = "progress" if isinstance(error, ContractError) and "without emitting" in str(error) else "contract"
        raise Broken("calls", symptom, f"{name}: it raises {type(error).__name__}: {first_line(error)}") from error


def _requests(
    binding: DualModeModel,
    used: Session,
    schedule: Policy,
    watched: Sequence[Watched],
    limits: Limits,
    temperature: float,
    seed: int,
    padded: bool | None,
) -> Finding | int:
    """The first request again, shortened: in the session that has just served the last one, and in a fresh one.

    How many repetitions gave its tokens, or which did not.
    """
    few = Limits.of(min(REQUEST_TOKENS, limits.max_new_tokens), limits.eos, limits.stop)
    first = watched[0]
    wanted = first.run.tokens[: few.max_new_tokens]
    if not wanted:
        return 0
    sessions = {"a session that has served another request": used, "a fresh session": binding.session(temperature, padded)}
    for where, session in sessions.items():
        got = _run(session, schedule, first.name, first.prompt, few, Sampled(seed, 0), 1).run.tokens
        if got != wanted:
            text = f"first {list(wanted)}\nagain {list(got)}"
            statement = f"{first.name} gives other tokens when repeated in {where}"
            return Finding("determinism", statement, text, stage="requests")
    return len(sessions)


@torch.inference_mode()
def _noise(plain: DualModeModel, watched: Sequence[Watched], width: int) -> Noise:
    """Of the first prompt with an output: one forward against blocks of 2B rows behind a cache."""
    each = next((w for w in watched if w.run.tokens), None)
    if each is None:
        return Noise(0.0, 0.0)
    tokens, block = each.prompt + each.run.tokens, 2 * (width + 1)
    whole, keys = causal_rows(plain, tokens)
    cache, logits = None, []
    inputs = torch.tensor([tokens], device=plain.device)
    for begin in range(0, len(tokens), block):
        answer = plain.network(inputs[:, begin : begin + block], cache=cache, use_cache=True)
        cache = answer.cache
        logits.append(answer.logits[0].double())
    least = torch.finfo(plain.dtype).eps
    difference = max((whole - torch.cat(logits)).abs().max().item(), least * whole.abs().max().item())
    blocks = snapshot(cache)
    largest = max(tensor.abs().max().item() for pair in keys for tensor in pair)
    return Noise(difference, max(_difference(keys, blocks, len(tokens)), least * largest))


@torch.inference_mode()
def causal_rows(model: DualModeModel, tokens: Tokens) -> tuple[torch.Tensor, KeysValues]:
    """Logits [tokens, vocabulary] in float64, and keys and values, of one causal forward."""
    answer = model.network(torch.tensor([tokens], device=model.device), use_cache=True)
    return answer.logits[0].double(), snapshot(answer.cache)


def _difference(ours: KeysValues, theirs: KeysValues, rows: int) -> float:
    pairs = ((a, b) for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=True))
    return max((a[:, :rows] - b[:, :rows]).abs().max().item() for a, b in pairs) if rows else 0.0


def _compare(
    plain: DualModeModel,
    binding: DualModeModel,
    watched: Watched,
    noise: Noise,
    checked: Checked,
    temperature: float,
    padded: bool | None,
) -> Checked:
    """One request. Raises Broken at the first thing that is wrong."""
    name, prompt, run, seen = watched.name, watched.prompt, watched.run, watched.seen
    limit = TOLERANCE * noise.logits
    if not seen:
        return checked
    path, keys = causal_rows(plain, prompt + run.tokens)
    number = 0
    for number, (each, step) in enumerate(zip(seen, run.steps, strict=True), start=1):
        where = f"{name}, call {number}"
        if each.misread:
            symptom: Symptom = "law" if each.misread.startswith("verifier") else "count"
            raise Broken("calls", symptom, f"{where}: the law of {each.misread} is not that of its logits", _call(each.call))
        first = len(each.call.prefix) - 1
        count = len(step.committed)
        if count:
            apart = (each.logits[:count].double() - path[first : first + count]).abs().amax(-1)
            text = f"{where}: verifier row {{row}} is {{apart:.1e}} off a causal forward"
            within(apart, limit, "verifier", "law", text, _call(each.call))
            checked = checked._replace(
                verifier_rows=checked.verifier_rows + count, verifier=max(checked.verifier, apart.max().item())
            )
        claimed = len(each.cached) + each.stale
        whole = each.call.prefix + each.call.draft
        if each.cached != whole[: len(each.cached)] or each.held != claimed:
            statement = f"{where}: the session says that its cache holds {claimed} rows of its tokens, it holds {each.held}"
            raise Broken("cache", "law", statement, _call(each.call))
        if each.cache is not None:
            checked = _sampled(plain, each, path, keys, prompt + run.tokens, noise, checked, where)
    last = seen[-1]
    checked = checked._replace(calls=checked.calls + number)
    return checked._replace(
        resumed=max(checked.resumed, _resumed(binding, last, limit, temperature, padded, f"{name}, call {number} resumed"))
    )


def _sampled(
    plain: DualModeModel,
    each: Seen,
    path: torch.Tensor,
    keys: KeysValues,
    output: Tokens,
    noise: Noise,
    checked: Checked,
    where: str,
) -> Checked:
    """Everything about one call: its rejected rows, its proposals, its cache."""
    call, limit = each.call, TOLERANCE * noise.logits
    whole = call.prefix + call.draft
    if call.draft and whole != output[: len(whole)]:
        path, keys = causal_rows(plain, whole)
    apart, worst, rows = torch.zeros(0), checked.proposals, 0
    if call.verify:
        expected = path[len(call.prefix) - 1 : len(whole)]
        apart = (each.logits[: len(expected)].double() - expected).abs().amax(-1)
        text = f"{where}: verifier row {{row}} is {{apart:.1e}} off a causal forward"
        within(apart, limit, "verifier", "law", text, _call(each.call))
    begin = len(each.rows.verifier)
    for branch, block in zip(call.branches, each.rows.proposals, strict=True):
        if not block:
            continue
        expected = draft_logits(plain, call.prefix + call.draft[:branch], call.width, call.anchored)
        off = (each.logits[begin : begin + call.width].double() - expected).abs().amax(-1)
        text = f"{where}: proposal row {{row}} of branch {branch} is {{apart:.1e}} off a separate drafting forward"
        within(off, limit, "proposals", "count", text, _call(each.call))
        worst, rows, begin = max(worst, off.max().item()), rows + call.width, begin + call.width
    assert each.cache is not None
    audited = len(each.cached)
    layers = [
        torch.stack([(a[:, :audited] - b[:, :audited]).abs().amax((0, 2)) for a, b in zip(mine, theirs, strict=True)]).amax(0)
        for mine, theirs in zip(each.cache, keys, strict=True)
    ]
    cached = torch.stack(layers).amax(0) if audited else torch.zeros(1)
    text = f"{where}: the cached row of token {{row}} of {audited} is {{apart:.1e}} off that of a causal forward"
    within(cached, TOLERANCE * noise.cache, "cache", "law", text, _call(each.call))
    return checked._replace(
        verifier_rows=checked.verifier_rows + len(apart),
        verifier=max([checked.verifier, *apart.tolist()]),
        proposal_rows=checked.proposal_rows + rows,
        proposals=worst,
        cache_rows=checked.cache_rows + audited,
        cache=max(checked.cache, cached.max().item()),
    )


def _resumed(binding: DualModeModel, each: Seen, limit: float, temperature: float, padded: bool | None, where: str) -> float:
    """The call again, behind a cache that holds half of its prefix."""
    call, session = each.call, binding.session(temperature, padded)
    half = len(call.prefix) // 2
    try:
        if half:
            session.logits(Call(call.prefix[:half], (), False, (), 0))
        _, logits = session.logits(call)
    except Exception as error:
        raise Broken("resumed", "contract", f"{where}: it raises {type(error).__name__}: {first_line(error)}") from error
    apart = (logits.double() - each.logits.double()).abs().amax(-1)
    within(
        apart,
        limit,
        "resumed",
        "law" if call.verify else "count",
        f"{where} behind {half} cached rows: row {{row}} read is {{apart:.1e}} off",
        _call(each.call),
    )
    return apart.max().item()


def _call(call: Call) -> str:
    ends = call.prefix[-8:]
    shown = f"prefix of {len(call.prefix)} tokens, the last {list(ends)}"
    return f"{shown}\ndraft {list(call.draft)}, verify {call.verify}, branches {list(call.branches)}, W = {call.width}"


def _trace(runs: Sequence[TracedRequest]) -> tuple[int, Finding | None]:
    known = [run if run.schedule in POLICIES else run._replace(width=None, start=None) for run in runs]
    report = check_trace(trace_lines(known))
    if not report.violations:
        return report.calls, None
    first = report.violations[0]
    symptom: Symptom = {"STOP": "stop", "NFE-CONV": "count", "TAB2": "count"}.get(first.rule, "law")  # type: ignore[assignment]
    statement = f"{runs[first.request].name}, call {first.call}: {RULES[first.rule]} ({first.rule})"
    return report.calls, Finding(symptom, statement, f"expected {first.expected}\nfound {first.found}", stage="trace")
