"""Conformance of a packed call: its rows against the same rows computed by separate, plain calls."""

from __future__ import annotations

from typing import NamedTuple

import torch

from realmodel.dualmode import DualModeModel
from realmodel.reference import causal_logits
from simulator.records import Call, Tokens


class Parity(NamedTuple):
    """Largest absolute logit differences of one packed call."""

    verifier: float  # against an uncached causal forward of prefix + draft
    proposals: float  # against an uncached drafting forward of each branch alone


@torch.inference_mode()
def draft_logits(model: DualModeModel, context: Tokens, width: int, anchored: bool = True) -> torch.Tensor:
    """A separate drafting call without cache, [width, vocabulary]: [context[:-1] causal | context[-1], MASK^width both ways].

    Not `anchored`: [context causal | MASK^width both ways]. An adapter acts on the rows behind the context's causal ones.
    """
    tokens = [*context, *[model.mask_token] * width]
    size, start = len(tokens), len(context) - anchored
    sees = torch.ones(size, size, dtype=torch.bool).tril()
    sees[start:, start:] = True
    mask = torch.zeros(size, size, dtype=model.dtype).masked_fill(~sees, -torch.inf).to(model.device)
    inputs = torch.tensor([tokens], device=model.device)
    positions = torch.arange(size, device=model.device)[None]
    if model.adapter:
        model.adapter.select(size, start)
    logits = model.network(inputs, position_ids=positions, attention_mask=mask[None, None], use_cache=False).logits[0]
    if model.adapter:
        model.adapter.release()
    drafted: torch.Tensor = logits[len(context) :].double()
    return drafted


def packed_parity(model: DualModeModel, call: Call, warm_prefix: int, padded: bool | None = None) -> Parity:
    """Run `call` packed, after a first call that left the cache holding `warm_prefix` tokens, and by separate forwards."""
    session = model.session(padded=padded)
    if warm_prefix:
        session.logits(Call(call.prefix[: warm_prefix + 1], (), True, (), 0))
    rows, logits = session.logits(call)  # finite, or ContractError
    logits = logits.double()
    verifier = proposals = 0.0
    if call.verify:
        expected = causal_logits(model, call.prefix + call.draft)[len(call.prefix) - 1 :]
        verifier = (logits[: len(expected)] - expected).abs().max().item()
    start = len(rows.verifier)
    for branch, block in zip(call.branches, rows.proposals, strict=True):
        if not block:
            continue
        expected = draft_logits(model, call.prefix + call.draft[:branch], call.width, call.anchored)
        proposals = max(proposals, (logits[start : start + call.width] - expected).abs().max().item())
        start += call.width
    return Parity(verifier, proposals)
