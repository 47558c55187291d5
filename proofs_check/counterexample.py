"""What is wrong with a schedule, in the smallest instance that shows it, told so that a person can follow it.

Two things can be wrong, and they are kept apart. The output law can differ from the autoregressive one: then there is a
shortest output after which the next token has another law than the target's, and a path of calls, with their coins, that leads
there. Or the law is exact but the number of calls is not that of the policy the schedule declares to be.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from proofs_check.declared import declared_nfe
from simulator.acceptance import accept, acceptance_probability
from simulator.chance import Address, Chance, Purpose, branching, fraction, rational
from simulator.decode import Model, Policy
from simulator.errors import ContractError
from simulator.exact import autoregressive_law, exact_law
from simulator.laws import Law, RationalLaw
from simulator.oracles import TabularModel, random_tables
from simulator.oracles.answer import Oracle
from simulator.records import Call, Limits, Reply, State, Step, Tokens
from simulator.schedules import Width

Make = Callable[[int], Policy]
"""The schedule in question, by its width W."""
ZERO = Fraction(0)


class Instance(NamedTuple):
    """One request: what the model is, what is asked of it, and how wide the schedule drafts."""

    name: str  # of the model
    model: Model  # what the schedule runs on
    laws: Oracle  # the laws that amounts to, for the reference
    vocabulary: int
    limits: Limits
    width: Width
    prompt: Tokens = ()

    def __str__(self) -> str:
        ends = [f"V={self.vocabulary}", f"L={self.limits.max_new_tokens}", f"W={self.width}"]
        ends += [f"EOS {sorted(self.limits.eos)}"] if self.limits.eos else []
        ends += [f"end markers {[list(marker) for marker in self.limits.stop]}"] if self.limits.stop else []
        ends += [f"prompt {list(self.prompt)}"] if self.prompt else []
        return f"{', '.join(ends)}: {self.name}"

    @property
    def patience(self) -> int:
        """So many calls end every run: each policy emits a token at least every third call, after an opening of at most two."""
        return 3 * self.limits.max_new_tokens + 3


class Difference(NamedTuple):
    """The first place where an output law leaves the autoregressive one."""

    prefix: Tokens  # the shortest output, the first of them in order, after which the next token has another law
    token: int | None  # the one that comes too often; None: the output ends
    ours: Fraction  # its probability given that output
    autoregressive: Fraction  # what it must be
    variation: Fraction  # total variation between these two laws of the next token


class Move(NamedTuple):
    """One call on the way to a difference."""

    number: int
    state: State
    call: Call
    reply: Reply
    step: Step
    after: State
    coins: dict[tuple[str, int], tuple[Fraction, Fraction]]  # by purpose and position: the interval the coin lies in
    probability: Fraction  # that this call accepts so many draft tokens and emits these tokens
    rule: Fraction  # what that is by the accept rule, given the draft and its stored laws


class Finding(NamedTuple):
    """What is wrong, and where it is seen."""

    kind: Literal["law", "calls", "error"]
    instance: Instance
    text: str
    difference: Difference | None = None
    path: tuple[Move, ...] = ()

    @property
    def coins(self) -> dict[Address, Fraction]:
        """A script for `simulator.Scripted` that leads down the path."""
        return {
            Address(move.number, cast(Purpose, purpose), position): (low + high) / 2
            for move in self.path
            for (purpose, position), (low, high) in move.coins.items()
        }


# --- the graded list --------------------------------------------------------------------------------------------------------


def graded() -> list[tuple[str, TabularModel, int]]:
    """Models and their vocabularies, from the plainest on: constant laws; proposals that depend on the offset, on the context,
    on both; then whatever comes, with zeros; then point masses."""
    fair, low, high = (RationalLaw.weighted(weights) for weights in ((1, 1), (1, 3), (3, 1)))
    die = RationalLaw.weighted((1, 1, 1))
    uneven = [RationalLaw.weighted(weights) for weights in ((1, 1, 2), (2, 1, 1), (1, 2, 1))]
    hand: list[tuple[str, Callable[[Tokens], Law], Callable[[Tokens, int], Law], int]] = [
        ("a fair coin, all proposals (1/4, 3/4)", lambda x: fair, lambda x, j: low, 2),
        ("a fair coin, proposals by offset", lambda x: fair, lambda x, j: (low, high)[j % 2], 2),
        ("a fair coin, proposals by context", lambda x: fair, lambda x, j: (low, high)[x.count(1) % 2], 2),
        ("an uneven coin by context", lambda x: (low, high)[x.count(1) % 2], lambda x, j: (fair, low)[(x.count(1) + j) % 2], 2),
        ("a fair die of 3, proposals by offset", lambda x: die, lambda x, j: uneven[j % 3], 3),
    ]
    drawn = [
        (f"random tables {seed} of {v} tokens", random_tables(v, seed), v) for v, n in ((2, 4), (3, 2)) for seed in range(n)
    ]
    return [
        *((name, TabularModel(target, proposal), v) for name, target, proposal, v in hand),
        *drawn,
        *((f"greedy {name}", tables.greedy(), v) for name, tables, v in drawn),
    ]


def smallest_first(max_length: int, max_width: int) -> Iterator[Instance]:
    """By L, then W, then the grade of the tables, then how it ends: at L, at an EOS, at an end marker, after a prompt."""
    tables = graded()
    for length, width, (name, laws, v) in itertools.product(range(max_length + 1), range(1, max_width + 1), tables):
        at_eos = Limits.of(length, v - 1)
        yield Instance(name, laws, laws, v, Limits.of(length), width)
        yield Instance(name, laws, laws, v, at_eos, width)
        yield Instance(name, laws, laws, v, Limits.of(length, stop=[(0, 0)]), width)
        yield Instance(name, laws, laws, v, at_eos, width, (v - 1,))


# --- what is wrong ----------------------------------------------------------------------------------------------------------


def find(
    make: Make, declares: str | None = None, start: str = "algorithm", max_length: int = 5, max_width: int = 3
) -> Finding | None:
    """The smallest instance in which the output law of make(W) differs; if none, one in which its calls do; or None.

    `declares` names the policy whose calls they should be (see `declared_nfe`), under `start`; without it calls are not
    compared. Anything with init, request and absorb can be asked about, if it asks `chance` for all its coins.
    """
    exact = 0
    for instance in smallest_first(max_length, max_width):
        found = law_finding(make(int_width(instance)), instance)
        if found:
            return found
        exact += 1
    for instance in smallest_first(max_length, max_width) if declares else ():
        if instance.limits.max_new_tokens > 3 and (instance.limits.eos or instance.limits.stop):
            continue  # how a request ends was seen on shorter ones, and spec is slow
        schedule = make(int_width(instance))
        ours = exact_law(schedule, instance.model, instance.prompt, instance.limits, max_calls=instance.patience).nfe
        found = calls_finding(ours, str(declares), start, instance)
        if found:
            return found._replace(text=f"law exact in all {exact:,} instances. {found.text}")
    return None


def int_width(instance: Instance) -> int:
    """The width of an instance that has only one."""
    assert isinstance(instance.width, int)
    return instance.width


def law_finding(schedule: Policy, instance: Instance) -> Finding | None:
    """What is wrong with the output law in this instance, None if nothing is."""
    try:
        output = exact_law(schedule, instance.model, instance.prompt, instance.limits, max_calls=instance.patience).output
    except ContractError as error:
        return Finding("error", instance, f"{error}\n  instance: {instance}")
    found = difference(output, instance)
    if found is None:
        return None
    path = telling_path(schedule, instance, found)
    return Finding("law", instance, _law_text(instance, found, path), found, path)


def calls_finding(ours: Mapping[int, Fraction], declares: str, start: str, instance: Instance) -> Finding | None:
    """What is wrong with this law of the number of calls, None if it is that of the declared policy."""
    declared = declared_nfe(
        declares, start, instance.laws, instance.vocabulary, int_width(instance), instance.prompt, instance.limits
    )
    if ours == declared:
        return None
    rows = [("calls", "here", "declared")]
    rows += [(str(n), str(ours.get(n, ZERO)), str(declared.get(n, ZERO))) for n in sorted(ours.keys() | declared.keys())]
    expected = [str(sum((n * p for n, p in law.items()), ZERO)) for law in (ours, declared)]
    rows.append(("expected", expected[0], expected[1]))
    lines = [f"Call count does not match the declared policy {declares}, start {start}", f"  instance: {instance}"]
    lines += ["  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(row, (8, 12, 12), strict=True)) for row in rows]
    return Finding("calls", instance, "\n".join(lines))


def difference(output: Mapping[Tokens, Fraction], instance: Instance) -> Difference | None:
    """Where a law of outputs first leaves the autoregressive law."""
    target, prompt, limits = instance.laws.target, instance.prompt, instance.limits
    if output == autoregressive_law(target, prompt, limits):
        return None
    mass: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    following: defaultdict[Tokens, set[int]] = defaultdict(set)
    for tokens, weight in output.items():
        for length in range(len(tokens) + 1):
            mass[tokens[:length]] += weight
            following[tokens[:length]] |= set(tokens[length : length + 1])
    for prefix in sorted(mass, key=lambda tokens: (len(tokens), tokens)):
        ours: dict[int | None, Fraction] = {x: mass[(*prefix, x)] / mass[prefix] for x in following[prefix]}
        ours[None] = output.get(prefix, ZERO) / mass[prefix]
        law = None if limits.reached(prefix, 0) else target((*prompt, *prefix))
        right: dict[int | None, Fraction] = {None: Fraction(law is None)}
        right |= {x: Fraction(law.probability(x)) for x in law.support} if law else {}
        gaps = {x: ours.get(x, ZERO) - right.get(x, ZERO) for x in ours.keys() | right.keys()}
        if any(gaps.values()):
            token = max(gaps, key=lambda x: (gaps[x], -1 if x is None else -x))
            variation = sum(map(abs, gaps.values()), ZERO) / 2
            return Difference(prefix, token, ours.get(token, ZERO), right.get(token, ZERO), variation)
    raise AssertionError("two laws of outputs that differ have the same laws of the next token")


def telling_path(schedule: Policy, instance: Instance, found: Difference) -> tuple[Move, ...]:
    """Calls up to one that emits `found.token` after `found.prefix`, or ends the output there.

    The last is the call that does so more often than the accept rule would, by the most it adds to the probability; if none
    does (what is wrong happened before), the most likely one.
    """
    goal = found.prefix if found.token is None else (*found.prefix, found.token)
    layer: dict[State, _Path] = {schedule.init(instance.prompt, instance.limits): _Path(rational(1), ())}
    best: tuple[Any, Any, tuple[Move, ...]] = (rational(0), rational(0), ())
    for number in itertools.count(1):
        following: dict[State, _Path] = {}
        for state, (weight, path) in layer.items():
            if state.stop is not None:
                continue
            call = schedule.request(state)
            reply = instance.model(call)
            outcomes = branching(partial(_absorbed, schedule, state, call, reply))
            rule, here = _by_the_rule(state, call, reply), _emissions(outcomes)
            for share, (after, step, chance) in outcomes:
                output = after.prefix[after.prompt_length :]
                if output[: len(goal)] != goal[: len(output)]:
                    continue
                emission = step.accepted, step.committed
                ours, right = fraction(here[emission]), fraction(rule[emission])
                moves = (*path, Move(number, state, call, reply, step, after, chance.intervals(), ours, right))
                if len(output) < len(goal) or (found.token is None and not (after.stop and output == goal)):
                    if after not in following or weight * share > following[after].weight:
                        following[after] = _Path(weight * share, moves)
                else:
                    best = max(best, (weight * max(ours - right, ZERO), weight * share, moves), key=lambda path: path[:2])
        if not following:
            return best[2]
        layer = following
    raise AssertionError


class _Path(NamedTuple):
    weight: Any
    moves: tuple[Move, ...]


def _absorbed(schedule: Policy, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step, Any]:
    return (*schedule.absorb(state, call, reply, chance), chance)


def _emissions(outcomes: list[tuple[Any, tuple[State, Step, Any]]]) -> dict[tuple[int, Tokens], Any]:
    """The law of (draft tokens accepted, tokens emitted) in one call."""
    law: defaultdict[tuple[int, Tokens], Any] = defaultdict(rational)
    for share, (_, step, _) in outcomes:
        law[step.accepted, step.committed] += share
    return law


def _by_the_rule(state: State, call: Call, reply: Reply) -> dict[tuple[int, Tokens], Any]:
    """What that law must be for this draft and its stored laws."""
    law: defaultdict[tuple[int, Tokens], Any] = defaultdict(rational)
    if not call.verify:
        law[0, ()] += 1
        return law
    for share, verdict in branching(lambda chance: accept(state.draft, reply.target, chance, state.emitted + 1)):
        ends = (n for n in range(1, len(verdict.tokens)) if _ended(state, verdict.tokens[:n]))
        law[verdict.accepted, verdict.tokens[: next(ends, len(verdict.tokens))]] += share
    return law


def _ended(state: State, tokens: Tokens) -> bool:
    return state.limits.reached(state.prefix + tokens, state.prompt_length) is not None


# --- in words ---------------------------------------------------------------------------------------------------------------


def _law_text(instance: Instance, found: Difference, path: tuple[Move, ...]) -> str:
    event = "the output ends" if found.token is None else f"the token {found.token} comes"
    lines = [
        f"law differs: after the output {list(found.prefix)} {event} with probability {found.ours},"
        f" autoregressive {found.autoregressive} (total variation {found.variation})",
        f"  instance: {instance}",
        "  a way there (purpose@position: what is known of that coin):",
    ]
    return "\n".join(lines + [line for move in path for line in _move_lines(move)])


def _move_lines(move: Move) -> Iterator[str]:
    state, call, reply, step = move.state, move.call, move.reply, move.step
    parts = [f"call {move.number} after {list(state.prefix)}"]
    parts += [f"target {_laws(reply.target[: step.accepted + 1])}"] if call.verify else []
    parts += [
        f"proposals from branch {b} {_laws(laws)}" for b, laws in zip(call.branches, reply.proposals, strict=False) if laws
    ]
    yield "    " + "; ".join(parts)
    tested = list(zip(step.verified, state.draft.laws, reply.target, strict=False))[: step.accepted + 1]
    for index, (token, law, target) in enumerate(tested):
        verdict = "accepted" if index < step.accepted else "rejected"
        coin = _coin(move, "test", state.emitted + 1 + index) or " without a coin"
        alpha = acceptance_probability(target, law, token)
        yield f"      draft token {token} of stored law {_laws([law])} {verdict}{coin}; the rule's probability is {alpha}"
    kept = zip(*move.after.draft, strict=False)
    parts = [f"emits {list(step.committed)}{_coin(move, 'correct', state.emitted + 1 + step.accepted)}"] if step.advance else []
    parts += [
        f"keeps {x} with law {_laws([law])}{_coin(move, 'draft', move.after.emitted + j)}" for j, (x, law) in enumerate(kept, 1)
    ]
    if parts:
        yield "      " + "; ".join(parts)
    if move.probability != move.rule:
        what = f"accepting {step.accepted} and emitting {list(step.committed)}"
        yield f"      {what} has probability {move.probability} in this call, {move.rule} by the rule"


def _coin(move: Move, purpose: str, position: int) -> str:
    interval = move.coins.get((purpose, position))
    return f" ({purpose}@{position} in [{interval[0]}, {interval[1]}))" if interval else ""


def _laws(laws: Any) -> str:
    return " ".join(
        f"({law.certain} surely)"
        if law.certain is not None
        else "(" + ", ".join(str(law.probability(token)) for token in range(max(law.support) + 1)) + ")"
        for law in laws
    )
