"""Model calls by the conventions of others: the same runs, counted as released decoders and reports on them do (NFE-CONV).

all        every forward, that of the prompt included: what this project prints and the paper measures (E.5)
decoding   the prompt's call left out
released   as the released decoders count: ar_generate one a token; linear_spec_generate the prompt's call and two a round,
           which is Linear-SS under the starts `sampled` and `wide`; other schedules were not released
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from realmodel.efficiency import GENERATE, Record


class Counts(NamedTuple):
    """Model calls of one arm over all of its runs."""

    name: str
    width: int
    tokens: int
    all: int
    decoding: int
    released: int | None


def conventions(records: Iterable[Record], start: str) -> list[Counts]:
    """The counts of every arm, in the order in which they come."""
    arms: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        arms.setdefault(record.key, []).append(record)
    return [_counts(name, width, runs, start) for (name, width), runs in arms.items()]


def _counts(name: str, width: int, runs: list[Record], start: str) -> Counts:
    tokens, calls = sum(len(run.tokens) for run in runs), sum(run.nfe for run in runs)
    released = tokens if name in ("ar", GENERATE) else calls if name == "linear" and start in ("sampled", "wide") else None
    return Counts(name, width, tokens, calls, calls - sum(run.nfe > 0 for run in runs), released)


def line(counts: Counts, runs: int) -> str:
    """Per run, in words."""
    released = "-" if counts.released is None else f"{counts.released / runs:.2f}"
    arm = counts.name + (f" {counts.width}" if counts.width else "")
    return f"  {arm}: {counts.all / runs:.2f} all, {counts.decoding / runs:.2f} decoding, {released} released"
