"""The coins that rules and drafters of others draw from, and what is asked of code under them."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, NoReturn, TypeVar, cast

import numpy as np

from proofs_check.system import Found, NotReached, found
from simulator.chance import Chance, Purpose, ValueNeeded, branching, exact, rational
from simulator.errors import ContractError

T = TypeVar("T")
LAST = 1 - 2.0**-53  # the largest float64 coin
ROUNDING = 2.0**-45  # what the float64 arithmetic of foreign code may amount to
_MOST = 200


class Coins:
    """The coins of one run, independent and uniform on [0, 1).

    coins.random(), coins.uniform(), coins() and next(coins) each give a new one, coins.random(n) an array of n new ones, and
    coins.uniform("test", i) the coin with that address, the same whenever it is asked for. A coin is there to be compared, as
    in u < p / q, u * q < p or 1 - u < x; it has no value. coins.choose(weights) draws an index with probability proportional to
    its weight, by inverse CDF under a new coin: what torch.multinomial(weights, 1) does.
    """

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._made = 0

    def uniform(self, *which: Any) -> Any:
        """A new coin; with n or a shape an array of new ones; with a purpose and a position the coin of that address."""
        if len(which) == 2:
            return self._chance.uniform(*which)
        if which:
            array = np.empty(which[0], dtype=object)
            array.reshape(-1)[:] = [self.uniform() for _ in range(array.size)]
            return array
        self._made += 1
        if self._made > _MOST:
            raise _Endless
        return self._chance.uniform(cast(Purpose, "coin"), self._made)

    random = __call__ = __next__ = uniform

    def __iter__(self) -> Coins:
        return self

    def choose(self, weights: Iterable[Any]) -> int:
        """An index. Raises ValueError unless all weights are numbers, none is negative, and some are positive."""
        weights = list(weights)
        numbers = [exact(w) for w in weights]
        finite = not any(w is NotImplemented or isinstance(w, float) for w in numbers)
        if not finite or not any(numbers) or min(numbers) < 0:
            raise ValueError(f"no law has the weights [{', '.join(map(str, weights))}]")
        total = sum(numbers)
        coin, below, last = self.uniform(), rational(0), max(i for i, w in enumerate(numbers) if w)
        for index in range(last):
            below += numbers[index]
            if coin < below / total:
                return index
        return last


class _Endless(Exception):
    """Raised into code that asks for coin after coin: a loop without a bound has no finite tree of outcomes."""


class Fixed:
    """Coins with values, in the order in which they are first asked for."""

    def __init__(self, values: Iterable[float]) -> None:
        self._values = iter(values)
        self._given: dict[tuple[str, int], float] = {}

    def uniform(self, purpose: Purpose, position: int) -> float:
        if (purpose, position) not in self._given:
            self._given[purpose, position] = next(self._values)
        return self._given[purpose, position]

    @property
    def given(self) -> tuple[float, ...]:
        return tuple(self._given.values())


def at_edges(run: Callable[[Fixed], T], *values: float) -> Iterator[tuple[tuple[float, ...], T]]:
    """Every result of `run` whose coins all have one of the values, with them."""
    pending: list[tuple[float, ...]] = [()]
    while pending:
        script = pending.pop()
        coins = Fixed(itertools.chain(script, itertools.repeat(values[0])))
        result = run(coins)
        yield coins.given, result
        for i in range(len(script), len(coins.given)):
            pending += [(*coins.given[:i], value) for value in values[1:]]


def every_outcome(run: Callable[[Chance], T], instance: Callable[[], tuple[str, str]]) -> list[tuple[Any, T]]:
    """`branching`. What it raises ends the stage; `instance` gives the counterexample and the program."""
    try:
        return branching(run)
    except (Found, NotReached):
        raise
    except Exception as error:
        needed = next((cause for cause in _causes(error) if isinstance(cause, ValueNeeded)), None)
        if needed is not None:
            raise NotReached(f"its law can not be computed: {needed}") from error
        if isinstance(error, ContractError):
            found("determinism", f"it is no function of its coins alone: {error}", *instance())
        raised(error, instance)


def raised(error: Exception, instance: Callable[[], tuple[str, str]]) -> NoReturn:
    """End the stage for what foreign code raised."""
    if isinstance(error, Found | NotReached):
        raise error
    if isinstance(error, _Endless):
        raise NotReached(f"it asks for more than {_MOST} coins: no finite tree of outcomes") from error
    found("contract", f"it raises {type(error).__name__}: {error}", *instance())


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def in_two_worlds(run: Callable[[], T], number: int) -> tuple[T, T]:
    """Twice, with the global generators in two states, others for every `number`: what draws on them differs, soon or late."""
    results = []
    for seed in (2 * number, 2 * number + 1):
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002  # the legacy global generator is what a stray draw would use
        if "torch" in sys.modules:
            sys.modules["torch"].manual_seed(seed)
        results.append(run())
    return results[0], results[1]


def definition(subject: Any, name: str) -> str:
    """Python that imports `subject` under a name; empty for what its module does not hold under its own name."""
    module, qualified = getattr(subject, "__module__", None), getattr(subject, "__qualname__", "")
    if module in (None, "__main__") or not qualified.isidentifier():
        return ""
    try:
        held = getattr(import_module(module), qualified, None)
    except ImportError:
        return ""
    return f"from {module} import {qualified} as {name}" if held is subject else ""


def rounded(gap: Any) -> str:
    """How well laws agree, for the detail of a stage."""
    return f"equal up to rounding, largest difference {float(gap):.1e}" if gap else "equal as rationals"
