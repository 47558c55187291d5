"""Models without weights: each answers a Call as a real model would, from a rule one can reason about.

tables and thresholds   TabularModel, random_tables; ThresholdModel, random_lags; MatrixModel
drafters of a kind      self_draft, always_wrong, constant, eos_happy, stale, NoisyModel, around another model's target
memory                  RecurrentModel, with a state to roll back; Recorder and Replay, for runs made elsewhere;
                        EmpiricalModel, a real drafter measured by `packedss audit`
"""

from simulator.oracles.always_wrong import always_wrong
from simulator.oracles.answer import Oracle
from simulator.oracles.constant import constant
from simulator.oracles.empirical import EmpiricalModel
from simulator.oracles.eos_happy import eos_happy
from simulator.oracles.matrix import MatrixModel
from simulator.oracles.noisy import NoisyModel
from simulator.oracles.recurrent import HashRule, RecurrentModel
from simulator.oracles.replay import Recorder, Replay
from simulator.oracles.self_draft import self_draft
from simulator.oracles.stale import stale
from simulator.oracles.tabular import TabularModel, random_tables
from simulator.oracles.threshold import ThresholdModel, random_lags

__all__ = [
    "EmpiricalModel",
    "HashRule",
    "MatrixModel",
    "NoisyModel",
    "Oracle",
    "Recorder",
    "RecurrentModel",
    "Replay",
    "TabularModel",
    "ThresholdModel",
    "always_wrong",
    "constant",
    "eos_happy",
    "random_lags",
    "random_tables",
    "self_draft",
    "stale",
]
