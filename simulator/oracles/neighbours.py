"""Synthetic any-order drafters: right at a position once enough of what stands around it is accepted.

The any-order counterpart of the drafter families: correctness is a monotone function of the accepted set, position by position,
and the drafter's certainty tells right from wrong as well as it is asked to.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields
from math import inf, log
from typing import ClassVar

from simulator.any_order.records import Call
from simulator.errors import InvalidInput
from simulator.laws import Peak
from simulator.oracles.families.family import parameter
from simulator.records import Reply


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Position j is drafted right once `need_j` of the `reach` positions before it and the `reach` after it are accepted; the
    prompt counts as accepted. need_j is geometric with mean `need`, independently; if it exceeds 2 reach, j is never right.
    At an `honest` share of positions the drafter gives a right token 1/2 or more and a wrong one less, and the verifier gives
    its token 1 / (1 + need_j); elsewhere both are noise.

    Raises InvalidInput, naming the parameter and its range, when one is out of it.
    """

    name: ClassVar[str] = "neighbours"
    need: float = parameter(0, 1000, "mean number of accepted neighbours that a position needs")
    reach: float = field(default=4, metadata={"range": (1, 64), "is": "how far neighbours may be, in positions"})
    after: float = field(default=1, metadata={"range": (0, 1), "is": "what one after the position counts, one before it 1"})
    honest: float = field(
        default=0.8, metadata={"range": (0, 1), "is": "share of positions whose certainty tells right from wrong"}
    )

    def __post_init__(self) -> None:
        for each in fields(self):
            low, high = each.metadata["range"]
            value = getattr(self, each.name)
            if not low <= value <= high or (each.name == "reach" and value != int(value)):
                whole = " a whole number" if each.name == "reach" else ""
                raise InvalidInput(f"{self.name}: {each.name} must be{whole} in {low:g} .. {high:g}, got {value:g}")

    def model(self, seed: int, run: int, length: int) -> NeighbourModel:
        """The drafter of that run; the same (seed, run) gives the same drafter whatever the length."""
        needs, certain, truth = [inf], [(1.0, 1.0)], [Peak(0, 1.0)]
        for j in range(1, length + 1):
            rng = random.Random(f"{seed} {run} {j}")
            drawn = 1 - rng.random()
            needs.append(int(log(drawn) / log(self.need / (1 + self.need))) if self.need else 0)
            noise, honest = rng.random(), rng.random() < self.honest
            certain.append((0.5 + noise / 2, noise / 2) if honest else (noise, noise))
            truth.append(Peak(0, 1 / (1 + needs[-1]) if honest else noise))
        return NeighbourModel(int(self.reach), self.after, needs, certain, truth)


class NeighbourModel:
    """The verifier says 0 everywhere, as `truth[j]`; a wrong draft says 1. `needs[j]` is the count that position j needs,
    `certain[j]` the probability that the drafter gives its token, where it is right and where it is wrong."""

    def __init__(
        self, reach: int, after: float, needs: list[float], certain: list[tuple[float, float]], truth: list[Peak]
    ) -> None:
        self.reach, self.after, self.truth = reach, after, truth
        self.drafts = [(need, Peak(0, right), Peak(1, wrong)) for need, (right, wrong) in zip(needs, certain, strict=True)]

    def drafted(self, accepted: int, j: int) -> Peak:
        """The draft of position j, given the bit set of accepted positions; position i is bit `reach` - 1 + i."""
        need, right, wrong = self.drafts[j]
        side = (1 << self.reach) - 1
        before = (accepted >> (j - 1) & side).bit_count()
        after = (accepted >> (j + self.reach) & side).bit_count()
        return right if before + self.after * after >= need else wrong

    def bits(self, positions: list[int]) -> int:
        """The bit set of these positions and the prompt."""
        return (1 << self.reach) - 1 | sum(1 << self.reach - 1 + j for j in positions)

    def __call__(self, call: Call) -> Reply:
        proposals: list[tuple[Peak, ...] | None] = []
        kappa = call.kappa
        if call.branches:
            accepted, reached = self.bits([j for j, _ in call.accepted]), 0
            for b in call.branches:
                if b > kappa:
                    proposals.append(None)
                    continue
                while reached < b:
                    accepted |= 1 << self.reach - 1 + call.order[reached]
                    reached += 1
                proposals.append(tuple(self.drafted(accepted, j) for j in call.order[b:]))
        return Reply(tuple(self.truth[j] for j in call.order[: call.asked]), tuple(proposals), call.padded_rows)
