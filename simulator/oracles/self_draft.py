"""Self-draft: the drafter is the target, one step further for every offset."""

from __future__ import annotations

from simulator.oracles.answer import Oracle, greedy_path
from simulator.oracles.tabular import TabularModel


def self_draft(model: Oracle) -> TabularModel:
    """Proposals are `model`'s target laws along its most likely continuation of the context.

    Stands for a drafter that is as good as can be. At temperature 0 it is never wrong: Assumption 3.1 holds with every
    c*_k = 0, everything is accepted, and L tokens cost, under the start `algorithm`,

        AR         L calls
        Linear     2 ceil(L / (W + 1))
        Packed     2 q + min(r, 2) with L = q (W + 1) + r, 0 <= r <= W: it commits 1 and W tokens in turn
        Quadratic  1 + ceil((L - 1) / W)

    At temperature 1 a proposal knows no token after its context, so that only drafts on the most likely path are sure of it.
    """
    path = greedy_path(model.target)
    return TabularModel(model.target, lambda context, offset: model.target(path(context, offset)))
