"""THM3.2 and its lemmas, exhaustively: every threshold vector up to a length, the production scheduler against B.1."""

from __future__ import annotations

import itertools
import time
from math import factorial

from proofs_check.ledger import Budget, Check, Entry
from simulator.decode import Generation, generate
from simulator.oracles import ThresholdModel
from simulator.records import Limits
from simulator.schedules import linear, packed
from spec.thresholds import F


def check_dominance(length: int = 6) -> list[Entry]:
    """Entries for THM3.2, LEMB1, LEMB2 and DRAFTLEN over all vectors c*_1 .. c*_L with 0 <= c*_k <= k, W = 1 .. L."""
    begun = time.perf_counter()
    failures: dict[str, str] = {}
    vectors = strict = 0
    limits = Limits.of(length)
    widths = range(1, length + 1)
    for c_star in itertools.product(*(range(k + 1) for k in range(1, length + 1))):
        vectors += 1
        model = ThresholdModel(c_star)
        for width in widths:
            where = f"c* = {c_star}, W = {width}"
            reach = [F(c, width, c_star) for c in range(length)]
            if any(a > b for a, b in itertools.pairwise(reach)):
                failures.setdefault("LEMB1", f"F decreases: {reach} for {where}")
            two_call, one_call = (generate(model, make(width), (), limits) for make in (linear, packed))
            strict += one_call.nfe < two_call.nfe
            lengths = _lengths(two_call)
            if any(after != min(reach[before], length) for before, after in zip(lengths[::2], lengths[2::2], strict=False)):
                failures.setdefault("LEMB1", f"Linear-SS does not advance by F for {where}")
            lengths = _lengths(one_call)
            if any(after < min(reach[before], length) for before, after in zip(lengths, lengths[2:], strict=False)):
                failures.setdefault("LEMB2", f"two passes of Packed-SS fall short of F for {where}")
            if one_call.nfe > two_call.nfe:
                failures.setdefault("THM3.2", f"Packed-SS {one_call.nfe}, Linear-SS {two_call.nfe} calls for {where}")
            if any(step.retained != max(0, width - step.advance) for step in one_call.steps if not step.stop):
                failures.setdefault("DRAFTLEN", f"a draft of another length than W - A for {where}")
    seconds = time.perf_counter() - begun
    complete = vectors == factorial(length + 1)
    statements = {
        "LEMB1": "F(c) is nondecreasing, and Linear-SS advances from c to F(c)",
        "LEMB2": "two Packed-SS passes from c reach at least F(c)",
        "THM3.2": "Packed-SS needs no more calls than Linear-SS (start algorithm)",
        "DRAFTLEN": "a nonterminal Packed-SS iteration keeps max(0, W - A) tokens",
    }
    good = f"{vectors * len(widths):,} runs of each schedule, Packed-SS strictly fewer calls in {strict:,}"
    return [
        Entry(
            claim,
            statement,
            "exhaustive",
            f"all {vectors:,} threshold vectors, L={length}, W=1..{length}",
            "violated" if claim in failures else "holds" if complete and strict else "not run",
            failures.get(claim, good),
            seconds / len(statements),
        )
        for claim, statement in statements.items()
    ]


def _lengths(run: Generation) -> list[int]:
    """Verified output length before the first call and after each call."""
    lengths = [0]
    for step in run.steps:
        lengths.append(lengths[-1] + len(step.committed))
    return lengths


def _run(budget: Budget) -> list[Entry]:
    return check_dominance()


CHECKS = (Check("exhaustive/dominance", ("LEMB1", "LEMB2", "THM3.2", "DRAFTLEN"), _run),)
