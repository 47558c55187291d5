"""Claims of our own that go beyond the paper, in the form of spec/claims.py; kind B."""

from __future__ import annotations

from spec.claims import Claim

_ROWS = """\
DOM-WIDE | ASM3.1 | THM3.2 holds when both schedules begin with start `wide`.
DOM-SAMPLED | ASM3.1 | THM3.2 holds when both schedules begin with start `sampled`.
DOM-ANYORDER | ASM3.1 | Algorithm 3 in textual order needs no more calls than its two-call Linear-SS.
DOM-FIXED-ORDER | - | In ltr, rtl, or a permutation in one window, drafts right from some accepted sets on: the same.
DOM-ADAPTIVE-ORDER | - | In an order that what is accepted changes it can need more: L = 3 on, L = 5 on if only windows slide.
ASM-NEEDED | - | Without ASM3.1 Packed-SS can need more calls than Linear-SS, from L = 8, W = 4 on (L = 7 if started `wide`).
ASM-REACH | - | THM3.2 needs only that no context of Packed-SS in step with Linear-SS, or none out of step, has a shrunk reach.
BOUND-2D | - | With e, o contexts of shrunk reach in and out of step, NFE_packed <= NFE_linear + max(0, min(2e, 2o - 1)).
BOUND-RATIO | - | Whatever the drafter, NFE_packed <= max(1, W/2) NFE_linear, and no smaller factor does.
BARRIER-INDEX | ASM3.1 | NFE_packed <= T + S, T the iterations of Linear-SS, S those the draft before would not carry as far.
ANY-ORDER-LAW | - | Sampling in an order blind to drawn tokens: a token has the verifier's law, given all accepted before it.
ANY-ORDER-SERIAL | - | So outputs have serial decoding's law in a fixed order, and one joint law in any; stops aside.
ANY-ORDER-ADAPTIVE | - | Ranking by the probabilities of drawn tokens (CONF) distorts the law, from L = 3, W = 3 on.
ANY-ORDER-STOP | - | An EOS out of textual order makes the law depend on the schedule, from L = 3, W = 3 on.
DOM-SAMPLING | - | When sampling, calls are those of random correctness matrices, so what all matrices obey holds in law.
"""

BEYOND = {
    id: Claim(id, "B", "beyond the paper", () if assumptions == "-" else tuple(assumptions.split()), statement)
    for id, assumptions, statement in (row.split(" | ", 2) for row in _ROWS.splitlines())
}
