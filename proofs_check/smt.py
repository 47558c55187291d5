"""Appendices B.1 and B.2 for every width, context and drafter at once: each step of a proof is an SMT obligation.

An obligation is proved when z3 finds its negation unsatisfiable with everything symbolic: widths, contexts and positions are
unbounded integers, thresholds and tokens uninterpreted functions, probabilities reals. Two more queries guard against an
encoding that says nothing, over a bounded copy of the same formulas (no quantifiers left) whose models plain Python replays:

    the assumptions have a model, and one in which the claim is no triviality
    a MUTATED statement, false by a little, has a counterexample

If the proof fails, the statement itself is searched for a counterexample. What stays outside is the schema of induction: over
iterations for THM3.2 (base case c_0 = l_0 = 0), over the places of a block for COR-GREEDY, over tokens for LEMB3 (empty sums).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

from proofs_check.ledger import Budget, Check, Entry
from simulator.acceptance import acceptance_probability
from simulator.laws import RationalLaw
from spec.thresholds import F

BOUND = 6  # positions of a bounded copy: its models are small enough to read
TIMEOUT_MS: dict[Budget, int] = {"quick": 10_000, "full": 60_000}  # queries take milliseconds; beyond this z3 says unknown
Term: TypeAlias = Any  # a z3 expression


class Symbols:
    """The vocabulary of one query: symbols, what holds of them, and what formulas are made of.

    With `bound` None quantifiers range over all integers. With a number every integer symbol lies in 0 .. bound and a
    quantifier is the conjunction over 0 .. bound; `first` keeps the positions it speaks of inside.
    """

    def __init__(self, bound: int | None = None) -> None:
        import z3

        self.z3, self.bound = z3, bound
        self.domain: list[Term] = []
        self.numbers: dict[str, Term] = {}
        self.functions: dict[str, Term] = {}
        self._quantified = 0

    def ints(self, names: str) -> list[Term]:
        """Integer symbols >= 0."""
        symbols = self._numbers(names, self.z3.Ints(names))
        self.inside(*symbols)
        return symbols

    def reals(self, names: str) -> list[Term]:
        """Real symbols >= 0."""
        return self._numbers(names, self.z3.Reals(names))

    def _numbers(self, names: str, symbols: list[Term]) -> list[Term]:
        self.numbers.update(zip(names.split(), symbols, strict=True))
        self.domain += [symbol >= 0 for symbol in symbols]
        return symbols

    def inside(self, *positions: Term) -> None:
        """A bounded copy looks at no position beyond its bound."""
        if self.bound is not None:
            self.domain += [position <= self.bound for position in positions]

    def function(self, name: str, arity: int = 1) -> Term:
        """An uninterpreted function from integers to integers."""
        if name not in self.functions:
            self.functions[name] = self.z3.Function(name, *[self.z3.IntSort()] * (arity + 1))
        return self.functions[name]

    def every(self, above: Term, below: Term | None, fact: Callable[[Term], Term]) -> Term:
        """fact(k) for every integer k with above < k < below; no upper end if `below` is None."""

        def implied(k: Term) -> Term:
            return self.z3.Implies((k > above) if below is None else self.z3.And(k > above, k < below), fact(k))

        if self.bound is not None:
            return self.z3.And([implied(self.z3.IntVal(k)) for k in range(self.bound + 1)])
        self._quantified += 1
        k = self.z3.Int(f"k!{self._quantified}")
        return self.z3.ForAll([k], implied(k))

    def first(self, end: Term, begin: Term, last: Term, good: Callable[[Term], Term]) -> Term:
        """`end` is the first position after `begin` that is not good; last + 1 when all up to `last` are."""
        self.inside(last + 1)
        return self.z3.And(begin < end, end <= last + 1, self.every(begin, end, good), (end == last + 1) | ~good(end))

    def minimum(self, a: Term, b: Term) -> Term:
        return self.z3.If(a < b, a, b)


class Drafting(Symbols):
    """Section B.1: W, thresholds c*(k), the greedy continuation x(k), and z(k, c), the token drafted for k from c tokens.

    Lengths count verified output tokens. In a step c is where two Packed-SS passes begin, c' (symbol c1) where the first of
    them ends and c'' (c2) where the second does; l and l' (l1) are where one Linear-SS iteration begins and ends.
    """

    def __init__(self, bound: int | None = None) -> None:
        super().__init__(bound)
        (self.width,) = self.ints("W")
        self.domain.append(self.width >= 1)

    def c_star(self, k: Term) -> Term:
        return self.function("c*")(k)

    def right(self, k: Term, c: Term) -> Term:
        """Position k is drafted correctly from c tokens: z(k, c) = x(k)."""
        return self.function("z", 2)(k, c) == self.function("x")(k)

    def asm(self, *contexts: Term) -> Term:
        """ASM3.1 at the contexts that are evaluated: c*_k <= k, and k > c is right from c exactly if c >= c*_k."""

        def at(c: Term) -> Term:
            return self.every(c, None, lambda k: self.right(k, c) == (c >= self.c_star(k)))

        thresholds = self.every(self.z3.IntVal(0), None, lambda k: self.c_star(k) <= k)
        if self.bound is not None:  # spec takes thresholds from 0 on
            thresholds &= self.every(self.z3.IntVal(0), None, lambda k: self.c_star(k) >= 0)
        return self.z3.And(thresholds, *map(at, contexts))

    def is_f(self, f: Term, c: Term, *, mutated: bool = False) -> Term:
        """f = F(c) by the inequalities of EQ6: c < f <= c + W + 1, c*_k <= c for c < k < f, and c*_f > c if f <= c + W.

        Mutated: the first k > c with c*_k >= c, for c*_k > c.
        """
        return self.first(f, c, c + self.width, lambda k: (self.c_star(k) < c) if mutated else (self.c_star(k) <= c))

    def verified(self, end: Term, context: Term, begin: Term, extra: int = 0) -> Term:
        """A verification that begins after position `begin` ends at `end`; its draft was proposed from `context`.

        EQ3: there are proposals for context + 1 .. context + W. EQ4: the draft is what lies beyond `begin`, if anything;
        for Linear-SS begin = context. EQ2 and ALG1.L6: the leading right ones are accepted, and the verifier's token is
        added in the place of the first wrong one, or after the last.
        """
        last = context + self.width + extra
        return self.first(end, begin, self.z3.If(begin > last, begin, last), lambda k: self.right(k, context))

    def passes(self) -> tuple[Term, Term, Term, Term]:
        """c, c', c'' and their relation. Of the first pass only c' > c is used (PROGRESS), so its draft may be any or none.

        The second verifies what is left beyond c' of the proposals that the first made from c.
        """
        c, middle, end = self.ints("c c1 c2")
        return c, middle, end, (c < middle) & self.verified(end, c, middle)


@dataclass(frozen=True)
class Values:
    """A model of a bounded copy: numbers by name, functions as tables over arguments 0 .. BOUND; B.1's notions in Python."""

    numbers: Mapping[str, Any]
    tables: Mapping[str, Mapping[tuple[int, ...], int]]

    def __getitem__(self, names: str) -> list[Any]:
        return [self.numbers[name] for name in names.split()]

    def table(self, name: str) -> list[int]:
        """Values at 0 .. BOUND of a function of one argument."""
        return [self.tables[name][k,] for k in range(BOUND + 1)]

    def __str__(self) -> str:
        parts = [f"{name} = {value}" for name, value in self.numbers.items()]
        parts += [f"{name} = {self.table(name)}" for name in self.tables if name not in ("c*", "x", "z")]
        if "c*" in self.tables:
            parts.append(f"c* = {self.thresholds}")
        if "z" in self.tables:
            contexts = range(BOUND)
            drafted = {
                c: [k for k in range(c + 1, min(c + self.numbers["W"], BOUND) + 1) if self.right(k, c)] for c in contexts
            }
            parts.append("drafted right: " + (", ".join(f"{ks} from {c}" for c, ks in drafted.items() if ks) or "nothing"))
        return ", ".join(parts)

    @property
    def thresholds(self) -> list[int]:
        return self.table("c*")[1:]

    def right(self, k: int, c: int) -> bool:
        return self.tables["z"][k, c] == self.tables["x"][k,]

    def asm(self, *contexts: int) -> bool:
        stars = list(enumerate(self.thresholds, start=1))
        return all(star <= k for k, star in stars) and all(
            self.right(k, c) == (c >= star) for c in contexts for k, star in stars if k > c
        )

    def f(self, c: int) -> int:
        return F(c, self.numbers["W"], self.thresholds)

    def verified(self, context: int, begin: int, extra: int = 0) -> int:
        """Where a verification ends that begins after `begin`, of what was drafted from `context`."""
        k = begin + 1
        while k <= context + self.numbers["W"] + extra and self.right(k, context):
            k += 1
        return k

    def passes(self) -> bool:
        c, middle, end = self["c c1 c2"]
        return bool(c < middle) and end == self.verified(c, middle)


@dataclass(frozen=True)
class Formula:
    """Assumptions, what follows from them, and a case of the assumptions in which that is no triviality."""

    given: Term
    claim: Term
    notable: Term = True


@dataclass(frozen=True)
class Obligation:
    """One step of a proof, and a mutated statement close to it that is false; each as a formula and in plain Python.

    `formula(symbols, mutated)` builds the formula over fresh symbols; `plain(values, mutated)` says of a model's values,
    independently of it, whether the assumptions hold and whether the claim does.
    """

    claim: str
    text: str
    mutant: str
    symbols: type[Symbols]
    formula: Callable[[Any, bool], Formula]
    plain: Callable[[Values, bool], tuple[bool, bool]]


# Lemma B.1


def _fresh(s: Drafting, mutated: bool) -> Formula:
    """What is drafted from c is verified from c on; it ends at `end`. Then `end` meets the inequalities of F(c)."""
    c, end = s.ints("c end")
    return Formula(s.asm(c) & s.verified(end, c, c), s.is_f(end, c, mutated=mutated), (c + 1 < end) & (end <= c + s.width))


def _plain_fresh(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, end, width = v["c end W"]
    f = min([c + width + 1, *(k for k, star in enumerate(v.thresholds, 1) if k > c and star >= c)]) if mutated else v.f(c)
    return v.asm(c) and end == v.verified(c, c), end == f


def _monotone(s: Drafting, mutated: bool) -> Formula:
    """For c <= c', with both values by their inequalities. Mutated: strictly increasing."""
    c, later, f, f_later = s.ints("c c1 F0 F1")
    given = s.is_f(f, c) & s.is_f(f_later, later)
    order, claim = (c < later, f < f_later) if mutated else (c <= later, f <= f_later)
    return Formula(given & order, claim, s.z3.And(c < later, later < f, f < f_later))


def _plain_monotone(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, later, f, f_later = v["c c1 F0 F1"]
    given = f == v.f(c) and f_later == v.f(later)
    return (given and c < later, f < f_later) if mutated else (given and c <= later, f <= f_later)


# Lemma B.2


def _two_passes(s: Drafting, mutated: bool) -> Formula:
    """c'' >= F(c), for c, c', c'' of `Drafting.passes`, ASM3.1 at c. Mutated: c'' >= F(c'), ASM3.1 at c' too."""
    c, middle, end, passes = s.passes()
    (f,) = s.ints("F")
    of = middle if mutated else c
    asm = s.asm(c, middle) if mutated else s.asm(c)
    return Formula(asm & s.is_f(f, of) & passes, end >= f, (middle + 1 < f) & (f <= c + s.width))


def _plain_two_passes(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, middle, end, f = v["c c1 c2 F"]
    of = middle if mutated else c
    return v.asm(c, of) and v.passes() and f == v.f(of), end >= f


# Theorem 3.2: its induction step, l = l_t, l' = l_{t+1}, c = c_2t, c' = c_{2t+1}, c'' = c_{2t+2}


def _step_by_f(s: Drafting, mutated: bool) -> Formula:
    """From l <= c and l' = F(l): c'' >= l', the two inequalities of the paper's chain at once. Mutated: no ASM3.1 at c."""
    c, middle, end, passes = s.passes()
    l, l_next = s.ints("l l1")  # noqa: E741
    asm = s.asm() if mutated else s.asm(c)
    return Formula(s.z3.And(asm, l <= c, s.is_f(l_next, l), passes), end >= l_next, (l < c) & (middle + 1 < l_next))


def _plain_step_by_f(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, end, l, l_next = v["c c2 l l1"]  # noqa: E741
    asm = v.asm() if mutated else v.asm(c)
    return asm and l <= c and l_next == v.f(l) and v.passes(), end >= l_next


def _step(s: Drafting, mutated: bool) -> Formula:
    """The same without F: both schedules as transitions, one drafter, ASM3.1 at l and c. Mutated: Linear-SS drafts W + 1."""
    c, middle, end, passes = s.passes()
    l, l_next = s.ints("l l1")  # noqa: E741
    linear = s.verified(l_next, l, l, extra=int(mutated))
    return Formula(s.z3.And(l <= c, s.asm(l, c), linear, passes), end >= l_next, (l < c) & (middle + 1 < l_next))


def _plain_step(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, end, l, l_next = v["c c2 l l1"]  # noqa: E741
    return l <= c and v.asm(l, c) and l_next == v.verified(l, l, int(mutated)) and v.passes(), end >= l_next


def _least_n(s: Symbols, mutated: bool) -> Formula:
    """From c_2t >= l_t to call counts, for any two sequences c(n), l(t) of lengths that begin at 0, before truncation.

    E: position of the first EOS, 0 without one. A schedule makes its last call at the least n with c(n) >= L or c(n) >= E,
    or 2T calls for the least such T; no call for L = 0. Mutated: at most 2T - 1 calls, for T >= 1.
    """
    n, iterations, limit, eos = s.ints("n T L E")
    c, l = s.function("c"), s.function("l")  # noqa: E741
    zero, before = s.z3.IntVal(0), s.z3.IntVal(-1)
    s.inside(2 * iterations)

    def least(index: Term, lengths: Term) -> Term:
        def stopped(m: Term) -> Term:
            return (lengths(m) >= limit) | ((eos > 0) & (lengths(m) >= eos))

        return stopped(index) & s.every(before, index, lambda m: ~stopped(m))

    dominated = s.every(before, iterations + 1, lambda t: c(2 * t) >= l(t))
    given = s.z3.And(c(zero) == 0, l(zero) == 0, dominated, least(n, c), least(iterations, l), iterations >= int(mutated))
    return Formula(given, n <= 2 * iterations - int(mutated), s.z3.And(iterations >= 2, eos > 0, eos < limit))


def _plain_least_n(v: Values, mutated: bool) -> tuple[bool, bool]:
    n, iterations, limit, eos = v["n T L E"]
    c, l = v.table("c"), v.table("l")  # noqa: E741
    end = min(limit, eos) if eos else limit
    dominated = c[0] == l[0] == 0 and all(c[2 * t] >= l[t] for t in range(iterations + 1))
    counts = [next((m for m, length in enumerate(lengths) if length >= end), None) for lengths in (c, l)]
    return dominated and counts == [n, iterations] and iterations >= mutated, n <= 2 * iterations - mutated


# Algorithm 1, lines 1-3, 5-9


def _cut(s: Symbols, mutated: bool) -> Formula:
    """ALG1.L7-L9 and L2: after c tokens a block of A is cut to its first a = min(A, L - c, first EOS in it).

    x(k) is the continuation, e an EOS id, E its first occurrence, which is not out yet. Then c + a = min(c + A, L, E), and the
    loop goes on exactly if c + A is below both. Mutated: the EOS is looked for in the last token only.
    """
    c, block, a, limit, e, first = s.ints("c A a L e E")
    x, zero = s.function("x"), s.z3.IntVal(0)
    s.inside(c + block)
    room = s.minimum(block, limit - c)
    cut = a == (room if mutated else s.minimum(room, first - c))
    given = s.z3.And(block >= 1, c < limit, cut, first > c, x(first) == e, s.every(zero, first, lambda k: x(k) != e))
    end, goes_on = s.minimum(limit, first), (c + a < limit) & (x(c + a) != e)
    claim = (c + a == s.minimum(c + block, end)) & (goes_on == (c + block < end))
    return Formula(given, claim, s.z3.And(first < limit, limit < c + block))


def _plain_cut(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, block, a, limit, e, first = v["c A a L e E"]
    x = v.table("x")
    ends = [] if mutated else [i for i in range(1, block + 1) if x[c + i] == e]
    given = block >= 1 and c < limit and c < first == x.index(e, 1) and a == min([block, limit - c, *ends])
    end, goes_on = min(limit, first), c + a < limit and x[c + a] != e
    return given, c + a == min(c + block, end) and goes_on == (c + block < end)


def _block(s: Symbols, mutated: bool) -> Formula:
    """EQ1, EQ2 and ALG1.L6: what one greedy call appends after c tokens of the continuation x is the continuation.

    The draft d(1) .. d(D) may be any. Prediction v(i) is x(c + i) where d(1) .. d(i - 1) are x(c + 1) .. x(c + i - 1), anything
    elsewhere. The block is d(1) .. d(h), v(h + 1), h the leading matches of d and v; i is a place in it before which it follows
    x (induction). Mutated: one place more, the prediction behind a rejected draft token, all draft tokens before it being x.
    """
    c, length, h, i = s.ints("c D h i")
    x, d, v, zero = s.function("x"), s.function("d"), s.function("v"), s.z3.IntVal(0)
    s.inside(c + length + 1)

    def follows(below: Term) -> Term:
        return s.every(zero, below, lambda m: d(m) == x(c + m))

    verifier = s.every(zero, length + 2, lambda j: s.z3.Implies(follows(j), v(j) == x(c + j)))
    block = s.first(h + 1, zero, length, lambda j: d(j) == v(j))
    if mutated:
        return Formula(s.z3.And(verifier, block, h < length, i == h + 2, follows(h + 1)), v(i) == x(c + i))
    given = s.z3.And(verifier, block, i >= 1, i <= h + 1, follows(i))
    return Formula(given, s.z3.If(i <= h, d(i), v(i)) == x(c + i), (i == h + 1) & (h >= 1) & (h < length))


def _plain_block(values: Values, mutated: bool) -> tuple[bool, bool]:
    c, length, h, i = values["c D h i"]
    x, d, v = map(values.table, "xdv")
    follows = [all(d[m] == x[c + m] for m in range(1, j)) for j in range(length + 2)]  # before place j
    given = h == next((j for j in range(length) if d[j + 1] != v[j + 1]), length)
    given = given and all(v[j] == x[c + j] for j in range(1, length + 2) if follows[j])
    if mutated:
        return given and h < length and i == h + 2 and follows[h + 1], v[i] == x[c + i]
    return given and 1 <= i <= h + 1 and follows[i], (d[i] if i <= h else v[i]) == x[c + i]


# Lemma B.3. For one token p and q are its target and stored draft probability; sums over other tokens are symbols, so V is any


def _excess(s: Symbols, p: Term, q: Term) -> Term:
    return s.z3.If(p > q, p - q, s.z3.RealVal(0))


def _law(p: Fraction) -> RationalLaw:
    return RationalLaw((p, 1 - p))


def _accept(s: Symbols, mutated: bool) -> Formula:
    """The accepting branch, q > 0: drawn and accepted has probability q min(1, p/q) = min(p, q). Mutated: accepted with p/q."""
    p, q = s.reals("p q")
    alpha = p / q if mutated else s.minimum(s.z3.RealVal(1), p / q)
    return Formula(s.z3.And(p <= 1, q <= 1, q > 0), q * alpha == s.minimum(p, q), (p > 0) & (p < q))


def _plain_accept(v: Values, mutated: bool) -> tuple[bool, bool]:
    p, q = v["p q"]
    if not (0 <= p <= 1 and 0 < q <= 1):
        return False, False
    alpha = p / q if mutated else acceptance_probability(_law(p), _law(q), 0)
    return True, q * alpha == min(p, q)


def _sums(s: Symbols, mutated: bool) -> Formula:
    """sum min(p, q) + sum [p-q]+ = sum p, and the second never falls: from some tokens to one more. Mutated: = sum q."""
    p, q, total, both, excess = s.reals("p q sum_p sum_min sum_excess")
    both_next, excess_next = both + s.minimum(p, q), excess + _excess(s, p, q)
    claim = (both_next + excess_next == total + (q if mutated else p)) & (excess_next >= excess)
    return Formula(both + excess == total, claim, s.z3.And(q > 0, q < p, excess > 0))


def _plain_sums(v: Values, mutated: bool) -> tuple[bool, bool]:
    p, q, total, both, excess = v["p q sum_p sum_min sum_excess"]
    both_next, excess_next = both + min(p, q), excess + max(p - q, 0)
    return both + excess == total, both_next + excess_next == total + (q if mutated else p) and excess_next >= excess


def _token(s: Symbols, mutated: bool) -> Formula:
    """Both branches: min(p, q) + (1 - beta) [p-q]+ / sum [p-q]+ = p, beta = sum min; min(p, q) = p if that sum is 0.

    The rests are sums over the other tokens, related as in `_sums`. Mutated: the correction is drawn from p.
    """
    p, q, other_p, other_q, other_both, other_excess = s.reals("p q p_rest q_rest min_rest excess_rest")
    others = other_both + other_excess == other_p
    if s.bound is not None:  # a bounded copy has one other token
        others &= (other_both == s.minimum(other_p, other_q)) & (other_excess == _excess(s, other_p, other_q))
    beta, excess = s.minimum(p, q) + other_both, _excess(s, p, q)
    corrected = s.z3.If(
        excess + other_excess > 0, (1 - beta) * (p if mutated else excess / (excess + other_excess)), s.z3.RealVal(0)
    )
    given = s.z3.And(p + other_p == 1, q + other_q == 1, others)
    return Formula(given, s.minimum(p, q) + corrected == p, (q > 0) & (q < p))


def _plain_token(v: Values, mutated: bool) -> tuple[bool, bool]:
    p, q, other_p, other_q, other_both, other_excess = v["p q p_rest q_rest min_rest excess_rest"]
    if not p + other_p == q + other_q == 1:
        return False, False
    target, proposal = _law(p), _law(q)
    accepted = [proposal.probability(x) * acceptance_probability(target, proposal, x) for x in (0, 1)]
    correction = target if mutated else target.residual(proposal)
    emitted = accepted[0] + ((1 - sum(accepted)) * correction.probability(0) if correction else 0)
    return other_both == min(other_p, other_q) and other_excess == max(other_p - other_q, 0), emitted == p


# Beyond the paper: reach(c) is where a fresh draft from c, verified, really ends, whatever the drafter


def _reach_two_passes(s: Drafting, mutated: bool) -> Formula:
    """Lemma B.2 for reach, without any assumption: c'' >= r = reach(c). Mutated: r = reach(c')."""
    c, middle, end, passes = s.passes()
    (r,) = s.ints("r")
    of = middle if mutated else c
    return Formula(s.verified(r, of, of) & passes, end >= r, (middle + 1 < r) & (r <= c + s.width))


def _plain_reach_two_passes(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, middle, end, r = v["c c1 c2 r"]
    of = middle if mutated else c
    return v.passes() and r == v.verified(of, of), end >= r


def _reach_step(s: Drafting, mutated: bool) -> Formula:
    """The induction step of Theorem 3.2 from l <= c and l' = reach(l) <= reach(c) = r alone. Mutated: without l' <= r."""
    c, middle, end, passes = s.passes()
    l, l_next, r = s.ints("l l1 r")  # noqa: E741
    given = s.z3.And(l <= c, s.verified(l_next, l, l), s.verified(r, c, c), passes)
    return Formula(given if mutated else given & (l_next <= r), end >= l_next, (l < c) & (middle + 1 < l_next))


def _plain_reach_step(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, end, l, l_next, r = v["c c2 l l1 r"]  # noqa: E741
    given = l <= c and l_next == v.verified(l, l) and r == v.verified(c, c) and v.passes()
    return given and (mutated or l_next <= r), end >= l_next


def _weaker(s: Drafting, mutated: bool) -> Formula:
    """ASM3.1 at c <= c' gives r = reach(c) <= reach(c') = r'.

    Mutated: the converse. W = 2 and reach never shrinks over contexts 0 .. 3; then what is right from c is right from c' > c.
    """
    c, later = s.ints("c c1")
    if not mutated:
        r, r_later = s.ints("r r1")
        given = s.z3.And(c <= later, s.asm(c, later), s.verified(r, c, c), s.verified(r_later, later, later))
        return Formula(given, r <= r_later, s.z3.And(c < later, later + 1 < r, r < r_later))
    reaches, (k,) = s.ints("r0 r1 r2 r3"), s.ints("k")
    fresh = [s.verified(r, s.z3.IntVal(context), s.z3.IntVal(context)) for context, r in enumerate(reaches)]
    grows = [a <= b for a, b in itertools.pairwise(reaches)]
    given = s.z3.And(s.width == 2, *fresh, *grows, c < later, later <= 3, later < k, k <= c + s.width)
    return Formula(given, s.z3.Implies(s.right(k, c), s.right(k, later)))


def _plain_weaker(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, later = v["c c1"]
    if not mutated:
        r, r_later = v["r r1"]
        return c <= later and v.asm(c, later) and r == v.verified(c, c) and r_later == v.verified(later, later), r <= r_later
    reaches, (width, k) = [v.verified(context, context) for context in range(4)], v["W k"]
    given = reaches == sorted(reaches) and width == 2 and later <= 3 and c < later < k <= c + width
    return given, v.right(k, later) or not v.right(k, c)


def _repaid(s: Drafting, mutated: bool) -> Formula:
    """Without any assumption, from l <= c: c'' >= l', or l < c with reach(c) < reach(l) = l', and c'' >= l still.

    So a context c = c_2s at which Linear-SS is not matched is one of the d whose reach lies below that of a shorter context,
    and costs one pair of passes: c_{2(t+d)} >= l_t. Mutated: c'' >= l' always.
    """
    c, _, end, passes = s.passes()
    l, l_next, r = s.ints("l l1 r")  # noqa: E741
    given = s.z3.And(l <= c, s.verified(l_next, l, l), s.verified(r, c, c), passes)
    unmatched = s.z3.And(l < c, r < l_next, end >= l)
    return Formula(given, end >= l_next if mutated else (end >= l_next) | unmatched, end < l_next)


def _plain_repaid(v: Values, mutated: bool) -> tuple[bool, bool]:
    c, end, l, l_next, r = v["c c2 l l1 r"]  # noqa: E741
    given = l <= c and l_next == v.verified(l, l) and r == v.verified(c, c) and v.passes()
    return given, end >= l_next or (not mutated and l < c and r < l_next and end >= l)


OBLIGATIONS: dict[str, Obligation] = {
    "LEMB1/fresh": Obligation(
        "LEMB1",
        "under ASM3.1 a fresh draft of W tokens from c, verified, ends at F(c)",
        "F with c*_k >= c in the place of c*_k > c",
        Drafting,
        _fresh,
        _plain_fresh,
    ),
    "LEMB1/monotone": Obligation(
        "LEMB1", "F(c) <= F(c') for c <= c'", "F(c) < F(c') for c < c'", Drafting, _monotone, _plain_monotone
    ),
    "LEMB2/two-passes": Obligation(
        "LEMB2",
        "two Packed-SS passes from c end at F(c) or beyond",
        "they end at F(c') or beyond, c' the end of the first",
        Drafting,
        _two_passes,
        _plain_two_passes,
    ),
    "THM3.2/step-by-F": Obligation(
        "THM3.2",
        "induction step: c_2t >= l_t and l_{t+1} = F(l_t) give c_{2t+2} >= l_{t+1}",
        "the same where the drafter does not keep to the thresholds at c_2t",
        Drafting,
        _step_by_f,
        _plain_step_by_f,
    ),
    "THM3.2/step": Obligation(
        "THM3.2",
        "induction step: two Packed-SS passes from c_2t >= l_t end where one Linear-SS iteration from l_t does, or beyond",
        "the same against a Linear-SS that drafts W + 1",
        Drafting,
        _step,
        _plain_step,
    ),
    "EQ5/least-n": Obligation(
        "EQ5",
        "c_2t >= l_t for all t: the least n with c_n >= min(L, E) is at most 2T, T the least with l_T >= min(L, E)",
        "at most 2T - 1, for T >= 1",
        Symbols,
        _least_n,
        _plain_least_n,
    ),
    "STOP/cut": Obligation(
        "STOP",
        "a block of A tokens after c is cut at min(c + A, L, E), and the run goes on exactly if c + A is below L and E",
        "the same when only the last token of a block may be an EOS",
        Symbols,
        _cut,
        _plain_cut,
    ),
    "COR-GREEDY/block": Obligation(
        "COR-GREEDY",
        "whatever the draft, a greedy call appends tokens of the verifier's own continuation",
        "so is the prediction behind a rejected draft token",
        Symbols,
        _block,
        _plain_block,
    ),
    "LEMB3/accept": Obligation(
        "LEMB3",
        "a token drawn with q > 0 and accepted with min(1, p/q) comes out with probability min(p, q)",
        "the same, accepted with p/q",
        Symbols,
        _accept,
        _plain_accept,
    ),
    "LEMB3/sums": Obligation(
        "LEMB3",
        "the sums of min(p, q) and of [p-q]+ add up to that of p, for one token more",
        "they add up to that of q",
        Symbols,
        _sums,
        _plain_sums,
    ),
    "LEMB3/token": Obligation(
        "LEMB3",
        "min(p, q) + (1 - sum of min(p, q)) [p-q]+ / sum of [p-q]+ = p, for a vocabulary of any size",
        "the same with the correction drawn from p",
        Symbols,
        _token,
        _plain_token,
    ),
    "ASM-REACH/two-passes": Obligation(
        "ASM-REACH",
        "without any assumption two Packed-SS passes from c end at the reach of c or beyond",
        "they end at the reach of c' or beyond, c' the end of the first",
        Drafting,
        _reach_two_passes,
        _plain_reach_two_passes,
    ),
    "ASM-REACH/step": Obligation(
        "ASM-REACH",
        "the induction step of THM3.2 needs only reach(l_t) <= reach(c_2t)",
        "it needs nothing",
        Drafting,
        _reach_step,
        _plain_reach_step,
    ),
    "ASM-REACH/weaker": Obligation(
        "ASM-REACH",
        "ASM3.1 at c <= c' gives reach(c) <= reach(c')",
        "a reach that never shrinks gives ASM3.1",
        Drafting,
        _weaker,
        _plain_weaker,
    ),
    "BOUND-2D/step": Obligation(
        "BOUND-2D",
        "without any assumption two Packed-SS passes from c >= l end at l' or beyond, or reach(c) < reach(l), l < c",
        "they end at l' or beyond",
        Drafting,
        _repaid,
        _plain_repaid,
    ),
}


def solver(name: str) -> Any:
    """z3's solver with the negation of an obligation, everything symbolic. Raises KeyError for a name not in OBLIGATIONS."""
    obligation = OBLIGATIONS[name]
    symbols = obligation.symbols()
    return _loaded(symbols, obligation.formula(symbols, False), refute=True)


def smt_lib(name: str) -> str:
    """The negation of an obligation as SMT-LIB 2 text: the claim holds when a solver answers unsat.

    Raises KeyError for a name not in OBLIGATIONS.
    """
    obligation = OBLIGATIONS[name]
    text = solver(name).to_smt2()
    return f"; {name}: {obligation.text}\n; This is its negation: unsat means that it holds.\n(set-logic ALL)\n{text}"


def prove(name: str, budget: Budget = "quick") -> Entry:
    """Discharge one obligation, with the queries that guard it."""
    obligation, timeout = OBLIGATIONS[name], TIMEOUT_MS[budget]
    entry = partial(Entry, obligation.claim, obligation.text, "SMT", "unbounded")
    negation = solver(name)
    negation.set("timeout", timeout)
    begun = time.perf_counter()
    answer = _answer(negation)
    milliseconds = 1000 * (time.perf_counter() - begun)
    if answer != "unsat":
        counterexample = _model(obligation, False, True, timeout)
        if isinstance(counterexample, Values):
            return entry("violated", f"counterexample: {counterexample}")
        return entry(
            "not run", f"z3 answers {answer} to the negation; counterexample within {BOUND} positions: {counterexample}"
        )
    met = _model(obligation, False, False, timeout)
    if not isinstance(met, Values):
        return entry("not run", f"the assumptions have no model in which the claim says something: {met}")
    refuted = _model(obligation, True, True, timeout)
    if not isinstance(refuted, Values):
        return entry("not run", f"not refuted, though false: {obligation.mutant}: {refuted}")
    return entry(
        "holds",
        f"negation unsat in {milliseconds:.0f} ms; assumptions met by {met};"
        f" mutated ({obligation.mutant}) refuted by {refuted}",
    )


def _model(obligation: Obligation, mutated: bool, refute: bool, timeout: int) -> Values | str:
    """A model of the assumptions in the notable case or, to refute, against the claim, that plain Python confirms.

    Without one, the reason.
    """
    symbols = obligation.symbols(BOUND)
    solver = _loaded(symbols, obligation.formula(symbols, mutated), refute)
    solver.set("timeout", timeout)
    answer = _answer(solver)
    if answer != "sat":
        return answer
    values = _read(symbols, solver.model())
    given, claim = obligation.plain(values, mutated)
    if not given or claim == refute:
        return f"plain Python disagrees (assumptions {given}, claim {claim}) about {values}"
    return values


def _loaded(symbols: Symbols, formula: Formula, refute: bool) -> Any:
    solver = symbols.z3.Solver()
    solver.add(*symbols.domain, formula.given, symbols.z3.Not(formula.claim) if refute else formula.notable)
    return solver


def _answer(solver: Any) -> str:
    answer = str(solver.check())
    return f"unknown ({solver.reason_unknown()})" if answer == "unknown" else answer


def _read(symbols: Symbols, model: Any) -> Values:
    def number(term: Term) -> Any:
        value = model.eval(term, model_completion=True)
        return value.as_long() if value.is_int() else value.as_fraction()

    tables = {
        name: {point: number(function(*point)) for point in itertools.product(range(BOUND + 1), repeat=function.arity())}
        for name, function in symbols.functions.items()
    }
    return Values({name: number(symbol) for name, symbol in symbols.numbers.items()}, tables)


def _entries(name: str, budget: Budget) -> list[Entry]:
    return [prove(name, budget)]


CHECKS = tuple(Check(f"smt/{name}", (obligation.claim,), partial(_entries, name)) for name, obligation in OBLIGATIONS.items())
