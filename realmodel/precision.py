"""A model in genuine float64.

transformers computes RMSNorm and the rotary angles in float32 whatever the model's dtype. Exactness is judged in float64, so
these modules are replaced; both sides of every comparison run on the same replaced modules.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class RMSNorm64(nn.Module):
    """Root-mean-square normalisation in the dtype of its input."""

    def __init__(self, weight: nn.Parameter, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = weight, epsilon

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.weight * (hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + self.epsilon))


class Rotary64(nn.Module):
    """Rotary cosines and sines from float64 angles."""

    def __init__(self, theta: float, head_dim: int) -> None:
        super().__init__()
        exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
        self.inverse_frequencies: torch.Tensor
        self.register_buffer("inverse_frequencies", theta**-exponents, persistent=False)

    def forward(self, hidden: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = position_ids[..., None].double() * self.inverse_frequencies  # [batch, rows, head_dim / 2]
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(hidden.dtype), angles.sin().to(hidden.dtype)


def to_float64(model: Any) -> Any:
    """Convert `model` (a transformers decoder with default rotary embedding) in place and return it.

    Raises ValueError for a scaled rotary embedding, which this module does not restate.
    """
    model.double()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                setattr(parent, name, RMSNorm64(child.weight, child.variance_epsilon))
            elif type(child).__name__.endswith("RotaryEmbedding"):
                if child.rope_type != "default":
                    raise ValueError(f"float64 is available for the default rotary embedding only, not {child.rope_type!r}")
                config = child.config
                setattr(parent, name, Rotary64(config.rope_parameters["rope_theta"], config.head_dim))
    return model
