"""The stages of the battery on a schedule, cheap and telling ones first."""

from __future__ import annotations

from collections.abc import Callable

from proofs_check.stages.cache import cache, requests
from proofs_check.stages.coins import chance, determinism, edges
from proofs_check.stages.contract import contract
from proofs_check.stages.counts import counts, self_draft
from proofs_check.stages.greedy import counters, events, greedy
from proofs_check.stages.law import law, small_law
from proofs_check.system import System

STAGES: dict[str, Callable[[System], str]] = {
    "determinism": determinism,
    "contract": contract,
    "greedy": greedy,
    "chance": chance,
    "small law": small_law,
    "events": events,
    "self-draft": self_draft,
    "edges": edges,
    "cache": cache,
    "requests": requests,
    "counters": counters,
    "counts": counts,
    "law": law,
}
"""Each returns what it looked at, raises Found with what is wrong, or NotReached when it could say nothing."""

BASIS = {
    "greedy": ("determinism",),
    "events": ("determinism",),
    "self-draft": ("determinism", "greedy"),
    "chance": ("determinism", "greedy"),
    "counters": ("determinism", "greedy", "events", "edges"),
    "counts": ("determinism", "greedy", "events"),
    "edges": ("determinism",),
    "cache": ("determinism",),
    "requests": ("determinism", "cache"),
    "small law": ("determinism", "chance"),
    "law": ("determinism", "chance", "small law"),
}
"""Stages that would only say again, under another name, what an earlier stage found."""
