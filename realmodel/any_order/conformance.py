"""Does the any-order binding compute what a schedule asks for? The layer of `realmodel.conformance`, for Appendix C.

Requests are run through the binding in float64, and every part of what it did is computed again by plain forwards that know no
packing and no cache:

    calls      the session makes no call that raises, and reads its logits as the laws that they are
    serial     its tokens are those of the serial reference under the same orders (PROPC1)
    verifier   the logits it verified with, against the duplicate-mask pass of training over the same pairs
    proposals  the logits it drafted with, against masks behind their own pairs alone
    cache      the rows in its ledger, against the keys and values of one causal forward of prompt and pairs in acceptance order
    rows       token rows a call, as TAB2 counts them
    resumed    a call behind a cache that holds half of its pairs
    requests   the same tokens again in a fresh session, and in one that has served another request

The tolerance is 16 times the difference between schedule-free runs: several masks in one pass, and a forward for each.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch

from proofs_check.findings import Finding, Symptom
from realmodel.any_order.layout import fed, sequence, shape_of
from realmodel.any_order.paths import Path, at_once, mask_rows, ordered, path_of, readable
from realmodel.any_order.reference import row_logits
from realmodel.binding import BoundModel
from realmodel.comparing import REQUEST_TOKENS, SAMPLED, TOLERANCE, Broken, Noise, concluded, first_line, within
from realmodel.layers import Layer
from realmodel.watching import KeysValues, Seen, Watched, snapshot, watch
from simulator.any_order.records import Call
from simulator.decode import Policy
from simulator.errors import InvalidInput
from simulator.records import Limits, Step, Tokens

_NOISE_ROWS = 12
_FLOOR = 8  # units of rounding at the largest logit: fewer are no difference, however short the run that measured less
_BLOCK = 16  # rows at a time, in the schedule-free run that the noise of the cache is measured on


class Checked(NamedTuple):
    """What was compared, and the largest differences found."""

    calls: int = 0
    serial: int = 0  # prompts whose tokens are the serial reference's
    verifier_rows: int = 0
    verifier: float = 0.0
    proposal_rows: int = 0
    proposals: float = 0.0
    cache_rows: int = 0
    cache: float = 0.0
    again: int = 0  # rows encoded again after E had shrunk
    resumed: float = 0.0
    shrunk: int = 0  # pairs encoded again because one that they had seen was taken away


def conformance(
    binding: BoundModel,
    plain: BoundModel,
    schedule: Policy[Any, Any],
    prompts: Sequence[tuple[str, Tokens]],
    limits: Limits,
    padded: bool | None = None,
    samples: int = 5,
) -> Layer:
    """The layer of a greedy schedule on a binding; `binding`, `plain` and `samples` as in `realmodel.conformance`."""
    begun = time.perf_counter()
    findings: list[Finding] = []
    checked = Checked()
    watched: list[Watched] = []
    noise = Noise(0.0, 0.0)
    said = ""
    try:
        session: Any = None
        for name, prompt in prompts:
            session = binding.session(padded=padded)
            watched.append(_run(session, schedule, name, prompt, limits, samples))
        repeated = _requests(binding, session, schedule, watched, limits, padded)
        noise = _noise(plain, watched)
        for each in watched:
            checked = _compare(plain, binding, each, noise, checked, padded)
        findings += [repeated] if isinstance(repeated, Finding) else []
        said = f"; {repeated} requests repeated"
    except Broken as broken:
        findings.append(broken.finding)
    dtype = str(plain.dtype).removeprefix("torch.")
    again = f", {checked.again} of them encoded again" if checked.again else ""
    detail = (
        f"{dtype}: {checked.calls:,} calls of {len(watched)} prompts, {checked.serial} with the serial reference's tokens;"
        f" {checked.verifier_rows:,} verifier rows within {checked.verifier:.1e}, {checked.proposal_rows:,} proposal rows"
        f" within {checked.proposals:.1e} (schedule-free runs: {noise.logits:.1e}), {checked.cache_rows:,} cached rows{again}"
        f" within {checked.cache:.1e} (schedule-free runs: {noise.cache:.1e}); {checked.shrunk} pairs read again{said}"
    )
    return concluded(findings, checked._asdict(), noise, watched, dtype, detail, begun)


def _run(session: Any, schedule: Policy[Any, Any], name: str, prompt: Tokens, limits: Limits, samples: int) -> Watched:
    try:
        ran = watch(session, cast(Policy, schedule), name, prompt, limits, keep=lambda call: call in SAMPLED[: samples - 1])
    except InvalidInput:
        raise
    except Exception as error:
        raise Broken("calls", "contract", f"{name}: it raises {type(error).__name__}: {first_line(error)}") from error
    with_mask = next((number for number, each in enumerate(ran.seen, start=1) if session.masked_from(each.rows)), None)
    if with_mask:
        statement = f"{name}, call {with_mask}: laws have the mask's own column, which no law may have"
        raise Broken("calls", "law", statement, _shown(cast(Call, ran.seen[with_mask - 1].call)))
    return ran


def _requests(
    binding: BoundModel, used: Any, schedule: Policy[Any, Any], watched: Sequence[Watched], limits: Limits, padded: bool | None
) -> Finding | int:
    """The first request again, shortened, in the session that has just served the last one and in a fresh one: how many, or
    where they part."""
    few = Limits.of(min(REQUEST_TOKENS, limits.max_new_tokens), limits.eos, limits.stop)
    first = watched[0]
    fresh, after = (
        _run(session, schedule, first.name, first.prompt, few, 1).run for session in (binding.session(padded=padded), used)
    )
    if fresh.tokens != after.tokens or len(fresh.steps) != len(after.steps):
        text = f"a fresh session {list(fresh.tokens)}\na used one    {list(after.tokens)}"
        statement = f"{first.name} goes another way in a session that has served a request"
        return Finding("determinism", statement, text, stage="requests")
    return 2


def _noise(plain: BoundModel, watched: Sequence[Watched]) -> Noise:
    """Of the first prompt."""
    each, network, mask, least = watched[0], plain.network, plain.mask_token, torch.finfo(plain.dtype).eps
    output = path_of(each.run.steps).output or tuple(enumerate(each.run.tokens, 1))
    entries = (*enumerate(each.prompt), *((len(each.prompt) - 1 + j, token) for j, token in output))
    keys, blocks = (_clean_rows(plain, entries, block) for block in (len(entries), _BLOCK))
    largest = max(tensor.abs().max().item() for pair in keys for tensor in pair)
    cache = max(_difference(keys, blocks), _FLOOR * least * largest)
    rows = [(j, index) for index, (j, _) in enumerate(output)][:: max(1, len(output) // _NOISE_ROWS)]
    if not rows:
        return Noise(0.0, cache)
    whole = mask_rows(network, each.prompt, output, rows, mask)
    alone = [row_logits(network, each.prompt, output[:count], j, mask) for j, count in rows]
    apart = (whole - readable(torch.stack(alone), mask)).abs().max().item()
    return Noise(max(apart, _FLOOR * least * whole.abs().max().item()), cache)


def _clean_rows(plain: BoundModel, entries: Sequence[tuple[int, int]], block: int) -> KeysValues:
    """Keys and values of rows (position, token) in this order, each of which sees those before it; `block` rows at a time."""
    cache = None
    for begin in range(0, len(entries), block):
        cache = ordered(plain.network, entries[begin : begin + block], cache, begin).cache
    return snapshot(cache)


def _difference(ours: KeysValues, theirs: KeysValues) -> float:
    pairs = ((a, b) for one, other in zip(ours, theirs, strict=True) for a, b in zip(one, other, strict=True))
    return max((a - b).abs().max().item() for a, b in pairs)


def _compare(
    plain: BoundModel, binding: BoundModel, watched: Watched, noise: Noise, checked: Checked, padded: bool | None
) -> Checked:
    """One request. Raises Broken at the first thing that is wrong."""
    path, mask = path_of(watched.run.steps), plain.mask_token
    logits = at_once(plain.network, watched.prompt, path, mask)
    limit, place, number = TOLERANCE * noise.logits, 0, 0
    for number, (each, step) in enumerate(zip(watched.seen, watched.run.steps, strict=True), start=1):
        where = f"{watched.name}, call {number}"
        call = cast(Call, each.call)
        if each.misread:
            symptom: Symptom = "law" if each.misread.startswith("verifier") else "count"
            raise Broken("calls", symptom, f"{where}: the law of {each.misread} is not that of its logits", _shown(call))
        count = step.advance if step.predictions else 0
        if count:
            ours = readable(each.logits[:count].double(), mask)
            apart = (ours - logits[place : place + count]).abs().amax(-1)
            text = f"{where}: verifier row {{row}} is {{apart:.1e}} off the training pass"
            within(apart, limit, "verifier", "law", text, _shown(call))
            place += count
            checked = checked._replace(
                verifier_rows=checked.verifier_rows + count, verifier=max(checked.verifier, apart.max().item())
            )
        claimed = len(each.cached) + each.stale
        if each.cached != fed(call)[: len(each.cached)] or each.held != claimed:
            statement = f"{where}: the session says that its cache holds {claimed} rows of its pairs, it holds {each.held}"
            raise Broken("cache", "law", statement, _shown(call))
        _rows(call, each, step, where, binding.pads(padded))
        if each.cache is not None:
            checked = _sampled(plain, each, call, noise, checked, where)
        checked = checked._replace(again=checked.again + step.again)
    if path.segments:
        _serial(watched, path, logits)
        checked = checked._replace(serial=checked.serial + 1)
    if watched.seen:
        where = f"{watched.name}, call {number} resumed"
        resumed = _resumed(binding, watched.seen[-1], limit, padded, where)
        again = _shrunk(binding, watched.seen[-1], limit, padded, f"{watched.name}, call {number} without its first pair")
        checked = checked._replace(resumed=max(checked.resumed, resumed), shrunk=checked.shrunk + again)
    return checked._replace(calls=checked.calls + number)


def _rows(call: Call, each: Seen, step: Step, where: str, padded: bool) -> None:
    shape = shape_of(call, padded)
    wanted = shape.new + len(shape.drafted) + shape.verified + sum(shape.ranks - b * (not padded) for b in shape.branches)
    wanted = call.padded_rows if padded else wanted
    known = len(each.rows.tokens) - each.rows.catch_up
    if {wanted, known} != {step.rows}:
        statement = f"{where}: the call asks for {wanted} rows, {known} were evaluated and {step.rows} reported"
        raise Broken("rows", "count", statement, _shown(call))


@torch.inference_mode()
def _sampled(plain: BoundModel, each: Seen, call: Call, noise: Noise, checked: Checked, where: str) -> Checked:
    """Everything about one call: its rejected rows, its proposals, its cache."""
    network, mask, limit = plain.network, plain.mask_token, TOLERANCE * noise.logits
    ours = readable(each.logits.double(), mask)
    held, drafts = call.accepted, call.draft[: call.kappa]
    verified = call.asked
    worst_verifier, worst = checked.verifier, checked.proposals
    asked = [(j, len(held) + rank) for rank, j in enumerate(call.order[:verified])]
    blocks = [b for b, block in zip(call.branches, each.rows.proposals, strict=True) if block]
    asked += [(j, len(held) + b) for b in blocks for j in call.order[b:]]
    if asked:
        wanted = mask_rows(network, call.prompt, held + drafts, asked, mask)
        apart = (ours[: len(wanted)] - wanted).abs().amax(-1)
        text = f"{where}: verifier row {{row}} is {{apart:.1e}} off the training pass"
        within(apart[:verified], limit, "verifier", "law", text, _shown(call))
        text = f"{where}: proposal row {{row}}, branch by branch, is {{apart:.1e}} off a mask behind its pairs alone"
        within(apart[verified:], limit, "proposals", "count", text, _shown(call))
        worst_verifier = max([worst_verifier, *apart[:verified].tolist()])
        worst = max([worst, *apart[verified:].tolist()])
    assert each.cache is not None
    audited = len(each.cached)
    keys = _clean_rows(plain, fed(call)[:audited], audited)
    layers = [
        torch.stack([(a[:, :audited] - b).abs().amax((0, 2)) for a, b in zip(mine, theirs, strict=True)]).amax(0)
        for mine, theirs in zip(each.cache, keys, strict=True)
    ]
    cached = torch.stack(layers).amax(0)
    text = f"{where}: the cached row {{row}} of {audited} is {{apart:.1e}} off that of a causal forward in acceptance order"
    within(cached, TOLERANCE * noise.cache, "cache", "law", text, _shown(call))
    return checked._replace(
        verifier_rows=checked.verifier_rows + verified,
        verifier=worst_verifier,
        proposal_rows=checked.proposal_rows + len(asked) - verified,
        proposals=worst,
        cache_rows=checked.cache_rows + audited,
        cache=max(checked.cache, cached.max().item()),
    )


def _serial(watched: Watched, path: Path, logits: torch.Tensor) -> None:
    """A reference that decodes token by token takes the same token at every step, so it comes to the same end."""
    serial = logits.argmax(-1).tolist()
    wrong = next((i for i, (_, token) in enumerate(path.predicted) if serial[i] != token), None)
    if wrong is not None:
        position, token = path.predicted[wrong]
        statement = (
            f"{watched.name}: position {position} is {token}, the serial reference under the same orders has {serial[wrong]}"
        )
        raise Broken("serial", "law", statement, f"accepted before it {list(path.predicted[max(0, wrong - 8) : wrong])}")
    if tuple(token for _, token in sorted(path.output)) != watched.run.tokens:
        raise Broken("serial", "law", f"{watched.name}: the tokens returned are not those accepted")


def _resumed(binding: BoundModel, each: Seen, limit: float, padded: bool | None, where: str) -> float:
    """The call again, behind a cache that holds half of what it brings."""
    call, session = cast(Call, each.call), binding.session(padded=padded)
    entries = sequence(call)
    half = max(0, len(entries) // 2 - len(call.prompt))
    try:
        session.logits(Call(call.prompt, call.accepted[:half], (), (), False, (), 0))
        _, logits = session.logits(call)
    except Exception as error:
        raise Broken("resumed", "contract", f"{where}: it raises {type(error).__name__}: {first_line(error)}") from error
    mask = binding.mask_token
    apart = (readable(logits.double(), mask) - readable(each.logits.double(), mask)).abs().amax(-1)
    text = f"{where} behind {half} cached pairs: row {{row}} read is {{apart:.1e}} off"
    within(apart, limit, "resumed", "law" if call.verify else "count", text, _shown(call))
    return apart.max().item()


def _shrunk(binding: BoundModel, each: Seen, limit: float, padded: bool | None, where: str) -> int:
    """The call again without its first pair, behind a cache that holds it, and in a fresh session: pairs encoded again."""
    call = cast(Call, each.call)
    if len(call.accepted) < 2:
        return 0
    fewer, used = call._replace(accepted=call.accepted[1:], unread=0), binding.session(padded=padded)
    try:
        used.logits(call)
        (rows, ours), (_, wanted) = used.logits(fewer), binding.session(padded=padded).logits(fewer)
    except Exception as error:
        raise Broken("shrunk", "contract", f"{where}: it raises {type(error).__name__}: {first_line(error)}") from error
    mask = binding.mask_token
    apart = (readable(ours.double(), mask) - readable(wanted.double(), mask)).abs().amax(-1)
    text = f"{where}, which the others had seen: row {{row}} read is {{apart:.1e}} off"
    within(apart, limit, "shrunk", "law" if call.verify else "count", text, _shown(fewer))
    if rows.again != len(fewer.accepted):
        statement = f"{where}: {len(fewer.accepted)} pairs had seen it, {rows.again} are reported as encoded again"
        raise Broken("shrunk", "count", statement, _shown(fewer))
    return rows.again


def _shown(call: Call) -> str:
    held = f"prompt of {len(call.prompt)} tokens, {len(call.accepted)} pairs, the last {list(call.accepted[-6:])}"
    asks = f"draft {list(call.draft)}, verify {call.verify}, branches {list(call.branches)}, unread {call.unread}"
    return f"{held}\norder {list(call.order)}, {asks}"
