"""The stages of the battery on a schedule, cheap and telling ones first."""

from __future__ import annotations

from collections.abc import Callable

from proofs_check.stages.cache import cache, requests
from proofs_check.stages.coins import determinism, edges
from proofs_check.stages.contract import contract
from proofs_check.stages.counts import counts, self_draft
from proofs_check.stages.greedy import events, greedy
from proofs_check.stages.law import law
from proofs_check.system import System

STAGES: dict[str, Callable[[System], str]] = {
    "contract": contract,
    "greedy": greedy,
    "self-draft": self_draft,
    "events": events,
    "determinism": determinism,
    "edges": edges,
    "cache": cache,
    "requests": requests,
    "counts": counts,
    "law": law,
}
"""Each returns what it looked at, raises Found with what is wrong, or NotReached when it could say nothing."""

BASIS = {
    "self-draft": ("greedy",),
    "counts": ("greedy", "events"),
    "cache": ("determinism",),
    "requests": ("determinism",),
    "law": ("determinism",),
}
"""Stages that would only say again, under another name, what an earlier stage found."""
