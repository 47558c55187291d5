"""Claims of our own that go beyond the paper, in the form of spec/claims.py; kind B."""

from __future__ import annotations

from spec.claims import Claim

_ROWS = """\
DOM-WIDE | ASM3.1 | THM3.2 holds when both schedules begin with start `wide`.
DOM-SAMPLED | ASM3.1 | THM3.2 holds when both schedules begin with start `sampled`.
DOM-ANYORDER | ASM3.1 | Algorithm 3 in textual order needs no more calls than its two-call Linear-SS.
ASM-NEEDED | - | Without ASM3.1 there are drafters under which Packed-SS needs more calls than Linear-SS.
ASM-REACH | - | THM3.2 needs only that a fresh draft's reach never shrinks from one visited context to a later one.
BOUND-2D | - | Without any assumption NFE_packed <= NFE_linear + 2d, d the contexts of Packed-SS where reach has shrunk.
DOM-SAMPLING | - | When sampling, Packed-SS and Linear-SS compared by the law of NFE over small tables (no theorem).
"""

BEYOND = {
    id: Claim(id, "B", "beyond the paper", () if assumptions == "-" else tuple(assumptions.split()), statement)
    for id, assumptions, statement in (row.split(" | ", 2) for row in _ROWS.splitlines())
}
