"""Certificates and figures of any-order schedules, on a tiny random network: what is right passes, what is planted is found."""

import dataclasses
import json
import math

import pytest

torch = pytest.importorskip("torch")

from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from realmodel.any_order.certificate import Judge, Output, certify, narrowed, numerics, rule  # noqa: E402
from realmodel.any_order.conformance import conformance  # noqa: E402
from realmodel.any_order.paths import at_once, one_by_one, path_of, serial  # noqa: E402
from realmodel.any_order.reference import serial_greedy  # noqa: E402
from realmodel.any_order.session import AnyOrderModel, AnyOrderSession  # noqa: E402
from realmodel.any_order.validate import arms, validate  # noqa: E402
from realmodel.faults.any_order import KeepsStaleRows, Planted  # noqa: E402
from realmodel.precision import to_float64  # noqa: E402
from simulator import InvalidInput, Limits, generate  # noqa: E402
from simulator.any_order import Schedule, named  # noqa: E402
from simulator.laws import Peak  # noqa: E402

MASK = 1
PROMPTS = [("a", (7, 3, 11, 5)), ("b", (4, 4, 9)), ("c", (12, 2, 2, 6, 8))]


def random_model(dtype, seed=0, name="random"):
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=19, hidden_size=24, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        head_dim=12, max_position_embeddings=256, initializer_range=1.0, eos_token_id=9, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    network = Qwen3ForCausalLM(config).eval()
    return AnyOrderModel(to_float64(network) if dtype == "float64" else network, None, MASK, name)


@pytest.fixture(scope="module")
def models():
    return random_model("float32"), random_model("float64")


def runs(model, schedule, limits, prompts=PROMPTS):
    return [Output(name, prompt, generate(model.session(), schedule, prompt, limits)) for name, prompt in prompts]


@pytest.fixture(scope="module")
def validation(models):
    chosen = arms(["serial", "linear", "packed", "quadratic", "native"], [4, 6], ["ltr", "confidence"])
    return validate(*models, PROMPTS, chosen, Limits.of(20, 9))


def test_all_arms_are_certified_and_compared_within_their_order(validation):
    assert validation.verdict == "EXACT"
    assert set(validation.summaries) == {"ltr", "confidence"}
    assert len(validation.certificates) == 1 + 2 * 2 * 3
    assert set(validation.native) == {("native", 4), ("native", 6)}
    for summary in validation.summaries.values():
        keys = {row.key for row in summary.rows}
        assert keys == {("serial", 0)} | {(n, w) for n in ("linear", "packed", "quadratic", "native") for w in (4, 6)}
        packed = summary.row(("packed", 6))
        assert [comparison.baseline for comparison in packed.comparisons] == [("linear", 6), ("serial", 0)]
        assert summary.row(("native", 6)).verdict == (True, "not exact by design")
    rows = validation.rows()
    assert [row["order"] for row in rows] == ["ltr", "confidence"]
    assert [len(row["certificates"]) for row in rows] == [7, 7]
    json.dumps(rows)


@pytest.mark.claim("PROPC1")
def test_outputs_left_to_right_are_those_of_serial_decoding_whatever_the_schedule(validation):
    straight = {}
    for record in validation.measurement.records:
        if record.name.endswith(" ltr"):
            straight.setdefault(record.prompt, set()).add(record.tokens)
    assert [len(outputs) for outputs in straight.values()] == [1, 1, 1]


def test_the_trade_off_of_an_order_is_counted(validation, models):
    trades = {(t.schedule, t.order, t.width): t for t in validation.trades}
    assert len(trades) == 2 * 3 + 2
    trade = trades["packed", "confidence", 6]
    mine, theirs = (
        {r.prompt: r for r in validation.measurement.records if r.key == (f"packed {o}", 6)} for o in ("confidence", "ltr")
    )
    assert (trade.calls, trade.ltr_calls) == tuple(sum(r.nfe for r in each.values()) for each in (mine, theirs))
    assert trade.different == sum(mine[name].tokens != theirs[name].tokens for name, _ in PROMPTS)
    total = count = 0.0
    for name, prompt in PROMPTS:
        # By the chain rule of serial left-to-right decoding, one plain forward a token.
        for j, token in enumerate(mine[name].tokens):
            pairs = tuple(enumerate(mine[name].tokens[:j], 1))
            tokens = [*prompt, *mine[name].tokens[:j], MASK]
            mask = torch.full((len(tokens), len(tokens)), -torch.inf, dtype=torch.float64).triu(1)
            logits = models[1].network(torch.tensor([tokens]), attention_mask=mask[None, None]).logits[0, -1].detach()
            logits[MASK] = -torch.inf
            total -= float(torch.log_softmax(logits, -1)[token])
            count += 1
            assert len(pairs) == j
    assert math.isclose(trade.nats, total / count, rel_tol=1e-9)
    assert trades["native", "", 4].ltr_calls is None


def test_paths_are_what_the_serial_reference_takes(models):
    """With an E that shrinks behind accepted pairs: segments, groups, and both plain ways to their logits."""
    model, shrunk = models[1], 0
    for width, eos in ((10, 9), (8, 4), (12, 6), (12, 12)):
        limits = Limits.of(24, eos)
        for _, prompt in PROMPTS:
            run = generate(model.session(), named("packed", width, "rtl"), prompt, limits)
            path = path_of(run.steps)
            whole, single = at_once(model.network, prompt, path, MASK), one_by_one(model.network, prompt, path, MASK)
            assert (whole - single).abs().max() < 1e-10
            assert single.argmax(-1).tolist() == [token for _, token in path.predicted]
            assert serial(model.network, prompt, path, limits, MASK) == path
            assert serial_greedy(model.network, prompt, path.groups, MASK, eos) == path.output
            assert tuple(token for _, token in sorted(path.output)) == run.tokens
            shrunk += len(path.segments) > 1
    assert shrunk > 1


# --- planted ----------------------------------------------------------------------------------------------------------------


class BelievesTheFirst(Schedule):
    """The draft token at the first rank is accepted without a check."""

    def absorb(self, state, call, reply, chance):
        if call.draft and call.kappa and reply.target:
            reply = reply._replace(
                target=(state.draft[[d.position for d in state.draft].index(call.order[0])].law, *reply.target[1:])
            )
        return super().absorb(state, call, reply, chance)


def test_a_schedule_that_believes_a_draft_is_a_fault_of_every_layer(models):
    right = named("packed", 6, "ltr")
    wrong = BelievesTheFirst(**{f.name: getattr(right, f.name) for f in dataclasses.fields(right)})
    limits = Limits.of(20)
    certificate = certify(*models, wrong, runs(models[0], wrong, limits), limits)
    assert [layer.verdict for layer in certificate.layers] == ["FAULT", "FAULT", "FAULT"]
    assert certificate.layer("rule").findings[0].stage == "serial"
    assert certificate.layer("conformance").findings[0].stage in ("serial", "calls", "verifier")
    assert narrowed(wrong).width == 3


def test_a_binding_that_is_off_by_a_little_is_a_fault_of_conformance(models):
    """Weights that differ in one norm by a thousandth: no token need change."""
    model = random_model("float64")
    with torch.no_grad():
        model.network.model.layers[1].post_attention_layernorm.weight[0] *= 1.001
    layer = conformance(model, models[1], named("packed", 6, "ltr"), PROMPTS[:1], Limits.of(12))
    assert layer.verdict == "FAULT"
    assert layer.findings[0].stage in ("verifier", "proposals", "cache")


@pytest.mark.parametrize("order", ["ltr", "rtl"])
def test_rows_that_would_be_stale_are_looked_at_where_no_end_shrinks_the_output(models, order):
    schedule, limits = named("packed", 4, order), Limits.of(12)
    layer = conformance(models[1], models[1], schedule, PROMPTS[:1], limits)
    assert layer.verdict == "EXACT"
    assert layer.figures["shrunk"] >= 2
    assert layer.figures["again"] == 0
    stale = conformance(Planted(models[1], KeepsStaleRows), models[1], schedule, PROMPTS[:1], limits)
    assert [(found.stage, found.symptom) for found in stale.findings] == [("shrunk", "law")]


class CountsNone(AnyOrderSession):
    """What is encoded again is not counted apart."""

    def _rows(self, call, cached):
        return dataclasses.replace(super()._rows(call, cached), again=0)


class KeepsTheMasksColumn(AnyOrderSession):
    """The mask's own column stays in the laws, and the session says so."""

    def masked_from(self, rows):
        return len(rows.verifier) + sum(len(block or ()) for block in rows.proposals)

    def _laws(self, logits, verifier_rows):
        return [Peak(int(row.argmax()), float(torch.softmax(row.double(), -1).max())) for row in logits]


@pytest.mark.parametrize(("kind", "stage", "symptom"), [(CountsNone, "shrunk", "count"), (KeepsTheMasksColumn, "calls", "law")])
def test_rows_encoded_again_are_counted_and_the_mask_has_no_share(models, kind, stage, symptom):
    binding = Planted(models[1], kind)
    layer = conformance(binding, models[1], named("packed", 4, "ltr"), PROMPTS[:1], Limits.of(12))
    assert [(found.stage, found.symptom) for found in layer.findings] == [(stage, symptom)]


def test_a_token_that_no_rounding_explains_is_a_fault_of_numerics(models):
    schedule, limits = named("packed", 6, "confidence"), Limits.of(20)
    outputs = runs(models[0], schedule, limits)
    steps = list(outputs[1].run.steps)
    at = next(i for i, step in enumerate(steps) if step.predictions)
    wrong = (*((steps[at].predictions[0] + 1) % 19, *steps[at].predictions[1:]),)
    steps[at] = steps[at]._replace(predictions=wrong, committed=(wrong[0], *steps[at].committed[1:]))
    outputs[1] = outputs[1]._replace(run=outputs[1].run._replace(steps=tuple(steps)))
    layer = numerics(Judge(*models), schedule, outputs, limits)
    assert layer.verdict == "FAULT"
    assert {finding.stage for finding in layer.findings} >= {"divergences"}
    right = numerics(Judge(*models), schedule, runs(models[0], schedule, limits), limits)
    assert right.verdict == "EXACT"


@pytest.mark.parametrize("name", ["packed", "linear", "quadratic", "serial"])
def test_rules_of_the_built_in_schedules(name):
    layer = rule(named(name, 8, "confidence"))
    assert layer.verdict == "EXACT"
    assert name == "serial" or " 0 draft tokens accepted" not in layer.detail


def test_what_cannot_be_asked():
    with pytest.raises(InvalidInput, match="unknown any-order schedule 'ar'"):
        arms(["ar"], [4])
    with pytest.raises(InvalidInput, match="unknown order 'up'"):
        arms(["packed"], [4], ["up"])
    with pytest.raises(InvalidInput, match="horizon of an order"):
        arms(["packed"], [4], ["ltr"], horizon=0)


def test_a_horizon_is_kept(models):
    [arm] = arms(["packed"], [8], ["rtl"], horizon=3)
    run = generate(models[0].session(), arm.arm.schedule, PROMPTS[0][1], Limits.of(30))
    resolved = set()
    for step in run.steps:
        for position in step.order[: step.advance]:
            assert all(i in resolved for i in range(1, position - 2))
            resolved.add(position)
