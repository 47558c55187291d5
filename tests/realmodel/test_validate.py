"""What `validate` says of outputs that differ, and what its certificates make of them."""

import json

import pytest

from realmodel.reference import causal_logits, greedy_reference
from realmodel.validate import first_difference, issue, validate
from simulator import ContractError, InvalidInput, Limits, Schedule, ar, generate, packed
from simulator.records import Call


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
    same = found._replace(gap=0.0, noise=1e-9, regret=0.0)
    assert same.tie
    assert not same._replace(gap=-1.0).tie  # a reference that is not the argmax is no tie either
    assert not same._replace(regret=1.0).tie  # a tie excuses no later token


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
    assert [tally.verdict for tally in result.schedules] == ["EXACT", "FAULT"]


def test_certificates(load_model, model64, prompts):
    """They replace the comparison's verdict, for every schedule and under its own start."""
    model, limits = load_model("float32"), Limits.of(16, model64.eos)
    schedules = [ar(), packed(4, "sampled")]
    result = validate(model, [(str(i), prompt) for i, prompt in enumerate(prompts[:2])], schedules, limits, 4, "sampled")
    assert all(tally.certificate is None for tally in result.schedules)
    issue(result, model, model64, schedules, limits)
    assert [tally.certificate.start for tally in result.schedules] == ["algorithm", "sampled"]
    assert [tally.verdict for tally in result.schedules] == ["EXACT", "EXACT"], str(result.schedules[1].certificate)
    plain = json.loads(json.dumps(result.plain()))
    assert [layer["name"] for layer in plain["schedules"][1]["certificate"]["layers"]] == ["rule", "conformance", "numerics"]


def test_a_certificate_overrules_a_comparison_that_found_nothing(load_model, model64, prompts):
    """One prompt on which the unchecked draft token happens to be right: equal tokens, and no certificate."""
    model, limits, good = load_model("float32"), Limits.of(2, model64.eos), packed(8)
    bad = Unchecked("unchecked", good.opening, good.cycle)
    for prompt in prompts[:8]:
        result = validate(model, [("p", prompt)], [bad], limits, 8, "algorithm")
        if result.schedules[0].verdict == "EXACT":
            break
    assert result.schedules[0].verdict == "EXACT"
    issue(result, model, model64, [bad], limits)
    assert result.schedules[0].verdict == "FAULT"
    assert result.schedules[0].certificate.layer("rule").verdict == "FAULT"
    assert result.schedules[0].certificate.layer("numerics").verdict == "EXACT"


def test_a_tie_does_not_hide_what_follows(model64, prompts):
    """Right up to the last token, which is wrong: the worst regret of the tail is that token's."""
    prompt = prompts[0]
    expected = greedy_reference(model64, prompt, Limits.of(8))
    swapped = (*expected[:3], (expected[3] + 1) % model64.vocabulary, *expected[4:7], 7)
    found = first_difference(model64, "p", prompt, expected, swapped)
    rows = causal_logits(model64, prompt + swapped[:-1])[len(prompt) - 1 + 3 :]
    worst = max((row.max() - row[token]).item() for row, token in zip(rows, swapped[3:], strict=True))
    assert found.regret == pytest.approx(worst)
    assert not found._replace(gap=0.0).tie


def test_weights_that_are_not_finite_have_no_verdict(prompts):
    import torch

    from realmodel import load

    model = load("embedded")
    model.network.model.norm.weight = torch.nn.Parameter(model.network.model.norm.weight * float("nan"))
    with pytest.raises(ContractError, match="not finite"):
        generate(model.session(), packed(4), prompts[0], Limits.of(4))


def test_no_tokens_no_verdict(model64, prompts):
    result = validate(model64, [("p", prompts[0])], [packed(4)], Limits.of(0), 4, "algorithm")
    assert [tally.verdict for tally in result.schedules] == ["NOT RUN"]


@pytest.mark.parametrize(("verify", "branches"), [(False, (0, 2)), (False, (1,)), (True, (-1,))])
def test_branches_that_cannot_be_laid_out_are_refused(model64, prompts, verify, branches):
    t = prompts[0]
    with pytest.raises(InvalidInput, match="branch 0 only"):
        model64.session()(Call(t[:20], t[20:24], verify, branches, 4))
