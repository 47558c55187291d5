"""A sharper THM3.2: Packed-SS pays a second pass only for iterations that the draft before would not have carried as far.

Under Assumption 3.1 and start `algorithm`, NFE_packed <= T + S, where T counts Linear-SS's iterations (NFE_linear = 2 T) and S
those among them that are stale (`simulator.nfe.calibrate.barrier_index`). docs/nfe.md has the proof; here it is exhaustive.
"""

from __future__ import annotations

import itertools

import numpy as np

from proofs_check.ledger import Budget, Check, Entry, Outcome
from simulator.nfe.calibrate import barrier_index
from simulator.oracles import ThresholdModel

LENGTHS = {"quick": 5, "full": 7}


def check_barrier_bound(budget: Budget) -> list[Entry]:
    """Every threshold vector up to a length, every W up to that length."""
    from proofs_check.exhaustive import counts

    longest = LENGTHS[budget]
    pairs = sharper = met = 0
    fault = ""
    for length in range(1, longest + 1):
        vectors = list(itertools.product(*(range(k + 1) for k in range(1, length + 1))))
        array = np.array(vectors)
        for width in range(1, length + 1):
            found = zip(vectors, counts(array, width, "packed").tolist(), counts(array, width, "linear").tolist(), strict=True)
            for thresholds, one_call, two_call in found:
                index = barrier_index(ThresholdModel(thresholds), length, width)
                bound = index.iterations + index.stale
                pairs += 1
                sharper += bound < two_call
                met += one_call == bound
                if (two_call != 2 * index.iterations or one_call > bound) and not fault:
                    fault = f"c* = {thresholds}, W = {width}: Packed-SS {one_call} calls, Linear-SS {two_call}, T + S = {bound}"
    outcome: Outcome = "violated" if fault else "holds" if sharper and met < pairs else "not run"
    good = f"{pairs:,} pairs; sharper than THM3.2 in {sharper:,}, met in {met:,}"
    return [
        Entry(
            "BARRIER-INDEX",
            "Packed-SS needs at most T + S calls: Linear-SS's iterations, and the stale ones among them again",
            "exhaustive",
            f"all threshold vectors to L={longest}, W=1..L, start algorithm",
            outcome,
            fault or good,
        )
    ]


CHECKS = (Check("barrier/bound", ("BARRIER-INDEX",), check_barrier_bound),)
