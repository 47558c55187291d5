"""EOS-happy: a drafter that proposes the end of the text at every position."""

from __future__ import annotations

from simulator.oracles.answer import Oracle
from simulator.oracles.constant import constant
from simulator.oracles.tabular import TabularModel


def eos_happy(model: Oracle, eos: int) -> TabularModel:
    """`constant` on the EOS id.

    Stands for a drafter trained to stop early, and tempts a scheduler to believe a drafted EOS that was never verified (F23).
    At temperature 0 Assumption 3.1 holds with c*_k = 0 where the target itself stops and c*_k = k elsewhere. Only the target's
    own EOS is accepted, so n tokens, EOS included, cost AR, Packed and Quadratic n calls and Linear 2 n.
    """
    return constant(model, eos)
