"""What transformers runs in place of its own loop: see realmodel.custom_generate of the package packedss."""

from realmodel.custom_generate import generate

__all__ = ["generate"]
