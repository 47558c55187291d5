"""Betting against a reference law, token by token: evidence that may be looked at after every token.

If every token is drawn from the reference's law given all that came before, then for any ordering of the vocabulary, fixed
before the token is seen, its randomised probability integral transform

    U = P(an earlier token) + V * P(this token),        V uniform on [0, 1)

is uniform given the past. So every token of every prompt is a sample of one known law. A bet multiplies its wealth by
1 + stake * score(U), where the score has mean 0 under the uniform law: under the reference the wealth is a martingale that
begins at 1, and so is an average of wealths. By Ville's inequality that average reaches 1 / alpha, ever, with probability at
most alpha, however often it is looked at and whenever the run stops.

The scores are averaged over V, given the token. That keeps their mean, needs no random number, and never grows slower, as the
logarithm is concave. The bets are all triples

    order   tokens by id; by probability; in three fixed scrambled orders; EOS first
    shape   `late` 2u - 1, `ends` 6u^2 - 6u + 1, `last tenth`
    when    at every token; with a sign that alternates along the output; in proportion to the `late` score of the token before

each at several stakes of both signs, and beside them bets on tokens too unlikely to be seen at all: the likelihood ratio of
drawing, now and then, from all K possible tokens alike. A token of probability 0 refutes the law whatever alpha is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from proofs_check.reference import Entries
from simulator.errors import InvalidInput
from simulator.laws import Floats, Ids

SHAPES = ("late", "ends", "last tenth")
WHEN = ("", " alternating", " after a late token")
_STAKES = (0.03, 0.1, 0.3, 0.9)  # of both signs; scores lie in [-1, 1], so wealth stays positive
_RARE_STAKES = (1e-4, 1e-3, 1e-2, 1e-1)
_SCRAMBLED = 3
_TENTH = 0.9
_CHUNK = 1 << 20  # probabilities looked at together, at least one token's
_Keys: TypeAlias = npt.NDArray[Any]


class Emitted(NamedTuple):
    """An output token, and the law it should have been drawn from."""

    token: int
    law: Entries


class Impossible(NamedTuple):
    """A token of probability 0."""

    before: int  # how many tokens were seen before it
    token: int


class EProcess:
    """The average wealth of all bets. Feed it outputs; it stops betting once it has rejected.

    alpha   the probability of ever rejecting a sampler of the reference's law
    eos     ids that the order `EOS first` puts first; there is no such order without any

    Raises InvalidInput unless 0 < alpha < 1.
    """

    def __init__(self, alpha: float, eos: Iterable[int] = ()) -> None:
        if not 0 < alpha < 1:
            raise InvalidInput(f"alpha must lie between 0 and 1, got {alpha}")
        self.alpha, self.eos = alpha, tuple(sorted(set(eos)))
        self.orders = ["id", "probability", *(f"scrambled {n}" for n in range(1, _SCRAMBLED + 1))]
        self.orders += ["EOS first"] * bool(self.eos)
        self._count = len(WHEN) * len(SHAPES) * len(self.orders)  # scores per token, beside the rare one
        pairs = [(column, sign * stake) for column in range(self._count) for stake in _STAKES for sign in (1, -1)]
        pairs += [(self._count, stake) for stake in _RARE_STAKES]
        self._columns = np.array([column for column, _ in pairs])
        self._stakes = np.array([stake for _, stake in pairs])
        self._wealth = np.zeros(len(pairs))  # logarithms
        self.tokens = 0
        self.uncertain = 0.0  # expected number of tokens that are not the most likely one: what there was to bet on
        self.rejected_at: int | None = None  # after so many tokens
        self.impossible: Impossible | None = None

    @property
    def rejected(self) -> bool:
        return self.rejected_at is not None

    @property
    def log_e(self) -> float:
        """Natural logarithm of the e-value: of the average wealth now, infinite after an impossible token."""
        return math.inf if self.impossible else _log_mean(self._wealth[None])[0]

    @property
    def best(self) -> str:
        """The bet that earned most, in words."""
        index = int(self._wealth.argmax())
        column, stake = int(self._columns[index]), float(self._stakes[index])
        if column == self._count:
            return "tokens that are next to impossible come up"
        when, rest = divmod(column, len(SHAPES) * len(self.orders))
        shape, order = divmod(rest, len(self.orders))
        rate = "more" if stake > 0 else "less"
        return f"in the order by {self.orders[order]}, {SHAPES[shape]} tokens come up {rate} often{WHEN[when]}"

    @property
    def detectable(self) -> float:
        """The shift of the mean of a `late` score at which its best bet just rejects, on average, after this many tokens.

        The mean total variation is then at least half of it, and no other shape needs less; but a token that is next to
        impossible shows whatever the shift.
        """
        if not self.tokens:
            return math.inf
        return math.sqrt(2 / 3 * math.log(len(self._stakes) / self.alpha) / self.tokens)  # variance of 2U - 1: 1/3

    def observe(self, output: Iterable[Emitted]) -> bool:
        """One request's output, from its first token. Whether the reference is rejected by now."""
        before = np.zeros(len(self.orders))
        position = 0
        for chunk in _chunks(output):
            if self.rejected:
                break
            cells = _cells(chunk, self.orders, self.eos)
            possible = cells.possible
            late = cells.high + cells.low - 1  # [tokens, orders]
            previous = np.vstack((before, late[:-1]))
            sign = (-1.0) ** np.arange(position, position + possible)[:, None]
            shapes = np.hstack((late, _ends(cells.low, cells.high), _last_tenth(cells.low, cells.high)))
            scores = np.hstack((shapes, sign * shapes, np.tile(previous, len(SHAPES)) * shapes, cells.rare[:, None]))
            self._bet(scores)
            if not self.rejected:
                self.uncertain += cells.uncertain
                if possible < len(chunk):
                    self.impossible = Impossible(self.tokens, chunk[possible].token)
                    self.tokens += 1
                    self.rejected_at = self.tokens
            if possible:
                before, position = late[-1], position + possible
        return self.rejected

    def _bet(self, scores: Floats) -> None:
        if not len(scores):
            return
        wealth = self._wealth + np.cumsum(np.log1p(scores[:, self._columns] * self._stakes), axis=0)
        reached = np.flatnonzero(_log_mean(wealth) >= -math.log(self.alpha))
        used = int(reached[0]) + 1 if len(reached) else len(scores)
        self._wealth = wealth[used - 1]
        self.tokens += used
        self.rejected_at = self.tokens if len(reached) else None

    def state(self) -> dict[str, Any]:
        """All that it knows, for JSON; `restore` reads it."""
        return {
            "alpha": self.alpha,
            "orders": self.orders,
            "eos": list(self.eos),
            "wealth": self._wealth.tolist(),
            "tokens": self.tokens,
            "uncertain": self.uncertain,
            "rejected_at": self.rejected_at,
            "impossible": None if self.impossible is None else list(self.impossible),
        }

    def restore(self, state: Any) -> None:
        """Go on from a `state` of a process with the same alpha, orders and EOS. Raises InvalidInput for any other."""
        try:
            mine = {name: value for name, value in self.state().items() if name in ("alpha", "orders", "eos")}
            other = {name: state[name] for name in mine}
            if other != mine:
                raise InvalidInput(f"the saved bets were made with {other}, this run makes them with {mine}")
            wealth = np.array(state["wealth"], dtype=np.float64)
            if wealth.shape != self._wealth.shape or np.isnan(wealth).any():
                raise InvalidInput(f"the saved bets are {wealth.size} numbers, not {self._wealth.size}")
            tokens, uncertain, rejected_at = int(state["tokens"]), float(state["uncertain"]), state["rejected_at"]
            self.impossible = None if state["impossible"] is None else Impossible(*map(int, state["impossible"]))
            self.rejected_at = None if rejected_at is None else int(rejected_at)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"the saved bets cannot be read: {type(error).__name__}: {error}") from error
        self._wealth, self.tokens, self.uncertain = wealth, tokens, uncertain


class _Cells(NamedTuple):
    """Where the tokens before the first impossible one stand: token t covers [low, high] in each order."""

    low: Floats  # [tokens, orders]
    high: Floats
    rare: Floats  # [tokens]: 1 / (K p) - 1
    uncertain: float
    possible: int


def _cells(chunk: Sequence[Emitted], orders: Sequence[str], eos: Sequence[int]) -> _Cells:
    sizes = np.array([len(each.law.ids) for each in chunk])
    row = np.repeat(np.arange(len(chunk)), sizes)
    ids = np.concatenate([each.law.ids for each in chunk])
    p = np.concatenate([each.law.p for each in chunk])
    hits = np.flatnonzero(ids == np.array([each.token for each in chunk])[row])  # at most one per row
    missing = np.setdiff1d(np.arange(len(chunk)), row[hits])
    possible = int(missing[0]) if len(missing) else len(chunk)
    hits, row = hits[:possible], row[: sizes[:possible].sum()]
    ids, p = ids[: len(row)], p[: len(row)]

    low, high = np.empty((possible, len(orders))), np.empty((possible, len(orders)))
    for column, order in enumerate(orders):
        key = _key(order, ids, p, eos)
        own = key[hits][row]
        before = np.bincount(row, p * (key < own), possible)
        low[:, column] = before
        high[:, column] = before + np.bincount(row, p * (key == own), possible)
    top = np.maximum.reduceat(p, np.cumsum(sizes[:possible]) - sizes[:possible]) if possible else np.zeros(0)
    with np.errstate(over="ignore"):
        rare = np.minimum(1 / (sizes[:possible] * p[hits]), 1e300) - 1
    return _Cells(low, np.minimum(high, 1.0), rare, float((1 - top).sum()), possible)


def _key(order: str, ids: Ids, p: Floats, eos: Sequence[int]) -> _Keys:
    """What the tokens are sorted by, ascending. Tokens with the same key share a cell."""
    if order == "id":
        return ids
    if order == "probability":
        return -p
    if order == "EOS first":
        key: _Keys = ~np.isin(ids, eos)
        return key
    mixed: _Keys = ids.astype(np.uint64) + np.uint64(int(order.split()[1]) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the finaliser of SplitMix64
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _ends(low: Floats, high: Floats) -> Floats:
    """The mean of 6u^2 - 6u + 1 over [low, high]; in [-1/2, 1]."""
    mean: Floats = 2 * (low * low + low * high + high * high) - 3 * (low + high) + 1
    return mean


def _last_tenth(low: Floats, high: Floats) -> Floats:
    """How much of [low, high] lies in the last tenth, less its mean, scaled to at most 1."""
    width = high - low
    inside = np.where(width > 1e-12, (high - np.clip(low, _TENTH, high)) / np.maximum(width, 1e-12), (low + high) / 2 > _TENTH)
    return (np.clip(inside, 0, 1) - (1 - _TENTH)) / _TENTH


def _log_mean(logs: Floats) -> Floats:
    """log of the mean of exp over the last axis."""
    top = logs.max(axis=-1)
    mean: Floats = top + np.log(np.exp(logs - top[:, None]).mean(axis=-1))
    return mean


def _chunks(output: Iterable[Emitted]) -> Iterator[list[Emitted]]:
    chunk: list[Emitted] = []
    size = 0
    for each in output:
        chunk.append(each)
        size += len(each.law.ids)
        if size >= _CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
