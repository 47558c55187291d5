"""Grouped-query attention that never repeats keys and values: for training and for batches of continuations on a CPU.

transformers' own attentions first copy every key/value head once per query head of its group, which at one new row per sequence
is most of the work. `GROUPED` is the name to pass as `attn_implementation`; masks are additive.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

GROUPED = "packedss_grouped"


def grouped_attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: torch.Tensor | None, **how: Any
) -> tuple[torch.Tensor, None]:
    """query [batch, heads, rows, size], key and value [batch, groups, keys, size], mask [batch, 1, rows, keys]."""
    batch, heads, rows, size = query.shape
    groups = key.shape[1]
    scores = (query.reshape(batch, groups, heads // groups * rows, size) * how["scaling"]) @ key.transpose(2, 3)
    if attention_mask is not None:
        scores = (scores.view(batch, groups, heads // groups, rows, -1) + attention_mask[:, :, None]).view_as(scores)
    output = torch.softmax(scores, -1, dtype=torch.float32).to(query.dtype) @ value
    return output.view(batch, heads, rows, size).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, eager_mask)
