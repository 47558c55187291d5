"""What the second layer's comparisons share, left to right and in any order: how they break off, and what they come to."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from proofs_check.findings import Finding, Symptom
from realmodel.layers import Layer, Word
from realmodel.watching import Watched, drafting

TOLERANCE = 16  # times the difference of schedule-free runs, which is the largest of very many already
SAMPLED = (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144)  # calls of either parity: those of Linear-SS verify and draft in turn
REQUEST_TOKENS = 12  # output of a request that is only repeated


class Noise(NamedTuple):
    """Largest differences of schedule-free runs."""

    logits: float
    cache: float


class Broken(Exception):
    """The first thing that is wrong; it never leaves the layer."""

    def __init__(self, stage: str, symptom: Symptom, statement: str, counterexample: str = "") -> None:
        super().__init__(statement)
        self.finding = Finding(symptom, statement, counterexample, stage=stage)


def within(apart: torch.Tensor, limit: float, stage: str, symptom: Symptom, statement: str, shown: str) -> None:
    """Raise Broken at the first of `apart`, [rows], that is not within `limit`; `statement` has places for row and apart."""
    beyond = (~(apart <= limit)).nonzero()
    if len(beyond):
        row = int(beyond[0, 0])
        text = statement.format(row=row, apart=apart[row].item()) + f", allowed {limit:.1e}"
        raise Broken(stage, symptom, text, shown)


def concluded(
    findings: Sequence[Finding],
    figures: dict[str, Any],
    noise: Noise,
    watched: Sequence[Watched],
    dtype: str,
    detail: str,
    begun: float,
) -> Layer:
    """The layer: FAULT with a finding, NOT RUN when no call, or of a schedule that drafts no proposals were looked at.

    figures     what was compared: `calls` and `proposal_rows` among it
    begun       `time.perf_counter()` when the layer began
    """
    drafts = drafting(step for each in watched for step in each.run.steps)
    missing = "" if figures["calls"] else "no call was made"
    if not figures["proposal_rows"] and any(any(seen.rows.proposals) for each in watched for seen in each.seen):
        missing = "no call with proposals was looked at: too few tokens"
    verdict: Word = "FAULT" if findings else "NOT RUN" if missing else "EXACT"
    said = detail if findings or not missing else missing
    measured = figures | {"noise": noise._asdict(), "dtype": dtype, "drafting": drafts}
    return Layer("conformance", verdict, said, tuple(findings), measured, time.perf_counter() - begun)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, at most 200 characters."""
    return (str(error).splitlines() or [""])[0][:200]
