"""What `validate` says of outputs that differ, and what its certificates make of them."""

import json

import pytest

from proofs_check import check_trace
from realmodel.efficiency import Arm, Protocol
from realmodel.reference import causal_logits, greedy_reference
from realmodel.validate import first_difference, validate
from simulator import ContractError, InvalidInput, Limits, Schedule, ar, generate, packed
from simulator.records import Call
from simulator.trace import trace_lines


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


def run(model, reference, prompts, schedules, length, width, start="algorithm", **options):
    compared = [Arm(None), *(Arm(schedule, 0 if schedule.name == "ar" else width) for schedule in schedules)]
    named = [(str(i), prompt) for i, prompt in enumerate(prompts)]
    protocol = Protocol(tuple(compared), Limits.of(length, model.eos), **options)
    return validate(model, reference, named, protocol, start)


def test_a_faulty_schedule_has_no_certificate_and_no_speed(load_model, model64, prompts):
    good = packed(8)
    bad = Unchecked("unchecked", good.opening, good.cycle)
    result = run(load_model("float32"), model64, prompts[:2], [good, bad], 24, 8)
    assert {key: certificate.verdict for key, certificate in result.certificates.items()} == {
        ("packed", 8): "EXACT",
        ("unchecked", 8): "FAULT",
    }
    assert result.verdict == "FAULT"
    assert not result.summary.row(("packed", 8)).refused
    assert result.summary.row(("unchecked", 8)).refused
    assert result.equal(("packed", 8)) == 2


def test_everything_is_in_the_json_and_in_the_trace(load_model, model64, prompts):
    """Certificates of each schedule under its own start, every run's tokens, and a trace that obeys the rules."""
    result = run(load_model("float32"), model64, prompts[:2], [ar(), packed(4, "sampled")], 16, 4, "sampled", repeats=2)
    assert [certificate.start for certificate in result.certificates.values()] == ["algorithm", "sampled"]
    assert result.verdict == "EXACT", str(result.certificates[("packed", 4)])
    plain = json.loads(json.dumps(result.plain()))
    assert [layer["name"] for layer in plain["certificates"][1]["layers"]] == ["rule", "conformance", "numerics"]
    assert len(plain["runs"]) == 2 * 2 * 3
    report = check_trace(trace_lines(result.traced()))
    assert (report.verdict, report.requests) == ("holds", 2 * 2 * 2)


def test_a_certificate_overrules_equal_tokens(load_model, model64, prompts):
    """One prompt on which the unchecked draft token happens to be right: equal tokens, and no certificate."""
    model, good = load_model("float32"), packed(8)
    bad = Unchecked("unchecked", good.opening, good.cycle)
    for prompt in prompts[:8]:
        expected = greedy_reference(model, prompt, Limits.of(2))
        if generate(model.session(), bad, prompt, Limits.of(2)).tokens == expected:
            break
    result = run(model, model64, [prompt], [bad], 2, 8)
    certificate = result.certificates[("unchecked", 8)]
    assert result.equal(("unchecked", 8)) == 1
    assert certificate.layer("numerics").verdict == "EXACT"
    assert certificate.layer("rule").verdict == result.verdict == "FAULT"


def test_sampling_is_certified_too(load_model, model64, prompts):
    """Some 100 tokens: nothing is found in them, whatever they can show."""
    named = [(str(i), prompt) for i, prompt in enumerate(prompts[:2])]
    protocol = Protocol((Arm(packed(4), 4),), Limits.of(12), temperature=1.0)
    result = validate(load_model("float32"), model64, named, protocol, sampled=100)
    assert result.certificates[("packed", 4)].layer("conformance").verdict == "EXACT"
    assert result.verdict in ("EXACT", "NOT RUN"), str(result.certificates[("packed", 4)])


def test_greedy_runs_need_their_reference(load_model, model64, prompts):
    with pytest.raises(InvalidInput, match="generate"):
        validate(load_model("float32"), model64, [("p", prompts[0])], Protocol((Arm(packed(4), 4),), Limits.of(2)))


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


def test_no_tokens_no_verdict(load_model, model64, prompts):
    result = run(load_model("float32"), model64, prompts[:1], [packed(4)], 0, 4)
    assert result.verdict == "NOT RUN"
    assert result.summary.row(("packed", 4)).refused


@pytest.mark.parametrize(("verify", "branches"), [(False, (0, 2)), (False, (1,)), (True, (-1,))])
def test_branches_that_cannot_be_laid_out_are_refused(model64, prompts, verify, branches):
    t = prompts[0]
    with pytest.raises(InvalidInput, match="branch 0 only"):
        model64.session()(Call(t[:20], t[20:24], verify, branches, 4))
