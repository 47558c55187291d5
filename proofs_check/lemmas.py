"""The lemmas of B.2, exactly: accept-or-correct, the law of a draft token when it is checked, sparse storage, temperature 0.

All of it runs the production code: under enumerated coins where there is chance, over all models where there is none.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from proofs_check.ledger import Budget, Check, Entry, Method
from simulator.acceptance import Verdict, accept
from simulator.chance import Address, Chance, Scripted, draw_block, enumerated, fraction, rational
from simulator.decode import Model, generate
from simulator.errors import ContractError
from simulator.exact import autoregressive_law, exact_law, visits
from simulator.laws import ArrayLaw, Coin, Law, RationalLaw, SparseLaw, dense, entries
from simulator.oracles import TabularModel, random_tables
from simulator.processing import Processing, greedy
from simulator.records import Draft, Limits, State, Step, Tokens
from simulator.schedule import Schedule
from simulator.schedules import STARTS, named

ZERO, ONE = Fraction(0), Fraction(1)
T = TypeVar("T")
Weights: TypeAlias = dict[int, Any]  # token -> exact weight
Convert: TypeAlias = Callable[[Law], Law]


def settle(
    claim: str, statement: str, method: Method, bound: str, wrong: str, unreached: Iterable[str], evidence: str
) -> Entry:
    """Violated with the counterexample `wrong`; or else not run, if some condition was not reached; or else it holds."""
    missing = ", ".join(unreached)
    if wrong:
        return Entry(claim, statement, method, bound, "violated", wrong)
    if missing:
        return Entry(claim, statement, method, bound, "not run", f"never reached: {missing}")
    return Entry(claim, statement, method, bound, "holds", evidence)


def span(numbers: Sequence[int]) -> str:
    """First and last of some numbers in a row."""
    return f"{numbers[0]}..{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])


def show(law: Law) -> str:
    """The nonzero entries of a law, for a reader."""
    return "{" + ", ".join(f"{token}: {law.probability(token)}" for token in law.support) + "}"


# --- LEMB3: one token, one block ----------------------------------------------------------------------------------------------


def law_grid(vocabulary: int, denominators: Iterable[int]) -> list[RationalLaw]:
    """Every law on that many tokens whose probabilities are multiples of 1/n, for some n of `denominators`."""
    laws = {
        RationalLaw(Fraction(w, n) for w in weights)
        for n in denominators
        for weights in itertools.product(range(n + 1), repeat=vocabulary)
        if sum(weights) == n
    }
    return sorted(laws, key=lambda law: law.probabilities)


def verify_block(target: Callable[[Tokens], Law], stored: Sequence[Law], chance: Chance) -> Verdict:
    """Draw a draft from its stored laws and hand it to the production accept rule; target(d^(<i)) is p^(i)."""
    tokens = draw_block(stored, chance, 1)
    rows = [target(tokens[:i]) for i in range(len(tokens) + 1)]
    return accept(Draft(tokens, tuple(stored)), rows, chance, 1)


def _constant(law: Law, prefix: Tokens) -> Law:
    return law


def check_one_token(budget: Budget) -> list[Entry]:
    """LEMB3 for every pair of laws (p, Q) of a grid, zeros included; and the acceptance test at its edges (ALG2.L6)."""
    grids = {3: (4, 5), 4: (2,)} if budget == "quick" else {2: range(1, 13), 3: range(2, 10), 4: (3, 4, 5), 5: (2, 3)}
    conditions = ("a residual of 2 or more tokens", "alpha = 0", "0 < alpha < 1", "alpha = 1", "p = Q", "Q(x) = 0 < p(x)")
    seen: set[str] = set()
    pairs = outcomes = edges = 0
    wrong = wrong_edge = ""
    for vocabulary, denominators in grids.items():
        for p, q in itertools.product(law_grid(vocabulary, denominators), repeat=2):
            pairs += 1
            where = f"p = {show(p)}, Q = {show(q)}"
            emitted, accepted = [ZERO] * vocabulary, [ZERO] * vocabulary
            for share, verdict in enumerated(partial(verify_block, partial(_constant, p), (q,))):
                outcomes += 1
                emitted[verdict.tokens[0]] += share
                if verdict.accepted:
                    accepted[verdict.tokens[0]] += share
            for x, (ours, by_test) in enumerate(zip(emitted, accepted, strict=True)):
                if ours != p.probability(x):
                    wrong = wrong or f"{where}: token {x} is emitted with probability {ours}"
                elif by_test != min(p.probability(x), q.probability(x)):
                    wrong = wrong or f"{where}: token {x} is accepted with probability {by_test}, not min(p, Q)"
            alphas = {d: min(ONE, p.probability(d) / q.probability(d)) for d in q.support}
            for d, alpha in alphas.items():
                for u in {ZERO, alpha} - {ONE}:
                    edges += 1
                    coins = Scripted({Address(1, "test", 1): u}, otherwise=ZERO).at(1)
                    passed = accept(Draft((d,), (q,)), (p, p), coins, 1).accepted == 1
                    if passed != (u < alpha):
                        wrong_edge = (
                            wrong_edge or f"{where}: token {d} {'passes' if passed else 'fails'} at u = {u}, alpha = {alpha}"
                        )
            reached = (
                sum(p.probability(x) > q.probability(x) for x in p.support) >= 2,
                ZERO in alphas.values(),
                any(0 < alpha < 1 for alpha in alphas.values()),
                ONE in alphas.values(),
                p == q,
                any(not q.probability(x) for x in p.support),
            )
            seen.update(itertools.compress(conditions, reached))
    bound = "all p, Q with " + "; ".join(f"V={v}, denominators {span(n)}" for v, n in grids.items())
    unreached = [condition for condition in conditions if condition not in seen]
    one_token = "a token drawn from Q, then accepted or corrected, has law p; by acceptance min(p, Q) of it"
    test = "a test passes if and only if u < alpha, at u = 0 and u = alpha too"
    evidence = f"{pairs:,} pairs of laws, {outcomes:,} outcomes, equal as rationals"
    return [
        settle("LEMB3", one_token, "exact", bound, wrong, unreached, evidence),
        settle("ALG2.L6", test, "exhaustive", bound, wrong_edge, unreached, f"{edges:,} edges of {pairs:,} pairs of laws"),
    ]


def check_blocks(budget: Budget) -> list[Entry]:
    """The joint law of all tokens that one call emits, for drafts of 2 and of 3 tokens.

    A call emits h + 1 of the k + 1 tokens it could. Completed to k + 1 by plain sampling from the target, they must have the
    autoregressive law: THM3.3 for one call. It fails when coins, laws or rows of different slots are mixed up.
    """
    denominators = (3,) if budget == "quick" else (2, 3, 4)
    grid = law_grid(3, denominators)
    seeds = range(60 if budget == "quick" else 2000)

    def around(index: int, prefix: Tokens) -> RationalLaw:
        """Targets that go round the grid with the tokens before them."""
        return grid[(index + sum(i * (x + 1) for i, x in enumerate(prefix, 1))) % len(grid)]

    twos = [
        (f"p after x is grid[{index} + ..]", partial(around, index), pair)
        for index, pair in itertools.product(range(len(grid)), itertools.product(grid, repeat=2))
    ]
    threes = [
        (f"random_tables(3, {seed})", tables.target, tuple(tables.proposal((), j) for j in (1, 2, 3)))
        for seed, tables in ((seed, random_tables(3, seed)) for seed in seeds)
    ]
    return [
        _check_blocks(2, twos, f"V=3, all Q^(1), Q^(2) with denominators {span(denominators)}, {len(grid)} targets"),
        _check_blocks(3, threes, f"V=3, random tables of seeds {span(seeds)}"),
    ]


def _check_blocks(k: int, instances: Iterable[tuple[str, Callable[[Tokens], Law], Sequence[Law]]], bound: str) -> Entry:
    reached: set[int] = set()
    count = outcomes = 0
    wrong = ""
    for name, target, stored in instances:
        count += 1
        emitted: defaultdict[Tokens, Fraction] = defaultdict(Fraction)
        for share, verdict in enumerated(partial(verify_block, target, stored)):
            outcomes += 1
            emitted[verdict.tokens] += share
            reached.add(verdict.accepted)
        completed: dict[Tokens, Fraction] = {}
        for m in range(1, k + 2):
            completed = {
                x: emitted[x] + completed.get(x[:-1], ZERO) * Fraction(target(x[:-1]).probability(x[-1]))
                for x in itertools.product(range(3), repeat=m)
            }
        expected = autoregressive_law(target, (), Limits.of(k + 1))
        if not wrong and (x := first_difference(completed, expected)) is not None:
            laws = ", ".join(map(show, stored))
            wrong = f"{name}, Q = {laws}: {list(x)} has probability {completed[x]}, autoregressive {expected.get(x, ZERO)}"
    statement = f"the tokens that one call emits from a draft of {k} have the autoregressive joint law"
    unreached = [f"{h} of {k} accepted" for h in range(k + 1) if h not in reached]
    evidence = f"{count:,} instances, {outcomes:,} outcomes, equal as rationals"
    return settle("LEMB3", statement, "exact", bound, wrong, unreached, evidence)


def first_difference(ours: dict[Tokens, Fraction], theirs: dict[Tokens, Fraction]) -> Tokens | None:
    """The shortest, then least sequence that two laws give different probabilities."""
    differing = [x for x in ours.keys() | theirs.keys() if ours.get(x, ZERO) != theirs.get(x, ZERO)]
    return min(differing, key=lambda x: (len(x), x), default=None)


# --- LEMB4: the law of a draft token when it is checked -----------------------------------------------------------------------

LATER, KEPT, BRANCH = (
    "a second slot with a law of 2 or more tokens",
    "a second slot of a draft that outlived a rejection",
    "a draft from a branch b > 0",
)
REFUSED = "a draft of which nothing is accepted"
EXPECTED = {
    "linear": (LATER,),
    "packed": (LATER, KEPT),
    "quadratic": (LATER, KEPT, BRANCH),
    "branches:0,2": (LATER, KEPT, BRANCH),
}


class Slot(NamedTuple):
    """A slot of a draft D_t: what LEMB4 conditions on, beside the state before call t."""

    prefix: Tokens  # P_t, with C_t at its end
    laws: tuple[Law, ...]  # Q_t
    earlier: Tokens  # d^(<i)

    @property
    def tokens(self) -> int:
        """Number of tokens before the slot."""
        return len(self.prefix) + len(self.earlier)


def check_stored_laws(name: str, budget: Budget) -> list[Entry]:
    """LEMB4 (EQ7), and LEMB3 inside a run, for one schedule.

    B.2 conditions on G_t = (P_{t-1}, D_{t-1}, Q_{t-1}, C_t, q_t), all that was known when the draft D_t was drawn, and for slot
    i also on the earlier draft tokens and the coins that tested them: this decides whether slot i is checked. To condition on
    less says less; on what comes later, such as whether d^(i) was accepted, would be false. Here

    - G_t is the state before call t (it holds P, D and Q, and q_t is a function of it) with P_t and Q_t of the state after it;
    - d^(<i) is the rest of the key `Slot`;
    - the test coins enter as what they decide: an outcome of call t counts with the probability that call t+1, run as well,
      reaches slot i. So a rule that looks at later draft tokens before it gets there fails.

    Then the token at slot i must have its stored law Q_t^(i), and the token that call t+1 emits there the target's law after
    P_t and d^(<i), wherever nothing before it ends the output. The slot after the draft is the bonus.
    """
    vocabulary, length, width, seeds = (3, 5, 3, (0,)) if budget == "quick" else (3, 6, 4, (0, 1))
    seen: set[str] = set()
    states = slots = emissions = calls = 0
    idle: list[str] = []
    stale: list[tuple[int, str]] = []  # violations, with the number of tokens before the slot
    biased: list[tuple[int, str]] = []
    for start, seed, eos in itertools.product(STARTS, seeds, (None, vocabulary - 1)):
        model, limits = random_tables(vocabulary, seed), Limits.of(length, eos)
        where = f"{name}, W={width}, start {start}, seed {seed}, eos {eos}"
        chain = visits(named(name, width, start), model, (), limits, max_calls=2 * length + 1)  # R-USER-3
        try:
            found = {visit.state: visit.outcomes for visit in chain}
        except ContractError as error:
            idle.append(f"{where}: {error}")
            continue
        states += len(found)
        checks = {state: _slots(outcomes) for state, outcomes in found.items()}
        for before, outcomes in found.items():
            drawn: defaultdict[Slot, Weights] = defaultdict(dict)
            emitted: defaultdict[Slot, Weights] = defaultdict(dict)
            for share, (state, step) in outcomes:
                calls += step.advance > 0
                if step.advance and not step.committed:
                    idle.append(f"{where}: {step}")
                if step.verified and not step.accepted:
                    seen.add(REFUSED)
                draft, laws = state.draft
                for i, (reached, results) in enumerate(checks[state]):
                    slot = Slot(state.prefix, laws, draft[:i])
                    for token, weight in results.items():
                        emitted[slot][token] = emitted[slot].get(token, 0) + share * weight
                    if i < len(draft):
                        drawn[slot][draft[i]] = drawn[slot].get(draft[i], 0) + share * reached
                        later, kept = i > 0, i > 0 and step.accepted < len(step.verified)
                        facts = {LATER: later and laws[i].certain is None, KEPT: kept, BRANCH: bool(step.branch)}
                        seen.update(fact for fact, holds in facts.items() if holds)
            for slot, weights in drawn.items():
                slots += 1
                if difference := _against(slot.laws[len(slot.earlier)], weights):
                    stale.append((slot.tokens, f"{where}, {_at(before, slot)}: the draft token is {difference}"))
            for slot, weights in emitted.items():
                emissions += 1
                if difference := _against(model.target(slot.prefix + slot.earlier), weights):
                    biased.append((slot.tokens, f"{where}, {_at(before, slot)}: the token emitted is {difference}"))
    bound = f"V={vocabulary}, L={length}, W={width}, random tables of seeds {span(seeds)}, {len(STARTS)} starts, EOS or none"
    unreached = [fact for fact in EXPECTED[name] if fact not in seen]
    eq7 = f"{name}: a draft token still has its stored law when it is checked, given all that decides whether it is"
    lemb3 = f"{name}: what is emitted at a slot has the target's law, given the same"
    evidence = f"{states:,} states, {{:,}} conditional laws equal as rationals"
    return [
        *(
            settle(claim, eq7, "exact", bound, min(stale, default=(0, ""))[1], unreached, evidence.format(slots))
            for claim in ("LEMB4", "EQ7")
        ),
        settle(
            "PROGRESS",
            f"{name}: each call that verifies emits a token, and the run ends",
            "exact",
            bound,
            idle[0] if idle else "",
            [REFUSED] if REFUSED not in seen else (),
            f"{calls:,} outcomes of calls that verify",
        ),
        settle("LEMB3", lemb3, "exact", bound, min(biased, default=(0, ""))[1], unreached, evidence.format(emissions)),
    ]


def _slots(outcomes: Sequence[tuple[Any, tuple[State, Step]]]) -> list[tuple[Any, Weights]]:
    """For i = 1 .. |D| + 1: the probability that the call with these outcomes reaches slot i, and what it emits there."""
    slots: list[tuple[Any, Weights]] = []
    for share, (_, step) in outcomes:
        for i in range(step.accepted + 1 if step.advance else 0):
            if i == len(slots):
                slots.append((rational(0), {}))
            reached, results = slots[i]
            slots[i] = reached + share, results
            if i < len(step.committed):
                token = step.committed[i]
                results[token] = results.get(token, 0) + share
    return slots


def _at(before: State, slot: Slot) -> str:
    call = f"{list(before.prefix)} with draft {list(before.draft.tokens)} becomes {list(slot.prefix)}"
    return f"{call} with a draft of {len(slot.laws)}, slot {len(slot.earlier) + 1} after {list(slot.earlier)}"


def _against(law: Law, weights: Weights) -> str:
    """The first token to which the law proportional to `weights` gives another probability than `law`; or nothing."""
    total = sum(weights.values())
    for token in sorted({*weights, *law.support}):
        ours, theirs = fraction(weights.get(token, 0) / total), law.probability(token)
        if ours != theirs:
            return f"{token} with probability {ours}, not {theirs}"
    return ""


# --- SPARSEQ ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Nonzero:
    """A rational law that stores its nonzero entries alone, and so does not know how many tokens there are."""

    entries: tuple[tuple[int, Fraction], ...]

    @classmethod
    def of(cls, law: Law) -> Law:
        return cast(Law, cls(tuple((token, Fraction(law.probability(token))) for token in law.support)))

    @property
    def support(self) -> tuple[int, ...]:
        return tuple(token for token, _ in self.entries)

    @property
    def certain(self) -> int | None:
        return self.entries[0][0] if len(self.entries) == 1 else None

    def probability(self, token: int) -> Fraction:
        return dict(self.entries).get(token, ZERO)

    def draw(self, coin: Coin) -> int:
        below = itertools.accumulate(probability for _, probability in self.entries[:-1])
        return next((token for token, total in zip(self.support, below, strict=False) if coin < total), self.entries[-1][0])


SHORTENED, SINGLE, FOREIGN = (
    "a law that the filter shortened",
    "a stored law of one token",
    "a correction that Q does not store",
)


def check_sparse(budget: Budget) -> list[Entry]:
    """SPARSEQ: the chain with full-vector stored laws and that with their nonzero entries alone, transition by transition.

    In rationals, where the output law must be the autoregressive one too; and in float64, sparse or dense on both sides, where
    the probability of every transition must agree to the last bit.
    """
    names, seeds, length = (("packed",), (0, 1), 4) if budget == "quick" else (tuple(EXPECTED), range(3), 5)
    filters = {"top_k=1": Processing(top_k=1), "top_k=2": Processing(top_k=2), "top_p=3/4": Processing(top_p=Fraction(3, 4))}
    seen: set[str] = set()
    chains = transitions = 0
    wrong = ""
    for name, seed, (label, keep), both in itertools.product(names, seeds, filters.items(), (False, True)):
        schedule, limits, tables = named(name, 3), Limits.of(length, 3), random_tables(4, seed)
        filtered = partial(_filtered, tables, keep if both else Processing(), keep, seen)
        exact = filtered(_same, _same, _same), filtered(_same, _same, Nonzero.of)
        floats = filtered(_dense, _dense, _dense), filtered(_dense, _sparse, _sparse)
        where = f"{name}, seed {seed}, {label}{' on both sides' if both else ''}"
        for pair in (exact, floats):
            chains += 1
            compared, difference = _lockstep(schedule, pair, limits, seen)
            transitions += compared
            if difference and not wrong:
                wrong = f"{where}: {difference}"
        law = exact_law(schedule, exact[1], (), limits).output
        expected = autoregressive_law(exact[0].target, (), limits)
        if not wrong and (x := first_difference(law, expected)) is not None:
            wrong = f"{where}: output {list(x)} has probability {law.get(x, ZERO)}, autoregressive {expected.get(x, ZERO)}"
    statement = "storing only the nonzero entries of Q changes no transition and no probability"
    tables_of = f"V=4, L={length}, W=3, random tables of seeds {span(seeds)}, {', '.join(filters)}"
    bound = f"{', '.join(names)}; {tables_of}; rationals and float64"
    unreached = [fact for fact in (SHORTENED, SINGLE, FOREIGN) if fact not in seen]
    evidence = f"{transitions:,} transitions of {chains} pairs of chains"
    return [settle("SPARSEQ", statement, "exact", bound, wrong, unreached, evidence)]


def _same(law: Law) -> Law:
    return law


def _dense(law: Law) -> Law:
    return ArrayLaw(dense(law, 4))


def _sparse(law: Law) -> Law:
    return SparseLaw(*entries(law))


def _filtered(
    tables: TabularModel, on_p: Processing, on_q: Processing, seen: set[str], number: Convert, p: Convert, q: Convert
) -> TabularModel:
    """The tables with their numbers converted, then filtered, then stored in the form that `p` and `q` give."""

    def proposal(context: Tokens, offset: int) -> Law:
        law = number(tables.proposal(context, offset))
        kept = on_q(context, law)
        if len(kept.support) < len(law.support):
            seen.add(SHORTENED)
        return q(kept)

    return TabularModel(lambda prefix: p(on_p(prefix, number(tables.target(prefix)))), proposal)


def _lockstep(schedule: Schedule, models: tuple[Model, Model], limits: Limits, seen: set[str]) -> tuple[int, str]:
    """Both chains side by side: number of transitions compared, and the first difference."""
    pending = [(schedule.init((), limits), schedule.init((), limits))]
    met = set(pending)
    compared = 0
    while pending:
        states = pending.pop()
        if states[0].stop:
            continue
        laws: list[dict[Hashable, tuple[Fraction, State]]] = []
        for state, model in zip(states, models, strict=True):
            call = schedule.request(state)
            outcomes: dict[Hashable, tuple[Fraction, State]] = {}
            for share, (after, step) in enumerated(partial(schedule.absorb, state, call, model(call))):
                stored = tuple(tuple((x, law.probability(x)) for x in law.support) for law in after.draft.laws)
                # Whether a target law is known to be a point mass is up to its storage.
                event: Hashable = (after.prefix, after.draft.tokens, stored, step._replace(predictions=()))
                before, _ = outcomes.get(event, (ZERO, after))
                outcomes[event] = before + share, after
                h = step.accepted
                corrected = h < len(step.verified) and h < len(step.committed)
                if corrected and not state.draft.laws[h].probability(step.committed[h]):
                    seen.add(FOREIGN)
                if any(len(law.support) == 1 for law in after.draft.laws):
                    seen.add(SINGLE)
            laws.append(outcomes)
        full, sparse = laws
        compared += len(full)
        for event in full.keys() | sparse.keys():
            ours, theirs = (side[event][0] if event in side else ZERO for side in laws)
            if ours != theirs:
                draft = list(states[0].draft.tokens)
                return compared, (
                    f"from {list(states[0].prefix)} + draft {draft} an outcome has probability {ours} with full vectors,"
                    f" {theirs} with nonzero entries (prefix, draft, Q, step: {event})"
                )
            following = full[event][1], sparse[event][1]
            if following not in met:
                met.add(following)
                pending.append(following)
    return compared, ""


# --- COR-GREEDY ---------------------------------------------------------------------------------------------------------------


def all_functions(run: Callable[[Callable[[Hashable], int]], T], values: int) -> Iterator[tuple[Fraction, T]]:
    """`run` on every function from anything to 0 .. values - 1, and the share of all functions that this run stands for.

    Functions that agree wherever a run looks are run once: a value is chosen when it is first asked for. The shares sum to 1.
    """
    pending: list[tuple[int, ...]] = [()]
    while pending:
        forced = pending.pop()
        chosen: dict[Hashable, int] = {}

        def function(key: Hashable, forced: tuple[int, ...] = forced, chosen: dict[Hashable, int] = chosen) -> int:
            if key not in chosen:
                chosen[key] = forced[len(chosen)] if len(chosen) < len(forced) else 0
            return chosen[key]

        result = run(function)
        path = tuple(chosen.values())
        yield Fraction(1, values ** len(path)), result
        pending += [(*path[:i], value) for i in range(len(forced), len(path)) for value in range(1, values)]


TIE, CUT, FULL, OLD = (
    "a tie",
    "an EOS inside an accepted block",
    "a fully accepted draft of 2 or more",
    "a draft that outlived a rejection",
)
POINTS, TIES = ((1, 0), (0, 1)), ((1, 0), (0, 1), (1, 1))
THREE = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
FORMS: dict[str, Callable[[Sequence[int]], Law]] = {
    "rational": RationalLaw.weighted,
    "dense float64": lambda weights: ArrayLaw([w / sum(weights) for w in weights]),
    "sparse float64": lambda weights: SparseLaw(
        [x for x, w in enumerate(weights) if w], [w / sum(weights) for w in weights if w]
    ),
}


def check_greedy(budget: Budget) -> list[Entry]:
    """COR-GREEDY: Packed-SS at temperature 0 against greedy decoding by hand, over ALL verifier and drafter tables.

    A table gives one of a few weight vectors to every context and offset, ties included; among equals the lowest id wins
    (R-VERIFY-7). What it says beyond position L is fixed, since it cannot be output.
    """
    families: list[tuple[Sequence[Sequence[int]], int, int, str]]
    if budget == "quick":
        families = [(POINTS, 3, 3, "rational"), *((TIES, 2, 2, form) for form in FORMS)]
    else:
        families = [(POINTS, 4, 3, "rational"), (THREE, 3, 2, "rational"), (TIES, 3, 2, "rational")]
        families += [(TIES, 2, 3, form) for form in FORMS]
    seen: set[str] = set()
    bounds: list[str] = []
    runs = 0
    wrong = ""
    for table, length, width, form in families:
        bounds.append(f"V={len(table[0])}{' with ties' if table is TIES else ''}, L={length}, W={width}, {form}")
        laws = [FORMS[form](weights) for weights in table]
        for start, eos in itertools.product(STARTS, (None, 1)):
            run = partial(_greedy_run, named("packed", width, start), Limits.of(length, eos), table, laws)
            share = ZERO
            for weight, (difference, facts) in all_functions(run, len(table)):
                runs += 1
                share += weight
                seen |= facts
                if difference and not wrong:
                    wrong = f"{bounds[-1]}, start {start}, eos {eos}: {difference}"
            assert share == 1, "some table was left out or counted twice"
    statement = "Packed-SS at temperature 0 outputs what greedy decoding does, the lowest id among equals"
    unreached = [fact for fact in (TIE, CUT, FULL, OLD) if fact not in seen]
    evidence = f"{runs:,} runs stand for every table: the shares of those that agree with each sum to 1"
    bound = f"all verifiers and drafters: {'; '.join(bounds)}; {len(STARTS)} starts, EOS or none"
    return [settle("COR-GREEDY", statement, "exhaustive", bound, wrong, unreached, evidence)]


def _greedy_run(
    schedule: Schedule,
    limits: Limits,
    table: Sequence[Sequence[int]],
    laws: Sequence[Law],
    function: Callable[[Hashable], int],
) -> tuple[str, set[str]]:
    """What is wrong with the run on one model, or nothing, and the facts it shows."""
    length = limits.max_new_tokens

    def target(prefix: Tokens) -> int:
        return function(("p", prefix)) if len(prefix) < length else 0

    def proposal(context: Tokens, offset: int) -> int:
        return function(("q", context, offset)) if len(context) + offset <= length else 0

    model = TabularModel(lambda prefix: laws[target(prefix)], lambda context, offset: laws[proposal(context, offset)])
    try:
        run = generate(greedy(model), schedule, (), limits)
    except ContractError as error:
        return str(error), set()
    expected: Tokens = ()
    tie = False
    while limits.reached(expected, 0) is None:
        weights = table[target(expected)]
        tie |= weights.count(max(weights)) > 1
        expected = (*expected, weights.index(max(weights)))
    facts = {TIE} if tie else set()
    for step in run.steps:
        rejected = step.accepted < len(step.verified)
        facts |= {CUT} if step.stop == "eos" and len(step.committed) < step.advance else set()
        facts |= {FULL} if not rejected and len(step.verified) >= 2 else set()
        facts |= {OLD} if rejected and step.retained else set()
    if run.tokens == expected:
        return "", facts
    return f"output {list(run.tokens)}, greedy {list(expected)}", facts


CHECKS: tuple[Check, ...] = (
    Check("lemmas/one-token", ("LEMB3", "ALG2.L6"), check_one_token),
    Check("lemmas/blocks", ("LEMB3",), check_blocks),
    *(
        Check(f"lemmas/stored-law/{name}", ("LEMB4", "EQ7", "LEMB3", "PROGRESS"), partial(check_stored_laws, name))
        for name in EXPECTED
    ),
    Check("lemmas/sparse", ("SPARSEQ",), check_sparse),
    Check("lemmas/greedy", ("COR-GREEDY",), check_greedy),
)
