"""The words of a certificate: three layers, each with a verdict of its own, none of which may speak for another."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from proofs_check.findings import Finding

Word: TypeAlias = Literal["EXACT", "TIES", "FAULT", "NOT RUN"]
"""TIES: it differs from the reference, and every difference is certified to be one of rounding."""


@dataclass(frozen=True)
class Layer:
    """One layer of a certificate."""

    name: Literal["rule", "conformance", "numerics"]
    verdict: Word
    detail: str  # what was looked at and measured, or why it was not
    findings: tuple[Finding, ...] = ()  # of a FAULT; `Finding.stage` says where in the layer
    figures: dict[str, Any] = field(default_factory=dict)  # what was measured, for JSON
    seconds: float = 0.0

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def worst(words: tuple[Word, ...]) -> Word:
    """FAULT, whatever else; else NOT RUN; else TIES; EXACT when all are. NOT RUN for no words at all."""
    order: tuple[Word, ...] = ("FAULT", "NOT RUN", "TIES", "EXACT")
    return min(words, key=order.index, default="NOT RUN")
