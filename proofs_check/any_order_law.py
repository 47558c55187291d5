"""What any-order rejection sampling preserves: the exact laws of the production schedules, token by token.

A run is a sequence of accepted tokens, call by call, those included that an EOS later removed. The claim is about each of them:
given all that was accepted before it, and its own position, it has the verifier's law given the pairs held at that moment. The
chain of the schedule under enumerated coins decides it, with the history carried along in the state: nothing is averaged over.
What follows for whole outputs is checked next to it; what does not follow is in `any_order_limits`.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, NamedTuple, TypeAlias

from proofs_check.ledger import Budget, Check, Entry
from simulator.any_order import Pairs, named
from simulator.chance import Chance, fraction
from simulator.decode import Policy
from simulator.exact import Visit, visits
from simulator.laws import Law, RationalLaw
from simulator.oracles.any_order import AnyOrderModel, random_tables
from simulator.records import Limits, Reply, Step, Stop, Tokens

Group: TypeAlias = tuple[tuple[int, int | None], ...]
"""What one call accepted, in rank order: (position, token). None for a token that was removed at once and that nobody saw."""
History: TypeAlias = tuple[Group, ...]


class Remembered(NamedTuple):
    """A state and all that was accepted on the way to it."""

    state: Any
    history: History

    @property
    def prefix(self) -> Tokens:
        prefix: Tokens = self.state.prefix
        return prefix

    @property
    def prompt_length(self) -> int:
        length: int = self.state.prompt_length
        return length

    @property
    def stop(self) -> Stop | None:
        stop: Stop | None = self.state.stop
        return stop

    def end(self, limits: Limits) -> int:
        """E after this history."""
        end, held = limits.max_new_tokens, dict[int, int]()
        for group in self.history:
            new = {j: token for j, token in group if token is not None}
            held |= new
            end = min(end, limits.end(held, new))
            held = {j: token for j, token in held.items() if j <= end}
        return end


class Remembering:
    """A schedule whose states do not forget what was accepted, call by call. Of a schedule of the package's own the tokens that
    are removed at once are known too: `ours` asks for the call again, without stops.
    """

    def __init__(self, schedule: Policy[Any, Any], ours: bool = False) -> None:
        self.schedule, self.ours = schedule, ours

    def init(self, prompt: Sequence[int], limits: Limits) -> Remembered:
        return Remembered(self.schedule.init(prompt, limits), ())

    def request(self, state: Remembered) -> Any:
        return self.schedule.request(state.state)

    def absorb(self, state: Remembered, call: Any, reply: Reply, chance: Chance) -> tuple[Remembered, Step]:
        after, step = self.schedule.absorb(state.state, call, reply, chance)
        group = accepted_in(step)
        if self.ours and any(token is None for _, token in group):
            unlimited = state.state._replace(limits=Limits.of(state.state.limits.max_new_tokens))
            group = accepted_in(self.schedule.absorb(unlimited, call, reply, chance)[1])
        return Remembered(after, (*state.history, group) if group else state.history), step


def accepted_in(step: Step) -> Group:
    """What the call accepted. Of draft tokens the step tells all, of the last token only whether it was kept."""
    kept = iter(step.committed)
    last: list[int | None] = [
        next(kept, None) if step.end is None or j <= step.end else None for j in step.order[: step.advance]
    ]
    drafted: list[int | None] = [*step.verified[: step.accepted]]
    return tuple(zip(step.order, drafted + last[len(drafted) :], strict=False))


class Deviation(NamedTuple):
    """A token whose law is not the verifier's."""

    history: History  # accepted before its call
    group: Group  # accepted before it in its call
    context: Pairs  # the pairs that the verifier was given
    position: int
    ours: dict[int, Fraction]
    verifier: dict[int, Fraction]

    def __str__(self) -> str:
        calls = [*map(list, self.history), list(self.group)] if self.group else [*map(list, self.history)]
        return (
            f"after {calls} position {self.position} has the law {_shown(self.ours)},"
            f" the verifier's given {list(self.context)} is {_shown(self.verifier)}"
        )


def conditionals(
    chain: Iterable[Visit[Remembered, Any]], limits: Limits, ours: bool = False
) -> dict[tuple[History, Group, int], tuple[Pairs, dict[int, Any]]]:
    """By (history, what the call accepted before, position): the verifier's context, and the weight of each token accepted.

    Without `ours`, tokens at positions that were beyond E already are left out: they show only where they were drafted.
    """
    found: dict[tuple[History, Group, int], tuple[Pairs, defaultdict[Any, Any]]] = {}
    for visit in chain:
        if visit.call is None:
            continue
        for share, (after, step) in visit.outcomes:
            group = after.history[-1] if step.advance else ()
            end = visit.state.end(limits)
            for r, (j, token) in enumerate(group):
                before: Any = group[:r]
                if before:
                    end = min(end, limits.end(dict(visit.call.accepted + before), [before[-1][0]]))
                if j > end and not ours:
                    continue
                key = visit.state.history, before, j
                if key not in found:
                    found[key] = visit.call.accepted + before, defaultdict(int)
                found[key][1][token] += visit.weight * share
    return {key: (context, dict(weights)) for key, (context, weights) in found.items()}


def deviation(
    chain: Iterable[Visit[Remembered, Any]], verifier: Callable[[Pairs, int], Law], limits: Limits, ours: bool = False
) -> tuple[Deviation | None, int]:
    """The first token, by length of its history, whose law is not the verifier's; and how many laws were compared."""
    laws = conditionals(chain, limits, ours)
    for (history, group, position), (context, weights) in sorted(laws.items(), key=lambda item: (_length(item[0]), repr(item))):
        total = sum(weights.values())
        own = {token: fraction(weight / total) for token, weight in sorted(weights.items())}
        law = verifier(context, position)
        theirs = {token: Fraction(law.probability(token)) for token in law.support}
        if own != theirs:
            return Deviation(history, group, context, position, own, theirs), len(laws)
    return None, len(laws)


def _length(key: tuple[History, Group, int]) -> int:
    return sum(map(len, key[0])) + len(key[1])


def _shown(law: dict[int, Fraction]) -> str:
    return "{" + ", ".join(f"{token}: {mass}" for token, mass in law.items()) + "}"


# --- models -----------------------------------------------------------------------------------------------------------------


def from_joint(vocabulary: int, length: int, seed: int) -> tuple[AnyOrderModel, RationalLaw, list[Tokens]]:
    """A verifier whose conditionals all come from one joint law of texts of `length`, whatever the order; the drafter is as in
    `random_tables`. Returns the model, the joint law over the texts, and the texts."""
    generator = random.Random(f"joint {vocabulary} {length} {seed}")
    texts = list(product(range(vocabulary), repeat=length))
    weights = [generator.randint(1, 5) for _ in texts]

    def verifier(pairs: Pairs, j: int) -> Law:
        totals = [0] * vocabulary
        for text, weight in zip(texts, weights, strict=True):
            if all(text[i - 1] == token for i, token in pairs):
                totals[text[j - 1]] += weight
        return RationalLaw.weighted(totals)

    return AnyOrderModel(verifier, random_tables(vocabulary, seed).drafter), RationalLaw.weighted(weights), texts


# --- the families -----------------------------------------------------------------------------------------------------------

SCHEDULES = ("packed", "linear", "quadratic", "serial")
BLIND = ("ltr", "rtl", "peak", "random:0", "random:1")
"""Orders that do not look at which draft tokens were drawn."""


class Case(NamedTuple):
    """A family member: tables of `vocabulary` tokens, a limit, an order and a width."""

    vocabulary: int
    seed: int
    limits: Limits
    order: str
    width: int

    def __str__(self) -> str:
        ends = f", EOS {sorted(self.limits.eos)}" if self.limits.eos else ""
        ends += f", markers {[list(marker) for marker in self.limits.stop]}" if self.limits.stop else ""
        return (
            f"random_tables({self.vocabulary}, {self.seed}), L={self.limits.max_new_tokens}, W={self.width},"
            f" order {self.order}{ends}"
        )


def cases(budget: Budget) -> Iterator[Case]:
    """Small ones first."""
    for seed in range(1 if budget == "quick" else 6):
        for order in (*BLIND, "2,1,3", "3,1,2"):
            yield Case(3, seed, Limits.of(3), order, 3)
            yield Case(3, seed, Limits.of(3, 1), order, 3)
        for order in BLIND:
            yield Case(2, seed, Limits.of(4), order, 2)
            yield Case(2, seed, Limits.of(4, None, [(0, 1)]), order, 3)
        yield Case(2, seed, Limits.of(4, 1), "rtl", 4)
        yield Case(2, seed, Limits.of(3), "rtl", 1)
        if budget == "full":
            for order in (*BLIND, "4,2,1,3"):
                yield Case(2, seed, Limits.of(4, 1), order, 4)
                yield Case(3, seed, Limits.of(4, 1, [(0, 2)]), order, 3)
            yield Case(4, seed, Limits.of(3, 3), "rtl", 3)
            yield Case(2, seed, Limits.of(5, 1), "rtl", 4)


REJECTED = "a rejection, with two or more possible corrections"
WINDOW = "a window of 2 or more accepted in full"
TWO = "two or more draft tokens accepted in a call"
KEPT = "a draft that outlives a rejection"
BRANCH = "a branch b > 0 taken with draft left"
REMOVED = "an accepted pair removed"
TWICE = "E lowered in two calls"
SAW = "a token that was given a pair that its own call removes"
UNTEXTUAL = "an order that is not textual"


def needed(schedule: str) -> tuple[str, ...]:
    """What the runs of a schedule must have reached."""
    serial = (REMOVED, TWICE, UNTEXTUAL)
    if schedule == "serial":
        return serial
    both = (REJECTED, WINDOW, TWO, SAW, *serial)
    return both if schedule == "linear" else (*both, KEPT) if schedule == "packed" else (*both, KEPT, BRANCH)


@dataclass
class Reached:
    """What the visits of some chains went through."""

    seen: set[str] = field(default_factory=set)

    def watch(self, chain: Iterable[Visit[Remembered, Any]], limits: Limits) -> Iterator[Visit[Remembered, Any]]:
        """The same visits, looked at."""
        for visit in chain:
            corrections: defaultdict[int, set[Any]] = defaultdict(set)
            for _, (after, step) in visit.outcomes:
                self._step(visit, after, step, limits)
                if step.accepted < len(step.verified):
                    corrections[step.accepted].add(step.committed[step.accepted :])
            if any(len(tokens) > 1 for tokens in corrections.values()):
                self.seen.add(REJECTED)
            yield visit

    def _step(self, visit: Visit[Remembered, Any], after: Remembered, step: Step, limits: Limits) -> None:
        before, end = visit.state.end(limits), after.end(limits)
        group = after.history[-1] if step.advance else ()
        gone = [j > end for j, _ in group]
        positions = [j for group in after.history for j, _ in group]
        for name, happened in {
            WINDOW: step.advance == step.accepted == len(step.order) >= 2,
            TWO: step.accepted >= 2,
            KEPT: step.accepted < len(step.verified) and step.retained > 0,
            BRANCH: bool(step.branch) and step.retained > 0,
            REMOVED: any(j > end for group in visit.state.history for j, _ in group if j <= before),
            TWICE: end < before < limits.max_new_tokens,
            SAW: True in gone and False in gone[gone.index(True) :],
            UNTEXTUAL: positions != sorted(positions),
        }.items():
            if happened:
                self.seen.add(name)


def check_history(schedule: str, budget: Budget) -> list[Entry]:
    """Every token of every case against the verifier."""
    reached = Reached()
    number = laws = transitions = 0
    fault = ""
    for case in cases(budget):
        number += 1
        model = random_tables(case.vocabulary, case.seed)
        policy = Remembering(named(schedule, case.width, case.order), ours=True)
        chain = list(reached.watch(visits(policy, model, (), case.limits), case.limits))
        transitions += sum(len(visit.outcomes) for visit in chain)
        wrong, compared = deviation(chain, model.verifier, case.limits, ours=True)
        laws += compared
        if wrong:
            fault = f"{case}: {wrong}"
            break
    statement = (
        f"{schedule}, orders that see accepted pairs, positions and laws alone: given all accepted before it and its position,"
        " every token has the verifier's law"
    )
    bound = f"{number} cases, V<=3, L<=4, W<=4; {', '.join(BLIND)}, fixed permutations; none, EOS, markers"
    if budget == "full":
        bound = bound.replace("V<=3, L<=4", "V<=4, L<=5")
    evidence = f"{laws:,} conditional laws of {transitions:,} transitions, equal as rationals"
    return [_entry("ANY-ORDER-LAW", statement, bound, fault, reached.seen, needed(schedule), evidence)]


def check_outputs(schedule: str, budget: Budget) -> list[Entry]:
    """Without a stop out of textual order: the serial law of the same order, or the joint law there is."""
    reached, fault, number, outputs = Reached(), "", 0, 0
    for name, order, width, limits, model, expected in _outputs(budget):
        number += 1
        policy = Remembering(named(schedule, width, order))
        chain = reached.watch(visits(policy, model, (), limits), limits)
        law = _output(chain)
        outputs += len(law)
        if law != expected:
            fault = fault or f"{name}, order {order}, W={width}, {limits}: {_differing(law, expected)}"
    conditions = tuple(name for name in needed(schedule) if name not in (REMOVED, TWICE, SAW))
    statement = (
        f"{schedule}: without a stop, or in textual order, outputs have the law of serial decoding in the same fixed order;"
        " of a verifier with one joint law, that law in any order that is blind to drawn tokens"
    )
    bound = f"{number} laws, V<=3, L<=4, W<=4"
    return [
        _entry(
            "ANY-ORDER-SERIAL", statement, bound, fault, reached.seen, conditions, f"{outputs:,} outputs, equal as rationals"
        )
    ]


def _outputs(budget: Budget) -> Iterator[tuple[str, str, int, Limits, AnyOrderModel, dict[Tokens, Fraction]]]:
    for seed in range(1 if budget == "quick" else 6):
        model = random_tables(3, seed)
        for order in ("ltr", "rtl", "2,1,3", "3,1,2"):
            for limits in (Limits.of(3), *((Limits.of(3, 1), Limits.of(3, None, [(0, 2)])) if order == "ltr" else ())):
                yield f"random_tables(3, {seed})", order, 3, limits, model, serial_law(model.verifier, order, limits, 3)
        for width, order in product((1, 2, 3), ("ltr", "rtl")):
            model, limits = random_tables(2, seed), Limits.of(4, 1 if order == "ltr" else None)
            yield f"random_tables(2, {seed})", order, width, limits, model, serial_law(model.verifier, order, limits, width)
        for order in ("rtl", "peak", "random:0", "random:2"):
            for vocabulary, length in ((3, 3), (2, 4)):
                joint, law, texts = from_joint(vocabulary, length, seed)
                expected = dict(zip(texts, law.probabilities, strict=True))
                yield (
                    f"from_joint({vocabulary}, {length}, {seed})",
                    order,
                    length - seed % 2,
                    Limits.of(length),
                    joint,
                    expected,
                )


def serial_law(verifier: Callable[[Pairs, int], Law], order: str, limits: Limits, width: int) -> dict[Tokens, Fraction]:
    """One token after the other, straight from the verifier: always the first in `order`, ltr, rtl or a permutation, of the
    unresolved up to E among the `width` positions from the leftmost unresolved one."""
    length = limits.max_new_tokens
    textual = tuple(range(1, length + 1))
    positions = {"ltr": textual, "rtl": textual[::-1]}.get(order) or tuple(map(int, order.split(",")))
    finished: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
    pending: list[tuple[Pairs, int, Fraction]] = [((), length, Fraction(1))]
    while pending:
        pairs, end, weight = pending.pop()
        free = [j for j in positions if j <= end and j not in dict(pairs)]
        if not free:
            finished[tuple(token for _, token in sorted(pairs))] += weight
            continue
        j = next(j for j in free if j < min(free) + width)
        law = verifier(pairs, j)
        for token in law.support:
            after = (*pairs, (j, token))
            lower = min(end, limits.end(dict(after), [j]))
            kept = tuple(pair for pair in after if pair[0] <= lower)
            pending.append((kept, lower, weight * Fraction(law.probability(token))))
    return dict(finished)


def _output(chain: Iterable[Visit[Remembered, Any]]) -> dict[Tokens, Fraction]:
    law: defaultdict[Tokens, Any] = defaultdict(int)
    for visit in chain:
        if visit.call is None:
            law[visit.state.prefix[visit.state.prompt_length :]] += visit.weight
    return {output: fraction(weight) for output, weight in law.items()}


def _differing(ours: dict[Tokens, Fraction], expected: dict[Tokens, Fraction]) -> str:
    zero = Fraction(0)
    worst = max(ours.keys() | expected.keys(), key=lambda x: (abs(ours.get(x, zero) - expected.get(x, zero)), x))
    return f"output {list(worst)} has probability {ours.get(worst, zero)}, not {expected.get(worst, zero)}"


def _entry(
    claim: str, statement: str, bound: str, fault: str, seen: set[str], conditions: Iterable[str], evidence: str
) -> Entry:
    missing = [condition for condition in conditions if condition not in seen]
    if fault:
        return Entry(claim, statement, "exact", bound, "violated", fault)
    if missing:
        return Entry(claim, statement, "exact", bound, "not run", f"never reached: {', '.join(missing)}")
    return Entry(claim, statement, "exact", bound, "holds", evidence)


def check(schedule: str, budget: Budget) -> list[Entry]:
    """Both claims about one schedule."""
    return check_history(schedule, budget) + check_outputs(schedule, budget)


CHECKS = tuple(
    Check(f"any-order-law/{schedule}", ("ANY-ORDER-LAW", "ANY-ORDER-SERIAL"), partial(check, schedule))
    for schedule in SCHEDULES
)
