"""The scheduler bound to real torch/transformers models: packed layouts, caches, validation.

    from realmodel import load, held_out_prompts
    model = load("embedded", dtype="float64")
    generate(model.session(), packed(8), prompt_ids, Limits.of(64))

Needs the extra `realmodel` (torch, transformers).
"""

from realmodel.any_order.loading import load_any_order
from realmodel.any_order.session import AnyOrderModel
from realmodel.certificate import Certificate, certify, certify_sampling
from realmodel.dualmode import DualModeModel, Session
from realmodel.efficiency import Protocol, Source, arms
from realmodel.loading import Prompt, held_out_prompts, load
from realmodel.validate import Validation, validate

__all__ = [
    "AnyOrderModel",
    "Certificate",
    "DualModeModel",
    "Prompt",
    "Protocol",
    "Session",
    "Source",
    "Validation",
    "arms",
    "certify",
    "certify_sampling",
    "held_out_prompts",
    "load",
    "load_any_order",
    "validate",
]
