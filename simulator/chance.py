"""Chance: the only source of randomness, whose coins have addresses, and its three interpreters.

Every random decision of a schedule is a coin, uniform on [0, 1), named by (call number, purpose, output position). Purposes:
`draft` (drawing a draft token; belongs to the call that proposed it), `test` (an acceptance test) and `correct` (a correction,
a bonus, or a start's first token). Output position 1 is the first token after the prompt.

    Sampled      pseudo-random numbers from a counter-based generator: unused or reordered coins change nothing
    Scripted     coins from a table: edges and counterexamples become tests
    Enumerated   coins are lazily split intervals: running code once per outcome gives its exact law, whatever it compares;
                 foreign code may also write u * q < p, 1 - u < x, and put coins into numpy arrays
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

import numpy as np

from simulator.errors import ContractError, InvalidInput
from simulator.laws import Coin, Law, Probability

Purpose: TypeAlias = Literal["draft", "test", "correct"]
_PURPOSES: dict[str, int] = {"draft": 0, "test": 1, "correct": 2}
T = TypeVar("T")


def _rational() -> Callable[..., Any]:
    try:
        mpq: Callable[..., Any] = import_module("gmpy2").mpq
    except ImportError:
        return Fraction
    return mpq


rational = _rational()
"""The type that exact weights are computed in: gmpy2's mpq, many times faster than Fraction, where it is installed."""


def fraction(x: Any) -> Fraction:
    """A number of the type of `rational` as a Fraction of Python integers."""
    return Fraction(int(x.numerator), int(x.denominator))


class Address(NamedTuple):
    """The name of a coin."""

    call: int  # number of the forward pass, 1 for the first of a request
    purpose: Purpose
    position: int  # output position, 1 after the prompt


class Chance(Protocol):
    """Coins of one call."""

    def uniform(self, purpose: Purpose, position: int) -> Coin:
        """The coin of this call with that purpose and output position; the same coin whenever it is asked for."""


class Source(Protocol):
    """Coins of a whole request; the driver binds it to each call in turn."""

    def at(self, call: int) -> Chance:
        """The coins of call number `call`, from 1."""


def leading(alphas: Iterable[Probability], coin: Callable[[int], Coin]) -> int:
    """How many leading tests succeed: the largest h with coin(i) < alphas[i] for every i < h (ALG2.L6).

    A test that is certain (alpha >= 1) or impossible (alpha <= 0) needs no coin: coins lie in [0, 1).
    """
    passed = 0
    for alpha in alphas:
        if alpha < 1 and (alpha <= 0 or not coin(passed) < alpha):
            return passed
        passed += 1
    return passed


def draw(law: Law, chance: Chance, purpose: Purpose, position: int) -> int:
    """A token from `law` under the coin with that address; a point mass needs no coin."""
    token = law.certain
    return law.draw(chance.uniform(purpose, position)) if token is None else token


def draw_block(laws: Sequence[Law], chance: Chance, first_position: int) -> tuple[int, ...]:
    """Independent draft tokens for consecutive output positions starting at `first_position` (ALG2.L12)."""
    return tuple(draw(law, chance, "draft", first_position + index) for index, law in enumerate(laws))


class Sampled:
    """Pseudo-random coins: Philox keyed by (seed, request), its counter the coin's address (Salmon et al. 2011).

    A coin is the top 53 bits of one output word: a multiple of 2^-53 in [0, 1).
    """

    def __init__(self, seed: int, request: int = 0) -> None:
        if not 0 <= seed < 1 << 64 or not 0 <= request < 1 << 64:
            raise InvalidInput(f"seed and request must lie in 0 .. 2^64 - 1, got {seed} and {request}")
        self.seed, self.request = seed, request
        self._key = np.array([seed, request], dtype=np.uint64)

    def at(self, call: int) -> _SampledCall:
        return _SampledCall(self._key, call)


class _SampledCall:
    def __init__(self, key: np.ndarray, call: int) -> None:
        self._key, self._call = key, call

    def uniform(self, purpose: Purpose, position: int) -> float:
        counter = np.array([0, position, _PURPOSES[purpose], self._call], dtype=np.uint64)
        word = np.random.Philox(key=self._key, counter=counter).random_raw()
        return float(int(word) >> 11) * 2.0**-53


class Scripted:
    """Coins from a table by address; `otherwise` for the rest, or ContractError when it is None.

    >>> Scripted({Address(2, "test", 3): 0.25}, otherwise=0.5).at(2).uniform("test", 3)
    0.25
    """

    def __init__(self, table: Mapping[Address, Coin], otherwise: Coin | None = None) -> None:
        self.table = {Address(*address): coin for address, coin in table.items()}
        self.otherwise = otherwise
        self.asked: set[Address] = set()

    def at(self, call: int) -> _ScriptedCall:
        return _ScriptedCall(self, call)


class _ScriptedCall:
    def __init__(self, script: Scripted, call: int) -> None:
        self._script, self._call = script, call

    def uniform(self, purpose: Purpose, position: int) -> Coin:
        address = Address(self._call, purpose, position)
        self._script.asked.add(address)
        coin = self._script.table.get(address, self._script.otherwise)
        if coin is None:
            raise ContractError(f"the script has no coin for {address}")
        return coin


class _Comparison(NamedTuple):
    """One comparison of a coin that the enumerated code made, and what is known afterwards."""

    coin: tuple[str, int]
    bound: Probability
    below: bool
    low: Any  # the coin lies in [low, high) now
    high: Any
    weight: Any  # probability of this run so far


class _Fork:
    """One run of the enumerated code: its comparisons are answered from `log` first, then 'below' wherever both can be."""

    __slots__ = ("closed", "coins", "log", "made", "untaken", "weight")

    def __init__(self, log: list[_Comparison]) -> None:
        self.log = log
        self.made = 0  # comparisons so far
        self.weight = log[-1].weight if log else rational(1)
        self.untaken: list[list[_Comparison]] = []  # the logs of the runs that part from this one at its new forks
        self.closed = False  # the run is over
        self.coins: dict[tuple[str, int], _IntervalCoin] = {}

    def uniform(self, purpose: Purpose, position: int) -> _IntervalCoin:
        key = (purpose, position)
        coin = self.coins.get(key)
        if coin is None:
            coin = self.coins[key] = _IntervalCoin(self, key)
        return coin

    def intervals(self) -> dict[tuple[str, int], tuple[Fraction, Fraction]]:
        """What this run knows of each coin it asked for, by purpose and position: the coin lies in [low, high)."""
        return {key: (fraction(coin.low), fraction(coin.high)) for key, coin in self.coins.items()}


_ALLOWED = (
    "an enumerated coin has no value: it can be multiplied by numbers, divided by them, added to them, and then compared with"
    " them, as in u < x, u * q < p and 1 - u < x; nothing else, and nothing of two different coins together"
)
_UFUNCS = {"add", "subtract", "multiply", "divide", "negative", "positive", "minimum", "maximum"} | {
    *("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
}


class ValueNeeded(ContractError):
    """Code asked an enumerated coin for what only a number has: it may be right, but has no law by enumeration."""


class _Uncertain:
    """slope * coin + shift, as code writes it before it compares; ValueNeeded for what intervals do not tell.

    A single value has probability 0, so `<=` splits like `<` and `==` never holds: laws do not see edges. What code does AT an
    edge (u = 0 with alpha = 0) is for Scripted coins to show.
    """

    __slots__ = ()

    def _affine(self) -> tuple[_IntervalCoin, Any, Any]:
        """coin, slope, shift."""
        raise NotImplementedError

    def __lt__(self, x: Any) -> Any:
        raise NotImplementedError

    def __le__(self, x: Any) -> Any:
        below = self.__lt__(x)
        return below if below is NotImplemented else bool(below or self == x)

    def __ge__(self, x: Any) -> Any:
        below = self.__lt__(x)
        return below if below is NotImplemented else bool(not below and x == x)  # x == x: not of a NaN

    def __gt__(self, x: Any) -> Any:
        below = self.__le__(x)
        return below if below is NotImplemented else bool(not below and x == x)

    def __eq__(self, x: object) -> Any:
        if isinstance(x, np.ndarray):
            return NotImplemented  # numpy's turn: element by element
        if not isinstance(x, _Uncertain):
            return False
        (coin, *line), (other, *other_line) = self._affine(), x._affine()
        return coin is other and line == other_line

    def __add__(self, x: Any) -> Any:
        coin, slope, shift = self._affine()
        if isinstance(x, _Uncertain):
            other, other_slope, x = x._affine()
            if other is not coin:
                self._refuse()
            slope += other_slope
        x = self._finite(x)
        return x if x is NotImplemented else _scaled(coin, slope, shift + x)

    def __neg__(self) -> Any:
        coin, slope, shift = self._affine()
        return _scaled(coin, -slope, -shift)

    def __pos__(self) -> Any:
        return self

    def __sub__(self, x: Any) -> Any:
        return self + -x

    def __rsub__(self, x: Any) -> Any:
        return -self + x

    def __mul__(self, x: Any) -> Any:
        coin, slope, shift = self._affine()
        x = self._finite(x)
        return x if x is NotImplemented else _scaled(coin, slope * x, shift * x)

    def __truediv__(self, x: Any) -> Any:
        coin, slope, shift = self._affine()
        x = self._finite(x)
        return x if x is NotImplemented else _scaled(coin, slope / x, shift / x)

    __radd__, __rmul__ = __add__, __mul__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or ufunc.__name__ not in _UFUNCS:
            self._refuse()
        boxed = []
        for x in inputs:
            box = np.empty((), dtype=object)  # numpy then calls the operators above, element by element
            box[()] = x
            boxed.append(box if isinstance(x, _Uncertain) else x)
        return ufunc(*boxed, **options)

    def __copy__(self) -> _Uncertain:
        return self

    def __deepcopy__(self, memo: object) -> _Uncertain:
        return self  # a copy with an interval of its own would be another coin

    def _finite(self, x: Any) -> Any:
        x = exact(x)
        return self._refuse() if isinstance(x, float) else x

    def _refuse(self, *_: object) -> NoReturn:
        raise ValueNeeded(_ALLOWED)

    __hash__ = __bool__ = __float__ = __int__ = __index__ = __complex__ = _refuse
    __round__ = __trunc__ = __floor__ = __ceil__ = __abs__ = __len__ = __getitem__ = __reduce__ = _refuse
    __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __divmod__ = __rdivmod__ = __pow__ = __rpow__ = _refuse
    log = log1p = exp = sqrt = _refuse  # what numpy calls on the elements of an array


def exact(x: Any) -> Any:
    """A number as a rational, but NaN and infinity as floats; NotImplemented for arrays and what is no number."""
    if isinstance(x, np.ndarray):
        return NotImplemented
    try:
        return rational(x)
    except TypeError:  # a scalar of numpy or of some tensor library; float() of a coin is refused
        try:
            return exact(float(x))
        except (TypeError, ValueError):
            return NotImplemented
    except (ValueError, OverflowError):
        return float(x)


def _scaled(coin: _IntervalCoin, slope: Any, shift: Any) -> Any:
    return _ScaledCoin(coin, slope, shift) if slope else fraction(shift)


class _IntervalCoin(_Uncertain):
    """A coin known to lie in [low, high). Comparing it with x inside splits the run in two."""

    __slots__ = ("address", "fork", "high", "low")

    def __init__(self, fork: _Fork, address: tuple[str, int]) -> None:
        self.fork, self.address, self.low, self.high = fork, address, rational(0), rational(1)

    def __lt__(self, x: Any) -> Any:
        fork = self.fork
        if fork.closed:
            raise ContractError("an enumerated coin was compared after its call: code that keeps coins has no law call by call")
        log, made = fork.log, fork.made
        if made < len(log):  # a replay: nothing is computed again
            address, bound, below, low, high, _ = log[made]
            if (bound is not x and (isinstance(x, np.ndarray) or bound != x)) or address != self.address:
                return self._below(x)
            fork.made, self.low, self.high = made + 1, low, high
            return below
        try:
            bound = rational(x)
        except (TypeError, ValueError, OverflowError):
            return self._below(x)
        fork.made = made + 1
        low, high = self.low, self.high
        if low < bound < high:
            length = high - low
            above = _Comparison(self.address, x, False, bound, high, fork.weight * ((high - bound) / length))
            fork.untaken.append([*log, above])
            fork.weight *= (bound - low) / length
            self.high = high = bound
        below = bool(low < bound)
        log.append(_Comparison(self.address, x, below, low, high, fork.weight))
        return below

    def _below(self, x: Any) -> Any:
        """`self < x` for an x that is not simply a number of Python's, or not the one of the run that is replayed."""
        if isinstance(x, _Uncertain):
            return self - x < 0
        number = exact(x)
        if number is NotImplemented or isinstance(number, float):
            return number if number is NotImplemented else number > 0  # NaN, infinity
        if type(number) is not type(x):
            return self < number
        raise ContractError("the enumerated code is no pure function of its coins: a replay took other decisions")

    def _affine(self) -> tuple[_IntervalCoin, Any, Any]:
        return self, 1, 0

    def __repr__(self) -> str:
        return f"<{self.address[0]} coin {self.address[1]} in [{self.low}, {self.high})>"


class _ScaledCoin(_Uncertain):
    """slope * coin + shift, slope not 0. To compare it is to compare the coin, which remembers."""

    __slots__ = ("coin", "shift", "slope")

    def __init__(self, coin: _IntervalCoin, slope: Any, shift: Any) -> None:
        self.coin, self.slope, self.shift = coin, slope, shift

    def __lt__(self, x: Any) -> Any:
        if isinstance(x, _Uncertain):
            return self - x < 0
        x = exact(x)
        if x is NotImplemented or isinstance(x, float):
            return x if x is NotImplemented else x > 0
        bound = (x - self.shift) / self.slope
        return self.coin < bound if self.slope > 0 else self.coin > bound

    def _affine(self) -> tuple[_IntervalCoin, Any, Any]:
        return self.coin, self.slope, self.shift

    def __repr__(self) -> str:
        return f"<{self.slope} * {self.coin} + {self.shift}>"


def enumerated(run: Callable[[Chance], T]) -> list[tuple[Fraction, T]]:
    """The exact law of `run`: (probability, value) of every outcome, unmerged; the probabilities sum to 1.

    `run` is called once per outcome and must be a pure function of the coins. Code that reuses or shares a coin gets the law
    it deserves, since a coin keeps the interval it was split to.

    >>> enumerated(lambda chance: chance.uniform("test", 1) < Fraction(1, 3))
    [(Fraction(1, 3), True), (Fraction(2, 3), False)]
    """
    return [(fraction(weight), value) for weight, value in branching(run)]


def branching(run: Callable[[Chance], T]) -> list[tuple[Any, T]]:
    """`enumerated`, its probabilities left in the type of `rational`: a chain multiplies millions of them."""
    outcomes: list[tuple[Any, T]] = []
    pending: list[list[_Comparison]] = [[]]
    while pending:
        log = pending.pop()
        replayed = len(log)
        fork = _Fork(log)
        value = run(fork)
        fork.closed = True
        if fork.made < replayed:
            raise ContractError("the enumerated code is no pure function of its coins: a replay took other decisions")
        outcomes.append((fork.weight, value))
        pending += fork.untaken
    return outcomes
