"""Coins: a request depends on its own and on nothing else, and none, at an edge either, lets a forbidden token through."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import product

import numpy as np

from proofs_check.stages.greedy import Seen
from proofs_check.system import Instance, System, described, found, picture, program, watched, with_chance
from simulator.chance import Purpose, Sampled
from simulator.laws import ArrayLaw
from simulator.oracles import TabularModel, random_tables
from simulator.records import Limits, Tokens

_LAST = 1 - 2.0**-53  # the largest coin


def determinism(system: System) -> str:
    """The same request and seed give the same tokens: again, after other requests, and whatever global generators hold."""
    runs = differing = 0
    for seed in range(6):
        source = f"random_tables(4, seed={seed})"
        instance = Instance(random_tables(4, seed), source, Limits.of(12, 3), (1, 0))
        alone = [_tokens(system, instance, 0, request) for request in range(3)]
        again = [_tokens(system, instance, 1 + request, request) for request in reversed(range(3))][::-1]
        runs += 6
        differing += len(set(alone)) > 1
        for request, (first, second) in enumerate(zip(alone, again, strict=True)):
            if first != second:
                coins = with_chance(instance, Sampled(7, request), f"Sampled(7, {request})")
                evidence = f"{described(coins)}\nalone {list(first)}\nafter other requests {list(second)}"
                found(
                    "determinism", "the same request under the same coins gives other tokens", evidence, program(system, coins)
                )
    if not differing:
        found(
            "determinism",
            "requests under different coins always give the same tokens: it does not use `chance`",
            described(instance),
        )
    return f"{runs} runs"


def _tokens(system: System, instance: Instance, world: int, request: int) -> Tokens:
    """The request with the world's global generators in another state each time."""
    random.seed(world)
    np.random.seed(world)  # noqa: NPY002  # the legacy global generator is what a stray draw would use
    return watched(system, with_chance(instance, Sampled(7, request), f"Sampled(7, {request})")).generation.tokens


def edges(system: System) -> str:
    """Coins at 0 and just under 1, for drafts the target forbids and for float laws whose residual is rounded away.

    Under any coins an output token must have a positive target probability, and a law that is rounded must not break a run.
    """
    seen = Seen()
    runs = forbidden = fallbacks = 0
    for source, model in _edge_models():
        for u, v, w in product((0.0, 0.5, _LAST), repeat=3):
            coins = _ByPurpose(draft=u, test=v, correct=w)
            instance = Instance(model, source, Limits.of(7), (), coins, f"draft {u}, test {v}, correct {w}")
            run = watched(system, instance)
            runs += 1
            seen.steps(run.generation.steps)
            prefix: Tokens = ()
            for step in run.generation.steps:
                fallbacks += step.fallback
                for i, token in enumerate(step.verified[: step.accepted + 1]):
                    forbidden += not model.target(prefix + step.verified[:i]).probability(token)
                for token in step.committed:
                    if not model.target(prefix).probability(token) > 0:
                        statement = f"it emits {token} after {list(prefix)}, which has target probability 0"
                        found("law", statement, f"{described(instance)}\n{picture(run.generation.steps)}")
                    prefix += (token,)
    seen.require(forbidden, "a test of a draft token with target probability 0")
    return f"{runs} runs, {forbidden} tests of forbidden tokens, {fallbacks} residuals rounded to 0"


class _ByPurpose:
    """One coin per purpose, whatever the call and the position."""

    def __init__(self, **coins: float) -> None:
        self.coins = coins

    def at(self, call: int) -> _ByPurpose:
        return self

    def uniform(self, purpose: Purpose, position: int) -> float:
        return self.coins[purpose]


def _edge_models() -> list[tuple[str, TabularModel]]:
    def floats(weights: Callable[[Tokens, int], list[float]]) -> Callable[[Tokens, int], ArrayLaw]:
        def law(prefix: Tokens, offset: int) -> ArrayLaw:
            w = np.array(weights(prefix, offset))
            return ArrayLaw(w / w.sum())

        return law

    def target_only(law: Callable[[Tokens, int], ArrayLaw], draft: Callable[[Tokens, int], ArrayLaw]) -> TabularModel:
        return TabularModel(lambda prefix: law(prefix, 0), draft)

    near = floats(lambda prefix, offset: [0.1, 0.2, 0.3 + 1e-17 * offset, 0.4 - (len(prefix) % 2) * 1e-16])
    equal = floats(lambda prefix, offset: [0.1, 0.2, 0.3, 0.4])
    tiny = floats(lambda prefix, offset: [1e-300, 1.0, 1e-17, 0.0])
    other = floats(lambda prefix, offset: [1.0, 1e-300, 0.0, 1e-17])
    return [
        *((f"random_tables(3, seed={seed})", random_tables(3, seed)) for seed in range(8)),
        ("float laws, nearly equal", target_only(equal, near)),
        ("float laws, nearly equal", target_only(near, equal)),
        ("float laws, disjoint up to 1e-17", target_only(tiny, other)),
        ("float laws, disjoint up to 1e-17", target_only(other, tiny)),
    ]
