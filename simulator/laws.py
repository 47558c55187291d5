"""Probability laws over token ids, behind one small interface.

A schedule asks four things of a law: the probability of a token, whether it is a point mass, the normalised positive part of
`self - other` (the correction law of ALG2.L7), and a draw. Backends:

    Point         all mass on one token (greedy decoding); a Peak remembers the model's probability of it
    RationalLaw   exact fractions (verdicts)
    ArrayLaw      numpy float64, every token
    SparseLaw     numpy float64, the tokens of positive probability alone (SPARSEQ)

and `realmodel.laws.TorchLaw`, float64 on a device. They mix: a dense target can be tested against a sparse proposal. All use
the formulas of the rational one, the float ones in float64; sums run in ascending id order, so that zeros in between change
no bit:

    test       u < min(1, p / q), strictly
    residual   max(p - q, 0) / sum, None when the sum is 0
    draw       the first token of positive probability with u < cumulative sum; the last one where rounding leaves none
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


class Peak(Point):
    """A point mass that remembers how probable its model found the token, which CONF and NATIVE ask for."""

    __slots__ = ("confidence",)

    def __init__(self, token: int, confidence: float) -> None:
        super().__init__(token)
        self.confidence = confidence

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Peak) and (self.token, self.confidence) == (other.token, other.confidence)

    def __hash__(self) -> int:
        return hash((Peak, self.token, self.confidence))

    def __repr__(self) -> str:
        return f"Peak({self.token}, {self.confidence})"


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


Floats: TypeAlias = npt.NDArray[np.float64]
Ids: TypeAlias = npt.NDArray[np.int64]


class ArrayLaw:
    """numpy float64 probabilities, shape [V]. The array is taken as it is: normalised by whoever computed it."""

    __slots__ = ("probabilities",)

    def __init__(self, probabilities: npt.ArrayLike) -> None:
        self.probabilities: Floats = np.asarray(probabilities, dtype=np.float64)

    @property
    def support(self) -> list[int]:
        return np.flatnonzero(self.probabilities).tolist()

    @property
    def certain(self) -> None:
        """Never: to know would cost a pass over the vocabulary."""
        return None

    def probability(self, token: int) -> float:
        return float(self.probabilities[token]) if 0 <= token < len(self.probabilities) else 0.0

    def residual(self, proposal: Law) -> ArrayLaw | None:
        mass = np.maximum(self.probabilities - dense(proposal, len(self.probabilities)), 0.0)
        total = np.cumsum(mass)[-1]
        return ArrayLaw(mass / total) if total > 0 else None

    def draw(self, coin: Coin) -> int:
        last = int(np.flatnonzero(self.probabilities)[-1])
        return _first_above(np.cumsum(self.probabilities[:last]), coin)

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.probabilities, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"ArrayLaw({np.array2string(self.probabilities, threshold=6)})"


class SparseLaw:
    """The nonzero entries of a float64 law (SPARSEQ): `ids` ascending and their `probabilities`, both of shape [K], K >= 1.

    With top-k or top-p processing K is far below the vocabulary, whose size this law does not know. Normalised by whoever
    computed it. Raises ValueError when the ids do not ascend from 0 or more, or a probability is not positive.
    """

    __slots__ = ("ids", "probabilities")

    def __init__(self, ids: npt.ArrayLike, probabilities: npt.ArrayLike) -> None:
        self.ids: Ids = np.asarray(ids, dtype=np.int64)
        self.probabilities: Floats = np.asarray(probabilities, dtype=np.float64)
        ids_ascend = self.ids.ndim == 1 and len(self.ids) and self.ids[0] >= 0 and (np.diff(self.ids) > 0).all()
        if not ids_ascend or self.ids.shape != self.probabilities.shape or not (self.probabilities > 0).all():
            raise ValueError(f"a sparse law needs ascending ids >= 0, each with a probability > 0; got {self!r}")

    @property
    def support(self) -> list[int]:
        ids: list[int] = self.ids.tolist()
        return ids

    @property
    def certain(self) -> int | None:
        return int(self.ids[0]) if len(self.ids) == 1 else None

    def probability(self, token: int) -> float:
        index = int(np.searchsorted(self.ids, token))
        return float(self.probabilities[index]) if index < len(self.ids) and self.ids[index] == token else 0.0

    def residual(self, proposal: Law) -> SparseLaw | None:
        mass = np.maximum(self.probabilities - dense(proposal, int(self.ids[-1]) + 1)[self.ids], 0.0)
        total = np.cumsum(mass)[-1]
        left = mass > 0
        return SparseLaw(self.ids[left], mass[left] / total) if total > 0 else None

    def draw(self, coin: Coin) -> int:
        return int(self.ids[_first_above(np.cumsum(self.probabilities[:-1]), coin)])

    def __repr__(self) -> str:
        return f"SparseLaw({np.array2string(self.ids, threshold=6)}, {np.array2string(self.probabilities, threshold=6)})"


def entries(law: Law) -> tuple[Ids, Floats]:
    """The tokens of positive probability, ascending, and their probabilities in float64, both of shape [K]."""
    if isinstance(law, SparseLaw):
        return law.ids, law.probabilities
    if hasattr(law, "__array__"):  # a dense float law, on whatever device: numpy's protocol brings it to the host
        probabilities = np.asarray(law)
        ids = np.flatnonzero(probabilities)
        return ids, probabilities[ids]
    return np.array(law.support, dtype=np.int64), np.array([float(law.probability(token)) for token in law.support])


def dense(law: Law, size: int) -> Floats:
    """The probabilities of tokens 0 .. size - 1 in float64, shape [size]; 0 beyond the law's own vocabulary."""
    ids, probabilities = entries(law)
    inside = (ids >= 0) & (ids < size)
    row = np.zeros(size)
    row[ids[inside]] = probabilities[inside]
    return row


def argmax(law: Law) -> Point:
    """Temperature 0: all mass on the most likely token, the lowest id among equals."""
    if isinstance(law, SparseLaw) or hasattr(law, "__array__"):
        ids, probabilities = entries(law)
        return Point(int(ids[probabilities.argmax()]))  # numpy's argmax is the first of equals
    return Point(max(law.support, key=law.probability))  # so is Python's max


def confidence(law: Law, token: int) -> Probability:
    """The probability that the model behind `law` gave to `token`."""
    return law.confidence if isinstance(law, Peak) and token == law.token else law.probability(token)


def _first_above(cumulative: Floats, coin: Coin) -> int:
    """The first index whose entry exceeds `coin`, len(cumulative) if none does.

    Its token has positive probability: without any, its entry would equal the one before, which does not exceed the coin.
    """
    if isinstance(coin, float):
        return int(np.searchsorted(cumulative, coin, side="right"))
    return next((index for index, total in enumerate(cumulative.tolist()) if coin < total), len(cumulative))
