"""Exact laws of the number of calls, without simulation: any schedule against a drafter with independent surprises and lags.

Every schedule tests a position at most once, in order, and commits it as it does: what a draft still holds about later
positions has never been looked at. So a run is a Markov chain over (phase, gap, end) and a few bits about the last committed
position: the next draft was made `gap` tokens ago and reaches `end` tokens beyond where it was made. docs/nfe.md derives it.

Results are rational numbers, and exact, when every parameter is an int or a Fraction; float64 otherwise. There, besides 1 - p,
only products and sums of non-negative numbers occur: by the count of roundings a mean of NFE is off by less than 1e-10 of
itself up to L = 1000 and W = 64. Tests compare it with the rational one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from simulator.errors import InvalidInput
from simulator.records import Call
from simulator.schedule import Schedule

if TYPE_CHECKING:
    from simulator.oracles.families.family import Family

Number: TypeAlias = int | float | Fraction
Array: TypeAlias = npt.NDArray[Any]  # float64, or Fractions as objects
Survival: TypeAlias = Callable[[int], Number]
"""j -> P(lag >= j), j >= 1: how often a token is drafted right j positions ahead. Not increasing."""


class Kind(NamedTuple):
    """One kind of position. Its draft, made j >= 1 tokens before it, is right iff all three hold, independently of the rest:
    it is no surprise; there was none between, or it is predictable all the same; its lag is j or more."""

    survival: Survival = lambda offset: 1
    surprise: Number = 0  # P(surprise): wrong in every draft
    rho: Number = 1  # P(predictable behind a barrier): right although the draft was made before the last surprise


@dataclass(frozen=True)
class DrafterLaw:
    """Kinds of positions that follow one another as a Markov chain: `transition` [X, X], `begin` [X] the law at position 0.

    Assumption 3.1 holds in every one: a position's threshold is the largest of k (a surprise), the last surprise (a barrier it
    does not see through) and k - lag. Raises InvalidInput for a probability outside 0 .. 1 or a row that does not add up to 1.
    """

    name: str
    kinds: tuple[Kind, ...]
    transition: tuple[tuple[Number, ...], ...] = ((1,),)
    begin: tuple[Number, ...] = (1,)

    def __post_init__(self) -> None:
        size = len(self.kinds)
        for kind in self.kinds:
            probability("surprise", kind.surprise)
            probability("rho", kind.rho)
        if len(self.transition) != size:
            raise InvalidInput(f"transition must have a row for each of {size} kinds, got {len(self.transition)}")
        for name, row in (("begin", self.begin), *(("a row of transition", row) for row in self.transition)):
            for p in row:
                probability(name, p)
            if len(row) != size or abs(float(sum(row)) - 1) > 1e-12:
                raise InvalidInput(f"{name} must be {size} probabilities that add up to 1, got {list(row)}")

    @cached_property
    def exact(self) -> bool:
        numbers = [*self.begin, *(p for row in self.transition for p in row)]
        numbers += [p for kind in self.kinds for p in (kind.surprise, kind.rho, *map(kind.survival, (1, 2, 3)))]
        return not any(isinstance(number, float | np.floating) for number in numbers)

    def array(self, values: Any) -> Array:
        """Fractions if this law is exact, else float64."""
        if not self.exact:
            return np.array(values, dtype=np.float64)
        objects = np.array(values, dtype=object)
        return np.vectorize(Fraction, otypes=[object])(objects) if objects.size else objects

    # The hidden state between positions is 2 x + f: x is the kind of the position last seen; while a draft is tested, f says
    # that a surprise stands between where it was made and where the test is; between calls, that the position is one.

    @cached_property
    def initial(self) -> Array:
        """The hidden state before position 1. [Z]"""
        return self.array([p for weight in self.begin for p in (weight, 0)])

    @cached_property
    def fresh(self) -> Array:
        """What becomes of the hidden state when the next draft is made here: nothing stands between. [Z, Z]"""
        return self.array([[int(b == a - a % 2) for b in range(len(self.initial))] for a in range(len(self.initial))])

    @cached_property
    def unseen(self) -> Array:
        """A position committed without a test: the verifier's own token after a draft. [Z, Z]"""
        return self._matrix(lambda kind, f: (1 - kind.surprise, kind.surprise))

    def right(self, offset: int) -> Array:
        """A draft token `offset` tokens from where it was made is right; f stays. [Z, Z]"""
        return self._matrix(lambda kind, f: (0, self._right(kind, f, offset)) if f else (self._right(kind, f, offset), 0))

    def wrong(self, offset: int) -> Array:
        """It is wrong, and committed as the verifier has it; f says whether it was a surprise. [Z, Z]"""
        return self._matrix(lambda kind, f: (1 - kind.surprise - self._right(kind, f, offset), kind.surprise))

    @staticmethod
    def _right(kind: Kind, f: int, offset: int) -> Number:
        return (1 - kind.surprise) * (kind.rho if f else 1) * probability("P(lag >= j)", kind.survival(offset))

    def _matrix(self, entry: Callable[[Kind, int], tuple[Number, Number]]) -> Array:
        """Row 2 x + f, columns 2 y, 2 y + 1: transition[x][y] times entry(kind y, f)."""
        return self.array(
            [
                [move * p for move, kind in zip(row, self.kinds, strict=True) for p in entry(kind, f)]
                for row in self.transition
                for f in (0, 1)
            ]
        )


def probability(name: str, p: Number) -> Number:
    """`p`, if it is one. Raises InvalidInput."""
    if not 0 <= p <= 1:
        raise InvalidInput(f"{name} must lie in 0 .. 1, got {p}")
    return p


def geometric_lags(mean_lag: Number) -> DrafterLaw:
    """Independent lags, P(lag >= j) = (mean / (1 + mean))^j: the law of `random_lags`."""
    if not 0 <= mean_lag < float("inf"):
        raise InvalidInput(f"the mean lag must be >= 0 and finite, got {mean_lag}")
    ratio = mean_lag / (1 + mean_lag) if isinstance(mean_lag, float) else Fraction(mean_lag) / (1 + Fraction(mean_lag))
    return DrafterLaw(f"geometric lag {mean_lag}", (Kind(lambda offset: ratio**offset),))


def histogram_lags(weights: Sequence[Number]) -> DrafterLaw:
    """Independent lags, P(lag = j) = weights[j] for j = 0, 1, ..; the weights add up to 1."""
    return DrafterLaw(f"lag histogram of {len(weights)}", (Kind(_survival(weights)),))


def acceptance(*rates: Number) -> DrafterLaw:
    """Every draft token is accepted independently, with rates[j - 1] if it was made j tokens before; the last rate goes on.

    One rate a is the model of speculative sampling by independent coins: then a token an iteration of Linear is worth
    (1 - a^(W+1)) / (1 - a) in the long run.
    """
    if not rates:
        raise InvalidInput("acceptance needs at least one rate")
    for rate in rates:
        probability("acceptance", rate)
    if any(b > a for a, b in pairwise(rates)):
        raise InvalidInput(f"acceptance must not increase with the distance, got {list(rates)}")
    return DrafterLaw(f"acceptance {rates[0]}", (Kind(lambda offset: rates[min(offset, len(rates)) - 1]),))


def barrier(surprise: Number) -> DrafterLaw:
    """Surprises with this rate; what is drafted before a surprise is wrong from there on."""
    return DrafterLaw(f"barrier {surprise}", (Kind(surprise=surprise, rho=0),))


def mixture(surprise: Number, rho: Number) -> DrafterLaw:
    """Barriers that a share `rho` of the positions behind them does not mind. rho = 1 is acceptance(1 - surprise)."""
    return DrafterLaw(f"mixture {surprise}, {rho}", (Kind(surprise=surprise, rho=rho),))


def markov(stay: Sequence[Number], kinds: Sequence[Kind]) -> DrafterLaw:
    """Two kinds in stretches: kind x is followed by itself with probability stay[x]; position 0 has the stationary law."""
    if len(stay) != 2 or len(kinds) != 2:
        raise InvalidInput(f"markov needs two kinds and two probabilities to stay, got {len(kinds)} and {len(stay)}")
    a, b = (1 - probability("stay", p) for p in stay)
    if a + b == 0:
        raise InvalidInput("markov: one of the two probabilities to stay must be < 1")
    share = b / (a + b) if isinstance(a + b, float) else Fraction(b) / Fraction(a + b)
    return DrafterLaw("markov", tuple(kinds), ((1 - a, a), (b, 1 - b)), (share, 1 - share))


def law_of(family: Family, cap: int) -> DrafterLaw:
    """The law of a family of `simulator.oracles.families`; `cap` > W of every schedule it is to meet. In float64.

    Raises InvalidInput for one with noise, which Assumption 3.1 does not survive, or whose difficulty depends on the position.
    """
    process = family.process(cap)
    if family.noise or process.turn:
        raise InvalidInput(f"no exact law of {family}: simulate it")
    a, b = process.switch
    kinds = [
        Kind(
            _table(process.below[regime]),
            process.surprise[regime],
            process.predictable[regime] if process.surprise[regime] else 1.0,
        )
        for regime in (0, 1)
    ]
    if a + b == 0:
        return DrafterLaw(str(family), (kinds[0],))
    return DrafterLaw(str(family), tuple(kinds), ((1 - a, a), (b, 1 - b)), (b / (a + b), a / (a + b)))


def _table(below: npt.NDArray[np.float64]) -> Survival:
    return lambda offset: float(1 - below[min(offset, len(below)) - 1])


def _survival(weights: Sequence[Number]) -> Survival:
    for weight in weights:
        probability("a weight of the lag histogram", weight)
    if abs(float(sum(weights)) - 1) > 1e-12:
        raise InvalidInput(f"the weights of the lag histogram must add up to 1, got {sum(weights)}")
    tails: list[Number] = [0]
    for weight in reversed(weights):
        tails.append(tails[-1] + weight)
    tails.reverse()
    return lambda offset: tails[min(offset, len(tails) - 1)]


class Place(NamedTuple):
    """Where a run stands between two calls: draft tokens for the positions gap + 1 .. end after the one it was made at."""

    phase: int  # of the schedule: opening, then cycle
    gap: int
    end: int


class LongRun(NamedTuple):
    """Averages over calls as the output grows without bound."""

    tokens_per_call: Number
    cost_per_call: Number

    @property
    def throughput(self) -> Number:
        return self.tokens_per_call / self.cost_per_call


class Chain:
    """`schedule` against `law`. Places are numbered in the order found; 0 is the beginning."""

    def __init__(self, schedule: Schedule, law: DrafterLaw) -> None:
        self.schedule, self.law = schedule, law
        self.asks = (*schedule.opening, *schedule.cycle)
        self.places: list[Place] = [Place(0, 0, 0)]
        number = {self.places[0]: 0}
        moves: list[tuple[int, int, int, Array]] = []  # place, tokens committed, next place, [Z, Z]
        for index, place in enumerate(self.places):  # grows as it goes
            for committed, after, matrix in self._calls(place):
                if after not in number:
                    number[after] = len(self.places)
                    self.places.append(after)
                moves.append((index, committed, number[after], matrix))
        size = len(law.initial)
        self._size = size
        self._moves: dict[tuple[int, int], Array] = {}  # (tokens committed, next place) -> [places x Z, Z]
        for index, committed, to, matrix in moves:
            block = self._moves.setdefault((committed, to), self._zeros(len(self.places) * size, size))
            block[index * size : (index + 1) * size] += matrix

    def _calls(self, place: Place) -> list[tuple[int, Place, Array]]:
        """What one call can lead to: tokens committed, the next place, the move of the hidden state."""
        law, ask = self.law, self.asks[place.phase]
        following = place.phase + 1 if place.phase + 1 < len(self.asks) else len(self.schedule.opening)
        if not ask.verify:
            if not ask.branches:
                return [(0, place._replace(phase=following), self._one)]
            return [(0, Place(following, 0, ask.width), law.fresh)]
        found = []
        so_far = self._one
        for accepted in range(place.end - place.gap + 1):
            last = accepted == place.end - place.gap
            offset = place.gap + accepted + 1
            branch = max((b for b in ask.branches if b <= accepted), default=None)
            after = Place(following, 0, 0)
            if branch is not None and accepted + 1 - branch < ask.width:
                after = Place(following, accepted + 1 - branch, ask.width)
            found.append((accepted + 1, after, so_far @ (law.unseen if last else law.wrong(offset))))
            if not last:
                so_far = so_far @ law.right(offset)
        return found

    @cached_property
    def _one(self) -> Array:
        return self.law.array(np.eye(len(self.law.initial), dtype=int))

    def _zeros(self, *shape: int) -> Array:
        return np.full(shape, Fraction(0)) if self.law.exact else np.zeros(shape)

    def rows(self, place: Place) -> int:
        """Token rows of the call made there, padding included (TAB2)."""
        return Call((), (0,) * (place.end - place.gap), *self.asks[place.phase]).padded_rows

    def expected_nfe(self, length: int) -> Array:
        """E[NFE(l)] for every l = 0 .. length. [length + 1]"""
        size, places = self._size, len(self.places)
        left = self._zeros(length + 1, places * size)  # calls still to make with l tokens to go
        for tokens in range(1, length + 1):
            base = self._zeros(places * size) + 1
            for (committed, after), block in self._moves.items():
                if 0 < committed < tokens:
                    base = base + block @ left[tokens - committed, after * size : (after + 1) * size]
            value = base
            for _ in range(len(self.asks)):  # calls that commit nothing are at most that many in a row
                value = base
                for (committed, after), block in self._moves.items():
                    if committed == 0:
                        value = value + block @ left[tokens, after * size : (after + 1) * size]
                left[tokens] = value
        return left[:, :size] @ self.law.initial

    def nfe_law(self, length: int) -> Array:
        """P(NFE(length) = n) for n = 0, 1, .., up to the largest possible count."""
        size, places = self._size, len(self.places)
        if length == 0:
            return self._zeros(1) + 1
        mass = self._zeros(length, places * size)  # by tokens committed
        mass[0, :size] = self.law.initial
        found = [mass[0, 0] * 0]
        while mass.any():
            after_call, done = self._zeros(length, places * size), self._zeros(1)[0]
            for (committed, after), block in self._moves.items():
                moved = mass @ block  # [length, Z]
                kept = max(0, length - committed)
                after_call[committed:, after * size : (after + 1) * size] += moved[:kept]
                done += moved[kept:].sum()
            found.append(done)
            mass = after_call
        return np.array(found)

    def long_run(self, cost: Callable[[int], Number] = lambda rows: 1) -> LongRun:
        """Tokens and cost(rows) per call in the long run.

        Raises InvalidInput when chance decides which kinds a run ends up with: then there is no one long run.
        """
        size = len(self.places) * self._size
        move, gain = self._zeros(size, size), self._zeros(size)
        for (committed, after), block in self._moves.items():
            move[:, after * self._size : (after + 1) * self._size] += block
            gain = gain + committed * block.sum(axis=1)
        weights = stationary(move, [z for z, p in enumerate(self.law.initial) if p])
        costs = self.law.array([cost(self.rows(place)) for place in self.places])
        calls = weights.reshape(len(self.places), -1).sum(axis=1)
        return LongRun((weights * gain).sum(), (calls * costs).sum())


def stationary(move: Array, begin: Sequence[int]) -> Array:
    """The long-run shares of the states of a chain that starts in `begin`. move [n, n], result [n]

    By the elimination of Grassmann, Taksar and Heyman: nothing is subtracted, so that every share is accurate to a few units of
    2^-53 times the size, and exact on Fractions. Raises InvalidInput when chance decides where a run ends up.
    """
    from scipy.sparse.csgraph import connected_components

    leads = move != 0
    reach, todo = set(begin), list(begin)
    while todo:
        new = set(np.flatnonzero(leads[todo.pop()]).tolist()) - reach
        reach |= new
        todo += new
    label = connected_components(leads, directed=True, connection="strong")[1]
    here, there = np.nonzero(leads)
    left = set(label[here[label[here] != label[there]]].tolist())
    closed = set(label[sorted(reach)].tolist()) - left
    if len(closed) != 1:
        raise InvalidInput("the long run depends on where a run ends up")
    states = [state for state in sorted(reach) if label[state] in closed]
    part = move[np.ix_(states, states)]
    for n in range(len(part) - 1, 0, -1):
        part[:n, n] /= part[n, :n].sum()
        part[:n, :n] += np.multiply.outer(part[:n, n], part[n, :n])
    weights: Array = move[0] * 0
    weights[states[0]] += 1
    for n in range(1, len(part)):
        weights[states[n]] = weights[states[:n]] @ part[:n, n]
    weights /= weights.sum()
    return weights


def tokens_per_nfe(schedule: Schedule, law: DrafterLaw, length: int) -> Number:
    """length / E[NFE(length)]: what an aggregate over many runs of one length tends to (METRICS)."""
    if length < 1:
        raise InvalidInput(f"the length must be >= 1, got {length}")
    value: Number = length / Chain(schedule, law).expected_nfe(length)[length]
    return value


def quantiles(law: Sequence[Number], shares: Mapping[str, Number]) -> dict[str, int]:
    """The least n with P(NFE <= n) >= share, by name."""
    totals = np.cumsum(np.asarray(law))
    return {name: int(np.argmax(totals >= share)) if totals[-1] >= share else len(totals) - 1 for name, share in shares.items()}
