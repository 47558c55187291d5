"""Drafters fitted to measured figures, what they predict beyond those, and the one statistic that bounds Packed-SS's gain.

A fit has as many parameters as it was told; only figures it has not seen test it. The barrier index is a theorem's, not a
fit's: under ASM3.1 NFE_packed <= (1 + index) / 2 NFE_linear on every path (docs/nfe.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log
from typing import NamedTuple

import numpy as np

from simulator.errors import InvalidInput
from simulator.nfe.laws import Chain, DrafterLaw, Kind, Number, mixture, stationary
from simulator.oracles.threshold import ThresholdModel
from simulator.schedule import Schedule
from simulator.schedules import linear, packed, quadratic


class Figure(NamedTuple):
    """A measured efficiency: tokens over forward passes, as an aggregate (METRICS)."""

    schedule: Schedule
    value: float
    length: float | None = None  # tokens a response, on average; None: in the long run, starts and ends left out
    free: int = 0  # tokens and calls at the start that were not counted, one each (F.2: the first call)

    def predicted(self, law: DrafterLaw) -> float:
        """The same under `law`, in float64. E[NFE] is interpolated between whole lengths: it is all but linear in them."""
        chain = Chain(self.schedule, law)
        if self.length is None:
            return float(chain.long_run().tokens_per_call)
        whole = int(self.length)
        few, more = map(float, chain.expected_nfe(whole + 1)[-2:])
        return (self.length - self.free) / (few + (self.length - whole) * (more - few) - self.free)


class Family(NamedTuple):
    """A family to fit: each parameter lies in 0 .. 1."""

    parameters: tuple[str, ...]
    law: Callable[..., DrafterLaw]


def fading(first: Number, fade: Number) -> DrafterLaw:
    """Independent lags, P(lag >= j) = first * fade^(j-1): right at first, less so with every token of distance."""
    return DrafterLaw(f"fading {first}, {fade}", (Kind(lambda offset: first * fade ** (offset - 1)),))


def fading_mixture(surprise: Number, rho: Number, fade: Number) -> DrafterLaw:
    """A mixture whose drafts also fade with distance, P(lag >= j) = fade^(j-1)."""
    kind = Kind(lambda offset: fade ** (offset - 1), surprise, rho)
    return DrafterLaw(f"fading mixture {surprise}, {rho}, {fade}", (kind,))


FAMILIES = {
    "mixture": Family(("surprise", "rho"), mixture),
    "fading": Family(("first", "fade"), fading),
    "fading-mixture": Family(("surprise", "rho", "fade"), fading_mixture),
}


class Fit(NamedTuple):
    """The least squares of log(predicted / measured)."""

    parameters: dict[str, float]
    law: DrafterLaw
    errors: tuple[float, ...]  # predicted / measured - 1, of each figure fitted

    @property
    def exact(self) -> bool:
        """Every figure is met, to the accuracy of the search."""
        return max(map(abs, self.errors)) < 1e-6


def fit(family: Family, figures: Sequence[Figure]) -> Fit:
    """The member of `family` nearest to the figures. Raises InvalidInput with fewer figures than parameters."""
    from scipy.optimize import least_squares

    size = len(family.parameters)
    if len(figures) < size:
        raise InvalidInput(f"{size} parameters need {size} figures at least, got {len(figures)}")

    def off(x: Sequence[float]) -> list[float]:
        law = family.law(*map(float, x))
        return [log(figure.predicted(law) / figure.value) for figure in figures]

    edge = 1e-6  # log and its slope stay finite inside
    found = [
        least_squares(off, np.full(size, begin), bounds=(edge, 1 - edge), xtol=1e-12, ftol=1e-12, gtol=1e-12, x_scale=0.1)
        for begin in (0.3, 0.7)
    ]
    best = min(found, key=lambda result: float(result.cost))
    law = family.law(*map(float, best.x))
    errors = tuple(figure.predicted(law) / figure.value - 1 for figure in figures)
    return Fit(dict(zip(family.parameters, map(float, best.x), strict=True)), law, errors)


class Index(NamedTuple):
    """How often Packed-SS may need its second pass: over Linear-SS's iterations, those that the draft of the iteration before
    would not have carried as far."""

    iterations: int  # T, of Linear-SS
    stale: int  # those among them

    @property
    def value(self) -> float:
        """The barrier index, 0 .. 1."""
        return self.stale / max(1, self.iterations)

    @property
    def gain(self) -> float:
        """At least this is NFE_linear / NFE_packed on the same path, under ASM3.1 and the start `algorithm`."""
        return 2 / (1 + self.value)


def barrier_index(model: ThresholdModel, length: int, width: int) -> Index:
    """Of a drafter given by `correct`, thresholds or a matrix (`MatrixModel`, `EmpiricalModel`), until `length` tokens.

    The iteration from c ends at F(c), or at `length`. Before the first there is no draft: it counts as stale unless it yields
    one token. Needs drafts of `width` from every context below `length`, no more.
    """
    if length < 0 or width < 1:
        raise InvalidInput(f"the length must be >= 0 and the width >= 1, got {length} and {width}")

    def reach(at: int, made_at: int, end: int) -> int:
        k = at + 1
        while k <= min(end, length) and model.correct(k, made_at):
            k += 1
        return min(k, length)

    iterations = stale = at = made_at = end = 0
    while at < length:
        fresh = reach(at, at, at + width)
        iterations += 1
        stale += reach(at, made_at, end) < fresh
        made_at, end, at = at, at + width, fresh
    return Index(iterations, stale)


def law_index(law: DrafterLaw, width: int) -> Number:
    """The barrier index of a law in the long run: rational if the law is.

    A chain over Linear-SS's iterations; its state is how many tokens the last one gave, and the hidden state of `law`.
    """
    size = len(law.initial)
    move, kept = np.zeros((2, width + 1, size, width + 1, size), dtype=object if law.exact else float)
    if law.exact:
        move, kept = law.array(move), law.array(kept)
    one = law.array(np.eye(size, dtype=int))
    for gap in range(1, width + 2):
        fresh, stale = law.fresh, one
        for advance in range(1, width + 2):
            last = law.unseen if advance == width + 1 else law.wrong(advance)
            move[gap - 1, :, advance - 1] = fresh @ last
            if advance == 1 or gap + advance - 1 <= width:  # the draft of the iteration before covers what was accepted
                kept[gap - 1, :, advance - 1] = stale @ law.fresh @ last
                stale = stale @ law.right(gap + advance)
            else:
                stale = stale * 0
            if advance <= width:
                fresh = fresh @ law.right(advance)
    states = (width + 1) * size
    move, kept = move.reshape(states, states), kept.reshape(states, states)
    weights = stationary(move, range(states))
    value: Number = 1 - (weights @ kept).sum()
    return value


# What survives of the paper's measurements, and how it was counted.
F2 = (Figure(linear(31, "wide"), 271.2 / 54.04, 272.2, 1), Figure(packed(31, "wide"), 273.2 / 47.44, 274.2, 1))
F2_LONG_RUN = tuple(figure._replace(length=None, free=0) for figure in F2)
F2_NFE = -0.120  # of the same two counts: 48.44 / 55.04 - 1
BASE_GAIN = (1.134, 1.203)  # Packed / Linear, tokens per NFE, base drafter, B = 32, ten settings
BASE_OVER_QUADRATIC = (1.034, 1.323)  # Packed (B = 32) / Quadratic (B = 8), throughput, ten settings


class Prediction(NamedTuple):
    """A number a law predicts beside what was measured: one figure (low = high), or the ends of a published band."""

    what: str
    predicted: float
    low: float
    high: float
    held_out: bool  # not among the figures fitted, nor made of them

    @property
    def error(self) -> float:
        """Relative to the nearer end of what was measured; 0 within."""
        nearest = min(max(self.predicted, self.low), self.high)
        return self.predicted / nearest - 1


class BaseRow(NamedTuple):
    """What a mixture of that rho says of a drafter that gives Linear-SS so many tokens an iteration, at B = 32 and B = 8."""

    tokens_per_iteration: float
    surprise: float
    over_linear: float  # Packed / Linear, tokens per NFE in the long run
    over_quadratic: float  # Packed (B = 32) / Quadratic (B = 8)


def base_row(tokens_per_iteration: float, rho: float) -> BaseRow:
    """Raises InvalidInput unless 1 < tokens_per_iteration < 32."""
    from scipy.optimize import brentq

    if not 1 < tokens_per_iteration < 32:
        raise InvalidInput(f"Linear-SS at B = 32 gives 1 to 32 tokens an iteration, got {tokens_per_iteration}")
    surprise = float(brentq(lambda r: (1 - (1 - r) ** 32) / r - tokens_per_iteration, 1e-9, 1.0))
    law = mixture(surprise, rho)
    two_calls, one_call, branching = (
        float(Chain(schedule, law).long_run().tokens_per_call) for schedule in (linear(31), packed(31), quadratic(7))
    )
    return BaseRow(tokens_per_iteration, surprise, one_call / two_calls, one_call / branching)


def compare(law: DrafterLaw, figures: Sequence[Figure], held_out: bool = True) -> list[Prediction]:
    """What `law` predicts of each figure."""
    return [
        Prediction(f"{figure.schedule.name}, tokens/NFE", figure.predicted(law), figure.value, figure.value, held_out)
        for figure in figures
    ]


def paper_predictions(found: Fit, lengths: Sequence[float] = (3, 4, 5, 6, 7, 8, 9, 10)) -> list[Prediction]:
    """A mixture fitted to `F2`, and what its rho says of the base drafter.

    How many tokens the base drafter gives Linear-SS does not survive: a row for each of `lengths`. Its comparison with
    Quadratic-SS is one of throughput; the prediction takes calls of 64 and of 72 rows to last equally long.
    """
    rho = found.parameters["rho"]
    rows = compare(found.law, F2, held_out=False)
    two_calls, one_call = (1 + (figure.length - 1) / figure.predicted(found.law) for figure in F2 if figure.length)
    rows.append(Prediction("NFE, Packed / Linear", one_call / two_calls, 1 + F2_NFE, 1 + F2_NFE, False))
    for tokens in lengths:
        row = base_row(tokens, rho)
        at = f"at {tokens:g} tokens an iteration"
        rows.append(Prediction(f"base drafter, Packed / Linear {at}", row.over_linear, *BASE_GAIN, True))
        rows.append(Prediction(f"base drafter, Packed / Quadratic {at}", row.over_quadratic, *BASE_OVER_QUADRATIC, True))
    return rows
