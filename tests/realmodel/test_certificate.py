"""Three layers, three verdicts: what each says of right and of faulty decoding, and that none speaks for another."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from proofs_check.biases import BIASES
from realmodel import Session, certify, certify_sampling, numerics
from realmodel.certificate import flags, narrowed, rule
from realmodel.faults import binding
from realmodel.layers import worst
from realmodel.numerics import Bets, Judge, Output, Ties, diverged, gather_evidence, spread
from realmodel.reference import causal_logits, greedy_reference
from realmodel.watching import drafting, watch
from simulator import Limits, Schedule, ar, branches, generate, linear, packed, quadratic
from simulator.trace import TracedRequest

TIED = (10, 30, 49)  # held-out prompts on which packed rows and generate part in bfloat16, within 10 tokens


@pytest.fixture(scope="module")
def reference(model64):
    return model64


def outputs_of(model, schedule, prompts, limits, baseline=None):
    return [
        Output(
            name,
            prompt,
            greedy_reference(baseline or model, prompt, limits),
            generate(model.session(), schedule, prompt, limits).tokens,
        )
        for name, prompt in prompts
    ]


def named(prompts, which):
    return [(f"p{index}", prompts[index]) for index in which]


def test_the_worst_layer_speaks_for_the_whole():
    assert worst(("EXACT", "EXACT", "TIES")) == "TIES"
    assert worst(("EXACT", "NOT RUN", "TIES")) == "NOT RUN"
    assert worst(("FAULT", "NOT RUN", "TIES")) == "FAULT"
    assert worst(("EXACT",)) == "EXACT"
    assert worst(()) == "NOT RUN"


@pytest.mark.claim("COR-GREEDY")
@pytest.mark.parametrize("schedule", [linear(4), packed(4)], ids=["linear", "packed"])
def test_exact(load_model, reference, prompts, schedule):
    model, limits = load_model("float32"), Limits.of(24, reference.eos)
    chosen = named(prompts, (0, 1))
    outputs = outputs_of(model, schedule, chosen, limits)
    recorded = [
        TracedRequest(name, schedule.name, prompt, limits, generate(model.session(), schedule, prompt, limits), 4, "algorithm")
        for name, prompt in chosen
    ]
    found = certify(model, reference, schedule, outputs, limits, 4, recorded=recorded)
    assert [(layer.name, layer.verdict) for layer in found.layers] == [
        ("rule", "EXACT"),
        ("conformance", "EXACT"),
        ("numerics", "EXACT"),
    ], str(found)
    assert (found.verdict, found.certified, found.flags, found.findings) == ("EXACT", True, (), ())
    figures = found.layer("conformance").figures
    assert figures["proposal_rows"] > 0
    assert figures["cache_rows"] > 300
    assert found.layer("numerics").figures["tokens"] == sum(len(output.got) for output in outputs)
    assert json.loads(json.dumps(found.plain()))["verdict"] == "EXACT"
    assert found.report().exit_code == 0
    assert str(found).count("EXACT") == 4


def test_bfloat16_differs_at_certified_ties_alone_and_a_fault_in_the_same_run_is_none(load_model, reference, prompts):
    """The control C10 beside two faults: a cached row too many, and one far back too faint for bfloat16 to show."""
    model, limits = load_model("bfloat16"), Limits.of(16, reference.eos)
    chosen, judge = named(prompts, TIED), Judge(model, reference, 18)

    def certified(kind):
        tested, exact = (binding.Planted(each, kind) for each in (model, reference))
        outputs = outputs_of(tested, packed(8), chosen, limits, model)
        return certify(tested, reference, packed(8), outputs, limits, 8, judge=judge, binding=exact)

    right = certified(Session)
    assert (right.verdict, right.layer("numerics").verdict) == ("TIES", "TIES")
    divergences = right.layer("numerics").figures["divergences"]
    assert len(divergences) == 3
    for each in divergences:
        assert each["verdict"] == "TIES"
        assert each["expected"] != each["got"]
        assert max(abs(each["gap"]), each["regret"]) <= 2 * each["noise"] < 0.3
    assert "TIES on p30 at output token 3" in str(right)

    wrong = certified(binding.RowTooMany)
    assert [layer.verdict for layer in wrong.layers] == ["EXACT", "FAULT", "FAULT"]
    faint = certified(binding.StaleRow)
    assert [layer.verdict for layer in faint.layers] == ["EXACT", "FAULT", "TIES"]
    [finding] = faint.findings
    assert finding.stage == "cache"
    assert "the cached row of token 2 of" in finding.statement


@pytest.mark.parametrize("kind", [binding.CatchUpSeesAll, binding.MaskAdded, binding.RowTooMany])
def test_numerics_alone_call_a_fault_in_bfloat16(load_model, reference, prompts, kind):
    """No help from float64: what such a binding emits is no tie, though its tokens are likely ones."""
    model, limits = load_model("bfloat16"), Limits.of(12, reference.eos)
    tested = binding.Planted(model, kind)
    outputs = outputs_of(tested, packed(4), named(prompts, (0, 2)), limits, model)
    layer = numerics.greedy(Judge(tested, reference, 10), packed(4), outputs, limits)
    assert layer.verdict == "FAULT"
    assert "times those of plain AR" in next(f.statement for f in layer.findings if f.stage == "spread")


def test_a_wrong_token_is_a_fault(model64, prompts):
    limits, prompt = Limits.of(8), prompts[0]
    right = greedy_reference(model64, prompt, limits)
    wrong = (*right[:5], (right[5] + 1) % model64.vocabulary, *right[6:])
    judge = Judge(model64, model64, 10)
    found = diverged(Output("p", prompt, right, wrong), judge(prompt, wrong), judge(prompt, right))
    assert (found.position, found.expected, found.got, found.verdict) == (6, right[5], wrong[5], "FAULT")
    row = causal_logits(model64, prompt + right[:5])[-1]
    assert found.gap == pytest.approx((row[right[5]] - row[wrong[5]]).item())
    assert found.gap > 2 * found.noise > 0
    layer = numerics.greedy(judge, ar(), [Output("p", prompt, right, wrong)], limits, again=0)
    assert [finding.stage for finding in layer.findings] == ["divergences"]
    assert f"expected {list(right[:8])}" in layer.findings[0].counterexample


def test_a_tie_does_not_excuse_what_follows(model64, prompts):
    """The tokens at the first divergence may tie; the regret is of all tokens from there on."""
    limits, prompt = Limits.of(6), prompts[0]
    right = greedy_reference(model64, prompt, limits)
    judged = Judge(model64, model64, 10)(prompt, right)
    output = Output("p", prompt, ((right[0] + 1) % 2048, *right[1:]), right)
    assert diverged(output, judged, judged).verdict == "TIES"  # as if both had been as good
    late = judged.regrets.copy()
    late[4] = 1.0
    assert diverged(output, replace(judged, regrets=late), judged).verdict == "FAULT"
    first = judged.regrets.copy()
    first[0] = 1.0
    assert diverged(output, judged, replace(judged, regrets=first)).verdict == "FAULT"  # generate's token is the worse one


@pytest.mark.parametrize("cut", [0, 4])
def test_a_missing_tail_is_a_fault(model64, prompts, cut):
    limits, prompt = Limits.of(6), prompts[0]
    right = greedy_reference(model64, prompt, limits)
    layer = numerics.greedy(Judge(model64, model64, 10), ar(), [Output("p", prompt, right, right[:cut])], limits, again=0)
    assert layer.verdict == "FAULT"
    assert layer.findings[0].symptom == "stop"


def test_other_tokens_when_run_again_are_a_fault(model64, prompts):
    limits, prompt = Limits.of(6), prompts[0]
    right = greedy_reference(model64, prompt, limits)
    first = [Output("p", prompt, right, (right[0] + 1, *right[1:]))]
    layer = numerics.greedy(Judge(model64, model64, 10), ar(), first, limits)
    assert "again" in {finding.stage for finding in layer.findings}


def test_nothing_compared_and_a_reference_of_other_weights_are_no_verdicts(load_model, model64, prompts):
    layer = numerics.greedy(Judge(model64, model64, 10), ar(), [Output("p", prompts[0], (), ())], Limits.of(0))
    assert (layer.verdict, layer.detail) == ("NOT RUN", "no token was compared")

    from realmodel import load

    other = load("embedded", "float64")
    other.network.model.norm.weight.data *= torch.linspace(0.9, 1.1, 256, dtype=torch.float64)
    for dtype in ("float32", "bfloat16"):
        model, limits = load_model(dtype), Limits.of(24)
        outputs = outputs_of(model, packed(4), named(prompts, (0,)), limits)
        layer = numerics.greedy(Judge(model, other, 10), packed(4), outputs, limits)
        assert layer.verdict == "NOT RUN"
        assert "plain AR is not the reference's" in layer.detail


def test_too_many_ties_and_too_large_ones_have_odds():
    """As many ties as plain AR have odds near 1/2 or above; ten times as many, or of ten times the size, are called."""
    rng = np.random.default_rng(0)

    def ties(mine, theirs, scale=1.0):
        counted, tokens = Ties(), 4000
        drawn = rng.random((2, tokens))
        sizes = rng.exponential(size=(2, tokens)) * np.array([[scale], [1.0]])
        regrets = np.where(drawn < np.array([[mine], [theirs]]), sizes, 0.0)
        counted.mine, counted.theirs, counted.tokens = [regrets[0]], [(regrets[1], regrets[1])], tokens
        return counted.odds()

    assert min(ties(0.01, 0.01)[2:]) > 1e-3
    assert ties(0.02, 0.002)[2] < 1e-6
    assert ties(0.01, 0.01, scale=10)[3] < 1e-6
    assert Ties().odds() == (0, [], 1.0, 1.0)
    assert ties(0.0, 0.0) == (0, [0, 0], 1.0, 1.0)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_packed_rows_are_as_far_off_as_rows_of_plain_ar(load_model, reference, prompts, dtype):
    """The limit is 1.5; right bindings measure about 1."""
    model, limits = load_model(dtype), Limits.of(24)
    watched = [watch(model.session(), quadratic(3), name, prompt, limits) for name, prompt in named(prompts, (0, 1))]
    judge = Judge(model, reference, 8)
    found = spread((judge(each.prompt, each.run.tokens), each.verifier_logits()) for each in watched)
    assert (found.rows, found.beyond) == (48, False)
    assert 0.7 < found.root_mean_square < 1.2


def test_a_run_without_acceptances_or_rejections_is_flagged(model64, prompts):
    run = generate(model64.session(), packed(4), prompts[0], Limits.of(24))
    assert flags(*drafting(run.steps)) == ()
    tested = [step for step in run.steps if step.verified]
    assert flags(*drafting(s for s in tested if not s.accepted)) == ("no draft token was ever accepted",)
    assert flags(*drafting(s for s in tested if s.accepted == len(s.verified))) == ("no draft token was ever rejected",)
    assert flags(*drafting(generate(model64.session(), ar(), prompts[0], Limits.of(4)).steps)) == ()


class Unchecked(Schedule):
    """F16: the first draft token is believed without a check."""

    def absorb(self, state, call, reply, chance):
        if state.draft.tokens:
            reply = reply._replace(target=(state.draft.laws[0], *reply.target[1:]))
        return super().absorb(state, call, reply, chance)


def test_the_rule_layer_needs_no_model():
    good = packed(8)
    layer = rule(Unchecked("unchecked", good.opening, good.cycle))
    assert layer.verdict == "FAULT"
    assert layer.findings[0].symptom == "law"
    assert rule(good).verdict == "EXACT"
    assert rule(packed(16)) is rule(good)  # the same policy at W = 3


def test_narrowed_keeps_the_policy():
    assert narrowed(quadratic(16)) == quadratic(3)
    assert narrowed(packed(8, "wide")) == packed(3, "wide")
    assert narrowed(packed(2)) == packed(2)
    assert narrowed(linear((8, 2))) == linear((3, 2))
    assert narrowed(branches((0, 2, 5), 8)).cycle == branches((0, 2), 3).cycle


# --- sampling ---------------------------------------------------------------------------------------------------------------


def test_bets_on_fair_differences_lose_and_on_unfair_ones_win():
    """20 000 differences: the e-value of fair ones stays below 1000 (odds 1e-3 that it does not), a bias of 0.03 passes it."""
    rng = np.random.default_rng(1)
    fair, unfair = Bets(), Bets()
    for p, u in rng.random((20_000, 2)):
        fair.observe(float(u < p) - p)
        unfair.observe(float(u < p + 0.03) - p)
    assert fair.log_e < math.log(1000) < unfair.log_e


@pytest.mark.claim("THM3.3")
def test_sampling_is_certified(load_model, reference, prompts):
    model = load_model("float32")
    limits = Limits.of(40, reference.eos)
    found = certify_sampling(model, reference, packed(4), named(prompts, (0, 1, 3)), limits, 4, tokens=200, seed=5)
    assert [layer.verdict for layer in found.layers] == ["EXACT", "EXACT", "EXACT"], str(found)
    figures = found.layer("numerics").figures
    assert figures["tokens"] >= 200
    assert figures["tested"] > 100
    assert 0 < figures["detectable"] < 0.4
    assert found.temperature == 1.0


FAULTS = ("argmax draft", "top-k draft", "stale q", "no coin for tests", "residual ignored", "one coin for all tests")


def tokens_to_rejection(model, reference, prompts, name, most, seed=0):
    bias = BIASES[name]
    limits = Limits.of(64, reference.eos)
    return gather_evidence(
        model, reference, bias.schedule, prompts, limits, 1.0, most, seed, plant=bias.model, coins=bias.chance
    )[0]


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("name", ["stale q", "no coin for tests"])
def test_planted_sampler_faults_are_rejected(load_model, reference, prompts, name):
    evidence = tokens_to_rejection(load_model("float32"), reference, named(prompts, range(20)), name, 1000)
    assert evidence.rejected_at is not None
    assert evidence.rejected_at < 1000


@pytest.mark.slow
@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("name", FAULTS)
def test_every_planted_sampler_fault_is_rejected(load_model, reference, prompts, name):
    """Measured at this seed: 584, 584, 64, 192, 1920 and 5911 tokens."""
    evidence = tokens_to_rejection(load_model("float32"), reference, named(prompts, range(30)), name, 20_000)
    assert evidence.rejected_at is not None, str(evidence)


@pytest.mark.slow
@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("schedule", [linear(8), packed(8), quadratic(4)], ids=["linear", "packed", "quadratic"])
def test_twenty_thousand_tokens_are_not_told_from_the_reference(load_model, reference, prompts, schedule):
    """False-alarm odds 1e-3 per schedule; a `late` shift of about 0.02 would show."""
    model, width = load_model("float32"), max(ask.width for ask in schedule.cycle)
    limits = Limits.of(64, reference.eos)
    chosen = named(prompts, range(60))
    found = certify_sampling(model, reference, schedule, chosen, limits, width, tokens=20_000, seed=1)
    assert found.verdict == "EXACT", str(found)
    figures = found.layer("numerics").figures
    assert figures["tokens"] >= 20_000
    assert figures["detectable"] < 0.025


def test_low_precision_that_is_told_from_the_reference_says_nothing_of_the_schedule(load_model, model64, prompts, monkeypatch):
    """A model whose own law is another: the schedule is not to blame, and is not called so."""
    laws = numerics.reference_laws
    monkeypatch.setattr(numerics, "reference_laws", lambda *given: laws(*given[:3], 0.5))
    limits = Limits.of(48, model64.eos)
    layer, _ = numerics.sampled(load_model("float32"), model64, ar(), named(prompts, (0, 1, 2)), limits, 1.0, 2000, 0)
    assert layer.verdict == "NOT RUN"
    assert "plain AR in this dtype is told from the reference too" in layer.detail
