"""The independent any-order path: the pass the model was trained with, and plain uncached forwards with no schedule in them.

Pairs are (output position, token) in generation order; output positions count from 1 after the prompt (Appendix C).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from simulator.any_order.records import Pairs


def duplicate_mask(clean: torch.Tensor, bounds: torch.Tensor) -> torch.Tensor:
    """Who sees whom in one pass over [clean rows | mask rows], bool [..., C + M, C + M], True = attend.

    `clean` [..., C] is the rank of each clean row in the generation order; `bounds` [..., M] says that a mask row sees the
    clean rows of rank < bound. A clean row of rank r sees clean ranks <= r. No row sees a mask row but itself. A mask row whose
    bound is the rank of its own position is the verifier row of that position; with a smaller bound it drafts from a context
    that ends earlier.
    """
    upper = clean[..., :, None] >= clean[..., None, :]
    lower = bounds[..., :, None] > clean[..., None, :]
    itself = torch.eye(bounds.shape[-1], dtype=torch.bool).expand(*lower.shape[:-1], -1)
    never = torch.zeros_like(lower).transpose(-1, -2)
    return torch.cat([torch.cat([upper, never], -1), torch.cat([lower, itself], -1)], -2)


@torch.inference_mode()
def training_logits(network: Any, prompt: Sequence[int], pairs: Pairs, mask_token: int) -> torch.Tensor:
    """Logits of every pair's mask row, float64 [len(pairs), vocabulary], from the one duplicate-mask pass of training.

    Row r predicts the token at the position of pair r from the prompt and the pairs before r. The mask's own column is -inf, so
    that a softmax is the renormalised law. Rows: [prompt | pairs | one mask per pair].
    """
    if not pairs:
        return torch.empty(0, network.config.vocab_size, dtype=torch.float64)
    rows, count = len(prompt) + len(pairs), len(pairs)
    where = [len(prompt) - 1 + position for position, _ in pairs]
    tokens = [*prompt, *(token for _, token in pairs), *[mask_token] * count]
    sees = duplicate_mask(torch.arange(rows), torch.arange(len(prompt), rows))
    return _logits(network, tokens, [*range(len(prompt)), *where, *where], sees, count, mask_token)


@torch.inference_mode()
def row_logits(network: Any, prompt: Sequence[int], pairs: Pairs, position: int, mask_token: int) -> torch.Tensor:
    """Logits at output `position` given the prompt and all `pairs`, float64 [vocabulary]: a forward over exactly these rows and
    one mask, causal in generation order, nothing cached. The mask's own column is -inf.
    """
    tokens = [*prompt, *(token for _, token in pairs), mask_token]
    positions = [*range(len(prompt)), *(len(prompt) - 1 + at for at in (*(at for at, _ in pairs), position))]
    causal = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()
    return _logits(network, tokens, positions, causal, 1, mask_token)[0]


def serial_greedy(
    network: Any, prompt: Sequence[int], groups: Iterable[Sequence[int]], mask_token: int, eos: int | None = None
) -> Pairs:
    """The serial reference of Proposition C.1: the pairs accepted, in acceptance order.

    `groups` are the output positions accepted in each iteration, in verification order (one group per position for plain serial
    decoding). Each position is predicted greedily, ties to the lowest id, from what was accepted before and from the earlier
    positions of its group. After a group, an accepted `eos` ends the output there: pairs behind it are dropped.
    """
    accepted: Pairs = ()
    for group in groups:
        for position in group:
            token = int(row_logits(network, prompt, accepted, position, mask_token).argmax())
            accepted += ((position, token),)
        end = min((position for position, token in accepted if token == eos), default=None)
        if end is not None:
            accepted = tuple(pair for pair in accepted if pair[0] <= end)
    return accepted


def _logits(
    network: Any, tokens: list[int], positions: list[int], sees: torch.Tensor, keep: int, mask_token: int
) -> torch.Tensor:
    # Always an explicit mask: without one, transformers takes positions that do not ascend for packed sequences and cuts there.
    additive = torch.zeros(sees.shape, dtype=network.dtype).masked_fill_(~sees, -torch.inf)
    logits: torch.Tensor = network(
        input_ids=torch.tensor([tokens], device=network.device),
        position_ids=torch.tensor([positions], device=network.device),
        attention_mask=additive[None, None].to(network.device),
        logits_to_keep=keep,
        use_cache=False,
    ).logits[0]
    logits = logits.double()
    logits[:, mask_token] = -torch.inf
    return logits
