"""A packed call's rows equal those of separate plain calls, and depend on exactly the rows they may see."""

import pytest
import torch

from realmodel.parity import packed_parity
from simulator.records import Call

CALLS = {
    "packed": lambda t: Call(t[:40], t[40:45], True, (0,), 8),
    "packed, empty draft": lambda t: Call(t[:40], (), True, (0,), 8),
    "packed, full draft": lambda t: Call(t[:40], t[40:48], True, (0,), 8),
    "quadratic": lambda t: Call(t[:40], t[40:44], True, tuple(range(6)), 5),
    "branches": lambda t: Call(t[:40], t[40:44], True, (1, 3), 4),
    "linear, draft": lambda t: Call(t[:40], (), False, (0,), 8),
    "linear, verify": lambda t: Call(t[:40], t[40:48], True, (), 8),
    "wide": lambda t: Call(t[:40], (), True, (0,), 9, anchored=False),
    "wide, resumed with a draft": lambda t: Call(t[:40], t[40:43], True, (0, 2), 5, anchored=False),
    "masks alone": lambda t: Call(t[:40], (), False, (0,), 6, anchored=False),
    "nothing drafted": lambda t: Call(t[:40], t[40:42], True, (0,), 0),
    "one prompt token": lambda t: Call(t[:1], t[1:4], True, (0,), 4),
}


@pytest.mark.claim("LAYD1")
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("kind", CALLS)
def test_packed_rows_equal_separate_calls(model64, prompts, kind, padded):
    """To 1e-10 in float64, whether the cache is empty, partly filled or complete."""
    for tokens in prompts[:2]:
        call = CALLS[kind](tokens)
        for warm in sorted({0, len(call.prefix) // 2, len(call.prefix) - 1}):
            parity = packed_parity(model64, call, warm, padded)
            assert max(parity) < 1e-10


def _logits(model, call):
    session = model.session()
    rows, logits = session.logits(call)
    return logits[: len(rows.verifier)], logits[len(rows.verifier) :]


@pytest.mark.claim("LAYD1")
def test_rows_see_what_they_may_and_nothing_else(load_model, prompts):
    """Change one draft token: later verifier rows move, earlier ones and all of branch 0 stay bit for bit the same."""
    model = load_model("float32")
    tokens = prompts[0]
    draft = tokens[40:46]
    changed = (*draft[:3], (draft[3] + 1) % model.vocabulary, *draft[4:])
    verifier, proposals = _logits(model, Call(tokens[:40], draft, True, (0,), 8))
    verifier_2, proposals_2 = _logits(model, Call(tokens[:40], changed, True, (0,), 8))
    assert torch.equal(proposals, proposals_2)
    assert torch.equal(verifier[:4], verifier_2[:4])  # rows of last, d1, d2, d3 come before d4
    assert all(not torch.equal(a, b) for a, b in zip(verifier[4:], verifier_2[4:], strict=True))


@pytest.mark.claim("LAYD1")
def test_proposals_depend_on_every_prefix_token(load_model, prompts):
    model = load_model("float32")
    tokens = prompts[0][:12]
    _, base = _logits(model, Call(tokens, (), False, (0,), 4))
    for index in range(len(tokens)):
        other = (*tokens[:index], (tokens[index] + 1) % model.vocabulary, *tokens[index + 1 :])
        _, moved = _logits(model, Call(other, (), False, (0,), 4))
        assert not torch.equal(base, moved), index


@pytest.mark.claim("PAD")
def test_the_mask_is_never_proposed(model64, prompts):
    session = model64.session(temperature=1.0)
    reply = session(Call(prompts[0][:40], (), False, (0,), 8))
    assert all(law.probability(model64.mask_token) == 0 for law in reply.proposals[0])


@pytest.mark.claim("PAD")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_mask_is_not_proposed_even_where_it_is_most_likely(model64, temperature):
    """F31: one verifier row, which is left as it is, and two proposal rows."""
    logits = torch.zeros(3, model64.vocabulary, dtype=torch.float64)
    logits[:, model64.mask_token] = 9.0
    verifier, *proposals = model64.session(temperature)._laws(logits, 1)
    assert verifier.probability(model64.mask_token) > 0.5
    assert [law.probability(model64.mask_token) for law in proposals] == [0, 0]
