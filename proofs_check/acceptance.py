"""check_acceptance: is an acceptance rule exact, whatever the laws and whatever was drafted?

For those who have a function rather than a schedule:

    def rule(p, q, draft, coins):
        for i, token in enumerate(draft):
            if not coins.random() * q[i][token] < p[i][token]:
                left = [max(a - b, 0) for a, b in zip(p[i], q[i])]
                return (*draft[:i], coins.choose(left if any(left) else p[i]))
        return (*draft, coins.choose(p[-1]))

    print(check_acceptance(rule))

A rule is exact if the tokens it emits, continued by plain sampling from the target, have the law of plain sampling: jointly,
for every target and every draft law. How it accepts is its own affair: block verification passes, sample-and-match passes. The
rule is run once for every way in which its coins can fall, so that coins used twice or shared between tests show.
"""

from __future__ import annotations

import itertools
import operator
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import Any, NoReturn, TypeAlias

from proofs_check.blocks import Block, Row, edge_blocks, exact_blocks, float_blocks
from proofs_check.coins import LAST, ROUNDING, Coins, Fixed, at_edges, definition, every_outcome, in_two_worlds, raised, rounded
from proofs_check.findings import Report, Symptom
from proofs_check.runner import run_battery
from proofs_check.system import NotReached, found
from simulator.chance import Chance, fraction, rational
from simulator.laws import ArrayLaw, Law, RationalLaw
from simulator.records import Tokens

Rule: TypeAlias = Callable[[Any, Any, Tokens, Coins], Iterable[int]]
Rows: TypeAlias = Callable[[tuple[Row, ...]], Any]
Coinage: TypeAlias = tuple[float, ...] | None
RESIDUAL = "a correction where p - q is positive for two tokens or more"
FORBIDDEN = "a draft token that the target excludes"


def check_acceptance(
    rule: Rule,
    *,
    rows: Rows = tuple,
    one_hot: bool = False,
    rounding: float = ROUNDING,
    limit: float = 20.0,
    name: str = "",
    source: str = "",
) -> Report:
    """Run the battery on an acceptance rule, rule(p, q, draft, coins) -> the tokens it emits.

    For a draft of k tokens, p holds k + 1 laws of the target, p[i] the one after draft[:i], and q the k laws that the draft was
    drawn from; p[i][x] is the probability of token x, a Fraction (in one stage a float). The rule emits the draft tokens that
    it keeps and one more. It draws on `coins` alone, a `proofs_check.coins.Coins`.

    rows       how the laws of p and of q are handed over: tuple, or numpy.array for shapes [k + 1, V] and [k, V], or `laws` for
               `simulator.Law`s, or a function of a tuple of laws that makes what the rule wants
    one_hot    try it on point masses q alone, for rules about greedy drafts
    rounding   differences of this size are put down to float arithmetic in the rule, and told; 0 allows none
    limit      wall time in seconds that one stage may take; slow rules are tried on fewer laws, and the report says how many
    source     Python that defines `subject`, the rule, for programs that show a finding again; needless for importable ones
    """
    subject = Subject(rule, rows, one_hot, rounding, limit, source or definition(rule, "subject"))
    return run_battery(subject, STAGES, BASIS, limit, name or str(getattr(rule, "__name__", type(rule).__name__)))


def emitted_law(
    rule: Rule, target: Mapping[Tokens, Row], proposal: Mapping[Tokens, Row], rows: Rows = tuple
) -> dict[Tokens, Fraction]:
    """The law of k + 1 tokens: those that one run of the rule emits, continued by sampling from the target.

    target[x] is the target's law after the tokens x, for all of up to k tokens; proposal[x] that of the draft token after x.
    """
    law = _completed(Block("", target, proposal), Subject(rule, rows), Tally())
    return {x: fraction(weight) for x, weight in law.items() if weight}


def laws(rows: tuple[Row, ...]) -> tuple[Law, ...]:
    """For `rows`: laws as `simulator.acceptance.accept` takes them."""
    return tuple(RationalLaw(row) if isinstance(row[0], Fraction) else ArrayLaw(row) for row in rows)


@dataclass(frozen=True)
class Subject:
    """The rule, and how it is asked."""

    rule: Rule
    rows: Rows = tuple
    one_hot: bool = False
    rounding: float = 0.0
    limit: float = 20.0
    source: str = ""

    def blocks(self, blocks: Iterable[Block]) -> Iterator[Block]:
        """Until half the time is over."""
        begun = time.monotonic()
        for block in blocks:
            if time.monotonic() - begun > self.limit / 2:
                return
            yield block.greedy() if self.one_hot else block

    def __call__(self, block: Block, draft: Tokens, chance: Chance) -> Tokens:
        """The tokens emitted. Ends the stage when they are no answer."""
        p, q = block.laws(draft)
        answer = self.rule(self.rows(p), self.rows(q), draft, Coins(chance))
        complain = partial(self.complain, "contract", block=block, draft=draft, coins=getattr(chance, "given", None))
        try:
            emitted = tuple(operator.index(x) for x in answer)
        except TypeError:
            complain(f"it must return token ids, and returns {answer!r}")
        if not 1 <= len(emitted) <= len(draft) + 1:
            complain(f"from {len(draft)} draft tokens it must emit 1 to {len(draft) + 1}, and emits {list(emitted)}")
        if not all(0 <= x < block.vocabulary for x in emitted):
            complain(f"it emits {list(emitted)}, the ids are 0 .. {block.vocabulary - 1}")
        return emitted

    def complain(self, symptom: Symptom, statement: str, block: Block, draft: Tokens, coins: Coinage = None) -> NoReturn:
        """End the stage with a finding about one draft."""
        found(symptom, statement, *self.instance(block, draft, coins))

    def instance(self, block: Block, draft: Tokens, coins: Coinage = None) -> tuple[str, str]:
        """One draft, for a person and as a program; with the values of its coins where they have any."""
        text = "\n".join([*described(block, draft), f"draft {list(draft)}", *([f"coins {list(coins)}"] if coins else [])])
        if coins is None:
            return text, self.program(block, "print(law)")
        p, q = block.laws(draft)
        return text, self._program(f"p, q = rows({p}), rows({q})", f"print(subject(p, q, {draft}, Coins(Fixed({coins}))))")

    def program(self, block: Block, claim: str) -> str:
        """Python that computes the law of a block again."""
        law = "law = emitted_law(subject, p, q, rows)"
        return self._program(f"p = {dict(block.target)}", f"q = {dict(block.proposal)}", law, claim)

    def _program(self, *lines: str) -> str:
        """Empty where the rule, or what makes its rows, cannot be imported, and where the laws fill pages."""
        rows = "rows = tuple" if self.rows is tuple else definition(self.rows, "rows")
        if not self.source or not rows:
            return ""
        ours = "from proofs_check.acceptance import Coins, Fixed, emitted_law"
        text = "\n".join(("from fractions import Fraction", ours, self.source, rows, *lines))
        return text if len(text) < 10_000 else ""


@dataclass
class Tally:
    """What the runs of a stage came to."""

    blocks: int = 0
    outcomes: int = 0
    gap: Any = 0  # the largest difference between probabilities
    kept: set[int] = field(default_factory=set)  # how many draft tokens
    seen: set[str] = field(default_factory=set)

    def note(self, block: Block, draft: Tokens, emitted: Tokens) -> None:
        self.outcomes += 1
        h = len(emitted) - 1
        self.kept.add(h)
        if h < len(draft) and emitted[h] != draft[h]:
            p, q = block.target[draft[:h]], block.proposal[draft[:h]]
            if sum(a > b for a, b in zip(p, q, strict=True)) > 1:
                self.seen.add(RESIDUAL)
        if any(not block.target[draft[:i]][x] for i, x in enumerate(draft[: h + 1])):
            self.seen.add(FORBIDDEN)

    def missing(self, size: int) -> str:
        """What was not reached. A rule that keeps no draft token at all is not asked to keep all of them."""
        unseen = [condition for condition in (RESIDUAL, FORBIDDEN) if condition not in self.seen]
        unkept = [h for h in range(size + 1) if h not in self.kept] if self.kept > {0} else []
        return ", ".join(unseen + [f"{h} of {size} draft tokens kept" for h in unkept])


# --- the law ------------------------------------------------------------------------------------------------------------------


def _law(size: int, subject: Subject) -> str:
    """The joint law of the emitted tokens, completed to k + 1, for every block."""
    tally = Tally()
    for block in subject.blocks(exact_blocks(size)):
        tally.blocks += 1
        ours, theirs = _completed(block, subject, tally), _autoregressive(block)
        gap = max(abs(ours[x] - theirs[x]) for x in ours)
        if gap > subject.rounding:
            _differs(subject, block, ours, theirs)
        tally.gap = max(tally.gap, gap)
    if missing := tally.missing(size):
        raise NotReached(f"never reached: {missing}")
    return f"draft of {size}: {tally.blocks} targets and draft laws, {tally.outcomes:,} outcomes, {rounded(tally.gap)}"


def _outcomes(block: Block, subject: Subject) -> Iterator[tuple[Any, Tokens, Tokens, Any]]:
    """(probability, draft, emitted, chance) of everything that can happen."""
    for draft, weight in block.drafts():

        def run(chance: Chance, draft: Tokens = draft) -> tuple[Tokens, Chance]:
            return subject(block, draft, chance), chance

        for share, (emitted, chance) in every_outcome(run, partial(subject.instance, block, draft)):
            yield weight * share, draft, emitted, chance


def _completed(block: Block, subject: Subject, tally: Tally) -> dict[Tokens, Any]:
    """The law of k + 1 tokens: those emitted, continued by sampling from the target."""
    law: defaultdict[Tokens, Any] = defaultdict(rational)
    for weight, draft, emitted, _ in _outcomes(block, subject):
        law[emitted] += weight
        tally.note(block, draft, emitted)
    for m in range(1, block.size + 1):
        for x in [x for x in law if len(x) == m]:
            weight = law.pop(x)
            for token, p in enumerate(block.target[x]):
                law[*x, token] += weight * rational(p)
    return {x: law[x] for x in itertools.product(range(block.vocabulary), repeat=block.size + 1)}


def _autoregressive(block: Block) -> dict[Tokens, Any]:
    law: dict[Tokens, Any] = {(): rational(1)}
    for _ in range(block.size + 1):
        law = {(*x, token): w * rational(p) for x, w in law.items() for token, p in enumerate(block.target[x])}
    return law


def _differs(subject: Subject, block: Block, ours: dict[Tokens, Any], theirs: dict[Tokens, Any]) -> NoReturn:
    """The shortest beginning whose probability is wrong, and everything that leads to it."""
    for m in range(1, block.size + 2):
        mine, right = _beginnings(ours, m), _beginnings(theirs, m)
        x = min(mine, key=lambda x: (right[x] - mine[x], x))  # what comes too often: there are runs that show it
        if mine[x] - right[x] > subject.rounding:
            break
    mine_x, right_x = fraction(mine[x]), fraction(right[x])
    distance = fraction(sum(abs(ours[y] - theirs[y]) for y in ours) / 2)
    lines = described(block, x[:-1])
    lines.append(f"the output begins with {list(x)} with probability {mine_x}, autoregressive {right_x}")
    lines.append(f"total variation of the first {block.size + 1} output tokens {distance} = {float(distance):.4g}")
    if distance < 1e-5:
        lines.append("so small a difference may be single precision in the rule: `rounding` can allow for it")
    runs = [run for run in _outcomes(block, subject) if all(a == b for a, b in zip(run[2], x, strict=False))]
    for weight, draft, emitted, chance in sorted(runs, key=lambda run: -run[0])[:8]:
        lines.append(f"  probability {weight}: draft {list(draft)}{_fallen(chance)}, emits {list(emitted)}")
    strays = (run for run in runs if len(run[2]) > 1 and run[2][:-1] != run[1][: len(run[2]) - 1])
    if stray := next(strays, None):
        lines.append(f"it goes on after a token that is not the draft's: {list(stray[2])} for the draft {list(stray[1])}")
    first, law = ("token 1", "target's law") if m == 1 else (f"tokens 1 to {m}", "target's joint law")
    statement = f"output {first}: not the {law}, for a draft of {block.size}"
    claim = (
        f"begins = sum(w for x, w in law.items() if x[:{m}] == {x})\n"
        f"assert abs(begins - {right_x!r}) <= {subject.rounding}, begins"
    )
    found("law", statement, "\n".join(lines), subject.program(block, claim))


def _beginnings(law: dict[Tokens, Any], m: int) -> dict[Tokens, Any]:
    marginal: defaultdict[Tokens, Any] = defaultdict(rational)
    for x, weight in law.items():
        marginal[x[:m]] += weight
    return marginal


def _fallen(chance: Any) -> str:
    """What the run knew of its coins."""
    narrowed = [(key, low, high) for key, (low, high) in chance.intervals().items() if (low, high) != (0, 1)]
    names = {key: f"coin {key[1]}" if key[0] == "coin" else f"coin {key[0]}@{key[1]}" for key, _, _ in narrowed}
    return "".join(f", {names[key]} in [{low}, {high})" for key, low, high in narrowed)


def described(block: Block, along: Tokens) -> list[str]:
    """The laws of a block along some tokens."""
    lines = [block.name]
    for i in range(min(len(along), block.size) + 1):
        x = along[:i]
        q = f", q = {_row(block.proposal[x])}" if x in block.proposal else ""
        lines.append(f"after {list(x)}: p = {_row(block.target[x])}{q}")
    return lines


def _row(row: Row) -> str:
    return f"({', '.join(map(str, row))})"


# --- everything else ----------------------------------------------------------------------------------------------------------


def contract(subject: Subject) -> str:
    """Answers of the right shape, which depend on the coins alone."""
    runs = 0
    for number, (size, seed) in enumerate(itertools.product((1, 2, 3), range(3))):
        block = next(itertools.islice(subject.blocks(exact_blocks(size)), 7 + seed, None))
        for draft, _ in block.drafts():

            def run(chance_seed: int = seed, block: Block = block, draft: Tokens = draft) -> Tokens:
                rng = random.Random(chance_seed)
                return _answer(subject, block, draft, Fixed(iter(rng.random, None)))

            first, second = in_two_worlds(run, number)
            runs += 2
            if first != second:
                evidence, program = subject.instance(block, draft)
                statement = f"the same coins give {list(first)} and {list(second)}: it draws on something else"
                found("determinism", statement, evidence, program)
    return f"{runs} runs, each of them twice"


def _answer(subject: Subject, block: Block, draft: Tokens, chance: Fixed) -> Tokens:
    try:
        return subject(block, draft, chance)
    except Exception as error:
        raised(error, partial(subject.instance, block, draft, chance.given))


def _edges(blocks: Callable[[], Iterable[Block]], subject: Subject) -> str:
    """Whatever the coins, 0 and the largest too: tokens of positive target probability, and no exception."""
    tally, runs, empty = Tally(), 0, 0
    for block in subject.blocks(blocks()):
        for draft, _ in block.drafts():
            values = (0.0, 0.5, LAST) if block.size == 1 else (0.0, LAST)
            for coins, emitted in at_edges(partial(_answer, subject, block, draft), *values):
                runs += 1
                tally.note(block, draft, emitted)
                for i, token in enumerate(emitted):
                    if not block.target[emitted[:i]][token] > 0:
                        statement = f"it emits {list(emitted)}, where {token} has target probability 0"
                        subject.complain("law", statement, block, draft, coins)
                h = len(emitted) - 1
                if h < len(draft) and emitted[h] != draft[h]:
                    p, q = block.target[draft[:h]], block.proposal[draft[:h]]
                    empty += not any(a > b for a, b in zip(p, q, strict=True))
    if FORBIDDEN not in tally.seen:
        raise NotReached(f"never reached: {FORBIDDEN}")
    return f"{runs:,} runs, {empty} corrections where no p - q was positive"


STAGES: dict[str, Callable[[Subject], str]] = {
    "contract": contract,
    "law1": partial(_law, 1),
    "law2": partial(_law, 2),
    "law3": partial(_law, 3),
    "law4": partial(_law, 4),
    "edges": partial(_edges, edge_blocks),
    "floats": partial(_edges, float_blocks),
}
BASIS = {name: tuple(STAGES)[:i] for i, name in enumerate(STAGES)}
