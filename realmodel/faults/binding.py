"""Sessions of which one step is replaced by what somebody's decoder did there; all else is the production binding.

A fault is a class of sessions. `Planted(model, Class)` is the model whose sessions are of that class.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import torch

from realmodel.binding import BoundModel
from realmodel.dualmode import DualModeModel, Session
from realmodel.layout import Rows, attention, common_prefix
from simulator.records import Call, Tokens

Sees = npt.NDArray[np.bool_]
M = TypeVar("M", bound=BoundModel)


class Planted(DualModeModel):
    """A model whose sessions are of another class."""

    def __init__(self, model: DualModeModel, kind: type[Session]) -> None:
        super().__init__(model.network, model.tokenizer, model.mask_token, model.name)
        self.adapter, self.kind = model.adapter, kind
        self.left_over: Any = None  # what a session that leaks leaves behind

    def session(self, temperature: float = 0.0, padded: bool | None = None) -> Session:
        return self.kind(self, temperature, self.device.type != "cpu" if padded is None else padded)


def _layers(session: Session) -> list[Any]:
    return list(session.cache.layers)


# --- F26, F27: the cache ----------------------------------------------------------------------------------------------------


class _PhysicalCache(Session):
    """Its mask lets every row see all that lies in the cache, whatever that is: so a wrong crop raises no error."""

    def _mask(self, call: Call, cached: int, catch_up: int) -> torch.Tensor:
        return super()._mask(call, self.cache.get_seq_length(), catch_up)

    def _surplus(self, surplus: int) -> int:
        """How many rows are cropped in the place of `surplus`."""
        return surplus

    def _roll_back(self, prefix: Tokens) -> int:
        keep = common_prefix(self.cached, prefix)
        surplus = len(self.cached) - keep + self.stale
        crop = min(self._surplus(surplus), self.cache.get_seq_length()) if surplus else 0
        if crop > 0:
            self.cache.crop(-crop)
        self.cached, self.stale = self.cached[:keep], 0
        return keep


class Uncropped(_PhysicalCache):
    """The crop does nothing."""

    def _surplus(self, surplus: int) -> int:
        return 0


class CroppedToNothing(_PhysicalCache):
    """The crop leaves no row."""

    def _surplus(self, surplus: int) -> int:
        return int(self.cache.get_seq_length())


class RowTooMany(_PhysicalCache):
    """One row that should be gone stays, and is seen."""

    def _surplus(self, surplus: int) -> int:
        return surplus - 1


class RowTooFew(_PhysicalCache):
    """One row that should stay is gone."""

    def _surplus(self, surplus: int) -> int:
        return surplus + 1


class StaleRow(Session):
    """From its third call on, one row far back holds the values of another token: in one layer and one head, slightly."""

    row, part = 2, 1e-3

    def logits(self, call: Call) -> tuple[Rows, torch.Tensor]:
        answer = super().logits(call)
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 3:
            with torch.inference_mode():
                values = _layers(self)[0].values
                values[0, 0, self.row] += self.part * (values[0, 0, self.row + 1] - values[0, 0, self.row])
        return answer


class StaleWholeRow(StaleRow):
    """From its third call on, one row far back is that of another token, in every layer: no faint fault."""

    def logits(self, call: Call) -> tuple[Rows, torch.Tensor]:
        answer = Session.logits(self, call)
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 3:
            with torch.inference_mode():
                for layer in _layers(self):
                    layer.keys[0, :, self.row] = layer.keys[0, :, self.row + 3]
                    layer.values[0, :, self.row] = layer.values[0, :, self.row + 3]
        return answer


class KeepsTheBlocksRow(Session):
    """The cache keeps the drafting block's copy of the last prefix token, which saw masks, and not the verifier's row."""

    def logits(self, call: Call) -> tuple[Rows, torch.Tensor]:
        before = common_prefix(self.cached, call.prefix[:-1])
        rows, logits = super().logits(call)
        if call.verify and call.branches and call.anchored and rows.first_proposal < len(rows.tokens):
            with torch.inference_mode():
                for layer in _layers(self):
                    for tensor in (layer.keys, layer.values):
                        tensor[:, :, before + rows.catch_up] = tensor[:, :, before + rows.first_proposal]
        return rows, logits


class KeepsProposals(_PhysicalCache):
    """The rows of a call that only drafts stay in the cache, as if they were causal."""

    drafting = False

    def _surplus(self, surplus: int) -> int:
        return 0 if self.drafting else surplus

    def logits(self, call: Call) -> tuple[Rows, torch.Tensor]:
        answer = super().logits(call)
        self.drafting = not call.verify
        return answer


# --- F28: positions ---------------------------------------------------------------------------------------------------------


class PositionsContinue(Session):
    """Positions go on from the verifier's rows into the drafting blocks."""

    def _rows(self, call: Call, cached: int) -> Rows:
        rows = super()._rows(call, cached)
        before, first = rows.positions[: rows.first_proposal], rows.first_proposal
        begin = before[-1] + 1 if before else cached
        return replace(rows, positions=[*before, *range(begin, begin + len(rows.positions) - first)])


class PositionsOneLate(Session):
    """The masks of a drafting block stand one position late."""

    def _rows(self, call: Call, cached: int) -> Rows:
        rows = super()._rows(call, cached)
        mask = self.model.mask_token
        late = [p + (i >= rows.first_proposal and rows.tokens[i] == mask) for i, p in enumerate(rows.positions)]
        return replace(rows, positions=late)


# --- F29, F30: masks --------------------------------------------------------------------------------------------------------


class _OtherMask(Session):
    def _mask(self, call: Call, cached: int, catch_up: int) -> torch.Tensor:
        sees = attention(call, cached, catch_up, self.padded).copy()
        rows = self._rows(call, cached)
        self._spoil(sees, cached, catch_up, rows.first_proposal, call)
        return self._additive(sees)

    def _spoil(self, sees: Sees, cached: int, catch_up: int, first: int, call: Call) -> None:
        """Change who sees whom: rows [R], columns [cached + R]; the blocks begin at row `first`."""


class ProposalsSeeDraft(_OtherMask):
    """Drafting blocks see the draft that is being verified."""

    def _spoil(self, sees: Sees, cached: int, catch_up: int, first: int, call: Call) -> None:
        sees[first:, cached + catch_up : cached + first] = True


class VerifierSeesProposals(_OtherMask):
    """Verifier rows see the drafting blocks."""

    def _spoil(self, sees: Sees, cached: int, catch_up: int, first: int, call: Call) -> None:
        sees[catch_up:first, cached + first :] = True


class MasksSeeLaterDraft(_OtherMask):
    """The block of branch b also sees draft token b + 1."""

    def _spoil(self, sees: Sees, cached: int, catch_up: int, first: int, call: Call) -> None:
        size = call.width + call.anchored
        for index, branch in enumerate(b for b in call.branches if self.padded or b <= len(call.draft)):
            column = cached + catch_up + branch + 1
            if column < cached + first:
                sees[first + index * size : first + (index + 1) * size, column] = True


class CatchUpSeesAll(_OtherMask):
    """The rows that fill the cache see each other both ways: a prompt processed as a drafting block is."""

    def _spoil(self, sees: Sees, cached: int, catch_up: int, first: int, call: Call) -> None:
        sees[:catch_up, cached : cached + catch_up] = True


class CausalBlock(_OtherMask):
    """Drafting blocks are causal: no mask sees a later one."""

    def _spoil(self, sees: Sees, cached: int, catch_up: int, first: int, call: Call) -> None:
        sees[first:, cached + first :] &= np.tri(len(sees) - first, dtype=bool)


class ColumnHidden(_OtherMask):
    """Once more than 130 rows are cached, the first of them is hidden: a mask buffer that was grown wrongly."""

    room = 130

    def _spoil(self, sees: Sees, cached: int, catch_up: int, first: int, call: Call) -> None:
        if cached > self.room:
            sees[:, 0] = False


class MaskDropped(Session):
    """No mask is handed over, and the network makes a causal one of its own."""

    def _mask(self, call: Call, cached: int, catch_up: int) -> torch.Tensor:
        return cast(torch.Tensor, None)


class MaskAdded(Session):
    """A mask of 0 and 1 is added to the scores."""

    def _additive(self, sees: Sees) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(sees)).to(self.model.device, self.model.dtype)[None, None]


# --- F31: padding -----------------------------------------------------------------------------------------------------------


class MaskProposed(Session):
    """The mask may be drafted like any token."""

    def _laws(self, logits: torch.Tensor, verifier_rows: int) -> list[Any]:
        return super()._laws(logits, len(logits))


class ReadsPadding(Session):
    """The verifier's rows are read from the end of its region, padding included."""

    def _rows(self, call: Call, cached: int) -> Rows:
        rows = super()._rows(call, cached)
        end = rows.first_proposal
        return replace(rows, verifier=list(range(end - len(rows.verifier), end)))


# --- F34, F35: what is left over, and the adapter ---------------------------------------------------------------------------


class SharedCache(_PhysicalCache):
    """All sessions of a model fill the same cache."""

    def __init__(self, model: DualModeModel, temperature: float, padded: bool) -> None:
        super().__init__(model, temperature, padded)
        planted = cast(Planted, model)
        planted.left_over = self.cache = planted.left_over or self.cache


class TrustsLength(Session):
    """Cached rows are counted, not compared: right within a request, and wrong for the next one."""

    def _roll_back(self, prefix: Tokens) -> int:
        held = len(self.cached) + self.stale
        self.cached = prefix[: len(self.cached)]
        self.stale = held - len(self.cached)
        return super()._roll_back(prefix)


class AdapterStaysOn(Session):
    """The adapter is never switched off: a call without proposals runs with it on the rows of the call before."""

    def __init__(self, model: DualModeModel, temperature: float, padded: bool) -> None:
        super().__init__(model, temperature, padded)
        vars(model.adapter)["release"] = lambda: None


class _Selecting(Session):
    def _first(self, rows: Rows) -> int:
        """The first row that the adapter acts on."""
        return rows.first_proposal

    def _rows(self, call: Call, cached: int) -> Rows:
        rows = super()._rows(call, cached)
        return replace(rows, first_proposal=self._first(rows))


class AdapterOnVerifier(_Selecting):
    """The adapter acts on all rows of a call."""

    def _first(self, rows: Rows) -> int:
        return 0


class AdapterOff(_Selecting):
    """The adapter acts on no row."""

    def _first(self, rows: Rows) -> int:
        return len(rows.tokens)


class AdapterOnMasksAlone(_Selecting):
    """The adapter leaves out the copies of the last context token."""

    def _first(self, rows: Rows) -> int:
        return min(rows.first_proposal + 1, len(rows.tokens))


# --- subjects ---------------------------------------------------------------------------------------------------------------


def likes_masks(model: M) -> M:
    """The model whose likeliest token is the mask wherever the row is one: on those rows, the mask's logit is the largest.

    The causal mode of a dual-mode model is as before: text holds no masks.
    """
    network = copy.copy(model.network)
    forward, mask = model.network.forward, model.mask_token

    def biased(input_ids: torch.Tensor, **options: Any) -> Any:
        answer = forward(input_ids=input_ids, **options)
        keep = options.get("logits_to_keep", 0)
        read = input_ids[0, keep] if torch.is_tensor(keep) else input_ids[0, -keep:] if keep else input_ids[0]
        answer.logits[0, :, mask] += torch.where(read == mask, 100.0, 0.0).to(answer.logits.dtype)
        return answer

    network.forward = biased
    return type(model)(network, model.tokenizer, model.mask_token, model.name)
