"""Nemotron-Labs-Diffusion: the released checkpoints, whose own Python code comes with them, behind `model(call) -> Reply`."""

from realmodel.nemotron.loading import is_nemotron, load
from realmodel.nemotron.network import NemotronNetwork

__all__ = ["NemotronNetwork", "is_nemotron", "load"]
