"""The accept rule, once: test a draft against the target with its stored laws, then correct or add a bonus.

Under point masses this is greedy matching (EQ2, COR-GREEDY); with the laws of sampling it is ALG2.L5-L8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from simulator.chance import Chance, draw, leading
from simulator.laws import Law, Probability
from simulator.records import Draft, Tokens


class Verdict(NamedTuple):
    """Outcome of one verification, before any stopping rule."""

    accepted: int  # h
    tokens: Tokens  # the accepted draft tokens and the correction or bonus, if any
    fallback: bool  # see Step.fallback


def acceptance_probability(target: Law, proposal: Law, token: int) -> Probability:
    """min(1, p(d) / Q(d)). A token its own stored law cannot draw (never so in a run) counts as p(d) > 0."""
    p, q = target.probability(token), proposal.probability(token)
    if q <= 0:
        return int(p > 0)
    return 1 if p >= q else p / q


def accept(draft: Draft, target: Sequence[Law], chance: Chance, first_position: int) -> Verdict:
    """Verify `draft`, whose first token stands at output position `first_position`, against |draft| + 1 target laws.

    Without the last of them there is no bonus: an any-order window that is accepted in full leaves no position for one.
    """
    # One at a time: those after the first failure are never asked for.
    alphas = (acceptance_probability(*row) for row in zip(target, draft.laws, draft.tokens, strict=False))
    h = leading(alphas, lambda index: chance.uniform("test", first_position + index))
    if h == len(target):
        return Verdict(h, draft.tokens, False)
    law: Law | None = target[h]
    if h < len(draft.tokens):
        law = target[h].residual(draft.laws[h])
    token = draw(target[h] if law is None else law, chance, "correct", first_position + h)
    return Verdict(h, (*draft.tokens[:h], token), law is None)
