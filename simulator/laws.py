"""Probability laws over token ids, behind one small interface.

A schedule asks four things of a law: the probability of a token, whether it is a point mass, the normalised positive part of
`self - other` (the correction law of ALG2.L7), and a draw. Backends: `Point` (greedy decoding), `RationalLaw` (exact
verdicts) and `ArrayLaw` (numpy float64). A float law's draw and test use the formulas of the rational one, in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Probability: TypeAlias = Fraction | float | int
Coin: TypeAlias = Any
"""A uniform number in [0, 1), or a stand-in that can be compared with one (see `simulator.chance`)."""


class Law(Protocol):
    """A probability law over the ids 0 .. V-1."""

    @property
    def support(self) -> Sequence[int]:
        """The tokens of positive probability, ascending."""

    @property
    def certain(self) -> int | None:
        """The token of a point mass, None for any other law."""

    def probability(self, token: int) -> Probability:
        """Probability of `token`; 0 for an id outside the vocabulary."""

    def residual(self, proposal: Law) -> Law | None:
        """[self - proposal]+ normalised (ALG2.L7); None when its mass is 0, which only rounding can bring about."""

    def draw(self, coin: Coin) -> int:
        """Inverse CDF over ascending ids: the first token whose cumulative probability exceeds `coin`."""


def argmax(law: Law) -> Point:
    """Temperature 0: all mass on the most likely token, the lowest id among equals."""
    return Point(max(law.support, key=law.probability))  # max keeps the first of equals


class Point:
    """All mass on one token: the law of greedy decoding (COR-GREEDY)."""

    __slots__ = ("token",)

    def __init__(self, token: int) -> None:
        self.token = token

    @property
    def support(self) -> tuple[int]:
        return (self.token,)

    @property
    def certain(self) -> int:
        return self.token

    def probability(self, token: int) -> int:
        return int(token == self.token)

    def residual(self, proposal: Law) -> Law | None:
        return self if proposal.probability(self.token) < 1 else None

    def draw(self, coin: Coin) -> int:
        return self.token

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Point) and self.token == other.token

    def __hash__(self) -> int:
        return hash((Point, self.token))

    def __repr__(self) -> str:
        return f"Point({self.token})"


class RationalLaw:
    """Exact probabilities. Hashable and compared by value, so that equal situations of a chain merge.

    Raises ValueError when a probability is negative or the sum is not exactly 1.
    """

    __slots__ = ("_hash", "certain", "cumulative", "probabilities")

    def __init__(self, probabilities: Iterable[Fraction | int]) -> None:
        self.probabilities = tuple(Fraction(p) for p in probabilities)
        if any(p < 0 for p in self.probabilities) or sum(self.probabilities) != 1:
            raise ValueError(f"a law needs probabilities >= 0 that sum to 1, got {[str(p) for p in self.probabilities]}")
        cumulative, total = [], Fraction(0)
        for token, p in enumerate(self.probabilities):
            if p:
                total += p
                cumulative.append((token, total))
        self.cumulative = tuple(cumulative)
        self.certain = cumulative[0][0] if len(cumulative) == 1 else None
        self._hash = hash(self.probabilities)

    @classmethod
    def weighted(cls, weights: Iterable[int]) -> RationalLaw:
        """The law proportional to nonnegative integer weights, not all 0."""
        weights = tuple(weights)
        total = sum(weights)
        return cls(Fraction(w, total) for w in weights)

    @property
    def support(self) -> tuple[int, ...]:
        return tuple(token for token, _ in self.cumulative)

    def probability(self, token: int) -> Fraction:
        return self.probabilities[token] if 0 <= token < len(self.probabilities) else Fraction(0)

    def residual(self, proposal: Law) -> RationalLaw | None:
        residual: RationalLaw | None = _rational_residual(self, proposal)  # type: ignore[arg-type]  # every law is hashable
        return residual

    def draw(self, coin: Coin) -> int:
        for token, total in self.cumulative[:-1]:
            if coin < total:
                return token
        return self.cumulative[-1][0]

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, RationalLaw) and self._hash == other._hash and self.probabilities == other.probabilities
        )

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"RationalLaw({', '.join(map(str, self.probabilities))})"


@lru_cache(maxsize=1 << 16)
def _rational_residual(target: RationalLaw, proposal: Any) -> RationalLaw | None:
    mass = [max(p - Fraction(proposal.probability(token)), Fraction(0)) for token, p in enumerate(target.probabilities)]
    total = sum(mass)
    return RationalLaw(m / total for m in mass) if total else None


class ArrayLaw:
    """numpy float64 probabilities, shape [V]. The array is taken as it is: normalised by whoever computed it."""

    __slots__ = ("probabilities",)

    def __init__(self, probabilities: npt.ArrayLike) -> None:
        self.probabilities = np.asarray(probabilities, dtype=np.float64)

    @property
    def support(self) -> list[int]:
        return np.flatnonzero(self.probabilities).tolist()

    @property
    def certain(self) -> None:
        return None

    def probability(self, token: int) -> float:
        return float(self.probabilities[token]) if 0 <= token < len(self.probabilities) else 0.0

    def residual(self, proposal: Law) -> ArrayLaw | None:
        if isinstance(proposal, ArrayLaw) and len(proposal.probabilities) == len(self.probabilities):
            other = proposal.probabilities
        else:
            other = np.array([float(proposal.probability(token)) for token in range(len(self.probabilities))])
        mass = np.maximum(self.probabilities - other, 0.0)
        total = mass.sum()
        return ArrayLaw(mass / total) if total > 0 else None

    def draw(self, coin: Coin) -> int:
        cumulative = np.cumsum(self.probabilities)
        last = int(np.flatnonzero(self.probabilities)[-1])  # rounding may leave the total below the coin
        if isinstance(coin, float):
            return min(int(np.searchsorted(cumulative, coin, side="right")), last)
        for token in range(last):
            if self.probabilities[token] > 0 and coin < float(cumulative[token]):
                return token
        return last

    def __repr__(self) -> str:
        return f"ArrayLaw({np.array2string(self.probabilities, threshold=6)})"
