"""What is proved is what runs: the definitions in the Rocq proofs, evaluated by Rocq itself, against `spec` and the scheduler.

The theorems of `rocq/` are about machines that Rocq can also run. Here it runs them on small instances, and each value must be
the one that the specification and the production scheduler give; so a drift between proof and code shows as a mismatch.
"""

# ruff: noqa: N803, N806 - W, L, P and D are the paper's symbols
from __future__ import annotations

import itertools
import random
import re
import shutil
from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, cast

from proofs_check.joint import STARTS, Runs
from proofs_check.ledger import Budget, Check, Entry, Method
from proofs_check.proved import Library, Rejected
from simulator.chance import Chance, branching, fraction, rational
from simulator.decode import generate
from simulator.exact import exact_law
from simulator.laws import Law, Point
from simulator.oracles import TabularModel, ThresholdModel, random_tables
from simulator.records import Limits
from simulator.schedules import named
from spec import Given, Schedule, Start, any_order, greedy, sampling, thresholds
from spec.run import Tokens

TWO: tuple[Schedule, ...] = ("packed", "linear")
ALL_STARTS: tuple[Start, ...] = ("algorithm", "wide", "sampled", "prompt")


class Case(NamedTuple):
    """One instance: what Rocq computes for it, and what each of ours does."""

    instance: str
    rocq: Any
    ours: dict[str, Any]  # by the name of who says it


class Tie(NamedTuple):
    """How a comparison went."""

    cases: int
    mismatch: str  # the first, in words; empty if there is none


def compare(cases: Iterable[Case]) -> Tie:
    """Count the cases up to the first in which someone differs from Rocq."""
    count = 0
    for count, (instance, rocq, ours) in enumerate(cases, 1):
        for who, value in ours.items():
            if value != rocq:
                return Tie(count, f"{instance}: Rocq {rocq}, {who} {value}")
    return Tie(count, "")


def rocq_list(items: Iterable[object]) -> str:
    return f"[{'; '.join(map(str, items))}]"


def parsed(printed: str) -> Any:
    """A value that Rocq printed, of numbers, pairs and lists."""
    value = printed.split("=", 1)[1].rsplit("\n     : ", 1)[0]
    return literal_eval(re.sub(r"%\w+", "", value).replace(";", ","))


# Dominance.v over positions


POSITIONS = """
From Coq Require Import Arith List Uint63.
Import ListNotations.
Fixpoint vectors n := match n with
  | 0 => [[]]
  | S m => flat_map (fun v => map (fun c => v ++ [c]) (seq 0 (S (S m)))) (vectors m)
  end.
Fixpoint digit n : int := match n with 0 => 0%uint63 | S m => (digit m + 1)%uint63 end.
Definition code xs : int := fold_left (fun a x => (a * 16 + digit x)%uint63) xs 1%uint63.
Definition told M prog eos L : int := code (passes M prog eos L ++ [NFE M prog eos L]).
Definition ends (xs : list nat) : nat -> bool := fun k => existsb (Nat.eqb k) xs.
"""


def code(numbers: Iterable[int]) -> int:
    """A list as one number, in hexadecimal after a 1; Rocq prints long lists slowly. Numbers < 16, at most 14 of them."""
    value = 1
    for number in numbers:
        value = 16 * value + number
    return value


def positions(
    library: Library, L: int, widths: Sequence[int], starts: Sequence[Start], eos: Sequence[Tokens] = ((),)
) -> Iterator[Case]:
    """Every threshold vector of length L <= 6: the verified tokens after each call and NFE of both schedules, and EQ6.

    `eos` holds sets of positions, with each of which all is done again.
    """
    printed = library.ask(
        POSITIONS
        + f"""
Definition each W v := code (map (F W (thresholds v)) (seq 0 {L})) ::
  flat_map (fun st => flat_map (fun eos => let M := monotone (thresholds v) in
    [told M (packed W st) (ends eos) {L}; told M (linear W st) (ends eos) {L}])
    {rocq_list(rocq_list(x) for x in eos)}) {rocq_list(starts)}.
"""
        + "".join(f"Eval vm_compute in flat_map (each {W}) (vectors {L}).\n" for W in widths),
        "Dominance",
    )
    answers = map(int, re.findall(r"\d+(?=%uint63)", printed))
    for W, c_star in itertools.product(widths, itertools.product(*(range(k + 1) for k in range(1, L + 1)))):
        p, q = thresholds.threshold_model(c_star)
        drafter = ThresholdModel(c_star, range(1, L + 1), L + 2)
        F = code(thresholds.F(c, W, c_star) for c in range(L))
        yield Case(f"F(0), F(1), .., thresholds {c_star}, W {W}", hex(next(answers)), {"spec": hex(F)})
        for start, ends, schedule in itertools.product(starts, eos, TWO):
            run = greedy.run(schedule, Given((), W, L, p, q, frozenset(ends)), start)
            steps = generate(drafter, named(schedule, W, start), (), Limits.of(L, ends)).steps
            lengths = itertools.accumulate(len(step.committed) for step in steps)
            specified = [len(state.P) for state in run.states[1:]]
            yield Case(
                f"{schedule}, start {start}, thresholds {c_star}, L {L}, W {W}, EOS at {list(ends)}: verified, NFE",
                hex(next(answers)),
                {"spec": hex(code([*specified, run.NFE])), "the scheduler": hex(code([*lengths, len(steps)]))},
            )
    assert next(answers, None) is None


def matrices(library: Library, L: int, widths: Sequence[int], count: int, seed: int) -> Iterator[Case]:
    """Random drafters without ASM3.1: the runs of both schedules, and the shrunk contexts that BOUND-2D counts."""
    rng = random.Random(seed)
    drawn = []
    for _ in range(count):
        rows = tuple(tuple(rng.randint(0, 1) for _ in range(c + 1, L + 1)) for c in range(L))
        drawn.append((rows, rng.choice(widths), rng.choice(STARTS)))
    asked = []
    for rows, W, start in drawn:
        right = rocq_list((c, k) for c, row in enumerate(rows) for k, cell in enumerate(row, c + 1) if cell)
        asked.append(f"each (listed {right}) {W} {start}")
    commands = f"""
From Coq Require Import List.
Import ListNotations.
Definition each M W st := (passes M (packed W st) never {L}, passes M (linear W st) never {L},
  count (shrunk M W st {L}) 0 {L}, count (shrunk M W st {L}) 1 {L}).
Eval vm_compute in {rocq_list(asked)}.
"""
    for (rows, W, start), answer in zip(drawn, parsed(library.ask(commands, "Dominance", "Reach")), strict=True):
        runs = Runs(rows, W, start)
        one, two = (list(itertools.accumulate(len(step.committed) for step in run.steps)) for run in (runs.packed, runs.linear))
        yield Case(f"matrix {rows}, W {W}, start {start}", answer, {"the scheduler": (one, two, *runs.outcome()[1:])})


# Dominance.v over tokens


TOKENS = """
From Coq Require Import Arith List.
Import ListNotations.
Definition mix seed (P : list nat) := fold_left (fun a x => (a * 7 + x * 5 + 3) mod 101) P seed.
Definition target seed P := mix seed P mod 3.
Fixpoint ahead seed (P : list nat) i := match i with
  | 0 => target seed P
  | S j => ahead seed (P ++ [target seed P]) j
  end.
Definition drafter seed P i :=
  if (mix seed P + i) mod 3 =? 0 then S (ahead seed P (i - 1)) mod 3 else ahead seed P (i - 1).
Definition run seed input eos L prog :=
  map (fun T => (P T, D T)) (whole_token_run input (target seed) (drafter seed) (fun x => existsb (Nat.eqb x) eos) L prog).
"""


class Hashed(NamedTuple):
    """The models of TOKENS: the target's token is a hash of the prefix, and a third of all proposals is wrong."""

    seed: int

    def mix(self, prefix: Tokens) -> int:
        value = self.seed
        for token in prefix:
            value = (value * 7 + token * 5 + 3) % 101
        return value

    def target(self, prefix: Tokens) -> int:
        return self.mix(prefix) % 3

    def drafter(self, prefix: Tokens, i: int) -> int:
        longer = prefix
        for _ in range(i):
            longer += (self.target(longer),)
        return (longer[-1] + ((self.mix(prefix) + i) % 3 == 0)) % 3

    def model(self) -> TabularModel:
        return TabularModel(lambda P: Point(self.target(P)), lambda P, i: Point(self.drafter(P, i)))


def tokens(library: Library, L: int, widths: Sequence[int], seeds: Sequence[int]) -> Iterator[Case]:
    """Prefix and draft after every call, all starts and both schedules, with a prompt, with and without EOS."""
    prompt = (1, 0)
    instances = list(itertools.product(seeds, widths, ALL_STARTS, ((), (0,), (2,)), TWO))
    asked = [f"run {seed} {list(prompt)} {list(eos)} {L} ({schedule} {W} {st})" for seed, W, st, eos, schedule in instances]
    printed = library.ask(TOKENS + f"Eval vm_compute in {rocq_list(asked).replace(',', ';')}.\n", "Dominance")
    for (seed, W, start, eos, schedule), said in zip(instances, parsed(printed), strict=True):
        models = Hashed(seed)
        given = Given(prompt, W, L, models.target, models.drafter, frozenset(eos))
        specified = [(list(state.P), list(state.D)) for state in greedy.run(schedule, given, start).states[1:]]
        steps = generate(models.model(), named(schedule, W, start), prompt, Limits.of(L, eos)).steps
        prefixes = itertools.accumulate((list(step.committed) for step in steps), initial=list(prompt))
        drafts = [list(step.verified) for step in steps[1:]] + [specified[-1][1]]  # the scheduler drops the last one
        ours = list(zip(itertools.islice(prefixes, 1, None), drafts, strict=True))
        instance = f"{schedule}, start {start}, hashed models {seed}, L {L}, W {W}, EOS {list(eos)}: prefix, draft"
        yield Case(instance, said, {"spec": specified, "the scheduler": ours})


# Exactness.v


class Tables(NamedTuple):
    """One instance of rational laws."""

    V: int
    L: int
    W: int
    eos: Tokens
    seed: int

    def __str__(self) -> str:
        return f"random_tables({self.V}, seed={self.seed}), L {self.L}, W {self.W}, EOS {list(self.eos)}"


# Ours by name and start: what Rocq calls it, and how many calls for L tokens are enough.
SAMPLING = {
    ("packed", "algorithm"): ("packed", 1),
    ("packed", "wide"): ("packed_wide", 1),
    ("packed", "sampled"): ("packed_sampled", 2),
    ("linear", "algorithm"): ("linear", 2),
    ("quadratic", "algorithm"): ("quadratic", 1),
    ("branches:0,1", "algorithm"): ("branches {V} {W} q [0; 1]%nat", 1),
    ("branches:1", "algorithm"): ("branches {V} {W} q [1]%nat", 1),
}


def laws(library: Library, tables: Tables) -> Iterator[Case]:
    """The exact laws of the output and of NFE, each as sorted pairs of outcome and probability."""
    V, L, W, eos, seed = tables
    model = random_tables(V, seed)
    prefixes = [prefix for n in range(L + 1) for prefix in itertools.product(range(V), repeat=n)]

    def row(law: Law) -> str:
        weights = [Fraction(law.probability(token)) for token in range(V)]
        return rocq_list(f"{weight.numerator} # {weight.denominator}" for weight in weights)

    def table(value: Callable[[Tokens], str]) -> str:
        return rocq_list(f"({rocq_list(prefix)}%nat, {value(prefix)})" for prefix in prefixes)

    asked = []
    for schedule, enough in SAMPLING.values():
        name = schedule.format(V=V, W=W) if "{" in schedule else f"{schedule} {V} {W} q"
        asked.append(f"({name}, ({enough * L})%nat)")
    some = rocq_list([1] + [0] * (V - 1))  # the law after prefixes that are too long to matter
    commands = f"""
From Coq Require Import List QArith.
Import ListNotations Exactness.
Definition p := lookup {table(lambda P: row(model.target(P)))} {some}.
Definition qs := lookup {table(lambda P: rocq_list(row(model.proposal(P, i)) for i in range(1, W + 2)))} [].
Definition q P i := nth (i - 1) (qs P) {some}.
Definition ends := eos_ends (fun x => existsb (Nat.eqb x) {rocq_list(eos)}%nat).
Definition each (sf : schedule * nat) := let (s, f) := sf in
  (fractions (collect same_output (output_law {V} p {L} ends s f)), fractions (collect Nat.eqb (nfe_law {V} p {L} ends s f))).
Eval vm_compute in map each {rocq_list(asked)}.
"""
    said = parsed(library.ask(commands, "Exactness"))
    limits = Limits.of(L, eos)
    for (schedule, start), (outputs, counts) in zip(SAMPLING, said, strict=True):
        rocq = sorted((tuple(o), Fraction(*w)) for o, *w in outputs), sorted((n, Fraction(*w)) for n, *w in counts)
        law = exact_law(named(schedule, W, start), model, (), limits)
        ours = {"the scheduler": (sorted(law.output.items()), sorted(law.nfe.items()))}
        if not schedule.startswith("branches"):
            ours["spec"] = specified_laws(cast(Schedule, schedule), cast(Start, start), model, tables)
        yield Case(f"{schedule}, start {start}, {tables}: output law, NFE law", rocq, ours)


def specified_laws(schedule: Schedule, start: Start, model: TabularModel, tables: Tables) -> tuple[Any, Any]:
    """The same from the specification, by following every way its coins can fall."""
    V, L, W, eos, _ = tables

    def row(law: Law) -> sampling.Law:
        return tuple(Fraction(law.probability(token)) for token in range(V))

    given: Given[sampling.Law] = Given(
        (), W, L, lambda P: row(model.target(P)), lambda P, i: row(model.proposal(P, i)), frozenset(eos)
    )

    def run(chance: Chance) -> tuple[Tokens, int]:
        def uniform(call: int, position: int, purpose: Any = "test") -> Any:
            return chance.uniform(purpose, 100 * call + position)  # coins of all calls at once

        def draw(law: sampling.Law, purpose: Any, call: int, position: int) -> int:
            coin = uniform(call, position, purpose)
            return next(token for token, below in enumerate(itertools.accumulate(law)) if law[token] and coin < below)

        done = sampling.run(schedule, given, uniform, draw, start)
        return done.P, done.NFE

    output: defaultdict[Tokens, Any] = defaultdict(rational)
    nfe: defaultdict[int, Any] = defaultdict(rational)
    for weight, (P, calls) in branching(run):
        output[P] += weight
        nfe[calls] += weight
    return sorted((P, fraction(w)) for P, w in output.items()), sorted((n, fraction(w)) for n, w in nfe.items())


# AnyOrder.v


ANY_ORDER = """
From Coq Require Import Arith List.
Import ListNotations AnyOrder.
Definition mix seed (P : pairs) := fold_left (fun a jx => (a * 3 + fst jx * 5 + snd jx * 7 + 1) mod 101) P seed.
Definition verifier seed (P : pairs) j := (mix seed P + j * j) mod 3.
Definition drafter seed (P : pairs) j := let a := mix seed P in (a + j * j + if (a + j) mod 4 =? 0 then 1 else 0) mod 3.
Definition ltr (t : past) (U : list nat) := U.
Definition rtl (t : past) (U : list nat) := rev U.
Definition mixed (t : past) (U : list nat) := if Nat.even (length U) then U else rev U.
Fixpoint in_hand s (t : past) := match t with [] => [drafts s []] | _ :: t' => in_hand s t' ++ [drafts s t] end.
"""
ORDERS: dict[str, Callable[[Tokens, any_order.State], Tokens]] = {
    "ltr": lambda U, state: U,
    "rtl": lambda U, state: U[::-1],
    "mixed": lambda U, state: U if len(U) % 2 == 0 else U[::-1],
}


def orders(library: Library, sizes: Iterable[tuple[int, int]], seeds: Sequence[int]) -> Iterator[Case]:
    """Algorithm 3, its Linear-SS and its Quadratic-SS on hashed models: NFE, accepted pairs, E, all drafts, orders and h."""

    def mix(seed: int, P: any_order.Pairs) -> int:
        for j, x in P:
            seed = (seed * 3 + j * 5 + x * 7 + 1) % 101
        return seed

    def verifier(seed: int, P: any_order.Pairs, j: int) -> any_order.Answer:
        return (mix(seed, P) + j * j) % 3, 0.5

    def drafter(seed: int, P: any_order.Pairs, j: int) -> any_order.Answer:
        a = mix(seed, P)
        return (a + j * j + ((a + j) % 4 == 0)) % 3, 0.5

    schedules: tuple[any_order.Schedule, ...] = ("packed", "linear", "quadratic")
    instances = list(itertools.product(seeds, sizes, ((), (2,)), ORDERS, schedules))
    asked = []
    for seed, (W, L), eos, order, schedule in instances:
        ends = f"(eos_positions (fun x => existsb (Nat.eqb x) {rocq_list(eos)}))"
        s = f"{schedule} {W} {L} (drafter {seed}) {ends} {order}"
        t = f"run {W} {L} (verifier {seed}) {ends} s ({L} * 2) []"
        told = f"(length t, state {L} {ends} t, in_hand s t, map (fun c => (h c, pi c)) (rev t))"
        asked.append(f"let s := {s} in let t := {t} in {told}")
    printed = library.ask(ANY_ORDER + f"Eval vm_compute in {rocq_list(asked)}.\n", "AnyOrder")
    for (seed, (W, L), eos, order, schedule), said in zip(instances, parsed(printed), strict=True):
        given = any_order.Given((), W, L, partial(verifier, seed), partial(drafter, seed), frozenset(eos), order=ORDERS[order])
        run = any_order.run(schedule, given)
        state = run.states[-1]
        drafts = [list(state.D) for state in run.states]
        ours = run.NFE, (list(state.P), state.E), drafts, [(record.h, list(record.pi)) for record in run.records]
        instance = (
            f"{schedule} in order {order}, hashed models {seed}, L {L}, W {W}, EOS {list(eos)}: NFE, (P, E), drafts, h and pi"
        )
        yield Case(instance, said, {"spec": ours})


# The ledger


WIDTHS = (1, 2, 3, 4)
TABLES = (
    Tables(2, 3, 2, (), seed=8),
    Tables(2, 3, 3, (1,), seed=10),
    Tables(3, 3, 2, (2,), seed=10),
    Tables(2, 5, 2, (), seed=3),
    Tables(3, 2, 3, (0, 2), seed=10),
)
SETS = tuple(ends for n in range(4) for ends in itertools.combinations(range(1, 4), n))  # of positions 1 .. 3
LONGEST: dict[Budget, int] = {"quick": 4, "full": 6}
RANDOM: dict[Budget, int] = {"quick": 60, "full": 500}
SEEDS: dict[Budget, range] = {"quick": range(2), "full": range(20)}


def _positions(library: Library, budget: Budget) -> Iterator[Case]:
    for L in range(LONGEST[budget] + 1):
        yield from positions(library, L, WIDTHS, ALL_STARTS)
    yield from positions(library, 3, WIDTHS, ALL_STARTS, SETS)


def _laws(library: Library, budget: Budget) -> Iterator[Case]:
    for tables in TABLES:
        yield from laws(library, tables)


class Kind(NamedTuple):
    """A comparison as the ledger makes it."""

    claim: str
    method: Method
    statement: str  # "run by Rocq, ..."
    bound: Callable[[Budget], str]
    cases: Callable[[Library, Budget], Iterator[Case]]


TIES = {
    "positions": Kind(
        "THM3.2",
        "exhaustive",
        "Dominance.v verifies in every call as many tokens as spec and the scheduler",
        lambda budget: f"all thresholds to L={LONGEST[budget]}, W<=4, 4 starts; with all sets of EOS positions to L=3",
        _positions,
    ),
    "matrices": Kind(
        "BOUND-2D",
        "property",
        "Dominance.v makes the scheduler's calls without ASM3.1 too, and Reach.v counts their shrunk contexts",
        lambda budget: f"{RANDOM[budget]} random matrices, L=8, W<=5, seed 0",
        lambda library, budget: matrices(library, 8, range(1, 6), RANDOM[budget], seed=0),
    ),
    "tokens": Kind(
        "COR-GREEDY",
        "property",
        "the token machine of Dominance.v has the prefix and the draft of spec and of the scheduler after every call",
        lambda budget: f"hashed models {SEEDS[budget][0]}..{SEEDS[budget][-1]}, L=6, W<=3, 4 starts, with and without EOS",
        lambda library, budget: tokens(library, 6, range(1, 4), SEEDS[budget]),
    ),
    "laws": Kind(
        "THM3.3",
        "exact",
        "the schedules of Exactness.v have the exact laws of output and NFE of spec and of the scheduler",
        lambda budget: "; ".join(map(str, TABLES)),
        _laws,
    ),
    "any-order": Kind(
        "PROPC1",
        "property",
        "the schedules of AnyOrder.v make the calls of spec",
        lambda budget: f"hashed models {SEEDS[budget][0]}..{SEEDS[budget][-1]}, W<=4, L<=6, 3 orders, with and without EOS",
        lambda library, budget: orders(library, [(1, 4), (2, 5), (3, 6), (4, 6)], SEEDS[budget]),
    ),
}


def check(name: str, budget: Budget, library: Library | None = None) -> list[Entry]:
    """One entry: it holds if no case differs."""
    claim, method, what, bound, cases = TIES[name]
    statement = f"run by Rocq, {what}"
    try:
        tie = compare(cases(library or Library(), budget))
    except Rejected as error:
        return [Entry(claim, statement, method, bound(budget), "not run", f"Rocq does not accept it: {error}")]
    if tie.mismatch:
        return [Entry(claim, statement, method, bound(budget), "violated", tie.mismatch)]
    return [Entry(claim, statement, method, bound(budget), "holds" if tie.cases else "not run", f"{tie.cases} values agree")]


CHECKS = tuple(Check(f"tied/{name}", (tie.claim,), partial(check, name)) for name, tie in TIES.items() if shutil.which("coqc"))
