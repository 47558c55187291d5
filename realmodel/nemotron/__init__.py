"""Nemotron-Labs-Diffusion: the released checkpoints, whose own Python code comes with them, behind `model(call) -> Reply`."""

from realmodel.nemotron.checklist import Item, checklist, exit_code
from realmodel.nemotron.loading import is_nemotron, load
from realmodel.nemotron.network import NemotronNetwork

__all__ = ["Item", "NemotronNetwork", "checklist", "exit_code", "is_nemotron", "load"]
