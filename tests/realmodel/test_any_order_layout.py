"""The rows of a packed any-order call against the paper's layout as spec/ has it (LAYD2, TAB2)."""

import numpy as np
import pytest

from realmodel.any_order.layout import fed, fixed_attention, rows_of, sequence, shape_of
from realmodel.layout import behind
from simulator import Limits
from simulator.any_order import Call, named
from simulator.decode import generate
from simulator.oracles.any_order import random_tables
from spec import layouts

MASK = -1
PROMPT = (90, 91, 92)


def calls_of(name, width, order, seed, tokens=40):
    """The calls of a run on random tables, where drafts are often missing, accepted and rejected."""
    made = []
    model = random_tables(vocabulary=3, seed=seed).greedy()

    def answer(call):
        made.append(call)
        return model(call)

    generate(answer, named(name, width, order), PROMPT, Limits.of(tokens, 2))
    return made


@pytest.mark.claim("LAYD2")
@pytest.mark.parametrize("name", ["serial", "linear", "packed", "quadratic", "native"])
@pytest.mark.parametrize("order", ["ltr", "random:1", "confidence"])
def test_rows_and_sight_are_those_of_the_spec(name, order):
    gaps = 0
    for seed in range(12):
        for call in calls_of(name, 5, order, seed):
            entries = sequence(call)
            cached = len(entries) - call.unread
            rows = rows_of(call, cached, MASK)
            new = dict(call.accepted[len(call.accepted) - call.unread :])
            wanted = layouts.setdlm(new, call.order, dict(call.draft), call.verify, call.branches)
            assert rows.tokens == [MASK if row.token is None else row.token for row in wanted]
            assert rows.positions == [len(PROMPT) - 1 + row.position for row in wanted]
            sees = behind(fixed_attention(shape_of(call)), cached, 0)
            assert sees[:, :cached].all()
            for x, row in enumerate(wanted):
                for y, other in enumerate(wanted):
                    within_new = row.region == other.region == "N"  # several of Native's see each other in their order
                    assert sees[x, cached + y] == (y <= x if within_new else layouts.sees(row, other)), (row, other)
            assert len(rows.tokens) == call.padded_rows
            assert rows.verifier == [i for i, row in enumerate(wanted) if row.region == "M"][: call.asked]
            blocks = [
                [i for i, row in enumerate(wanted) if (row.region, row.b) == ("R", b)][b:] if b <= call.kappa else None
                for b in call.branches
            ]
            assert rows.proposals == blocks
            assert rows.keep == call.unread + (call.kappa if call.verify else 0)
            assert fed(call)[cached:] == tuple(zip(rows.positions[: rows.keep], rows.tokens[: rows.keep], strict=True))
            gaps += call.verify and call.kappa < len(call.draft)
    assert gaps or name != "packed" or order != "random:1"  # a draft token behind a missing one was among the cases


@pytest.mark.parametrize("name", ["linear", "packed", "quadratic"])
def test_without_padding_the_same_rows_are_left(name):
    for seed in range(8):
        for call in calls_of(name, 5, "random:2", seed):
            cached = len(sequence(call)) - call.unread
            full, lean = (rows_of(call, cached, MASK, padded) for padded in (True, False))
            size = len(call.order)
            kept = [*range(full.keep), *full.verifier, *(row for block in full.proposals if block for row in block)]
            assert lean.tokens == [full.tokens[row] for row in kept]
            assert lean.positions == [full.positions[row] for row in kept]
            assert lean.verifier == [kept.index(row) for row in full.verifier]
            assert lean.proposals == [[kept.index(row) for row in block] if block else None for block in full.proposals]
            assert (lean.keep, lean.catch_up) == (full.keep, full.catch_up)
            padded, compact = (fixed_attention(shape_of(call, each)) for each in (True, False))
            assert (compact == padded[np.ix_(kept, kept)]).all()
            assert len(lean.tokens) <= len(full.tokens) <= 1 + 2 * size + size * max(1, len(call.branches))


@pytest.mark.claim("TAB2")
@pytest.mark.parametrize(("width", "wanted"), [(8, (25, 81, 25)), (16, (49, 289, 49))])
def test_largest_row_counts_of_the_paper(width, wanted):
    """p + 3u, p + 2u + u^2 and p + 3u at u = W, p = 1; Linear-SS over its two calls."""
    order = tuple(range(1, width + 1))
    draft = tuple((j, 7) for j in order)
    accepted, more = ((width + 1, 5),), {"prompt": PROMPT, "accepted": ((width + 1, 5),), "order": order}
    linear = [
        Call(draft=(), verify=False, branches=(0,), unread=1, **more),
        Call(draft=draft, verify=True, branches=(), unread=0, **more),
    ]
    quadratic = [Call(draft=draft, verify=True, branches=tuple(range(width)), unread=1, **more)]
    packed = [Call(draft=draft, verify=True, branches=(0,), unread=1, **more)]
    counts = []
    for calls in (linear, quadratic, packed):
        cached = [len(PROMPT) + len(accepted) - call.unread for call in calls]
        counts.append(sum(len(rows_of(call, c, MASK).tokens) for call, c in zip(calls, cached, strict=True)))
    assert tuple(counts) == wanted


def test_catch_up_rows_are_causal_and_in_acceptance_order():
    call = Call(PROMPT, ((4, 7), (1, 8), (2, 9)), (3,), (), True, (0,), 1)
    rows = rows_of(call, 1, MASK)
    assert rows.tokens == [91, 92, 7, 8, 9, MASK, MASK, MASK]
    assert rows.positions == [1, 2, 6, 3, 4, 5, 5, 5]
    assert (rows.catch_up, rows.keep) == (4, 5)
    sees = behind(fixed_attention(shape_of(call)), 1, rows.catch_up)
    assert (sees[:5, 1:6] == np.tri(5, dtype=bool)).all()
    assert sees[5:, :6].all()
    prompt_only = rows_of(Call(PROMPT, (), (), (), False, (), 0), 0, MASK)
    assert (prompt_only.tokens, prompt_only.catch_up, prompt_only.verifier) == (list(PROMPT), 3, [])
