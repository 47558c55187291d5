"""A low-rank adapter that acts on proposal rows alone (LORA): better drafts, and a verifier that stays what it was.

As in the paper's accounting (F.2), a call that has proposal rows computes the update of every row and applies it to the
proposal rows, copies of the last context token included; a call without any, and every forward that no call selected rows
for, runs on the base weights. `evaluated` and `selected` count rows, once per forward and not once per layer.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from realmodel.dualmode import DualModeModel
from simulator.errors import InvalidInput


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
            update = self.scale * (hidden.to(self.down.dtype) @ self.down.T @ self.up.T)  # in the adapter's own precision
            output[:, rows] += update[:, rows]
        return output


class MaskEmbedding(nn.Module):
    """The embedding of a network without a mask token, and one id behind its vocabulary: the mask, with a vector of its own.

    The output projection knows no such id, so no law gives it any probability.
    """

    def __init__(self, base: nn.Embedding, vector: torch.Tensor) -> None:
        super().__init__()
        self.base = base
        self.vector = nn.Parameter(vector, requires_grad=False)  # [hidden]

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        masked = ids == self.base.num_embeddings
        known: torch.Tensor = self.base(ids.masked_fill(masked, 0))
        return torch.where(masked[..., None], self.vector.to(known.dtype), known)


def projections(network: Any) -> Iterator[tuple[str, nn.Module, str]]:
    """(name, owner, attribute) of every linear layer inside the decoder layers, in order."""
    for name, owner in network.model.layers.named_modules():
        for attribute, child in owner.named_children():
            if isinstance(child, nn.Linear):
                yield f"{name}.{attribute}", owner, attribute


def attach(
    network: Any, adapter: ProposalAdapter, weights: Mapping[str, tuple[torch.Tensor, torch.Tensor]], scale: float
) -> None:
    """Replace, in place, the projections named in `weights` by adapted ones: name -> (A [rank, in], B [out, rank]).

    Raises InvalidInput for a name the network does not have, or matrices that do not fit its projection.
    """
    known = {name: (owner, attribute) for name, owner, attribute in list(projections(network))}
    for name, (down, up) in weights.items():
        if name not in known:
            raise InvalidInput(f"the adapter is for a projection {name!r}, which the network does not have")
        owner, attribute = known[name]
        base = getattr(owner, attribute)
        if (down.shape[1], up.shape[0], down.shape[0]) != (base.in_features, base.out_features, up.shape[1]):
            raise InvalidInput(f"the adapter of {name} has shapes {tuple(down.shape)}, {tuple(up.shape)}, which do not fit it")
        setattr(owner, attribute, AdaptedLinear(base, down, up, scale, adapter))


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
