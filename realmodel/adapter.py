"""A low-rank adapter that acts on proposal rows alone (LORA): better drafts, and a verifier that stays what it was.

As in the paper's accounting (F.2), a call that has proposal rows computes the update of every row and applies it to the
proposal rows, copies of the last context token included; a call without any, and every forward that no call selected rows
for, runs on the base weights. `evaluated` and `selected` count rows, once per forward and not once per layer.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from realmodel.dualmode import DualModeModel


class ProposalAdapter:
    """The state all adapted projections of one network share: which rows of the next forward are proposal rows."""

    def __init__(self) -> None:
        self.rows: slice | None = None  # None: the adapter is off
        self.evaluated = 0  # rows whose updates were computed
        self.selected = 0  # rows that they were applied to

    def select(self, count: int, first: int) -> None:
        """The next forward has `count` rows, the last `count - first` of them proposal rows."""
        if first < count:
            self.rows = slice(first, count)
            self.evaluated += count
            self.selected += count - first

    def release(self) -> None:
        """Off, until rows are selected again."""
        self.rows = None


class AdaptedLinear(nn.Module):
    """y = W x, plus scale B A x on the rows selected."""

    def __init__(self, base: nn.Linear, down: torch.Tensor, up: torch.Tensor, scale: float, adapter: ProposalAdapter) -> None:
        super().__init__()
        self.base, self.scale, self.adapter = base, scale, adapter
        self.down = nn.Parameter(down, requires_grad=False)  # A: [rank, in]
        self.up = nn.Parameter(up, requires_grad=False)  # B: [out, rank]

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.base(hidden)  # [batch, rows, out]
        rows = self.adapter.rows
        if rows is not None:
            update = self.scale * (hidden @ self.down.T @ self.up.T)
            output[:, rows] += update[:, rows]
        return output


def with_random_adapter(model: DualModeModel, rank: int = 8, scale: float = 1.0, seed: int = 0) -> DualModeModel:
    """A copy of `model` with a random adapter on the output projection of every attention layer: a test subject, untrained.

    The same seed gives the same weights, up to rounding, in every dtype.
    """
    adapter = ProposalAdapter()
    network = copy.deepcopy(model.network)
    generator = torch.Generator().manual_seed(seed)
    for layer in network.model.layers:
        base = layer.self_attn.o_proj
        down = torch.randn(rank, base.in_features, generator=generator) / base.in_features**0.5
        up = torch.randn(base.out_features, rank, generator=generator) / rank**0.5
        where = {"dtype": base.weight.dtype, "device": base.weight.device}
        # The weights of a checkpoint are bfloat16; so are these, that no dtype rounds them differently.
        down, up = (matrix.bfloat16().to(**where) for matrix in (down, up))
        layer.self_attn.o_proj = AdaptedLinear(base, down, up, scale, adapter)
    adapted = DualModeModel(network, model.tokenizer, model.mask_token, f"{model.name} + adapter")
    adapted.adapter = adapter
    return adapted
