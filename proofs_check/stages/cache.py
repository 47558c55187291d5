"""A model with state: a running hash of every row it was fed, so that a wrong rollback shows at the next token."""

from __future__ import annotations

from itertools import product
from typing import Any

from proofs_check.stages.greedy import Seen
from proofs_check.system import Instance, System, described, found, picture, watched
from simulator.chance import Sampled
from simulator.oracles import HashRule
from simulator.processing import greedy as at_temperature_0
from simulator.records import Limits


def cache(system: System) -> str:
    """Decoding with the stateful model equals decoding with one that hashes every context from the beginning."""
    seen = Seen()
    runs = rejections = in_a_row = 0
    for length, vocabulary, seed, temperature_0 in product(
        (4, 9, 24), (2, 3, 11), range(4), (False, True)
    ):  # the smallest first
        rule = HashRule(vocabulary, seed)
        session = system.session(rule)
        stateless = rule.stateless()
        source = f"HashRule({vocabulary}, seed={seed})"
        limits = Limits.of(length, 1 if seed % 2 else None)
        coins = Sampled(seed)
        plain = Instance(stateless, f"{source}.stateless()", limits, (1, 0), coins, f"Sampled({seed})")
        held = plain._replace(model=session, source=source + ", with a cache")
        if temperature_0:
            plain, held = [item._replace(model=at_temperature_0(item.model)) for item in (plain, held)]
        first, second = watched(system, plain).generation, watched(system, held).generation
        runs += 1
        seen.steps(first.steps)
        lost = [step.accepted < len(step.verified) for step in first.steps if step.advance]
        rejections += sum(lost)
        in_a_row += any(lost[i] and lost[i + 1] for i in range(len(lost) - 1))
        if first.tokens != second.tokens:
            where = next(
                (i for i, (a, b) in enumerate(zip(first.tokens, second.tokens, strict=False)) if a != b),
                min(len(first.tokens), len(second.tokens)),
            )
            evidence = f"{described(held)}\n{picture(second.steps)}\nwithout a cache {list(first.tokens)}"
            found("law", f"with a cached model output token {where + 1} differs: a row was kept, lost or moved", evidence)
    seen.require(in_a_row, "two rejections in a row")
    return f"{runs} pairs of runs, {rejections} rejections"


def requests(system: System) -> str:
    """Nothing leaks from one request to the next: a session answers a second request as a fresh one does."""
    rule = HashRule(7, 5)
    used = system.session(rule)
    asked = 0
    for number, prompt in enumerate(((1, 2, 3), (1, 2), (4,), (1, 2, 3))):
        limits = Limits.of(10)
        outputs: list[Any] = []
        for model, source in ((used, "a session used before"), (system.session(rule), "a fresh session")):
            instance = Instance(
                model, f"HashRule(7, seed=5), {source}", limits, prompt, Sampled(3, number), f"Sampled(3, {number})"
            )
            run = watched(system, instance).generation
            outputs.append(run.tokens)
            asked += run.nfe
        if outputs[0] != outputs[1]:
            found(
                "determinism", f"request {number + 1} of a session gives {outputs[0]}, alone {outputs[1]}", f"prompt {prompt}"
            )
    return f"4 requests in one session, {asked} calls"
