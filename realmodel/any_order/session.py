"""An any-order transformer behind `model(call) -> Reply`: it predicts a position at the row of a mask (Appendix C, D.2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from realmodel.any_order.layout import Entry, Shape, fed, fixed_attention, rows_of, sequence, shape_of
from realmodel.binding import BoundModel, BoundSession, finite
from realmodel.layout import Rows
from simulator.any_order.records import Call
from simulator.errors import InvalidInput
from simulator.laws import Law, Peak
from simulator.records import Limits


class AnyOrderModel(BoundModel):
    """Weights that predict the position of a mask from whatever was accepted before, wherever that stands."""

    def session(self, temperature: float = 0.0, padded: bool | None = None) -> AnyOrderSession:
        """As `BoundModel.session`."""
        return AnyOrderSession(self, temperature, self.pads(padded))

    def limits(self, max_new_tokens: int) -> Limits:
        """When an output of this model ends."""
        return Limits.of(max_new_tokens, self.eos)

    def check_prompt(self, prompt: tuple[int, ...], max_new_tokens: int, width: int = 0) -> None:
        """As `BoundModel.check_prompt`; no draft stands beyond the last output position."""
        super().check_prompt(prompt, max_new_tokens)


class AnyOrderSession(BoundSession[Call, Entry]):
    """One request on an `AnyOrderModel`.

    The cache is a ledger of pairs in acceptance order, each row of which saw those before it. When E has shrunk, what was
    accepted after the first removed pair had seen it, so it is encoded again (`Reply.again`).
    """

    def __init__(self, model: BoundModel, temperature: float, padded: bool) -> None:
        super().__init__(model, temperature, padded)
        self._dropped: frozenset[Entry] = frozenset()  # cached once, gone since the last call

    def _check(self, call: Call) -> None:
        if not call.prompt:
            raise InvalidInput(f"{self.model.name} needs a prompt of at least 1 token, got none")
        if any(b < 0 or (b and not call.verify) for b in call.branches):
            raise InvalidInput(f"a call that does not verify can draft branch 0 only, got branches {list(call.branches)}")

    def _context(self, call: Call) -> tuple[Entry, ...]:
        entries = sequence(call)
        fresh = call.unread or not call.order  # a call without any other row encodes at least the last token of the prompt
        return entries[: len(entries) - fresh]

    def _fed(self, call: Call) -> tuple[Entry, ...]:
        return fed(call)

    def _roll_back(self, context: tuple[Entry, ...]) -> int:
        before = self.cached
        keep = super()._roll_back(context)
        self._dropped = frozenset(before[keep:])
        return keep

    def _rows(self, call: Call, cached: int) -> Rows:
        rows = rows_of(call, cached, self.model.mask_token, self.padded)
        caught_up = zip(rows.positions[: rows.catch_up], rows.tokens, strict=False)
        again = sum(entry in self._dropped for entry in caught_up if entry[0] >= len(call.prompt))
        return replace(rows, again=again)

    def _layout(self, call: Call) -> Shape:
        return shape_of(call, self.padded)

    def _fixed(self, layout: Any) -> npt.NDArray[np.bool_]:
        return fixed_attention(layout)

    def masked_from(self, rows: Rows) -> int:
        """In every law: a mask row is how the verifier is asked, too."""
        return 0

    def _laws(self, logits: torch.Tensor, verifier_rows: int) -> list[Law]:
        sound = finite(logits)
        mask = self.model.mask_token
        logits = logits.to(torch.float64, copy=True)
        logits[:, mask : mask + 1] = -torch.inf
        if self.temperature == 0:
            best, tokens = logits.max(-1)
            probabilities = torch.exp(best - logits.logsumexp(-1))
            # All that the host waits for: ids are exact as float64.
            *answer, is_sound = torch.cat([tokens.double(), probabilities, sound[None].double()]).tolist()
            if not is_sound:
                raise self._not_finite()
            count = len(logits)
            return [Peak(int(token), p) for token, p in zip(answer[:count], answer[count:], strict=True)]
        if not sound:
            raise self._not_finite()
        return self._softmax(logits)
