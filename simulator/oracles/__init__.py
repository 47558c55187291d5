"""Models without weights: each answers a Call as a real model would, from a rule one can reason about."""

from simulator.oracles.tabular import TabularModel, random_tables
from simulator.oracles.threshold import ThresholdModel, random_lags

__all__ = ["TabularModel", "ThresholdModel", "random_lags", "random_tables"]
