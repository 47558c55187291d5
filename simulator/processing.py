"""Processing: a model wrapped so that each of its laws is processed, with that row's own context, before a schedule sees it.

A processor is a function (context, law) -> law. The context is all the row's law is conditioned on, prompt included:
prefix + draft[:i] for verifier row i, and prefix + draft[:b] alone for every proposal of branch b, which knows no token after
it. Since the schedule draws from what it sees, the law stored with a draft token is the law it was drawn from.

`Processing` is the usual processor: temperature, top-k, top-p, min-p. Others are plain functions, such as a repetition
penalty that reads its context; to run one before the usual ones, wrap twice:

    processed(processed(model, penalty), Processing(temperature=0.8, top_k=20))
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from simulator.decode import Model
from simulator.errors import ContractError, InvalidInput
from simulator.laws import Law, Point, Probability, RationalLaw, SparseLaw, argmax, entries
from simulator.records import Call, Reply, Tokens

Processor: TypeAlias = Callable[[Tokens, Law], Law]
_Numbers: TypeAlias = npt.NDArray[Any]
"""float64 or, for exact laws, an object array of Fractions: numpy computes with both."""


@dataclass(frozen=True)
class Processing:
    """Temperature, then top-k, then top-p, then min-p; what is left is renormalised after each.

    temperature   p^(1/T) / sum; 0 is greedy: all mass on the most likely token, the lowest id among equals
    top_k         the k most likely tokens; among equals lower ids are kept first
    top_p         the smallest set of most likely tokens whose mass reaches top_p; among equals lower ids are kept first
    min_p         the tokens at least min_p times as likely as the most likely one

    The defaults change nothing. Laws of fractions stay exact, and then a float bound means its exact binary value: give
    Fraction(9, 10) for nine tenths. They take temperatures 0 and 1 only. Float laws become sparse.

    Raises InvalidInput for a parameter outside its range and, when called, for another temperature on an exact law.
    """

    temperature: Probability = 1
    top_k: int | None = None
    top_p: Probability = 1
    min_p: Probability = 0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < math.inf:
            raise InvalidInput(f"temperature must be >= 0 and finite (0 is greedy), got {self.temperature}")
        if self.top_k is not None and not (isinstance(self.top_k, int) and self.top_k >= 1):
            raise InvalidInput(f"top_k must be an integer >= 1, or None to keep all, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise InvalidInput(f"top_p must be > 0 and <= 1 (1 keeps all), got {self.top_p}")
        if not 0 <= self.min_p <= 1:
            raise InvalidInput(f"min_p must be >= 0 and <= 1 (0 keeps all), got {self.min_p}")

    def __call__(self, context: Tokens, law: Law) -> Law:
        if self == _UNCHANGED or isinstance(law, Point):
            return law
        if self.temperature == 0:
            return argmax(law)
        if isinstance(law, RationalLaw):
            if self.temperature != 1:
                raise InvalidInput(f"laws of fractions take temperature 0 or 1, got {self.temperature}; use float laws")
            ids = np.array(law.support)
            kept, exact = self._truncated(ids, np.array([law.probability(token) for token in law.support]), Fraction)
            mass = dict(zip(kept.tolist(), exact.tolist(), strict=True))
            return RationalLaw(mass.get(token, 0) for token in range(len(law.probabilities)))
        ids, p = entries(law)
        if self.temperature != 1:
            p = (p / p.max()) ** (1 / float(self.temperature))  # over the largest, which thus never underflows
            ids, p = ids[p > 0], _normalised(p[p > 0])
        return SparseLaw(*self._truncated(ids, p, float))

    def _truncated(self, ids: _Numbers, p: _Numbers, number: type[Fraction] | type[float]) -> tuple[_Numbers, _Numbers]:
        """The tokens kept, ascending, and their probabilities; `number` is the type the bounds are compared in."""
        if self.top_k is not None and self.top_k < len(p):
            least = np.partition(p, -self.top_k)[-self.top_k]
            keep = p > least
            keep[np.flatnonzero(p == least)[: self.top_k - np.count_nonzero(keep)]] = True
            ids, p = ids[keep], _normalised(p[keep])
        if self.top_p < 1:
            order = np.argsort(-p, kind="stable")  # most likely first, lower ids first among equals
            short = np.count_nonzero(np.cumsum(p[order]) < number(self.top_p))  # so many do not reach top_p
            keep = np.sort(order[: short + 1])
            ids, p = ids[keep], _normalised(p[keep])
        if self.min_p > 0:
            keep = p >= number(self.min_p) * p.max()
            ids, p = ids[keep], _normalised(p[keep])
        return ids, p


_UNCHANGED = Processing()


def processed(model: Model, target: Processor, proposal: Processor | None = None) -> Model:
    """`model` with every verifier law processed by `target` and every proposal law by `proposal`, or by `target` as well.

    The outputs of an exact schedule then follow the processed target law, whatever happens to the proposals.
    """

    def run(call: Call) -> Reply:
        reply = model(call)
        if len(reply.proposals) != len(call.branches):
            raise ContractError(f"the model answered {len(reply.proposals)} branches, the call asked for {len(call.branches)}")
        on_proposals = [partial(proposal or target, call.prefix + call.draft[:b]) for b in call.branches]
        return reply._replace(
            target=tuple(target(call.prefix + call.draft[:i], law) for i, law in enumerate(reply.target)),
            proposals=tuple(
                None if laws is None else tuple(map(process, laws))
                for process, laws in zip(on_proposals, reply.proposals, strict=True)
            ),
        )

    return run


def greedy(model: Model) -> Model:
    """`model` at temperature 0: every law becomes a point mass on its most likely token, the lowest id among equals."""
    return processed(model, Processing(temperature=0))


def _normalised(p: _Numbers) -> _Numbers:
    normalised: _Numbers = p / np.cumsum(p)[-1]
    return normalised
