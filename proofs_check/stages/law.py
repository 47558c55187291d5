"""The exact law of the output against AR's, as rationals, and that of the number of calls against the declared policy's.

Enumerated coins make it a verdict. A schedule that asks for the value of a coin, or for more coins than can be enumerated, is
sampled instead: a statistical test with false-alarm odds ALPHA, which the stage then states.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

from proofs_check.chain import REJECTION, TWO_WAYS, WINDOW, disjoint, near_equal
from proofs_check.findings import Finding
from proofs_check.stages.greedy import Seen
from proofs_check.system import Found, Instance, NotReached, System, found, traced, watched
from simulator.chance import Chance, Purpose, Sampled, ValueNeeded, enumerated
from simulator.decode import Model, Policy
from simulator.errors import ContractError
from simulator.exact import ExactLaw, Visit, autoregressive_law, summed, visits
from simulator.laws import Law, Point, RationalLaw, argmax
from simulator.oracles import TabularModel, always_wrong, constant, eos_happy, random_tables, self_draft, stale
from simulator.oracles.answer import greedy_path
from simulator.processing import Processing, Processor, processed
from simulator.records import Call, Limits, Reply, State, Step, Tokens

T = TypeVar("T")
ALPHA = 1e-6  # of all tests of one run of the battery together
_OUTCOMES = 6000  # of one request; more are not enumerated
_ALL_OUTCOMES = 40_000
_SMALL = 1500  # of a small one
_SAMPLES = 3000
_SAMPLED = 3  # requests
_TRIES = 2_000  # runs, until one shows what comes too often
_FEW = 20  # laws enumerated
_MANY = "too many outcomes to enumerate"
_PLAIN = Processing()


class Case(NamedTuple):
    """A request whose law is computed."""

    source: str
    tables: TabularModel
    limits: Limits
    target_processing: Processor = _PLAIN
    proposal_processing: Processor | None = None  # as the target's
    prompt: Tokens = ()

    def target(self, prefix: Tokens) -> Law:
        """The AR law that the output must follow: it does its own processing."""
        return self.target_processing(prefix, self.tables.target(prefix))

    def model(self, process: Callable[..., Model]) -> Model:
        return process(self.tables, self.target_processing, self.proposal_processing)

    @property
    def dense(self) -> bool:
        """Its draft tokens have as many values in one place as in another, so that a larger one has a larger law."""
        return not self.source.startswith("mostly_sure")

    @property
    def spread(self) -> int:
        """The most tokens that one of the first proposals may draw."""
        process = self.proposal_processing or self.target_processing
        laws = (process(self.prompt, self.tables.proposal(self.prompt, offset)) for offset in (1, 2, 3))
        return max(len(law.support) for law in laws)

    def autoregressive(self) -> dict[Tokens, Fraction]:
        return autoregressive_law(self.target, self.prompt, self.limits)

    def __str__(self) -> str:
        stops = "".join(
            f", {name} {list(value)}" for name, value in (("EOS", self.limits.eos), ("markers", self.limits.stop)) if value
        )
        processing = f", {_named(self.target_processing)}" if self.target_processing is not _PLAIN else ""
        processing += f", proposals {_named(self.proposal_processing)}" if self.proposal_processing else ""
        prompt = f", prompt {list(self.prompt)}" if self.prompt else ""
        return f"{self.source}, L = {self.limits.max_new_tokens}{stops}{prompt}{processing}"


def _named(processor: Processor) -> str:
    return str(getattr(processor, "__name__", processor))


def penalty(context: Tokens, law: Law) -> Law:
    """A processor that reads its context: tokens of odd multiplicity are a third as likely."""
    size = max(law.support) + 1
    weights = [Fraction(law.probability(x)) / (3 if context.count(x) % 2 else 1) for x in range(size)]
    return RationalLaw(w / sum(weights) for w in weights)


def mostly_sure(vocabulary: int, seed: int) -> TabularModel:
    """Two laws in three are point masses, and draft what the target would say: long drafts and histories from few coins."""

    def sure(rng: random.Random) -> bool:
        return rng.random() < 2 / 3

    def weighted(rng: random.Random) -> RationalLaw:
        return RationalLaw.weighted([1 + rng.randrange(3), *(rng.randrange(4) for _ in range(vocabulary - 1))])

    @cache
    def target(prefix: Tokens) -> Law:
        rng = random.Random(repr((seed, prefix)))
        return Point(rng.randrange(vocabulary)) if sure(rng) else weighted(rng)

    path = greedy_path(target)

    def proposal(prefix: Tokens, offset: int) -> Law:
        rng = random.Random(repr((seed, prefix, offset)))
        return argmax(target(path(prefix, offset))) if sure(rng) else weighted(rng)

    return TabularModel(target, proposal)


def scattered(tables: TabularModel, ids: Tokens) -> TabularModel:
    """The same model over other ids, far apart: token x of `tables` is ids[x], and what is none of them is itself."""
    names = {token: x for x, token in enumerate(ids)}

    def compact(prefix: Tokens) -> Tokens:
        return tuple(names.get(token, len(ids) + token) for token in prefix)

    def spread_out(law: Law) -> RationalLaw:
        masses = dict(zip(ids, (law.probability(x) for x in range(len(ids))), strict=True))
        return RationalLaw(Fraction(masses.get(x, 0)) for x in range(max(ids) + 1))

    return TabularModel(
        lambda prefix: spread_out(tables.target(compact(prefix))),
        lambda prefix, offset: spread_out(tables.proposal(compact(prefix), offset)),
    )


def small_cases(seed: int) -> Iterator[Case]:
    """The least that tells."""
    base = 4 * seed
    for length in range(1, 4):
        for vocabulary, number in ((3, base), (2, base + 1)):
            tables, source = random_tables(vocabulary, number), f"random_tables({vocabulary}, seed={number})"
            yield Case(source, tables, Limits.of(length))
            yield Case(source, tables, Limits.of(length, vocabulary - 1))
    for number in range(6 * seed, 6 * seed + 3):
        yield Case(f"mostly_sure(2, {number})", mostly_sure(2, number), Limits.of(8))
    tables, source = random_tables(3, base), f"random_tables(3, seed={base})"
    yield Case(f"scattered({source}, (0, 7, 120))", scattered(tables, (0, 7, 120)), Limits.of(3))
    yield Case(source, tables, Limits.of(3), prompt=(0, 1, 2) * 4)


def cases(seed: int) -> Iterator[Case]:
    """Those of few coins first, then all kinds of drafters and processing, then what takes longest."""
    for number in range(6 * seed, 6 * seed + 6):
        yield Case(f"mostly_sure(2, {number})", mostly_sure(2, number), Limits.of(14))
        yield Case(f"mostly_sure(3, {number})", mostly_sure(3, number), Limits.of(8, 2 if number % 2 else None))
    top_k, top_p, cold = Processing(top_k=2), Processing(top_p=Fraction(3, 4)), Processing(temperature=0)
    for number in range(6 * seed, 6 * seed + 3):
        for processor in (top_k, top_p, penalty):
            yield Case(f"mostly_sure(3, {number})", mostly_sure(3, number), Limits.of(7), processor)
    seeds = range(3 * seed, 3 * seed + 3)
    for number in seeds:
        tables, source = random_tables(3, number), f"random_tables(3, seed={number})"
        ties, tied = random_tables(4, number, top_weight=1), f"random_tables(4, seed={number}, top_weight=1)"
        yield Case(source + ".greedy()", tables.greedy(), Limits.of(5, 2), prompt=(1,))
        yield Case(tied, ties, Limits.of(6, 2), cold)
        yield Case(f"self_draft({tied})", self_draft(ties), Limits.of(8), cold)
    for length in (2, 4):
        yield Case("near_equal(3, Fraction(1, 1000))", near_equal(3, Fraction(1, 1000)), Limits.of(length))
        yield Case("near_equal(3, Fraction(0))", near_equal(3, Fraction(0)), Limits.of(length))
        yield Case("disjoint(3)", disjoint(3), Limits.of(length, 0))
    tables, source = random_tables(3, 4 * seed), f"random_tables(3, seed={4 * seed})"
    for name, drafter in (
        (f"constant({source}, -1)", constant(tables, -1)),
        (f"constant({source}, 3)", constant(tables, 3)),
        (f"eos_happy({source}, 2)", eos_happy(tables, 2)),
        (f"always_wrong({source}, 3)", always_wrong(tables, 3)),
        (f"self_draft({source})", self_draft(tables)),
        (f"stale({source}, 1)", stale(tables, 1)),
    ):
        yield Case(name, drafter, Limits.of(4, 2))
    yield Case(source, tables, Limits.of(4, 2), _PLAIN, cold)
    yield Case(f"self_draft({source})", self_draft(tables), Limits.of(4), penalty)
    yield Case(source, tables, Limits.of(3), penalty)
    yield Case(source, tables, Limits.of(4), top_k, top_p)
    for number in seeds:
        tables, source = random_tables(3, number), f"random_tables(3, seed={number})"
        yield Case(source, tables, Limits.of(4), top_k)
        yield Case(source, tables, Limits.of(4), top_p)
        yield Case(source, tables, Limits.of(4, 2, [(0, 1), (1, 0, 1)]))
        yield Case(source, tables, Limits.of(5, 2), prompt=(0, 2))
    for length in range(2, 5):
        for vocabulary, number in ((3, 4 * seed), (2, 4 * seed + 1), (3, 4 * seed + 2), (4, 4 * seed + 3)):
            tables, source = random_tables(vocabulary, number), f"random_tables({vocabulary}, seed={number})"
            yield Case(source, tables, Limits.of(length))
            yield Case(source, tables, Limits.of(length, vocabulary - 1))


def small_law(system: System) -> str:
    """A few small cases, before anything that takes time: call by call, and as whole runs that share all their coins."""
    laws = wholes = 0
    for case in system.in_time(small_cases(system.seed), 0.2):
        model = case.model(system.processed)
        try:
            exact = summed(_visits(_Counted(system.schedule, _SMALL), model, case))
            laws += 1
            _compare(system, exact.output, case)
        except _TooMany:
            pass
        try:
            output = _whole(system, model, case)
        except _TooMany:
            continue
        wholes += 1
        _compare(system, output, case)
    if not laws and not wholes:
        raise NotReached("no law is small enough to enumerate")
    return f"{laws} laws call by call, {wholes} of whole runs, equal as rationals"


class _Addressed:
    """The coins of a whole run, each under its own address."""

    def __init__(self, chance: Any) -> None:
        self.chance = chance

    def at(self, call: int) -> _Addressed:
        return _AddressedCall(self.chance, call)


class _AddressedCall(_Addressed):
    def __init__(self, chance: Any, call: int) -> None:
        super().__init__(chance)
        self.call = call

    def uniform(self, purpose: Purpose, position: int) -> Any:
        return self.chance.uniform((self.call, purpose), position)


def _whole(system: System, model: Model, case: Case) -> dict[Tokens, Fraction]:
    """The law of the output, one run of the driver for every outcome: sees coins that are shared between calls."""
    left = _SMALL

    def run(chance: Any) -> Tokens:
        nonlocal left
        left -= 1
        if left < 0:
            raise _TooMany(_MANY)
        return tuple(system.drive(model, system.schedule, case.prompt, case.limits, _Addressed(chance)).tokens)

    law: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    for weight, output in _enumerable(partial(enumerated, run), case):
        law[output] += weight
    return dict(law)


def law(system: System) -> str:
    """Every transition of every case under enumerated coins."""
    reached: set[str] = set()
    transitions = runs = longest = 0
    left = _ALL_OUTCOMES
    too_large: list[Case] = []
    reason = ""
    other_calls: Finding | None = None  # told only once all laws are right
    all_cases = list(cases(system.seed))
    for case in system.in_time(all_cases, 0.4):
        if any(
            case.dense and case.spread >= other.spread and case.limits[0] >= other.limits[0]
            for other in too_large
            if other.dense
        ):
            too_large.append(case)
            continue
        counted = _Counted(system.schedule, min(_OUTCOMES, left))
        try:
            chain = _visits(counted, case.model(system.processed), case)
        except _TooMany as error:
            too_large.append(case)
            reason = str(error)
            left -= min(_OUTCOMES, left)
            continue
        exact = summed(chain)
        reached |= _reached(chain)
        longest = max([longest, *(kind.verified for kind in exact.kinds)])
        transitions += exact.transitions
        left -= exact.transitions
        runs += 1
        _compare(system, exact.output, case)
        if system.declares is not None and other_calls is None:
            with suppress(_TooMany):
                theirs = summed(_visits(_Counted(system.declares, _OUTCOMES), case.model(processed), case))
                other_calls = _compare_calls(exact, theirs, system.declares.name, case)
    needed = (REJECTION, TWO_WAYS, WINDOW) if longest > 1 else (REJECTION, TWO_WAYS) if longest else ()
    missing = [condition for condition in needed if condition not in reached]
    rest = f"; {len(too_large)} more not: {reason}" if too_large else ""
    late = len(all_cases) - runs - len(too_large)
    rest += f"; {late} more not: no time left" if late else ""
    if too_large and (missing or runs < _FEW):
        rest += _sampled(system, too_large)
        missing = []
    if other_calls is not None:
        raise Found(other_calls)
    if missing:
        raise NotReached(f"never reached: {', '.join(missing)}")
    return f"{runs} laws, {transitions:,} transitions, equal as rationals{rest}"


def _reached(chain: list[Visit]) -> set[str]:
    seen = set()
    for visit in chain:
        corrections: defaultdict[int, set[int]] = defaultdict(set)
        for _, (_, step) in visit.outcomes:
            h = step.accepted
            if h < len(step.verified):
                seen.add(REJECTION)
                corrections[h].update(step.committed[h : h + 1])
            elif h >= 2:
                seen.add(WINDOW)
        if any(len(tokens) > 1 for tokens in corrections.values()):
            seen.add(TWO_WAYS)
    return seen


class _TooMany(Exception):
    """The law of a case is not for enumeration."""


class _Counted:
    """The schedule, giving up after so many outcomes."""

    def __init__(self, schedule: Policy, most: int) -> None:
        self.schedule, self.left = schedule, most

    def init(self, prompt: Tokens, limits: Limits) -> State:
        return self.schedule.init(prompt, limits)

    def request(self, state: State) -> Call:
        return self.schedule.request(state)

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        self.left -= 1
        if self.left < 0:
            raise _TooMany(_MANY)
        return self.schedule.absorb(state, call, reply, chance)


def _visits(schedule: Any, model: Model, case: Case) -> list[Visit]:
    return _enumerable(lambda: list(visits(schedule, model, case.prompt, case.limits, max_calls=60)), case)


def _enumerable(enumerate_all: Callable[[], T], case: Case) -> T:
    """Raises _TooMany for what may be right and has no law by enumeration; ends the stage for what is wrong."""
    try:
        return enumerate_all()
    except _TooMany:
        raise
    except Exception as error:
        if any(isinstance(cause, ValueNeeded) for cause in _causes(error)):
            raise _TooMany("it computes with the values of coins") from error
        if not isinstance(error, ContractError):
            found("contract", f"it raises {type(error).__name__}: {error}", str(case))
        text = str(error)
        if "after its call" in text:
            raise _TooMany("it keeps coins from one call to the next") from error
        if "pure function" in text:
            found("determinism", f"under enumerated coins it is no function of `chance` alone: {text}", str(case))
        found("progress" if "still running" in text or "without emitting" in text else "contract", text, str(case))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _sampled(system: System, too_large: list[Case]) -> str:
    """The largest of these cases, sampled. Returns what was done; ends the stage when a law is not AR's."""
    from proofs_check.statistics import fits

    chosen = sorted(too_large, key=lambda case: -len(case.autoregressive()))[:_SAMPLED]
    models = [case.model(system.processed) for case in chosen]
    outcomes: list[list[Tokens]] = [[] for _ in chosen]
    seen, variation = Seen(), 0.0
    for request in system.in_time(range(len(chosen) * _SAMPLES), 0.3):
        case, model = chosen[request % len(chosen)], models[request % len(chosen)]
        coins = Sampled(system.seed, request)
        run = watched(system, Instance(_Oracle(model), str(case), case.limits, case.prompt, coins)).generation
        seen.steps(run.steps)
        outcomes[request % len(chosen)].append(run.tokens)
    for case, outputs in zip(chosen, outcomes, strict=True):
        expected = case.autoregressive()
        if wrong := [x for x in outputs if not _ends_rightly(case, x)]:
            found("stop", f"the output {list(min(wrong))} ends where no stop is, or goes on after one", str(case))
        tests = fits(outputs, expected, ALPHA / len(chosen))
        variation = max(variation, tests[0].tv80)
        for test in tests:
            if test.rejected:
                evidence = f"{case}\n{test.n} outputs, {test.what}: p = {test.p_value:.1e} {test.impossible}"
                found("law", f"the sampled output law is not the autoregressive one, alpha {ALPHA:g}", evidence)
    seen.require(seen.rejected, "a rejected draft token")
    return (
        f"; {len(chosen)} of them sampled {len(outcomes[0]):,} times, false-alarm odds {ALPHA:g},"
        f" sees a total variation of {variation:.2f} in 80 %"
    )


class _Oracle(NamedTuple):
    """A model as an instance wants it."""

    model: Model

    def __call__(self, call: Call) -> Reply:
        return self.model(call)


def _program(system: System, case: Case) -> str:
    """Python that shows the two laws again; for plain tables of the package's own."""
    plain = case.target_processing is _PLAIN and not case.proposal_processing
    if not system.source or "random_tables" not in case.source or not plain:
        return ""
    eos, stop = sorted(case.limits.eos), [list(marker) for marker in case.limits.stop]
    return "\n".join(
        (
            "from simulator import *",
            "from simulator.oracles import *",
            system.source,
            f"model = {case.source}",
            f"limits = Limits.of({case.limits.max_new_tokens}, {eos}, {stop})",
            f"law = exact_law(schedule, model, {case.prompt}, limits).output",
            f"assert law == autoregressive_law(model.target, {case.prompt}, limits), law",
        )
    )


def _compare(system: System, output: dict[Tokens, Fraction], case: Case) -> None:
    expected = case.autoregressive()
    if output == expected:
        return
    wrong_end = [x for x in output if not _ends_rightly(case, x)]
    zero = Fraction(0)
    gaps = {x: output.get(x, zero) - expected.get(x, zero) for x in output.keys() | expected.keys()}
    distance = sum(map(abs, gaps.values())) / 2
    worst = max(gaps, key=lambda x: (abs(gaps[x]), [-token for token in x]))
    run = _run_of(system, case, max(gaps, key=lambda x: (gaps[x], [-token for token in x])), output, expected)
    evidence = (
        f"{case}\noutput {list(worst)} has probability {output.get(worst, zero)}, AR gives {expected.get(worst, zero)}\n"
        f"total variation {distance} = {float(distance):.4f}"
    )
    if wrong_end:
        statement = f"the output {list(min(wrong_end))} ends where no stop is, or goes on after one"
        found("stop", statement, evidence, _program(system, case), run)
    found("law", "the output law is not the autoregressive one", evidence, _program(system, case), run)


def _run_of(
    system: System, case: Case, tokens: Tokens, output: dict[Tokens, Fraction], expected: dict[Tokens, Fraction]
) -> tuple[str, ...]:
    """A run that emits what comes too often; () if none of some does. No call of it is wrong: its probability is."""
    zero, oracle = Fraction(0), _Oracle(case.model(system.processed))
    said = f"the output {list(tokens)} comes with probability {output.get(tokens, zero)}, AR: {expected.get(tokens, zero)}"
    for request in range(_TRIES):
        instance = Instance(oracle, case.source, case.limits, case.prompt, Sampled(system.seed, request))
        try:
            run = watched(system, instance).generation
        except Found:
            return ()
        if run.tokens == tokens:
            return traced(instance, run.steps, said)
    return ()


def _ends_rightly(case: Case, output: Tokens) -> bool:
    reached = [case.limits.reached(case.prompt + output[:count], len(case.prompt)) for count in range(len(output) + 1)]
    return reached[-1] is not None and not any(reached[:-1])


def _compare_calls(ours: ExactLaw, theirs: ExactLaw, name: str, case: Case) -> Finding | None:
    if ours.nfe != theirs.nfe:
        evidence = f"{case}\nlaw of the number of calls {_shown(ours)}\n{name}: {_shown(theirs)}"
        statement = f"law exact, but E[NFE] = {ours.expected_nfe} is not that of {name}, {theirs.expected_nfe}"
        if ours.expected_nfe == theirs.expected_nfe:
            statement = f"law exact, E[NFE] as of {name}, but not the law of NFE"
        return Finding("count", statement, evidence)
    if ours.expected_rows != theirs.expected_rows:
        statement = f"law exact, but it evaluates {ours.expected_rows} rows in expectation, {name} {theirs.expected_rows}"
        return Finding("count", statement, str(case))
    mine, other = _accepted(ours), _accepted(theirs)
    if mine != other:
        return Finding(
            "count", f"law exact, but {mine} draft tokens are accepted in expectation, {name} accepts {other}", str(case)
        )
    return None


def _accepted(law: ExactLaw) -> Fraction:
    return sum((kind.accepted * weight for kind, weight in law.kinds.items()), Fraction(0))


def _shown(law: ExactLaw) -> str:
    return ", ".join(f"{calls}: {weight}" for calls, weight in sorted(law.nfe.items()))
