"""Coins: a request depends on its own and on nothing else, and none, at an edge either, lets a forbidden token through."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from typing import NoReturn

import numpy as np

from proofs_check.sandbox import ChildEnded, in_child
from proofs_check.stages.greedy import Seen
from proofs_check.system import Found, Instance, NotReached, System, described, found, picture, program, watched, with_chance
from simulator.chance import Purpose, Sampled
from simulator.decode import Generation
from simulator.laws import ArrayLaw, Law, Point, RationalLaw
from simulator.oracles import TabularModel, constant, random_tables
from simulator.records import Limits, Tokens

_LAST = 1 - 2.0**-53  # the largest coin


def determinism(system: System) -> str:
    """A request is answered the same way whatever was asked before it, and whatever global generators hold."""
    instances = list(_requests(system.seed))
    runs = len(instances)
    orders = (range(runs), range(runs - 1, -1, -1), [i for i in range(runs) for _ in range(2)])
    first, *others = [_answers(system, instances, order, world) for world, order in enumerate(orders)]
    if not any(isinstance(outcomes[0], Generation) for outcomes in first.values()):
        raise NotReached(f"never reached: the end of a request; {first[0][0]}")
    for later in others:
        for i, outcomes in later.items():
            for outcome in outcomes:
                if outcome != first[i][0]:
                    _differs(system, instances[i], first[i][0], outcome)
    return f"{4 * runs} runs of {runs} requests, in three orders"


def _answers(
    system: System, instances: Sequence[Instance], order: Iterable[int], world: int
) -> dict[int, list[Generation | str]]:
    """The requests in that order, by a copy of the system that has seen nothing before."""

    def work(send: Callable[[tuple[int, Generation | str]], None]) -> None:
        for i in order:
            send((i, _run(system, instances[i], world)))

    outcomes: defaultdict[int, list[Generation | str]] = defaultdict(list)
    try:
        for i, outcome in in_child(work, system.limit / 5):
            outcomes[i].append(outcome)
    except ChildEnded as ended:
        raise NotReached(f"never reached: the end of the requests; {ended}") from None
    return outcomes


def _requests(seed: int) -> Iterator[Instance]:
    """Neighbours differ in everything that a request can bring along."""
    ends = (
        Limits.of(12, 3),
        Limits.of(30),
        Limits.of(11, (0, 1)),
        Limits.of(7, None, [(0, 1), (2,)]),
        Limits.of(1),
        Limits.of(0),
    )
    prompts = ((1, 0), (), (0, 1, 2, 3), (3,))
    for number in range(6):
        source = f"random_tables(4, seed={6 * seed + number})"
        tables = random_tables(4, 6 * seed + number)
        for request in range(3):
            limits, prompt = ends[(number + 2 * request) % len(ends)], prompts[(number + request) % len(prompts)]
            yield with_chance(Instance(tables, source, limits, prompt), Sampled(7, request), f"Sampled(7, {request})")
        yield Instance(tables.greedy(), source + ".greedy()", Limits.of(8, 2), (1,))


def _run(system: System, instance: Instance, world: int) -> Generation | str:
    """With the global generators in another state in each world. What fails is for other stages to say, by its own name."""
    random.seed(world)
    np.random.seed(world)  # noqa: NPY002  # the legacy global generator is what a stray draw would use
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(world)
    try:
        return watched(system, instance).generation
    except Found as failed:
        return failed.finding.statement


def _differs(system: System, instance: Instance, first: Generation | str, again: Generation | str) -> NoReturn:
    shown = [run if isinstance(run, str) else picture(run.steps) for run in (first, again)]
    tokens = [None if isinstance(run, str) else run.tokens for run in (first, again)]
    what = "tokens" if tokens[0] != tokens[1] else "calls"
    evidence = "\n".join((described(instance), "first", shown[0], "later", shown[1]))
    found("determinism", f"the same request under the same coins gives other {what} later", evidence, program(system, instance))


def chance(system: System) -> str:
    """Requests under other coins give other tokens: at temperature 1 some of 24 must."""
    instance = Instance(random_tables(4, system.seed), f"random_tables(4, seed={system.seed})", Limits.of(16))
    outputs = {watched(system, with_chance(instance, Sampled(7, request), "")).generation.tokens for request in range(24)}
    if len(outputs) == 1:
        statement = "requests under different coins always give the same tokens: it does not use `chance`"
        found("determinism", statement, described(instance))
    return f"{len(outputs)} different outputs in 24 requests"


def edges(system: System) -> str:
    """Coins at 0 and just under 1, for drafts the target forbids and for float laws whose residual is rounded away.

    Under any coins an output token must have a positive target probability, and a law that is rounded must not break a run.
    """
    seen = Seen()
    runs = forbidden = fallbacks = 0
    for source, model in system.in_time(_edge_models(system.seed)):
        for u, v, w in product((0.0, 0.5, _LAST), repeat=3):
            coins = _ByPurpose(draft=u, test=v, correct=w)
            instance = Instance(model, source, Limits.of(7), (), coins, f"draft {u}, test {v}, correct {w}")
            run = watched(system, instance)
            runs += 1
            seen.steps(run.generation.steps)
            fallbacks += sum(step.fallback for step in run.generation.steps)
            for call in run.calls:
                for i, token in enumerate(call.draft):
                    forbidden += not model.target(call.prefix + call.draft[:i]).probability(token)
            for i, token in enumerate(run.generation.tokens):
                prefix = run.generation.tokens[:i]
                if not model.target(prefix).probability(token) > 0:
                    statement = f"it emits {token} after {list(prefix)}, which has target probability 0"
                    found("law", statement, f"{described(instance)}\n{picture(run.generation.steps)}")
    seen.require(forbidden, "a draft token with target probability 0")
    return f"{runs} runs, {forbidden} forbidden tokens drafted, {fallbacks} residuals rounded to 0"


class _ByPurpose:
    """One coin per purpose, whatever the call and the position."""

    def __init__(self, **coins: float) -> None:
        self.coins = coins

    def at(self, call: int) -> _ByPurpose:
        return self

    def uniform(self, purpose: Purpose, position: int) -> float:
        return self.coins[purpose]


def _edge_models(seed: int) -> Iterator[tuple[str, TabularModel]]:
    """Exact laws with zeros; float laws that are equal, all but equal, disjoint, or not summing to 1, zeros at both ends."""
    for number in range(6 * seed, 6 * seed + 6):
        yield f"random_tables(3, seed={number})", random_tables(3, number)
    tables = random_tables(3, seed)
    for token in (-1, 3):
        yield f"constant(random_tables(3, seed={seed}), {token})", constant(tables, token)
    inner = RationalLaw.weighted((0, 1, 2, 0))
    ends = RationalLaw.weighted((3, 0, 0, 1))
    yield "exact laws, disjoint", TabularModel(lambda prefix: inner, lambda prefix, offset: ends)
    yield (
        "a sure target, soft drafts",
        TabularModel(lambda prefix: Point(1 + len(prefix) % 2), lambda prefix, offset: RationalLaw.weighted((1, 1, 1, 1))),
    )

    def floats(weights: Callable[[Tokens, int], list[float]]) -> Callable[[Tokens, int], Law]:
        def law(prefix: Tokens, offset: int) -> ArrayLaw:
            return ArrayLaw(np.array(weights(prefix, offset)))

        return law

    def pair(name: str, *laws: Callable[[Tokens, int], Law]) -> Iterator[tuple[str, TabularModel]]:
        for i, target in enumerate(laws):
            for j, proposal in enumerate(laws):
                if i != j or len(laws) == 1:
                    yield f"float laws, {name}", TabularModel(lambda prefix, t=target: t(prefix, 0), proposal)  # type: ignore[misc]

    def near(prefix: Tokens, offset: int) -> list[float]:
        return [0.0, 0.3, 0.3 + 1e-16 * offset, 0.4 - (len(prefix) % 2) * 1e-16, 0.0]

    yield from pair("nearly equal", floats(near), floats(lambda prefix, offset: [0.0, 0.3, 0.3, 0.4, 0.0]))
    # Their largest quotient is under 1 by the last bit, so that the largest coin fails a test that leaves no residual.
    below = 0.5 - 2.0**-54
    yield from pair(
        "equal but for the last bit",
        floats(lambda prefix, offset: [0.0, below, below, 0.0]),
        floats(lambda prefix, offset: [0.0, 0.5, 0.5, 0.0]),
    )
    yield from pair(
        "disjoint up to 1e-17",
        floats(lambda prefix, offset: [1e-300, 1.0, 1e-17, 0.0]),
        floats(lambda prefix, offset: [1.0, 1e-300, 0.0, 1e-17]),
    )
    yield from pair("that sum to 1 - 2^-53", floats(lambda prefix, offset: [0.0] + [0.1] * 10 + [0.0]))
