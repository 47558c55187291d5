"""Property tests with Hypothesis, where enumeration cannot go: L to 2,000, W to 64, every schedule, start, stop and resumption.

A property is a function of simulator objects that asserts. A failure is printed as a program: the lines that build the
smallest failing request, the property's own source, and the call. What a check runs is what its program runs.

Profiles of Hypothesis are registered here, once: `dev` while writing code (few examples, another seed every time), `ci` (the
same examples every time; budget quick) and `nightly` (many, from a fresh seed that the ledger states; budget full).
"""

from __future__ import annotations

import ast
import inspect
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.strategies import SearchStrategy

import simulator
import simulator.oracles
import spec.greedy
import spec.sampling
from proofs_check import strategies
from proofs_check.ledger import Budget, Check, Entry
from proofs_check.strategies import GreedyRequest, SampledRequest
from simulator import Generation, Limits, Model, Resumption, Schedule, generate
from simulator.chance import Source
from simulator.oracles import Recorder, ThresholdModel
from simulator.schedules import STARTS
from spec.run import Given
from spec.thresholds import F

Tokens = tuple[int, ...]

_QUIET = settings(
    deadline=None,
    database=None,
    print_blob=False,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.generate, Phase.shrink),
)
settings.register_profile("dev", _QUIET, max_examples=30)
settings.register_profile("ci", _QUIET, max_examples=60, derandomize=True)
settings.register_profile("nightly", _QUIET, max_examples=800)
PROFILES: dict[Budget, str] = {"quick": "ci", "full": "nightly"}


# --- the properties: asserts, and the runs they looked at -------------------------------------------------------------------


def same_output(
    model: ThresholdModel, schedule: Schedule, prompt: Tokens, limits: Limits, resume: Resumption | None
) -> list[Generation]:
    """COR-GREEDY: the output is the target's own continuation, up to its first stop."""
    run = generate(model, schedule, prompt, limits, resume=resume)
    text = begun = resume.state.prefix if resume else prompt
    reason = None
    while reason is None:
        output = text[len(prompt) :]
        if output and output[-1] in limits.eos:
            reason = "eos"
        elif any(output[-len(marker) :] == marker for marker in limits.stop):
            reason = "stop"
        elif len(output) >= limits.max_new_tokens:
            reason = "length"
        else:
            text = (*text, model.target(text).token)
    assert run.tokens == text[len(begun) :], f"{run.tokens} is not the target's {text[len(begun) :]}"
    assert run.stop == reason, f"stopped by {run.stop}, not {reason}"
    return [run]


def truncation(
    model: ThresholdModel, schedule: Schedule, prompt: Tokens, limits: Limits, resume: Resumption | None
) -> list[Generation]:
    """STOP: the first stop, or L, cuts the output and refunds no call; before it the calls are those made without stops."""
    run = generate(model, schedule, prompt, limits, resume=resume)
    endless = Limits.of(limits.max_new_tokens + 1)
    begun = resume.state.prefix[len(prompt) :] if resume else ()
    resume = resume and resume._replace(state=resume.state._replace(limits=endless))
    free = generate(model, schedule, prompt, endless, resume=resume)
    text, markers = begun + free.tokens, [*limits.stop, *((x,) for x in limits.eos)]
    ends = [n for n in range(len(begun) + 1, len(text) + 1) for m in markers if text[max(0, n - len(m)) : n] == m]
    end = min([*ends, limits.max_new_tokens])
    assert begun + run.tokens == text[:end], f"{run.tokens}, without stops {free.tokens}; the first stop is at {end}"
    calls, emitted = 0, len(begun)
    while emitted < end:
        emitted += len(free.steps[calls].committed)
        calls += 1
    assert run.nfe == calls, f"{run.nfe} calls; without stops {calls} calls emit that much"
    assert run.steps[:-1] == free.steps[: max(0, calls - 1)], "a call before the last is another one without stops"
    return [run]


def counters_close(
    model: Model, schedule: Schedule, prompt: Tokens, limits: Limits, resume: Resumption | None
) -> list[Generation]:
    """NFE-CONV: every call the model answers is counted, with its rows; what calls commit is what is emitted."""
    recorder = Recorder(model)
    run = generate(recorder, schedule, prompt, limits, resume=resume)
    assert run.nfe == len(run.steps) == len(recorder.answers), f"NFE {run.nfe}, the model saw {len(recorder.answers)} calls"
    text = resume.state.prefix if resume else prompt
    for number, ((call, reply), step) in enumerate(zip(recorder.answers, run.steps, strict=True), 1):
        assert call.prefix == text, f"call {number} is about {call.prefix}, out are {text}"
        assert step.verified == (call.draft if call.verify else ()), f"call {number}: {step}"
        assert 0 <= step.accepted <= len(step.verified), f"call {number}: {step}"
        assert step.advance == (step.accepted + 1 if call.verify else 0) >= len(step.committed), f"call {number}: {step}"
        assert step.rows == reply.rows == call.padded_rows, f"call {number}: {step}"
        assert (step.stop is None) == (number < run.nfe), f"call {number} of {run.nfe}: {step}"
        text += step.committed
    assert text == (resume.state.prefix if resume else prompt) + run.tokens
    return [run]


def progress(model: Model, schedule: Schedule, prompt: Tokens, limits: Limits, resume: Resumption | None) -> list[Generation]:
    """PROGRESS: each call that verifies emits a token, and at most every second one, after the start, does not verify."""
    recorder = Recorder(model)
    run = generate(recorder, schedule, prompt, limits, resume=resume)
    for number, ((call, _), step) in enumerate(zip(recorder.answers, run.steps, strict=True), 1):
        assert bool(step.committed) == call.verify, f"call {number} verifies {step.verified} and commits {step.committed}"
    assert run.nfe <= 2 * len(run.tokens) + 2, f"{run.nfe} calls for {len(run.tokens)} tokens"
    return [run]


def draft_length(
    model: Model, schedule: Schedule, prompt: Tokens, limits: Limits, resume: Resumption | None
) -> list[Generation]:
    """DRAFTLEN: a call of Packed-SS that goes on keeps max(0, w - A) of the w tokens it drafted."""
    recorder = Recorder(model)
    run = generate(recorder, schedule, prompt, limits, resume=resume)
    for number, ((call, _), step) in enumerate(zip(recorder.answers, run.steps, strict=True), 1):
        kept = max(0, call.width - step.advance)
        assert step.stop or step.retained == kept, (
            f"call {number} keeps {step.retained} tokens: w={call.width}, A={step.advance}"
        )
    return [run]


def dominance(
    model: Model,
    schedule: Schedule,
    rival: Schedule,
    prompt: Tokens,
    limits: Limits,
    resume: Resumption | None,
    resume_rival: Resumption | None,
) -> list[Generation]:
    """THM3.2: at every output length Packed-SS has needed no more calls than Linear-SS under the same start."""
    packed_run = generate(model, schedule, prompt, limits, resume=resume)
    linear_run = generate(model, rival, prompt, limits, resume=resume_rival)
    needed = []
    for run in (packed_run, linear_run):
        calls = []  # until so many tokens were out
        for call, step in enumerate(run.steps, 1):
            calls += [call] * len(step.committed)
        needed.append(calls)
    for length, (ours, theirs) in enumerate(zip(*needed, strict=True), 1):
        assert ours <= theirs, f"{length} tokens: Packed-SS {ours} calls, Linear-SS {theirs}"
    assert packed_run.nfe <= linear_run.nfe
    return [packed_run, linear_run]


def fresh_draft(
    model: ThresholdModel, schedule: Schedule, prompt: Tokens, limits: Limits, resume: Resumption | None
) -> list[Generation]:
    """LEMB1: F never decreases, and Linear-SS goes from c verified tokens to F(c)."""
    recorder = Recorder(model)
    run = generate(recorder, schedule, prompt, limits, resume=resume)
    c = last = len(resume.state.prefix) - len(prompt) if resume else 0
    end = c + len(run.tokens)
    drafted = False
    for (call, _), step in zip(recorder.answers, run.steps, strict=True):
        width = call.width
        reach = F(c, width, model.thresholds[: c + width + 1])
        if call.branches:
            assert reach >= last, f"F({c}) = {reach}, and {last} before"
            drafted, last = True, reach
        elif call.verify:
            after = c + len(step.committed)
            if drafted:
                assert after == min(last, end), f"from {c} Linear-SS reaches {after}, F({c}) = {last}"
            drafted, c = False, after
    return [run]


def two_passes(
    model: ThresholdModel, schedule: Schedule, prompt: Tokens, limits: Limits, resume: Resumption | None
) -> list[Generation]:
    """LEMB2: two passes of Packed-SS that begin at c verified tokens end at F(c) or beyond."""
    recorder = Recorder(model)
    run = generate(recorder, schedule, prompt, limits, resume=resume)
    c = len(resume.state.prefix) - len(prompt) if resume else 0
    end = c + len(run.tokens)
    reached = [c]
    for step in run.steps:
        reached.append(reached[-1] + len(step.committed))
    for (call, _), before, after in zip(recorder.answers, reached, reached[2:], strict=False):
        if call.verify and call.branches:
            reach = F(before, call.width, model.thresholds[: before + call.width + 1])
            assert after >= min(reach, end), f"two passes lead from {before} to {after}, F({before}) = {reach}"
    return [run]


def same_as_algorithm_1(
    model: ThresholdModel, schedule: Schedule, name: Any, start: Any, prompt: Tokens, limits: Limits
) -> list[Generation]:
    """ALG1.L13: the scheduler does in every call what the literal Algorithm 1, or its baseline, does."""
    run = generate(model, schedule, prompt, limits)
    width = max(1, schedule.cycle[0].width)
    p, q = lambda x: model.target(x).token, lambda x, i: model.proposal(x, i).token
    literal = spec.greedy.run(
        name, Given(prompt, width, limits.max_new_tokens, p, q, limits.eos, frozenset(limits.stop)), start
    )
    assert prompt + run.tokens == literal.P, f"{run.tokens}, literally {literal.P[len(prompt) :]}"
    ours = [(step.accepted, step.advance, len(step.committed)) for step in run.steps]
    theirs = [(record.h, record.A, record.a) for record in literal.records]
    assert ours == theirs, f"h, A, a of the calls are {ours}, literally {theirs}"
    kept = [step.retained for step in run.steps[:-1]]
    assert kept == [len(state.D) for state in literal.states[1:-1]], f"drafts kept: {kept}"
    return [run]


def same_as_algorithm_2(
    model: Any, schedule: Schedule, name: Any, start: Any, prompt: Tokens, limits: Limits, coins: Source
) -> list[Generation]:
    """ALG2.L16: under the same coins the scheduler does in every call what the literal Algorithm 2, or its baseline, does."""
    run = generate(model, schedule, prompt, limits, coins)
    width = max(1, schedule.cycle[0].width)
    p, q = lambda x: model.target(x).probabilities, lambda x, i: model.proposal(x, i).probabilities
    given = Given(prompt, width, limits.max_new_tokens, p, q, limits.eos, frozenset(limits.stop))

    def uniform(call: int, position: int) -> Any:
        return coins.at(call).uniform("test", position)

    def draw(law: Any, purpose: Any, call: int, position: int) -> int:
        u = coins.at(call).uniform(purpose, position)
        return next(x for x, mass in enumerate(law) if mass > 0 and u < sum(law[: x + 1]))

    literal = spec.sampling.run(name, given, uniform, draw, start)
    assert prompt + run.tokens == literal.P, f"{run.tokens}, literally {literal.P[len(prompt) :]}"
    ours = [(step.accepted, step.advance, len(step.committed)) for step in run.steps]
    theirs = [(record.h, record.A, record.a) for record in literal.records]
    assert ours == theirs, f"h, A, a of the calls are {ours}, literally {theirs}"
    return [run]


def interruption(model: Model, schedule: Schedule, prompt: Tokens, limits: Limits, coins: Source, cut: int) -> list[Generation]:
    """THM3.3: a request interrupted between two calls goes on as if it had not been."""
    whole = generate(model, schedule, prompt, limits, coins)
    state, calls = schedule.init(prompt, limits), 0
    while calls < cut and state.stop is None:
        calls += 1
        call = schedule.request(state)
        state, _ = schedule.absorb(state, call, model(call), coins.at(calls))
    rest = generate(model, schedule, (), limits, coins, Resumption(state, calls))
    assert rest.steps == whole.steps[calls:], f"after call {calls}: {rest.tokens} in {rest.nfe} calls, not {whole.tokens}"
    return [whole]


# --- programs ---------------------------------------------------------------------------------------------------------------


_IMPORTS = {
    "fractions": ("Fraction",),
    "simulator": tuple(simulator.__all__),
    "simulator.oracles": tuple(simulator.oracles.__all__),
    "spec": ("Given",),
    "spec.thresholds": ("F",),
}


def program(request: GreedyRequest | SampledRequest, check: Callable[..., Any]) -> str:
    """A complete Python program that builds the request and asserts the property `check` of it."""
    needed = inspect.signature(check).parameters
    call = f"{check.__name__}({', '.join(needed)})"
    body = [*_setup(request, needed), "", "", _plain_source(check), "", "", call]
    text = "\n".join(body)
    imports = [f"import {module}" for module in ("spec.greedy", "spec.sampling") if module in text]
    for module, names in _IMPORTS.items():
        used = [name for name in names if re.search(rf"(?<![\w.]){name}\b(?!=)", text)]
        imports += [f"from {module} import {', '.join(sorted(used))}"] if used else []
    return "\n".join([*imports, "", text, ""])


def _setup(request: GreedyRequest | SampledRequest, needed: Any) -> list[str]:
    """The lines that bind what the property needs, in an order that works: schedules before what is resumed with them."""
    lines = {name: f"{name} = {value}" for name, value in request.source().items()}
    hidden = {"resume": "schedule", "resume_rival": "rival"}
    wanted = set(needed) | {hidden[name] for name in needed if name in hidden} | {"prompt", "limits"}
    return [line for name, line in lines.items() if name in wanted]


def _plain_source(check: Callable[..., Any]) -> str:
    """The source of a property without its annotations."""
    tree = ast.parse(inspect.getsource(check))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.unparse(tree)


def verify(request: GreedyRequest | SampledRequest, check: Callable[..., list[Generation]]) -> list[Generation]:
    """Run the property on the request, built by the very lines of its program; returns the runs it looked at."""
    needed = inspect.signature(check).parameters
    scope: dict[str, Any] = dict(_SCOPE)
    exec("\n".join(_setup(request, needed)), scope)
    return check(**{name: scope[name] for name in needed})


_SCOPE = {"Fraction": Fraction}
_SCOPE |= {name: getattr(simulator, name) for name in simulator.__all__}
_SCOPE |= {name: getattr(simulator.oracles, name) for name in simulator.oracles.__all__}


# --- the checks -------------------------------------------------------------------------------------------------------------


class Property(NamedTuple):
    """A claim as a property of requests."""

    claim: str
    check: Callable[..., list[Generation]]
    requests: SearchStrategy[Any]
    corners: Callable[
        [], Iterable[GreedyRequest | SampledRequest]
    ]  # requests that every run looks at, once Hypothesis has found nothing
    reached: tuple[str, ...]  # what all of them together must have gone through


def conditions(request: GreedyRequest | SampledRequest, runs: Sequence[Generation]) -> Iterator[str]:
    """What an example went through."""
    yield f"start {request.start}"
    yield f"schedule {request.name}"
    yield from (f"L >= {bound:,}" for bound in (30, 1_000) if request.length >= bound)
    if request.length == 0:
        yield "L = 0"
    widths = request.widths if isinstance(request, GreedyRequest) else (request.width,)
    yield from (f"W >= {bound}" for bound in (8, 48) if max(widths) >= bound)
    if isinstance(request, GreedyRequest) and request.resumed is not None:
        yield "resumed with a draft" if request.draft else "resumed"
    if isinstance(request, SampledRequest) and 0 < request.cut < runs[0].nfe:
        yield "interrupted inside"
    for step in runs[0].steps:
        rejected = step.accepted < len(step.verified)
        if 0 in widths:
            yield "a width of 0"
        if rejected:
            yield "a rejection"
            if step.retained and step.branch is not None:
                yield "a draft kept from before a rejection"
        elif len(step.verified) >= 2:
            yield "a draft of 2 or more accepted in full"
        if step.branch and step.retained:
            yield "a branch b > 0 with draft left"
        if step.stop and len(step.committed) < step.advance:
            yield f"{step.stop} inside an accepted block"
    if len(runs) == 2:
        yield "strictly fewer calls" if runs[0].nfe < runs[1].nfe else "as many calls"


_SIZES = ("L >= 1,000", "W >= 48", "L = 0")
_VERIFIED = ("a rejection", "a draft of 2 or more accepted in full")
_CUT = ("eos inside an accepted block", "stop inside an accepted block", "length inside an accepted block")
_KEPT = ("a draft kept from before a rejection",)
_STARTS = tuple(f"start {start}" for start in STARTS)
_SCHEDULES = tuple(f"schedule {name}" for name in strategies.NAMES)
_RESUMED = ("resumed", "resumed with a draft")
_ALL = (*_SIZES, *_VERIFIED, *_CUT, *_KEPT, *_STARTS, *_SCHEDULES, *_RESUMED, "a width of 0", "a branch b > 0 with draft left")
_LITERAL = ("packed", "linear", "quadratic", "ar")

_greedy = strategies.greedy_requests
_corners = strategies.greedy_corners


def _under(start: str) -> SearchStrategy[GreedyRequest]:
    """Requests to Packed-SS of constant width under one start."""
    return _greedy(("packed",), cycles=False, drafts=False).map(lambda request: request._replace(start=start))


def _pair(claim: str, start: str) -> Property:
    reached = (*_SIZES, *_VERIFIED, *_CUT[:1], *_KEPT, "resumed", "strictly fewer calls", "as many calls")
    return Property(
        claim, dominance, _under(start), partial(_corners, ("packed",), (start,), constant=True, drafts=False), reached
    )


_CONSTANT = (*_SIZES, *_VERIFIED, *_CUT, *_STARTS, *_RESUMED)
_SPEC = ("L >= 30", "W >= 8", *_VERIFIED, *_CUT, *_KEPT, *_STARTS, *(f"schedule {name}" for name in _LITERAL))
_coins = strategies.sampled_requests
PROPERTIES = (
    Property("COR-GREEDY", same_output, _greedy(), _corners, _ALL),
    Property("STOP", truncation, _greedy(), _corners, _ALL),
    Property("NFE-CONV", counters_close, _greedy(), _corners, _ALL),
    Property("PROGRESS", progress, _greedy(), _corners, _ALL),
    Property(
        "DRAFTLEN", draft_length, _greedy(("packed",)), partial(_corners, ("packed",)), (*_CONSTANT, *_KEPT, "a width of 0")
    ),
    _pair("THM3.2", "algorithm"),
    _pair("DOM-WIDE", "wide"),
    _pair("DOM-SAMPLED", "sampled"),
    Property(
        "LEMB1", fresh_draft, _greedy(("linear",), cycles=False), partial(_corners, ("linear",), constant=True), _CONSTANT
    ),
    Property(
        "LEMB2",
        two_passes,
        _greedy(("packed",), cycles=False),
        partial(_corners, ("packed",), constant=True),
        (*_CONSTANT, *_KEPT),
    ),
    Property(
        "ALG1.L13",
        same_as_algorithm_1,
        _greedy(_LITERAL, 60, 12, cycles=False, resumptions=False),
        lambda: [r for r in _corners(_LITERAL, constant=True) if r.length <= 120 and r.resumed is None],
        _SPEC,
    ),
    Property("ALG2.L16", same_as_algorithm_2, _coins(_LITERAL), partial(strategies.sampled_corners, _LITERAL), _SPEC),
    Property("THM3.3", interruption, _coins(), strategies.sampled_corners, ("interrupted inside", *_SPEC)),
)


def check_property(prop: Property, budget: Budget, examples: int | None = None, seed: int | None = None) -> Iterator[Entry]:
    """The entry of one property: as many examples as the budget's profile has, or `examples`.

    With budget full the seed is fresh unless one is given, and stated; with quick the examples are always the same.
    """
    profile = settings.get_profile(PROFILES[budget])
    profile = settings(profile, max_examples=examples or profile.max_examples, derandomize=budget == "quick" and seed is None)
    reached: Counter[str] = Counter()
    largest = [0, 0]
    failing: list[GreedyRequest | SampledRequest] = []
    distinct: set[int] = set()
    count = calls = 0

    @profile
    @hypothesis.given(prop.requests)
    def test(request: GreedyRequest | SampledRequest) -> None:
        nonlocal count, calls
        try:
            runs = verify(request, prop.check)
        except Exception:
            failing[:] = [request]  # the last one that Hypothesis tries is the smallest it has found
            raise
        count += 1
        distinct.add(hash(request))
        calls += sum(run.nfe for run in runs)
        reached.update(set(conditions(request, runs)))
        widths = request.widths if isinstance(request, GreedyRequest) else (request.width,)
        largest[:] = max(largest[0], request.length), max(largest[1], *widths)

    how = "the same ones in every run"
    if budget == "full" or seed is not None:
        seed = secrets.randbits(32) if seed is None else seed
        test = hypothesis.seed(seed)(test)
        how = f"seed {seed}"
    statement = (prop.check.__doc__ or "").split(": ", 1)[1].strip().rstrip(".")
    try:
        test()
        found = count
        for request in prop.corners():
            test.hypothesis.inner_test(request)  # type: ignore[attr-defined]
    except Exception as error:
        # pytest, where this runs under it, adds lines of its own to an assertion's message.
        message = str(error).split("\n")[0] or type(error).__name__
        detail = f"{message}\n{program(failing[0], prop.check) if failing else ''}"
        yield Entry(prop.claim, statement, "property", f"Hypothesis, {how}", "violated", detail)
        return
    bound = f"{found:,} examples ({how}) and {count - found:,} corner cases, {len(distinct):,} distinct"
    bound += f"; L up to {largest[0]:,}, W up to {largest[1]}"
    missing = [name for name in prop.reached if not reached[name]]
    if missing:
        yield Entry(prop.claim, statement, "property", bound, "not run", f"never reached: {', '.join(missing)}")
    else:
        rarest = min(prop.reached, key=lambda name: reached[name])
        detail = (
            f"{calls:,} calls; reached all of {len(prop.reached)} conditions, the rarest ({rarest}) {reached[rarest]} times"
        )
        yield Entry(prop.claim, statement, "property", bound, "holds", detail)


def _run(index: int, budget: Budget) -> Iterator[Entry]:
    return check_property(PROPERTIES[index], budget)


CHECKS = tuple(Check(f"property/{prop.claim}", (prop.claim,), partial(_run, index)) for index, prop in enumerate(PROPERTIES))
