"""Laws that stay on the model's device: torch float64 behind the interface of `simulator.laws`, by the same formulas.

What reaches the host is one number per question: a probability, a drawn token, whether a residual has mass. On the CPU the
answers equal numpy's bit for bit. A GPU sums in an order of its own, so its cumulative sums, and with them a draw whose coin
lies within rounding of an edge, may differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from simulator.laws import ArrayLaw, Coin, Law, dense


class TorchLaw:
    """Probabilities, shape [V], converted to float64 and kept on their device: normalised by whoever computed them."""

    __slots__ = ("probabilities",)

    def __init__(self, probabilities: torch.Tensor) -> None:
        self.probabilities = probabilities.double()

    @property
    def support(self) -> list[int]:
        ids: list[int] = self.probabilities.nonzero()[:, 0].tolist()
        return ids

    @property
    def certain(self) -> None:
        """Never: to know would cost a pass over the vocabulary and a wait for the device."""
        return None

    def probability(self, token: int) -> float:
        return float(self.probabilities[token]) if 0 <= token < len(self.probabilities) else 0.0

    def residual(self, proposal: Law) -> TorchLaw | None:
        size = len(self.probabilities)
        if isinstance(proposal, TorchLaw) and len(proposal.probabilities) == size:
            other = proposal.probabilities
        else:
            other = torch.from_numpy(dense(proposal, size)).to(self.probabilities.device)
        mass = (self.probabilities - other).clamp(min=0)
        total = mass.cumsum(0)[-1]
        return TorchLaw(mass / total) if total > 0 else None

    def draw(self, coin: Coin) -> int:
        if not isinstance(coin, float):
            return ArrayLaw(self).draw(coin)  # a Fraction or an enumerated coin compares itself: on the host
        # A parallel sum need not ascend, so ask for positive probability too, or rounding could draw an impossible token.
        positive = self.probabilities > 0
        hit = positive & (self.probabilities.cumsum(0) > coin)
        first = hit.int().argmax()  # of equals, the first
        last = len(hit) - 1 - positive.flip(0).int().argmax()
        return int(torch.where(hit.any(), first, last))

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.array(self.probabilities.cpu().numpy(), dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"TorchLaw({self.probabilities})"
