"""Any-order sessions of which one step is replaced, in the manner of `realmodel.faults.binding`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from realmodel.any_order.layout import Entry, sequence, shape_of
from realmodel.any_order.session import AnyOrderModel, AnyOrderSession
from realmodel.layout import Rows, common_prefix
from simulator.any_order.records import Call, Pairs
from simulator.laws import Law

Sees = npt.NDArray[np.bool_]


class Planted(AnyOrderModel):
    """A model whose sessions are of another class."""

    def __init__(self, model: AnyOrderModel, kind: type[AnyOrderSession]) -> None:
        super().__init__(model.network, model.tokenizer, model.mask_token, model.name)
        self.kind = kind

    def session(self, temperature: float = 0.0, padded: bool | None = None) -> AnyOrderSession:
        return self.kind(self, temperature, self.pads(padded))


def _keep_rows(session: AnyOrderSession, rows: list[int]) -> None:
    """The cache with these rows alone, in this order."""
    layers: list[Any] = session.cache.layers if session.cache.get_seq_length() else []
    for layer in layers:
        layer.keys, layer.values = layer.keys[:, :, rows], layer.values[:, :, rows]


# --- F26, F27, F41: the cache -----------------------------------------------------------------------------------------------


class RowTooMany(AnyOrderSession):
    """One row that should be gone stays, and is seen."""

    def _mask(self, call: Call, cached: int, catch_up: int) -> torch.Tensor:
        return super()._mask(call, self.cache.get_seq_length(), catch_up)

    def _roll_back(self, context: tuple[Entry, ...]) -> int:
        keep = common_prefix(self.cached, context)
        surplus = len(self.cached) - keep + self.stale
        if surplus > 1:
            self.cache.crop(1 - surplus)
        self.cached, self.stale = self.cached[:keep], 0
        return keep


class SkipsCorrections(AnyOrderSession):
    """A correction is never encoded, as if its mask had been."""

    skipped: Pairs = ()

    def logits(self, call: Call) -> tuple[Rows, torch.Tensor]:
        self.skipped += call.accepted[len(call.accepted) - call.unread :]
        known = tuple(pair for pair in call.accepted if pair not in self.skipped)
        return super().logits(call._replace(accepted=known, unread=0))


class KeepsTheMasksRow(AnyOrderSession):
    """For a correction the cache keeps the row of the mask that predicted it."""

    before: tuple[Call, int, Rows] | None = None

    def logits(self, call: Call) -> tuple[Rows, torch.Tensor]:
        if self.before and call.unread == 1 and self.before[0].verify:
            last, begin, rows = self.before
            kept = common_prefix(self.cached, sequence(call))
            accepted = kept - (begin + rows.keep - last.kappa)
            if 0 <= accepted < len(rows.verifier):
                _keep_rows(self, [*range(kept), begin + rows.verifier[accepted]])
                self.cached, self.stale = sequence(call), 0
                call = call._replace(unread=0)
        begin = common_prefix(self.cached, self._context(call))
        answer = super().logits(call)
        self.before = call, begin, answer[0]
        return answer


class KeepsStaleRows(AnyOrderSession):
    """When E has shrunk, only the rows of removed pairs go: those that had seen them stay as they are."""

    def _roll_back(self, context: tuple[Entry, ...]) -> int:
        held = self.cached
        rows: list[int] = []
        for index, entry in enumerate(held):
            if len(rows) < len(context) and context[len(rows)] == entry:
                rows.append(index)
        _keep_rows(self, rows)
        self.cached, self.stale = tuple(held[index] for index in rows), 0
        return len(rows)


# --- F28: positions ---------------------------------------------------------------------------------------------------------


class PositionsContinue(AnyOrderSession):
    """The masks stand behind the draft, not at the positions that they are about."""

    def _rows(self, call: Call, cached: int) -> Rows:
        rows = super()._rows(call, cached)
        first = rows.verifier[0] if rows.verifier else rows.first_proposal
        begin = max(rows.positions[:first], default=cached - 1) + 1
        return replace(rows, positions=[*rows.positions[:first], *range(begin, begin + len(rows.positions) - first)])


class MasksOneLate(AnyOrderSession):
    """Every mask stands one position late, as in a model that predicts the next token."""

    def _rows(self, call: Call, cached: int) -> Rows:
        rows = super()._rows(call, cached)
        first = rows.verifier[0] if rows.verifier else rows.first_proposal
        return replace(rows, positions=[p + (i >= first) for i, p in enumerate(rows.positions)])


# --- F29: masks -------------------------------------------------------------------------------------------------------------


class _OtherMask(AnyOrderSession):
    def _mask(self, call: Call, cached: int, catch_up: int) -> torch.Tensor:
        sees = self._attention(call, cached, catch_up).copy()
        shape = shape_of(call, self.padded)
        new = cached + catch_up
        self._spoil(sees, new, new + shape.new, new + shape.new + len(shape.drafted), shape.verified, len(sees) - sees.shape[1])
        return self._additive(sees)

    def _spoil(self, sees: Sees, new: int, drafts: int, masks: int, verified: int, back: int) -> None:
        """Change who sees whom. N, O and M begin at the columns `new`, `drafts` and `masks`; there are `verified` M rows, and
        the row of a column is `back` (negative) further."""


class ProposalsSeeDraft(_OtherMask):
    """R rows see the draft that is being verified."""

    def _spoil(self, sees: Sees, new: int, drafts: int, masks: int, verified: int, back: int) -> None:
        sees[masks + verified + back :, drafts:masks] = True


class DraftSeesLater(_OtherMask):
    """O rows see the draft tokens of later ranks."""

    def _spoil(self, sees: Sees, new: int, drafts: int, masks: int, verified: int, back: int) -> None:
        sees[drafts + back : masks + back, drafts:masks] = True


class MasksSeeTheirToken(_OtherMask):
    """The mask of a rank sees the draft token that it verifies."""

    def _spoil(self, sees: Sees, new: int, drafts: int, masks: int, verified: int, back: int) -> None:
        for rank in range(min(verified, masks - drafts)):
            sees[masks + back + rank, drafts + rank] = True


class MasksSeeEachOther(_OtherMask):
    """The masks of a window are seen by each other, as in a block of masked diffusion."""

    def _spoil(self, sees: Sees, new: int, drafts: int, masks: int, verified: int, back: int) -> None:
        sees[masks + verified + back :, masks + verified :] = True


class MasksDoNotSeeCorrection(_OtherMask):
    """N is encoded, and seen by no other row of the call."""

    def _spoil(self, sees: Sees, new: int, drafts: int, masks: int, verified: int, back: int) -> None:
        sees[drafts + back :, new:drafts] = False


class CatchUpSeesAll(_OtherMask):
    """The rows that fill the cache see each other both ways."""

    def _spoil(self, sees: Sees, new: int, drafts: int, masks: int, verified: int, back: int) -> None:
        begin = -back
        sees[: new + back, begin:new] = True


# --- F31: the mask's own column ---------------------------------------------------------------------------------------------


class MaskProposed(AnyOrderSession):
    """The mask may be predicted like any token."""

    def _laws(self, logits: torch.Tensor, verifier_rows: int) -> list[Law]:
        mask, self.model.mask_token = self.model.mask_token, self.model.vocabulary
        try:
            return super()._laws(logits, verifier_rows)
        finally:
            self.model.mask_token = mask


class NotRenormalised(AnyOrderSession):
    """The mask is never predicted, but its column still takes its share of the probabilities."""

    def _laws(self, logits: torch.Tensor, verifier_rows: int) -> list[Law]:
        laws: list[Any] = super()._laws(logits, verifier_rows)
        shares = 1 - torch.softmax(logits.double(), -1)[:, self.model.mask_token]
        for law, share in zip(laws, shares.tolist(), strict=True):
            law.confidence *= share
        return laws


# --- F34: what is left over -------------------------------------------------------------------------------------------------


class TrustsLength(AnyOrderSession):
    """Cached rows are counted, not compared: what a request before, or a rejected draft, left there is taken for its own."""

    def _roll_back(self, context: tuple[Entry, ...]) -> int:
        held = len(self.cached) + self.stale
        self.cached = context[: len(self.cached)]
        self.stale = held - len(self.cached)
        return super()._roll_back(context)
