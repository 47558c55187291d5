"""check_drafter: does a drafter draw its tokens from the laws that it declares?

The accept rule divides by the declared law. A drafter that draws by argmax, from a filtered law, or from a law of another
context than the one it declares makes the output wrong however right the rule is, and the acceptance rate does not show it.

    def drafter(context, width, coins):
        laws = [my_law(context, j) for j in range(1, width + 1)]
        return [coins.choose(law) for law in laws], laws

    print(check_drafter(drafter))
"""

from __future__ import annotations

import itertools
import operator
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeAlias

from proofs_check.coins import LAST, ROUNDING, Coins, Fixed, at_edges, definition, every_outcome, in_two_worlds, raised, rounded
from proofs_check.findings import Report, Verdict
from proofs_check.runner import run_battery
from proofs_check.system import NotReached, found
from simulator.chance import Chance, exact, fraction, rational
from simulator.records import Tokens

Drafter: TypeAlias = Callable[[Tokens, int, Coins], tuple[Iterable[int], Iterable[Any]]]
Law: TypeAlias = tuple[tuple[int, Any], ...]
"""A declared law by value: (token, probability) in ascending order, without zeros."""


def check_drafter(
    drafter: Drafter,
    *,
    contexts: Iterable[Sequence[int]] | None = None,
    width: int = 3,
    samples: int = 0,
    alpha: float = 1e-4,
    rounding: float = ROUNDING,
    limit: float = 20.0,
    name: str = "",
    source: str = "",
) -> Report:
    """Run the battery on a drafter, drafter(context, width, coins) -> (draft tokens, the laws declared for them).

    It drafts up to `width` tokens, of any number that does not depend on tokens it drew and left out. The law declared for a
    token may depend on the draft tokens before it; it is a sequence of probabilities, a mapping from tokens to them, or a
    `simulator.Law`. What is asked: given the tokens before it and the laws declared up to it, each token has its declared law.

    contexts   the token contexts to try; without any, all of up to 2 tokens from 0, 1, 2 and a few longer ones
    samples    0: it draws on `coins` alone, and its law is computed exactly, by one run for every outcome, so for laws on a few
               tokens. Otherwise it may use generators of its own and is run that often for each context: G tests at the level
               alpha in all, and the report says which total variation they would have seen in 80 % of runs
    rounding   differences of this size are put down to float arithmetic in the drafter, and told
    limit      wall time in seconds that one stage may take; slow drafters are tried in fewer contexts
    source     Python that defines `subject`, the drafter, for programs; needless for importable ones

    Whether the declared laws are any good, that is how many tokens are accepted, is not asked.
    """
    chosen = tuple(map(tuple, contexts)) if contexts is not None else _contexts()
    subject = Subject(drafter, chosen, width, samples, alpha, rounding, limit, source or definition(drafter, "subject"))
    name = name or str(getattr(drafter, "__name__", type(drafter).__name__))
    if samples:
        report = run_battery(subject, SAMPLED, {}, limit, name)
        return SampledReport(report.subject, report.declares, report.stages, report.findings)
    return run_battery(subject, STAGES, BASIS, limit, name)


class SampledReport(Report):
    """What samples show: never that a drafter is exact."""

    @property
    def verdict(self) -> Verdict:
        """NOTHING FOUND at best."""
        found = super().verdict
        return "NOTHING FOUND" if found == "EXACT" else found


def drawn_laws(drafter: Drafter, context: Tokens, width: int) -> dict[tuple[Tokens, tuple[Law, ...]], dict[int, Fraction]]:
    """By the draft tokens before a token and the laws declared up to it: the law that the token really has."""
    slots = _slots(Subject(drafter, (context,), width), context)
    return {slot: {x: fraction(w / sum(drawn.values())) for x, w in drawn.items()} for slot, drawn in slots.items()}


def _contexts() -> tuple[Tokens, ...]:
    short = tuple(x for n in range(3) for x in itertools.product(range(3), repeat=n))
    return (*short, (0, 1, 2), (2, 2, 1, 0), (1, 0, 2, 0, 1))


class Drafted(NamedTuple):
    """One answer of a drafter."""

    tokens: Tokens
    laws: tuple[Law, ...]


@dataclass(frozen=True)
class Subject:
    """The drafter, and how it is asked."""

    drafter: Drafter
    contexts: tuple[Tokens, ...]
    width: int
    samples: int = 0
    alpha: float = 0.0
    rounding: float = ROUNDING
    limit: float = 20.0
    source: str = ""

    def in_time(self) -> Iterator[Tokens]:
        """The contexts, until half the time is over."""
        begun = time.monotonic()
        for context in self.contexts:
            if time.monotonic() - begun > self.limit / 2:
                return
            yield context

    def __call__(self, context: Tokens, chance: Chance) -> Drafted:
        """The draft. Ends the stage when it is none."""

        def complain(statement: str) -> NoReturn:
            found("contract", statement, *self.instance(context, getattr(chance, "given", None)))

        answer = self.drafter(context, self.width, Coins(chance))
        try:
            tokens, laws = answer
            draft = Drafted(tuple(map(operator.index, tokens)), tuple(map(declared, laws)))
        except (TypeError, ValueError) as error:
            complain(f"it must return draft tokens and a law for each: {error}; it returns {answer!r}")
        if len(draft.tokens) != len(draft.laws):
            complain(f"it drafts {len(draft.tokens)} tokens and declares {len(draft.laws)} laws")
        if len(draft.tokens) > self.width:
            complain(f"it drafts {len(draft.tokens)} tokens, {self.width} were asked for")
        for token, law in zip(draft.tokens, draft.laws, strict=True):
            total = sum(w for _, w in law)
            if abs(total - 1) > max(self.rounding, 1e-6) or any(w < 0 or x < 0 for x, w in law):
                complain(f"it declares no law for {token}: {shown(law)}, with sum {float(total)}")
        return draft

    def instance(self, context: Tokens, coins: tuple[float, ...] | None = None) -> tuple[str, str]:
        """One context, and the coins where they have values, for a person and as a program."""
        text = f"context {list(context)}, width {self.width}" + (f", coins {list(coins)}" if coins else "")
        if not self.source:
            return text, ""
        lines = ["from proofs_check.drafter import Coins, Fixed, drawn_laws", self.source]
        if coins is not None:
            return text, "\n".join([*lines, f"print(subject({context}, {self.width}, Coins(Fixed({coins}))))"])
        lines.append(f"for (before, laws), drawn in drawn_laws(subject, {context}, {self.width}).items():")
        claim = f"    assert all(abs(drawn.get(x, 0) - w) <= {self.rounding} for x, w in laws[-1]), (before, laws[-1], drawn)"
        return text, "\n".join([*lines, claim])


def declared(law: Any) -> Law:
    """A law by value. Raises TypeError or ValueError for what is no law."""
    if isinstance(law, Mapping):
        pairs = sorted(law.items())
    elif hasattr(law, "support"):
        pairs = [(token, law.probability(token)) for token in law.support]
    else:
        pairs = list(enumerate(law))
    weights = [(int(token), exact(p)) for token, p in pairs]
    if any(w is NotImplemented or isinstance(w, float) for _, w in weights):
        raise ValueError(f"{law!r} is no law")
    return tuple((token, w) for token, w in weights if w)


def shown(law: Iterable[tuple[int, Any]]) -> str:
    return "{" + ", ".join(f"{token}: {w}" for token, w in sorted(law)) + "}"


# --- exactly ------------------------------------------------------------------------------------------------------------------

Slots: TypeAlias = dict[tuple[Tokens, tuple[Law, ...]], dict[int, Any]]


def _slots(subject: Subject, context: Tokens) -> Slots:
    """The weight of each token, by what may be known when it is tested: the tokens before it, and the laws up to it."""
    slots: defaultdict[tuple[Tokens, tuple[Law, ...]], dict[int, Any]] = defaultdict(dict)
    for weight, (tokens, laws) in every_outcome(partial(subject, context), partial(subject.instance, context)):
        for i, token in enumerate(tokens):
            drawn = slots[tokens[:i], laws[: i + 1]]
            drawn[token] = drawn.get(token, rational(0)) + weight
    return slots


def law(subject: Subject) -> str:
    """Every slot of every draft of every context."""
    count = contexts = several = longest = 0
    largest: Any = 0
    for context in subject.in_time():
        contexts += 1
        for (before, laws), drawn in sorted(_slots(subject, context).items(), key=lambda item: len(item[0][0])):
            count += 1
            longest = max(longest, len(laws))
            several += len(laws[-1]) > 1
            total, said = sum(drawn.values()), dict(laws[-1])
            gaps = {x: drawn.get(x, 0) / total - said.get(x, 0) for x in drawn.keys() | said.keys()}
            gap = max(map(abs, gaps.values()))
            if gap > subject.rounding:
                evidence, program = subject.instance(context)
                lines = [evidence, f"draft token {len(laws)}, after the draft tokens {list(before)}"]
                lines += [f"declared {shown(laws[-1])}", f"drawn    {shown((x, w / total) for x, w in drawn.items())}"]
                variation = float(sum(map(abs, gaps.values())) / 2)
                lines += [f"total variation {variation:.4g}"]
                statement = f"draft token {len(laws)} is not drawn from the law that is declared for it"
                found("law", statement, "\n".join(lines), program)
            largest = max(largest, gap)
    _require(longest, subject)
    return f"{contexts} contexts, {count} laws declared, {several} of them of two tokens or more, {rounded(largest)}"


def _require(longest: int, subject: Subject) -> None:
    """Drafts of point masses alone are right; no drafts, or never of a second token, say too little."""
    if longest < min(2, subject.width):
        raise NotReached(f"never reached: a draft of {min(2, subject.width)} tokens")


# --- the rest -----------------------------------------------------------------------------------------------------------------


def contract(subject: Subject) -> str:
    """Drafts with a law for each token, which depend on the coins alone."""
    runs = 0
    for number, (context, seed) in enumerate(itertools.product(subject.in_time(), range(3))):

        def run(context: Tokens = context, seed: int = seed) -> Drafted:
            return _answer(subject, context, Fixed(iter(random.Random(seed).random, None)))

        first, second = in_two_worlds(run, number)
        runs += 2
        if first != second:
            statement = f"the same coins give the drafts {list(first.tokens)} and {list(second.tokens)}"
            if first.tokens == second.tokens:
                statement = "the same coins give other declared laws"
            found("determinism", f"{statement}: it draws on something else", *subject.instance(context))
    return f"{runs} runs, each of them twice"


def _answer(subject: Subject, context: Tokens, chance: Fixed) -> Drafted:
    try:
        return subject(context, chance)
    except Exception as error:
        raised(error, partial(subject.instance, context, chance.given))


def edges(subject: Subject) -> str:
    """Coins 0 and the largest draw no token of declared probability 0: an accept rule would divide by it."""
    runs = 0
    for context in subject.in_time():
        for coins, (tokens, laws) in at_edges(partial(_answer, subject, context), 0.0, LAST):
            runs += 1
            for i, token in enumerate(tokens):
                if token not in dict(laws[i]):
                    statement = f"it drafts {token}, which its declared law {shown(laws[i])} excludes"
                    found("law", statement, *subject.instance(context, coins))
    return f"{runs} runs"


def frequencies(subject: Subject) -> str:
    """G tests of every slot that came up, at alpha shared between them."""
    from proofs_check.statistics import fit

    counts: defaultdict[tuple[Tokens, Tokens, tuple[Law, ...]], Counter[int]] = defaultdict(Counter)
    rng = random.Random(0)
    runs = longest = 0
    begun = time.monotonic()
    for _, context in itertools.product(range(subject.samples), subject.contexts):
        if time.monotonic() - begun > subject.limit / 2:
            break
        tokens, laws = _answer(subject, context, Fixed(iter(rng.random, None)))
        runs += 1
        longest = max(longest, len(tokens))
        for i, token in enumerate(tokens):
            counts[context, tokens[:i], laws[: i + 1]][token] += 1
    slots = {slot: drawn for slot, drawn in counts.items() if drawn.total() >= 100 or drawn.keys() - dict(slot[2][-1]).keys()}
    weakest, tests = 0.0, 0
    for (context, before, laws), drawn in sorted(slots.items(), key=lambda item: (len(item[0][1]), -item[1].total())):
        result = fit(drawn, {x: float(w) for x, w in laws[-1]}, subject.alpha / len(slots))
        tests += not result.vacuous
        weakest = weakest if result.vacuous or result.impossible else max(weakest, result.tv80)
        if result.rejected:
            lines = [subject.instance(context)[0], f"draft token {len(laws)}, after the draft tokens {list(before)}"]
            lines += [f"declared {shown((x, float(w)) for x, w in laws[-1])}", f"came up {shown(drawn.items())}"]
            lines += [f"p = {result.p_value:.2g} in {result.n} drafts, level {result.alpha:.2g} ({len(slots)} tests)"]
            found("law", f"draft token {len(laws)} is not drawn from the law that is declared for it", "\n".join(lines))
    _require(longest, subject)
    if not tests:
        raise NotReached("never reached: 100 drafts with one declared law of two tokens or more")
    return f"{runs} drafts, {tests} G tests, alpha {subject.alpha:g} in all, TV80 of the weakest {weakest:.3f}"


STAGES: dict[str, Callable[[Subject], str]] = {"contract": contract, "law": law, "edges": edges}
SAMPLED: dict[str, Callable[[Subject], str]] = {"frequencies": frequencies}
BASIS = {"law": ("contract",), "edges": ("contract",)}
