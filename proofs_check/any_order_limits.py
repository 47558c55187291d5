"""Where any-order sampling is not what it seems: the smallest cases, in exact numbers, and what goes wrong with another Q.

confidence   CONF at temperature > 0 looks at the draft tokens that were drawn; `peak`, which asks for laws alone, does not
stops        an EOS out of textual order removes pairs when its call ends, so the law depends on how tokens fall into calls
laws         a draft tested against another law than the one it was drawn from

An entry here holds if the case is found, and no smaller one, and the remedy next to it is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any, NamedTuple

from proofs_check.any_order import Choose, every
from proofs_check.any_order_law import (
    Deviation,
    Remembering,
    deviation,
    from_joint,
    serial_law,
)
from proofs_check.faults.planting import part_replaced
from proofs_check.ledger import Budget, Check, Entry
from simulator.acceptance import Verdict, accept
from simulator.any_order import Call, Pairs, Schedule, State, named
from simulator.any_order import schedule as kernel
from simulator.any_order.schedule import append
from simulator.chance import Chance
from simulator.decode import generate
from simulator.exact import exact_law, visits
from simulator.laws import Law, RationalLaw, argmax
from simulator.oracles.any_order import AnyOrderModel, by_accepted, random_tables
from simulator.records import Limits, Reply, Step, Tokens

_FAIR = (1, 1)
DRAFTING = ("linear", "packed", "quadratic")


class Example(NamedTuple):
    """A case and what it comes to."""

    schedule: str
    order: str
    length: int
    width: int
    model: str
    output: Tokens
    ours: Fraction  # its probability
    serial: Fraction  # under serial decoding in the same order
    deviation: Deviation | None = None

    def __str__(self) -> str:
        text = (
            f"V=2, L={self.length}, W={self.width}, {self.schedule} in order {self.order}, {self.model}:"
            f" output {list(self.output)} has probability {self.ours}, serial decoding gives {self.serial}"
        )
        return f"{text}; {self.deviation}" if self.deviation else text


# --- orders that look at drawn tokens ---------------------------------------------------------------------------------------


def by_position(p: tuple[tuple[int, int], ...], q: tuple[tuple[int, int], ...]) -> AnyOrderModel:
    """Two tokens whose laws depend on the position alone, by their weights."""
    verifier, drafter = ([RationalLaw.weighted(weights) for weights in side] for side in (p, q))
    return AnyOrderModel(lambda pairs, j: verifier[j - 1], lambda pairs, j: drafter[j - 1])


def coins_by_position(length: int) -> Iterator[tuple[str, AnyOrderModel]]:
    """Models of two tokens without any context, the plainest first. The first position is never drafted: a fair coin."""
    weights = [_FAIR, (1, 2), (2, 1)]
    laws = sorted(product(weights, repeat=2 * (length - 1)), key=lambda laws: (sum(map(sum, laws)), laws))
    for each in laws:
        p, q = (_FAIR, *each[: length - 1]), (_FAIR, *each[length - 1 :])
        yield f"p = {', '.join(map(_ratio, p))} and q = {', '.join(map(_ratio, q))} by position", by_position(p, q)


def _ratio(weights: tuple[int, int]) -> str:
    return f"{weights[0]}:{weights[1]}"


def smallest_confidence(schedule: str, order: str = "confidence") -> tuple[Example | None, int]:
    """The first case, by L, then W, then weights, whose output law under the order is not the verifier's; how many it took."""
    looked = 0
    for length in (1, 2, 3):
        for width in range(1, length + 1):
            for name, model in coins_by_position(length):
                looked += 1
                limits = Limits.of(length)
                law = exact_law(named(schedule, width, order), model, (), limits).output
                expected = serial_law(model.verifier, "ltr", limits, width)  # without context, of any order
                if law != expected:
                    output = max(expected, key=lambda x: (law.get(x, Fraction(0)) - expected[x], x))
                    chain = visits(Remembering(named(schedule, width, order), ours=True), model, (), limits)
                    wrong, _ = deviation(chain, model.verifier, limits, ours=True)
                    return (
                        Example(schedule, order, length, width, name, output, law[output], expected[output], wrong),
                        looked,
                    )
    return None, looked


def textual_below(schedule: str, sizes: Sequence[tuple[int, int]]) -> tuple[int, str]:
    """Every drafter that is right or wrong, and sure or not, by position and accepted positions, under `confidence`.

    Returns the number of runs, and the first that is not in textual order."""
    runs = 0
    for length, width in sizes:

        def orders(choose: Choose, length: int = length, width: int = width) -> list[Tokens]:
            model = by_accepted([0] * length, lambda accepted, j: bool(choose(2)), 2, lambda accepted, j: 0.25 + choose(2) / 2)
            run = generate(model, named(schedule, width, "confidence"), (), Limits.of(length))
            return [step.order for step in run.steps]

        for leaf, _ in every(orders):
            runs += 1
            for order in leaf:
                if list(order) != sorted(order):
                    return runs, f"{schedule}, L={length}, W={width}: order {order}"
    return runs, ""


def check_confidence(budget: Budget) -> list[Entry]:
    """CONF is no order for sampling with Packed-SS and Quadratic-SS; it is one for Linear-SS, and `peak` is one for all."""
    entries = []
    for schedule in ("packed", "quadratic"):
        found, looked = smallest_confidence(schedule)
        none, others = smallest_confidence(schedule, "peak")
        sizes = ((1, 1), (2, 2), (3, 2), (4, 2))
        runs, untextual = textual_below(schedule, sizes if budget == "full" else sizes[:-1])
        statement = (
            f"{schedule}: ranking by the probabilities of the drawn draft tokens changes the output law, from L = 3, W = 3 on"
            " (below, its order is the textual one); ranking by the laws' peaks does not"
        )
        bound = f"{looked} cases of V=2 by L, then W, then weights; {runs:,} runs of all models with L <= 2 or W <= 2"
        fault = "" if found and (found.length, found.width) == (3, 3) else f"the smallest case is {found}"
        fault = fault or ("" if found and found.deviation else f"no token deviates in {found}")
        fault = fault or untextual or (f"peak: {none}" if none else "")
        detail = fault or f"{found}; `peak`: no case among {others}"
        entries.append(Entry("ANY-ORDER-ADAPTIVE", statement, "exact", bound, "violated" if fault else "holds", detail))
    return [*entries, _linear_confidence(budget)]


def _linear_confidence(budget: Budget) -> Entry:
    """Linear-SS ranks before it drafts, by what the verifier said."""
    laws, fault, cases, untextual = 0, "", 0, False
    for seed in range(2 if budget == "quick" else 8):
        for vocabulary, length, width, eos in ((3, 3, 3, None), (3, 3, 3, 1), (2, 4, 3, None)):
            cases += 1
            model, limits = random_tables(vocabulary, seed), Limits.of(length, eos)
            chain = list(visits(Remembering(named("linear", width, "confidence"), ours=True), model, (), limits))
            wrong, compared = deviation(chain, model.verifier, limits, ours=True)
            laws += compared
            fault = fault or (f"random_tables({vocabulary}, {seed}), {limits}: {wrong}" if wrong else "")
            untextual |= any(list(step.order) != sorted(step.order) for visit in chain for _, (_, step) in visit.outcomes)
    statement = "linear, order confidence, fixed before the draft: every token has the verifier's law, given its history"
    outcome: Any = "violated" if fault else "holds" if untextual else "not run"
    detail = fault or (f"{laws:,} conditional laws" if untextual else "never reached: an order that is not textual")
    return Entry("ANY-ORDER-ADAPTIVE", statement, "exact", f"{cases} cases, V<=3, L<=4, W<=4", outcome, detail)


# --- stops out of textual order ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CutAtEnd(Schedule):
    """A call accepts nothing after the token that lowers E: what it removes was seen by nobody."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        def cut(rule: Callable[..., Verdict], *arguments: Any) -> Verdict:
            verdict = rule(*arguments)
            for count in range(1, len(verdict.tokens)):
                _, end = append(state, tuple(zip(call.order[:count], verdict.tokens, strict=False)))
                if end < state.end:
                    return Verdict(min(verdict.accepted, count), verdict.tokens[:count], False)
            return verdict

        with part_replaced(kernel, accept=partial(cut, accept)):
            return super().absorb(state, call, reply, chance)


def cut_at_end(schedule: str, width: int, order: str) -> Schedule:
    """The named schedule, its calls ending where E is lowered."""
    policy = named(schedule, width, order)
    assert isinstance(policy, Schedule)
    return CutAtEnd(policy.name, policy.width, policy.order, policy.opening, policy.cycle)


def echo() -> AnyOrderModel:
    """Fair coins, but position 1 repeats position 3 if that is accepted, else is 0; half of the drafts are right."""

    def verifier(pairs: Pairs, j: int) -> Law:
        if j == 1:
            token = dict(pairs).get(3, 0)
            return RationalLaw.weighted((1 - token, token))
        return RationalLaw.weighted(_FAIR)

    return AnyOrderModel(verifier, lambda pairs, j: RationalLaw.weighted(_FAIR))


def stopped_examples() -> list[Example]:
    """`echo` in order rtl, EOS 1: the same request under every schedule."""
    limits, model = Limits.of(3, 1), echo()
    expected = serial_law(model.verifier, "rtl", limits, 3)
    examples = []
    for schedule in DRAFTING:
        law = exact_law(named(schedule, 3, "rtl"), model, (), limits).output
        output = max(expected.keys() | law.keys(), key=lambda x: (law.get(x, 0) - expected.get(x, Fraction(0)), x))
        zero = Fraction(0)
        name = "`echo`, EOS 1"
        examples.append(Example(schedule, "rtl", 3, 3, name, output, law.get(output, zero), expected.get(output, zero)))
    return examples


def check_stops(budget: Budget) -> list[Entry]:
    """The smallest stop that matters; that none is smaller; that cutting calls there is a remedy."""
    fault, smaller = "", 0
    for seed in range(3 if budget == "quick" else 10):
        for (length, width), vocabulary in product(((1, 1), (2, 1), (2, 2), (3, 2), (3, 1)), (2, 3)):
            if vocabulary == 3 and length == 3 and budget == "quick":
                continue
            for schedule in DRAFTING:
                model, limits = random_tables(vocabulary, seed), Limits.of(length, 1)
                orders = ("rtl", "2,1") if length == 2 else ("rtl",)
                for order in orders:
                    smaller += 1
                    law = exact_law(named(schedule, width, order), model, (), limits).output
                    if law != serial_law(model.verifier, order, limits, width):
                        fault = fault or f"already at L={length}, W={width}: {schedule}, {order}, {vocabulary}, {seed}"
    examples = stopped_examples()
    fault = fault or next((f"no difference: {each}" for each in examples if each.ours == each.serial), "")
    entries = [
        Entry(
            "ANY-ORDER-STOP",
            "an EOS at j whose call goes on: a later rank i < j is given pairs k > j that serial decoding has removed by then;"
            " so laws depend on the schedule, from L = 3, W = 3 on",
            "exact",
            f"L = W = 3; none in {smaller} smaller cases",
            "violated" if fault else "holds",
            fault or "; ".join(map(str, examples)),
        )
    ]
    return [*entries, _one_joint_law(budget), _cut(budget)]


def joint_stopped(law: RationalLaw, texts: list[Tokens], limits: Limits) -> dict[Tokens, Fraction]:
    """The law of a text cut at its first stop."""
    found: dict[Tokens, Fraction] = {}
    for text, probability in zip(texts, law.probabilities, strict=True):
        end = next(n for n in range(len(text) + 1) if limits.reached(text[:n], 0))
        found[text[:end]] = found.get(text[:end], Fraction(0)) + probability
    return found


def _one_joint_law(budget: Budget) -> Entry:
    fault, cases = "", 0
    changed: dict[str, str] = {}
    for seed in range(4 if budget == "quick" else 12):
        model, law, texts = from_joint(2, 3, seed)
        limits = Limits.of(3, 1)
        expected = joint_stopped(law, texts, limits)
        for schedule, order in product(("serial", *DRAFTING), ("ltr", "rtl")):
            cases += 1
            ours = exact_law(named(schedule, 3, order), model, (), limits).output
            if ours == expected:
                continue
            if schedule == "serial" or order == "ltr":
                fault = fault or f"{schedule}, {order}, from_joint(2, 3, {seed}): not the joint law"
            worst = max(expected, key=lambda x: (abs(ours.get(x, Fraction(0)) - expected[x]), x))
            changed.setdefault(
                schedule,
                f"from_joint(2, 3, {seed}), L=3, W=3, EOS 1, {schedule} in order {order}: output {list(worst)} has"
                f" probability {ours.get(worst, Fraction(0))}, not {expected[worst]}",
            )
    missing = [schedule for schedule in DRAFTING if schedule not in changed]
    return Entry(
        "ANY-ORDER-STOP",
        "even if all conditionals come from one joint law, an EOS out of textual order changes the law under every schedule but"
        " the serial one; in textual order it changes none",
        "exact",
        f"{cases} cases, V=2, L=W=3",
        "violated" if fault else "not run" if missing else "holds",
        fault or (f"never reached: another law under {', '.join(missing)}" if missing else "; ".join(changed.values())),
    )


def _cut(budget: Budget) -> Entry:
    fault, cases, cut = "", 0, 0
    for seed in range(1 if budget == "quick" else 4):
        for vocabulary, length, width, order in ((3, 3, 3, "rtl"), (3, 3, 3, "3,1,2"), (2, 4, 3, "rtl"), (2, 4, 4, "rtl")):
            model, limits = random_tables(vocabulary, seed), Limits.of(length, 1)
            for schedule in DRAFTING:
                cases += 1
                law = exact_law(cut_at_end(schedule, width, order), model, (), limits)
                cut += law.output != exact_law(named(schedule, width, order), model, (), limits).output
                if law.output != serial_law(model.verifier, order, limits, width):
                    fault = fault or f"{schedule}, order {order}, random_tables({vocabulary}, {seed}), {limits}"
    return Entry(
        "ANY-ORDER-STOP",
        "a call that accepts nothing after the token that lowers E leaves the law of serial decoding, for any schedule",
        "exact",
        f"{cases} cases, V<=3, L<=4, W<=4",
        "violated" if fault else "holds" if cut else "not run",
        fault or (f"{cut} of them with another law if not cut" if cut else "never reached: a call that is cut"),
    )


# --- other laws than the stored ones ----------------------------------------------------------------------------------------


class FreshLaws(Schedule):
    """The draft is verified with the laws that this call proposes for its positions."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        fresh = dict(zip(call.order, (reply.proposals and reply.proposals[0]) or (), strict=False))
        draft = tuple(each._replace(law=fresh.get(each.position, each.law)) for each in state.draft)
        return super().absorb(state._replace(draft=draft), call, reply, chance)


class ShiftedLaws(Schedule):
    """Each draft token is kept with the law of the position kept before it, as if laws were by rank and not by position."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        laws = [each.law for each in after.draft]
        draft = tuple(each._replace(law=law) for each, law in zip(after.draft, laws[-1:] + laws[:-1], strict=True))
        return after._replace(draft=draft), step


class ArgmaxDrafts(Schedule):
    """The most likely token is drafted, and the soft law stored with it."""

    def absorb(self, state: State, call: Call, reply: Reply, chance: Chance) -> tuple[State, Step]:
        after, step = super().absorb(state, call, reply, chance)
        return after._replace(draft=tuple(each._replace(token=argmax(each.law).token) for each in after.draft)), step


FAULTS: dict[str, tuple[type[Schedule], str]] = {
    "fresh-laws": (FreshLaws, "laws recomputed from the newer pairs"),
    "shifted-laws": (ShiftedLaws, "laws one position off"),
    "argmax-drafts": (ArgmaxDrafts, "the most likely token drafted under a soft law"),
}


def as_kind(kind: type[Schedule], schedule: str, width: int, order: str) -> Schedule:
    """The named schedule run by another class."""
    policy = named(schedule, width, order)
    assert isinstance(policy, Schedule)
    return kind(policy.name, policy.width, policy.order, policy.opening, policy.cycle)


def smallest_fault(make: Callable[[int, str], Schedule]) -> str:
    """The first case, by L, then W, whose output law is not serial decoding's; empty if none up to L = W = 4 shows it."""
    for length, order in product((1, 2, 3, 4), ("ltr", "rtl")):
        for width, seed in product(range(1, length + 1), range(2)):
            model, limits = random_tables(3, seed), Limits.of(length)
            law = exact_law(make(width, order), model, (), limits).output
            expected = serial_law(model.verifier, order, limits, width)
            if law != expected:
                output = max(expected, key=lambda x: (abs(law.get(x, Fraction(0)) - expected[x]), x))
                return (
                    f"random_tables(3, {seed}), L={length}, W={width}, order {order}: output {list(output)} has probability"
                    f" {law.get(output, Fraction(0))}, serial decoding gives {expected[output]}"
                )
    return ""


def check_refuted(name: str, budget: Budget) -> list[Entry]:
    """One fault: the entry holds if its output law shows it."""
    kind, what = FAULTS[name]
    found = smallest_fault(lambda width, order: as_kind(kind, "packed", width, order))
    return [
        Entry(
            "ANY-ORDER-LAW",
            f"Algorithm 3 for sampling with {what}: refuted by its output law",
            "exact",
            "V=3, L<=4, W<=4, by L, then W",
            "holds" if found else "violated",
            found or "the fault survives: no instance shows it",
        )
    ]


CHECKS = (
    Check("any-order-law/confidence", ("ANY-ORDER-ADAPTIVE",), check_confidence),
    Check("any-order-law/stops", ("ANY-ORDER-STOP",), check_stops),
    *(Check(f"any-order-law/{name}", ("ANY-ORDER-LAW",), partial(check_refuted, name)) for name in FAULTS),
)
