"""One cache for a whole request: what is reused must equal what would be recomputed, and nothing may leak."""

import pytest
import torch

from simulator import Limits, generate, packed
from simulator.records import Call


def _fresh(model, call):
    return model.session().logits(call)[1]


@pytest.mark.claim("LAYD1")
@pytest.mark.parametrize("branches", [(0,), (0, 2), ()])
def test_rollback_as_a_sequence(model64, prompts, branches):
    """Rejections in a row, full acceptance, other widths, an empty draft: each call equals one from an empty cache."""
    t = prompts[1]
    session = model64.session()
    calls = [
        Call(t[:30], t[30:34], True, branches, 4),
        Call(t[:31], (7, 8, 9), True, branches, 4),  # everything rejected
        Call(t[:32], (9, 9, 9, 9), True, branches, 4),  # rejected again
        Call(t[:33], t[33:41], True, branches, 8),  # another width
        Call(t[:42], (), True, branches, 2),  # all accepted, then an empty draft
        Call(t[:43], t[43:44], True, branches, 1),
    ]
    for call in calls:
        assert (session.logits(call)[1] - _fresh(model64, call)).abs().max() < 1e-10


def test_steady_calls_feed_only_their_own_rows(model64, prompts, monkeypatch):
    """After the first call nothing is recomputed: every Packed-SS call feeds 2B rows (TAB2), or without padding B + 1 + |D|."""
    fed = []
    forward = model64.network.forward

    def counted(*arguments, **options):
        fed.append(options["input_ids"].shape[1])
        return forward(*arguments, **options)

    runs = {}
    for padded in (True, False):
        fed.clear()
        session = model64.session(padded=padded)
        monkeypatch.setattr(model64.network, "forward", counted)
        runs[padded] = generate(session, packed(8), prompts[0], Limits.of(40))
        monkeypatch.undo()
        steps = runs[padded].steps
        assert [step.rows for step in steps] == [18 if padded else 10 + len(step.verified) for step in steps]
        assert fed == [len(prompts[0]) - 1 + steps[0].rows, *(step.rows for step in steps[1:])]
    assert runs[True].tokens == runs[False].tokens
    assert session.cache.get_seq_length() == len(session.cached) + session.stale
    assert len(session.cached) <= len(prompts[0]) + 40 + 8


def test_requests_do_not_leak(model64, prompts):
    """The same request gives the same tokens again, after another one, and on a session reused for another prompt (F34)."""
    limits = Limits.of(24)
    first = generate(model64.session(), packed(4), prompts[0], limits).tokens
    other = generate(model64.session(), packed(4), prompts[1], limits).tokens
    assert first != other
    reused = model64.session()
    assert generate(reused, packed(4), prompts[1], limits).tokens == other
    assert generate(reused, packed(4), prompts[0], limits).tokens == first


def test_stale_rows_are_gone_not_hidden(load_model, prompts):
    """Poison every row behind the kept prefix with NaN: the next call must not touch it."""
    model = load_model("float32")
    t = prompts[2]
    session = model.session()
    session.logits(Call(t[:30], t[30:34], True, (0,), 4))
    kept = 30  # t[:30] survives; the four draft tokens are rejected below
    with torch.inference_mode():
        for layer in session.cache.layers:
            layer.keys[..., kept:, :] = float("nan")
            layer.values[..., kept:, :] = float("nan")
    _, logits = session.logits(Call((*t[:30], 77), (), True, (0,), 4))
    assert torch.isfinite(logits).all()
