"""A model in genuine float64.

transformers computes RMSNorm and the rotary angles in float32 whatever the model's dtype. Exactness is judged in float64, so
these modules are replaced; both sides of every comparison run on the same replaced modules.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

# The frequencies of scaled embeddings are taken as float32 left them: they are then those of the tested dtype, to the bit.
_SCALED = ("default", "linear", "llama3", "yarn")


class RMSNorm64(nn.Module):
    """Root-mean-square normalisation in the dtype of its input."""

    def __init__(self, weight: nn.Parameter, epsilon: float) -> None:
        super().__init__()
        self.weight, self.epsilon = weight, epsilon

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.weight * (hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + self.epsilon))


class Rotary64(nn.Module):
    """Rotary cosines and sines, times `scaling`, from float64 angles; `inverse_frequencies` [head_dim / 2]."""

    def __init__(self, inverse_frequencies: torch.Tensor, scaling: float = 1.0) -> None:
        super().__init__()
        self.inverse_frequencies: torch.Tensor
        self.scaling = scaling
        self.register_buffer("inverse_frequencies", inverse_frequencies, persistent=False)

    def forward(self, hidden: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = position_ids[..., None].double() * self.inverse_frequencies  # [batch, rows, head_dim / 2]
        angles = torch.cat((angles, angles), dim=-1)
        return (angles.cos() * self.scaling).to(hidden.dtype), (angles.sin() * self.scaling).to(hidden.dtype)


def in_dtype(model: Any, dtype: torch.dtype) -> Any:
    """Convert `model` in place and return it: `to_float64`, or its weights alone.

    Buffers keep their float32, as in a model that transformers loads with that dtype: rotary frequencies rounded to bfloat16
    would turn every position by a little. Raises ValueError as `to_float64` does.
    """
    if dtype == torch.float64:
        return to_float64(model)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def to_float64(model: Any) -> Any:
    """Convert `model` (a transformers decoder) in place and return it.

    Raises ValueError for a rotary embedding whose frequencies depend on the length of the text.
    """
    model.double()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child).__name__.endswith("RMSNorm"):
                setattr(parent, name, RMSNorm64(child.weight, child.variance_epsilon))
            elif type(child).__name__.endswith("RotaryEmbedding"):
                setattr(parent, name, _rotary(child))
    return model


def _rotary(module: Any) -> Rotary64:
    if module.rope_type == "default":
        config = module.config
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
        return Rotary64(config.rope_parameters["rope_theta"] ** -exponents)
    if module.rope_type not in _SCALED:
        raise ValueError(f"float64 is available for the rotary embeddings {', '.join(_SCALED)}, not {module.rope_type!r}")
    return Rotary64(module.inv_freq.double(), module.attention_scaling)
