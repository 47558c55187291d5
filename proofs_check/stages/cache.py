"""A model with state: a running hash of every row it was fed, so that a wrong rollback shows at the next token."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

from proofs_check.findings import Symptom
from proofs_check.stages.greedy import Seen
from proofs_check.system import Instance, System, described, found, picture, traced, watched
from simulator.chance import Sampled
from simulator.decode import Model
from simulator.oracles import HashRule
from simulator.processing import greedy as at_temperature_0
from simulator.records import Call, Limits, Reply


def cache(system: System) -> str:
    """A stateful model answers every call as one that hashes each context from the beginning, whatever came before."""
    seen = Seen()
    runs = rejections = 0
    drafted_twice = in_a_row = False
    seeds = range(4 * system.seed, 4 * system.seed + 4)
    sizes = product((4, 9, 24), (2, 3, 11), seeds, (False, True))  # the smallest first
    for length, vocabulary, seed, temperature_0 in system.in_time(sizes):
        rule = HashRule(vocabulary, seed)
        session = _Compared(system.session(rule), rule.stateless())
        model = at_temperature_0(session) if temperature_0 else session
        limits = Limits.of(length, 1 if seed % 2 else None)
        source = f"HashRule({vocabulary}, seed={seed}), with a cache" + (", at temperature 0" if temperature_0 else "")
        instance = Instance(model, source, limits, (1, 0), Sampled(seed), f"Sampled({seed})")
        steps = watched(system, instance).generation.steps
        runs += 1
        seen.steps(steps)
        verifying = [step for step in steps if step.advance]
        rejections += sum(step.accepted < len(step.verified) for step in verifying)
        for earlier, later in pairwise(verifying):
            drafted_twice |= bool(earlier.verified and later.verified)
            in_a_row |= earlier.accepted < len(earlier.verified) and later.accepted < len(later.verified)
        for symptom, number in session.wrong.items():
            what = "the target's laws" if symptom == "law" else "its proposals alone"
            statement = f"with a cached model call {number} gets {what} wrong: a row was kept, lost or moved"
            found(
                symptom, statement, f"{described(instance)}\n{picture(steps)}", "", traced(instance, steps, statement, number)
            )
    seen.require(in_a_row or not drafted_twice, "two rejections in a row")
    return f"{runs} runs, {rejections} rejections"


class _Compared:
    """A session, its answers compared with those of a model without a cache: wrong proposals cost calls, wrong targets more."""

    def __init__(self, session: Model, stateless: Model) -> None:
        self.session, self.stateless = session, stateless
        self.calls = 0
        self.wrong: dict[Symptom, int] = {}  # the first call that is, law first

    def __call__(self, call: Call) -> Reply:
        self.calls += 1
        reply, right = self.session(call), self.stateless(call)
        if reply.target != right.target:
            self.wrong = {"law": self.calls} if "law" not in self.wrong else self.wrong
        elif reply.proposals != right.proposals:
            self.wrong.setdefault("count", self.calls)
        return reply


def requests(system: System) -> str:
    """Nothing leaks from one request to the next: a session answers a second request as a fresh one does."""
    rule = HashRule(7, 5 + system.seed)
    used = system.session(rule)
    asked = 0
    for number, prompt in enumerate(((1, 2, 3), (1, 2), (4,), (1, 2, 3))):
        limits = Limits.of(10)
        outputs: list[Any] = []
        for model, source in ((used, "a session used before"), (system.session(rule), "a fresh session")):
            instance = Instance(
                model,
                f"HashRule(7, seed={5 + system.seed}), {source}",
                limits,
                prompt,
                Sampled(3, number),
                f"Sampled(3, {number})",
            )
            run = watched(system, instance).generation
            outputs.append(run.tokens)
            asked += run.nfe
        if outputs[0] != outputs[1]:
            found(
                "determinism", f"request {number + 1} of a session gives {outputs[0]}, alone {outputs[1]}", f"prompt {prompt}"
            )
    return f"4 requests in one session, {asked} calls"
