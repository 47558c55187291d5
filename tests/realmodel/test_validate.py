"""What `validate` says of outputs that differ."""

import pytest

from realmodel.reference import causal_logits, greedy_reference
from realmodel.validate import first_difference, validate
from simulator import Limits, Schedule, packed


def test_a_wrong_token_is_a_difference_and_no_tie(model64, prompts):
    prompt = prompts[0]
    expected = greedy_reference(model64, prompt, Limits.of(8))
    wrong = (*expected[:5], (expected[5] + 1) % model64.vocabulary, *expected[6:])
    found = first_difference(model64, "p", prompt, expected, wrong)
    assert (found.position, found.expected, found.got) == (6, expected[5], wrong[5])
    logits = causal_logits(model64, prompt + expected[:5])[-1]
    assert found.gap == pytest.approx((logits[expected[5]] - logits[wrong[5]]).item())
    assert found.gap > 2 * found.noise > 0
    assert not found.tie


def test_equal_logits_are_a_tie(model64, prompts):
    expected = greedy_reference(model64, prompts[0], Limits.of(4))
    found = first_difference(model64, "p", prompts[0], expected, expected)
    assert not found.tie  # nothing differs: positions ran out, which is never a tie
    same = found._replace(gap=0.0, noise=1e-9)
    assert same.tie


def test_a_missing_tail_is_a_difference(model64, prompts):
    expected = greedy_reference(model64, prompts[0], Limits.of(6))
    found = first_difference(model64, "p", prompts[0], expected, expected[:4])
    assert (found.position, found.expected, found.got, found.tie) == (5, expected[4], None, False)


class Unchecked(Schedule):
    """F16: the first draft token is believed without a check."""

    def absorb(self, state, call, reply, chance):
        if state.draft.tokens:
            law = state.draft.laws[0]
            reply = reply._replace(target=(law, *reply.target[1:]))
        return super().absorb(state, call, reply, chance)


def test_a_faulty_schedule_is_called_different(load_model, prompts):
    model = load_model("float32")
    good = packed(8)
    bad = Unchecked("unchecked", good.opening, good.cycle)
    named = [(str(i), prompt) for i, prompt in enumerate(prompts[:3])]
    result = validate(model, named, [good, bad], Limits.of(48, model.eos), 8, "algorithm")
    assert [tally.verdict for tally in result.schedules] == ["EXACT", "DIFFERENT"]
