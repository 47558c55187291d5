"""The stages of the battery on an any-order schedule, cheap and telling ones first.

What is right is said by serial decoding in the schedule's own orders: greedy runs call by call (`compare`), sampling by the law
of every accepted token given its history (`any_order_law`), stops by the rules of E.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from proofs_check.any_order_law import Remembering, accepted_in, deviation
from proofs_check.any_order_system import AnyOrderSystem, Run, compare, picture, program, run
from proofs_check.sandbox import ChildEnded, in_child
from proofs_check.stages.contract import same, value
from proofs_check.system import Found, Instance, NotReached, described, found
from simulator.chance import Sampled, ValueNeeded
from simulator.errors import ContractError
from simulator.exact import summed, visits
from simulator.oracles import HashRule, any_order, recurrent_pairs
from simulator.records import Limits, Step

_TRUTH = tuple(range(3, 27))  # every position has its own token
_VOCABULARY = 30
_OUTCOMES = 30_000  # of one law

REJECTED = "a rejected draft token"
WINDOW = "a window of 2 or more accepted in full"
TWICE = "E lowered in two calls"
REMOVED = "an accepted pair that is removed"
_AHEAD = "a pair accepted ahead of an unresolved position"
_REPORTED = tuple(name for name in Step._fields if name != "fallback")  # which follows from laws, and is no matter of counts
_CHANCES = 100  # so many, and what they could lead to must have happened
TWO_WAYS = "a correction with two or more possible tokens"


@dataclass
class Seen:
    """What some runs went through. Of a schedule that never drafts, or seldom leaves a hole, less can be asked."""

    counts: Counter[str]
    longest: int = 0

    def run(self, ran: Run, limits: Limits) -> None:
        """Look at a run."""
        lowered = 0
        end = limits.max_new_tokens
        for made in ran.made:
            step = made.step
            self.longest = max(self.longest, len(step.verified))
            lowered += (step.end or end) < end
            end = step.end or end
            for name, happened in {
                REJECTED: step.accepted < len(step.verified),
                WINDOW: step.accepted == len(step.order) >= 2,
                _AHEAD: step.order and any(j > min(step.order) for j, _ in made.call.accepted),
                REMOVED: any(j > end for j, _ in made.call.accepted),
                TWICE: lowered > 1,
            }.items():
                self.counts[name] += bool(happened)

    def require(self, *conditions: str) -> None:
        """Raises NotReached for one that was not met and could have been."""
        asked = [REJECTED] if self.longest else []
        asked += [WINDOW] if self.longest > 1 else []
        asked += [REMOVED] if self.counts[_AHEAD] >= _CHANCES else []
        asked += [TWICE] if self.counts[REMOVED] >= _CHANCES else []
        missing = [name for name in conditions if name in asked and not self.counts[name]]
        if missing:
            raise NotReached(f"never reached: {', '.join(missing)}")


def made(source: str) -> Any:
    """The model that this Python makes."""
    names = {name: getattr(any_order, name) for name in ("random_tables", "noisy_pairs", "by_accepted")}
    return eval(source, names)  # our own texts, below


def _instance(source: str, limits: Limits, prompt: tuple[int, ...] = (), seed: int = 0) -> Instance:
    return Instance(made(source), source, limits, prompt, Sampled(seed), f"Sampled({seed})")


# --- three pure functions ---------------------------------------------------------------------------------------------------


def determinism(system: AnyOrderSystem) -> str:
    """A request is answered the same way whatever was asked before it, and whatever global generators hold."""
    instances = [
        _instance(f"random_tables(3, {3 * system.seed + number})", limits, prompt, number)
        for number, (limits, prompt) in enumerate(
            product((Limits.of(8, 1), Limits.of(5), Limits.of(6, None, [(0, 1)])), ((), (1, 0)))
        )
    ]
    asked = range(len(instances))
    worlds = [_answers(system, instances, order, world) for world, order in enumerate((asked, asked[::-1], [*asked] * 2))]
    if not worlds[0]:
        raise NotReached("never reached: the end of a request")
    for answers in worlds[1:]:
        for i, answer in answers:
            if answer != dict(worlds[0]).get(i):
                statement = "the same request under the same coins is answered differently later"
                found("determinism", statement, f"{described(instances[i])}\nfirst {dict(worlds[0]).get(i)}\nlater {answer}")
    return f"{4 * len(instances)} runs of {len(instances)} requests, in three orders"


def _answers(system: AnyOrderSystem, instances: Sequence[Instance], order: Sequence[int], world: int) -> list[tuple[int, str]]:
    def work(send: Callable[[tuple[int, str]], None]) -> None:
        random.seed(world)
        np.random.seed(world)  # noqa: NPY002  # the legacy global generator is what a stray draw would use
        for i in order:
            try:
                ran = run(system, instances[i])
                send((i, f"{list(ran.tokens)} in {len(ran.made)} calls, orders {[list(step.order) for step in ran.steps]}"))
            except Found as failed:
                send((i, failed.finding.statement))

    try:
        return list(in_child(work, system.limit / 5))
    except ChildEnded as ended:
        raise NotReached(f"never reached: the end of the requests; {ended}") from None


def contract(system: AnyOrderSystem) -> str:
    """Greedy runs, everything asked twice; L = 0 makes no call."""
    schedule = system.schedule
    if schedule.init((), Limits.of(0)).stop is None:
        found("stop", "with L = 0 its first state has not stopped: it would make a call")
    calls = 0
    for seed in range(4):
        model, limits = any_order.noisy_pairs(3, seed), Limits.of(6, 0 if seed % 2 else None)
        state: Any = schedule.init((), limits)
        for number in range(1, 40):
            value(state)
            if state.stop is not None:
                break
            before = copy.deepcopy(state)
            call = schedule.request(state)
            same(schedule.request(state), call, "request(state) gives two calls for one state")
            reply, chance = model(call), Sampled(0).at(number)
            outcome = schedule.absorb(state, call, reply, chance)
            same(schedule.absorb(state, call, reply, chance), outcome, "absorb gives two outcomes for one call and reply")
            same(before, state, "it changes the state it was given")
            state, step = outcome
            if not isinstance(step, Step) or (step.advance and step.end is None) or len(step.order) < step.advance:
                found("contract", f"absorb must return (state, Step), the Step with its order and E; got {step!r}")
            calls += 1
        else:
            found("progress", "after 39 calls it has not filled 6 positions", f"noisy_pairs(3, {seed})")
    return f"{calls} calls, each asked for twice"


# --- greedy -----------------------------------------------------------------------------------------------------------------


def _models(seed: int) -> list[str]:
    """Drafters right at some share of all places, never, always; by table; and outside the vocabulary."""
    first = 6 * seed
    return [
        *(f"noisy_pairs({v}, {first + n}, {share}, {rigid})" for n, (v, share, rigid) in enumerate(_NOISY)),
        *(f"random_tables({v}, {first + v}).greedy()" for v in (2, 3, 5)),
        f"by_accepted({_TRUTH}, lambda accepted, j: False, {_VOCABULARY})",
        f"by_accepted({_TRUTH}, lambda accepted, j: len(accepted) % 3 != j % 3, {_VOCABULARY})",
    ]


_NOISY = ((2, 0.9, 0.9), (3, 0.8, 0.5), (3, 0.5, 0.9), (4, 0.95, 0.3), (3, 1.0, 0.0))


def greedy(system: AnyOrderSystem) -> str:
    """Call by call what serial decoding says in the same orders; E, holes and removed pairs by the rules of EOS."""
    seen, runs = Seen(Counter()), 0
    for instance in system.in_time(_greedy(system.seed)):
        seen.run(compare(system, instance), instance.limits)
        runs += 1
    seen.require(REJECTED, WINDOW, REMOVED, TWICE)
    return f"{runs} runs, drafts of up to {seen.longest} tokens; E lowered in two calls in {seen.counts[TWICE]}"


def _greedy(seed: int) -> Iterator[Instance]:
    for length, eos, prompt in product((1, 2, 3, 4, 6, 9, 16), (None, 1), ((), (1, 2))):
        for source in _models(seed):
            yield _instance(source, Limits.of(length, eos), prompt)
    for number in range(60):  # stops come often, so that E shrinks more than once
        yield _instance(f"noisy_pairs(3, {60 * seed + number}, 0.8, 0.3)", Limits.of(10, 1))


def events(system: AnyOrderSystem) -> str:
    """An EOS and an end marker at every position, alone and two of them near each other, in blocks of every length."""
    seen, runs, inside = Seen(Counter()), 0, 0
    for instance in system.in_time(_events()):
        ran = compare(system, instance)
        seen.run(ran, instance.limits)
        runs += 1
        inside += any(len(step.committed) < step.advance for step in ran.steps)
    if not inside and seen.longest > 1:
        raise NotReached("never reached: a stop inside an accepted block")
    seen.require(REMOVED, TWICE)
    return f"{runs} runs, {inside} of them cut inside a block; E lowered in two calls in {seen.counts[TWICE]}"


def _events() -> Iterator[Instance]:
    length = 9
    for correct in ("True", "False", "len(accepted) % 2 == 0", "j % 3 > 0"):

        def instance(truth: list[int], limits: Limits, correct: str = correct) -> Instance:
            return _instance(f"by_accepted({tuple(truth)}, lambda accepted, j: {correct}, {_VOCABULARY})", limits)

        for j in range(length):
            for gap in (0, 1, 2, 3):
                truth = list(_TRUTH[:length])
                truth[j], truth[(j + gap) % length] = 0, 0
                yield instance(truth, Limits.of(length, 0))
                yield instance(truth, Limits.of(length, (0, 1), [_TRUTH[j + 1 : j + 3]] if j + 3 <= length else []))
                yield instance(truth, Limits.of(min(length, j + gap + 1), 0))
            plain = list(_TRUTH[:length])
            yield instance(plain, Limits.of(j))
            yield instance(plain, Limits.of(length, None, [_TRUTH[j : j + 2]] if j + 2 <= length else []))
            yield instance(
                plain, Limits.of(length, None, [(29,), _TRUTH[j : j + 4], _TRUTH[j : j + 3]] if j + 4 <= length else [])
            )


def self_draft(system: AnyOrderSystem) -> str:
    """A drafter that is never wrong has everything accepted."""
    verified = 0
    for length in (1, 2, 5, 9, 16):
        instance = _instance(f"by_accepted({_TRUTH}, lambda accepted, j: True, {_VOCABULARY})", Limits.of(length))
        ran = compare(system, instance)
        for number, step in enumerate(ran.steps, start=1):
            verified += len(step.verified)
            if step.accepted < len(step.verified):
                statement = f"call {number} rejects a draft token that equals the verifier's own"
                found("count", statement, f"{described(instance)}\n{picture(ran.steps)}", program(system, instance))
    return f"{verified} draft tokens, all accepted" if verified else "it never verifies a draft"


def counters(system: AnyOrderSystem) -> str:
    """What the steps report is what the model was asked, and adds up."""
    runs = 0
    for instance in system.in_time(_greedy(system.seed)):
        ran = run(system, instance)
        runs += 1
        for number, (call, reply, step) in enumerate(ran.made, start=1):
            drafted = tuple(token for _, token in call.draft[: call.kappa]) if call.verify else ()
            wrong = ""
            if step.verified != drafted:
                wrong = f"reports {step.verified} as verified, the leading ranks have the draft {drafted}"
            elif not 0 <= step.accepted <= len(drafted):
                wrong = f"reports {step.accepted} of {len(drafted)} draft tokens accepted"
            elif (step.rows, step.again) != (reply.rows, reply.again):
                wrong = f"reports {step.rows} rows, {step.again} again, the model evaluated {reply.rows}, {reply.again} again"
            elif step.predictions != (predictions := tuple(law.certain for law in reply.target)):
                wrong = f"reports the predictions {step.predictions}, the verifier's are {predictions}"
            elif tuple(token for _, token in accepted_in(step))[: step.accepted] != drafted[: step.accepted]:
                wrong = f"reports {step.accepted} of the draft {drafted} accepted, and accepts {accepted_in(step)}"
            elif (step.stop is None) == (number == len(ran.made)):
                wrong = f"of {len(ran.made)} reports the stop {step.stop!r}"
            if wrong:
                found("count", f"call {number} {wrong}", f"{described(instance)}\n{picture(ran.steps)}")
    return f"{runs} runs"


def counts(system: AnyOrderSystem) -> str:
    """Calls, orders, drafts, rows and all that the steps report against the declared policy."""
    if system.declares is None:
        raise NotReached("no policy is declared, so any number of calls would do")
    runs = calls = 0
    theirs = AnyOrderSystem(system.declares)
    for instance in system.in_time(_greedy(system.seed)):
        ours, other = run(system, instance), run(theirs, instance)
        runs += 1
        calls += len(other.made)
        evidence = f"{described(instance)}\n{picture(ours.steps)}\n{system.declares.name}:\n{picture(other.steps)}"
        for number, (mine, right) in enumerate(zip(ours.made, other.made, strict=False), start=1):
            for what, a, b in (
                ("verifies in the order", mine.call.order, right.call.order),
                ("has the draft", mine.call.draft, right.call.draft),
                ("drafts the branches", mine.call.branches, right.call.branches),
                ("asks for rows", mine.call.padded_rows, right.call.padded_rows),
                *((f"reports {name}", getattr(mine.step, name), getattr(right.step, name)) for name in _REPORTED),
            ):
                if a != b:
                    statement = f"call {number} {what} {a}, where {system.declares.name} has {b}"
                    found("count", statement, evidence, program(system, instance))
        if len(ours.made) != len(other.made):
            statement = f"it makes {len(ours.made)} calls where {system.declares.name} makes {len(other.made)}"
            found("count", statement, evidence, program(system, instance))
    return f"{runs} runs, {calls} calls: as many as {system.declares.name} makes, in the same orders, with the same drafts"


# --- sampling ---------------------------------------------------------------------------------------------------------------


def chance(system: AnyOrderSystem) -> str:
    """Requests under other coins give other tokens: at temperature 1 some of 24 must."""
    source = f"random_tables(4, {system.seed})"
    outputs = {run(system, _instance(source, Limits.of(10), (), coins)).tokens for coins in range(24)}
    if len(outputs) == 1:
        found("determinism", "requests under different coins always give the same tokens: it does not use `chance`", source)
    return f"{len(outputs)} different outputs in 24 requests"


def law(system: AnyOrderSystem) -> str:
    """Every accepted token has the verifier's law, given all that was accepted before it and its position."""
    laws = transitions = number = 0
    seen: set[str] = set()
    longest, skipped = 0, ""
    for vocabulary, table, limits in system.in_time(_sampled(system.seed)):
        source = f"random_tables({vocabulary}, {table})"
        model = any_order.random_tables(vocabulary, table)
        instance = Instance(model, source, limits)
        schedule = _Counted(Remembering(system.schedule), _OUTCOMES)
        try:
            chain = list(visits(schedule, model, (), limits, max_calls=60))
        except _TooMany:
            skipped = "; some have too many outcomes"
            continue
        except ContractError as error:
            if isinstance(error, ValueNeeded):
                raise NotReached(f"it computes with the values of coins: {error}") from None
            still = "still running" in str(error)
            found("progress" if still else "contract", str(error), described(instance))
        except Exception as error:
            found("contract", f"it raises {type(error).__name__}: {error}", described(instance))
        wrong, compared = deviation(chain, model.verifier, limits)
        if wrong:
            found(
                "law",
                "a token has not the verifier's law, given all that was accepted before it",
                f"{described(instance)}\n{wrong}",
                _law_program(system, source, limits),
            )
        laws += compared
        number += 1
        for visit in chain:
            corrections: dict[int, set[Any]] = {}
            transitions += len(visit.outcomes)
            for _, (_, step) in visit.outcomes:
                longest = max(longest, len(step.verified))
                seen |= {WINDOW} if step.accepted == len(step.order) >= 2 else set()
                if step.accepted < len(step.verified):
                    seen.add(REJECTED)
                    corrections.setdefault(step.accepted, set()).add(step.committed[step.accepted :])
            seen |= {TWO_WAYS} if any(len(tokens) > 1 for tokens in corrections.values()) else set()
        _calls(system, model, source, limits, summed(chain).nfe)
    needed = ((REJECTED, TWO_WAYS) if longest else ()) + ((WINDOW,) if longest > 1 else ())
    missing = [name for name in needed if name not in seen]
    if missing or not number:
        raise NotReached(f"never reached: {', '.join(missing) or 'a law'}{skipped}")
    return f"{number} requests, {laws:,} conditional laws, {transitions:,} transitions, equal as rationals{skipped}"


def _sampled(seed: int) -> Iterator[tuple[int, int, Limits]]:
    for length, eos in product((1, 2, 3), (None, 1)):
        yield 2, 4 * seed, Limits.of(length, eos)
        yield 3, 4 * seed + 1, Limits.of(length, eos)
    yield 2, 4 * seed + 2, Limits.of(4)
    yield 2, 4 * seed + 3, Limits.of(4, 1)
    yield 2, 4 * seed, Limits.of(4, None, [(0, 1)])
    yield 3, 4 * seed + 2, Limits.of(3, 2)
    yield 2, 4 * seed + 1, Limits.of(5)
    yield 3, 4 * seed + 3, Limits.of(4)


def _calls(system: AnyOrderSystem, model: Any, source: str, limits: Limits, nfe: Any) -> None:
    if system.declares is None:
        return
    try:
        theirs = summed(visits(_Counted(system.declares, _OUTCOMES), model, (), limits, max_calls=60)).nfe
    except _TooMany:
        return
    if nfe != theirs:
        shown = [", ".join(f"{calls}: {weight}" for calls, weight in sorted(each.items())) for each in (nfe, theirs)]
        evidence = f"{source}, {limits}\nlaw of the number of calls {shown[0]}\n{system.declares.name}: {shown[1]}"
        found("count", f"the law of its number of calls is not that of {system.declares.name}", evidence)


def _law_program(system: AnyOrderSystem, source: str, limits: Limits) -> str:
    if not system.source:
        return ""
    stop = [list(marker) for marker in limits.stop]
    return "\n".join(
        (
            "from proofs_check.any_order_law import *",
            "from simulator.any_order import *",
            system.source,
            f"model, limits = {source}, Limits.of({limits.max_new_tokens}, {sorted(limits.eos)}, {stop})",
            "wrong, _ = deviation(visits(Remembering(schedule), model, (), limits), model.verifier, limits)",
            "assert wrong is None, wrong",
        )
    )


class _TooMany(Exception):
    """A law is not for enumeration."""


class _Counted:
    """The schedule, giving up after so many outcomes."""

    def __init__(self, schedule: Any, most: int) -> None:
        self.schedule, self.left = schedule, most
        self.init, self.request = schedule.init, schedule.request

    def absorb(self, *arguments: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise _TooMany
        return self.schedule.absorb(*arguments)


# --- a cache ----------------------------------------------------------------------------------------------------------------


def cache(system: AnyOrderSystem) -> str:
    """A session with a state answers every call as one that reads all pairs from the beginning."""
    runs = again = 0
    seen = Seen(Counter())
    sizes = product((5, 9, 14), (2, 3, 5), range(30 * system.seed, 30 * system.seed + 30))
    for length, vocabulary, seed in system.in_time(sizes):
        rule = HashRule(vocabulary, seed)
        session, right = system.session(rule), recurrent_pairs.stateless(rule)
        wrong: list[str] = []

        def model(call: Any, session: Any = session, right: Any = right, wrong: list[str] = wrong) -> Any:
            reply, expected = session(call), right(call)
            if reply.target != expected.target:
                wrong.append("law")
            elif reply.proposals != expected.proposals:
                wrong.append("count")
            else:
                wrong.append("")
            return reply

        limits = Limits.of(length, 1)
        source = f"HashRule({vocabulary}, seed={seed}), with a cache"
        instance = Instance(model, source, limits, (), Sampled(seed), f"Sampled({seed})")
        ran = run(system, instance)
        runs += 1
        again += sum(made.reply.again for made in ran.made)
        seen.run(ran, limits)
        for number, symptom in sorted(enumerate(wrong, start=1), key=lambda item: item[1] != "law"):
            if symptom:
                what = "the verifier's laws" if symptom == "law" else "its proposals alone"
                statement = f"with a cached model call {number} gets {what} wrong: a row is kept that saw what was removed"
                found("law" if symptom == "law" else "count", statement, f"{described(instance)}\n{picture(ran.steps)}")
    seen.require(REJECTED, REMOVED)
    reread = f"{again} pairs read again" if again else "no pair outlived one that it had seen"
    return f"{runs} runs, {reread}"


STAGES: dict[str, Callable[[AnyOrderSystem], str]] = {
    "determinism": determinism,
    "contract": contract,
    "greedy": greedy,
    "chance": chance,
    "events": events,
    "self-draft": self_draft,
    "cache": cache,
    "counters": counters,
    "counts": counts,
    "law": law,
}
"""Each returns what it looked at, raises Found with what is wrong, or NotReached when it could say nothing."""

BASIS = {
    "greedy": ("determinism",),
    "chance": ("determinism",),
    "events": ("determinism", "greedy"),
    "self-draft": ("determinism", "greedy"),
    "cache": ("determinism", "greedy", "events"),
    "counters": ("determinism", "greedy", "events"),
    "counts": ("determinism", "greedy", "events"),
    "law": ("determinism", "chance", "greedy", "events"),
}
"""Stages that would only say again, under another name, what an earlier stage found."""
