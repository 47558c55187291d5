"""A dual-mode transformer behind `model(call) -> Reply`: it predicts causally and, on MASK rows, drafts (LAYD1, LAYQ)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from realmodel.binding import BoundModel, BoundSession, finite, torch_dtype
from realmodel.layout import Rows, fixed_attention, rows_of, shape_of
from simulator.errors import InvalidInput
from simulator.laws import Law, Point
from simulator.records import Call, Tokens

__all__ = ["DualModeModel", "Session", "torch_dtype"]


class DualModeModel(BoundModel):
    """Weights that predict causally and, on MASK rows, draft."""

    def session(self, temperature: float = 0.0, padded: bool | None = None) -> Session:
        """As `BoundModel.session`."""
        return Session(self, temperature, self.pads(padded))


class Session(BoundSession[Call, int]):
    """One request on a `DualModeModel`. The cache holds causal rows only, each known by its token."""

    def _check(self, call: Call) -> None:
        if not call.prefix:
            raise InvalidInput(f"{self.model.name} needs a prompt of at least 1 token, got none")
        if any(b < 0 or (b and not call.verify) for b in call.branches):
            raise InvalidInput(f"a call that does not verify can draft branch 0 only, got branches {list(call.branches)}")

    def _context(self, call: Call) -> Tokens:
        return call.prefix[:-1]

    def _fed(self, call: Call) -> Tokens:
        return call.prefix + call.draft

    def _rows(self, call: Call, cached: int) -> Rows:
        return rows_of(call, cached, self.model.mask_token, self.padded)

    def _given(self, call: Call, rows: Rows) -> list[int]:
        return [*super()._given(call, rows), call.prefix[-1]]

    def _layout(self, call: Call) -> tuple[bool, tuple[int, ...], int, int, bool]:
        return shape_of(call, self.padded)

    def _fixed(self, layout: Any) -> npt.NDArray[np.bool_]:
        return fixed_attention(*layout)

    def masked_from(self, rows: Rows) -> int:
        """Only a drafter never proposes the mask itself (PAD)."""
        return len(rows.verifier)

    def _laws(self, logits: torch.Tensor, verifier_rows: int) -> list[Law]:
        sound = finite(logits)
        logits = logits.clone()
        mask = self.model.mask_token
        logits[verifier_rows:, mask : mask + 1] = -torch.inf  # a drafter never proposes the mask itself (PAD)
        if self.temperature == 0:
            *tokens, is_sound = torch.cat([logits.argmax(-1), sound[None]]).tolist()  # all that the host waits for
            if not is_sound:
                raise self._not_finite()
            return [Point(token) for token in tokens]
        if not sound:
            raise self._not_finite()
        return self._softmax(logits)
