"""The float64 layer: every part of it can fail and says where; and the binding's masks, buffers, arithmetic and clock."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from realmodel import Session, load
from realmodel.adapter import with_random_adapter
from realmodel.conformance import conformance
from realmodel.decomposition import adapter_rows
from realmodel.dualmode import DualModeModel
from realmodel.faults import binding
from realmodel.faults.binding import Planted
from realmodel.faults.harness import COMPILE, LAUNCH, RUN, Device, TimedModel
from realmodel.layout import attention, rows_of
from realmodel.parity import packed_parity
from realmodel.reference import causal_logits
from simulator import Limits, ar, branches, generate, linear, packed, quadratic
from simulator.records import Call
from simulator.trace import TracedRequest


def run(bound, plain, schedule, prompts, tokens=16, **more):
    width = max(ask.width for ask in schedule.cycle)
    return conformance(
        bound, plain, schedule, prompts, Limits.of(tokens, plain.eos), width, more.pop("start", "algorithm"), **more
    )


@pytest.fixture(scope="module")
def two(prompts):
    return [("first", prompts[0][:30]), ("second", prompts[1][:24])]


@pytest.mark.claim("LAYD1")
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("schedule", "start"),
    [
        (ar(), "algorithm"),
        (linear(3), "algorithm"),
        (packed(3), "algorithm"),
        (packed(3, "wide"), "wide"),
        (packed(3, "sampled"), "sampled"),
        (quadratic(3, "prompt"), "prompt"),
        (branches((0, 2), 3), "algorithm"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_right_bindings_conform(model64, two, schedule, start, temperature):
    layer = run(model64, model64, schedule, two, start=start, temperature=temperature)
    assert layer.verdict == "EXACT", layer
    figures = layer.figures
    assert figures["verifier_rows"] >= 32
    assert figures["cache_rows"] > 200
    assert (figures["proposal_rows"] > 0) == (schedule.name != "ar")
    assert max(figures["verifier"], figures["proposals"]) < 1e-11
    assert figures["noise"]["logits"] < 1e-12


def test_float32_where_float64_does_not_fit(load_model, two):
    model = load_model("float32")
    layer = run(model, model, packed(3), two)
    assert layer.verdict == "EXACT"
    assert layer.detail.startswith("float32")
    assert run(Planted(model, binding.RowTooMany), model, packed(3), two).verdict == "FAULT"


class Raises(Session):
    """It fails at the third call."""

    def logits(self, call):
        self.calls = getattr(self, "calls", 0) + 1
        if self.calls == 3:
            raise RuntimeError("shapes do not match\nsecond line")
        return super().logits(call)


class ClaimsMore(Session):
    """It believes that its cache holds a row more than it does."""

    def logits(self, call):
        answer = super().logits(call)
        self.stale += 1
        return answer

    def _roll_back(self, prefix):
        self.stale = max(0, self.stale - 1)
        return super()._roll_back(prefix)


class WrongAfterResuming(Session):
    """A catch-up behind a cache that is filled already starts one position late."""

    def _rows(self, call, cached):
        rows = super()._rows(call, cached)
        late = 0 < cached < len(call.prefix) - 1
        return replace(rows, positions=[position + late for position in rows.positions])


@pytest.mark.parametrize(
    ("kind", "schedule", "stage", "symptom", "words"),
    [
        (Raises, packed(3), "calls", "contract", "it raises RuntimeError: shapes do not match"),
        (binding.RowTooMany, packed(3), "verifier", "law", "off a causal forward"),
        (binding.CausalBlock, packed(3), "proposals", "count", "off a separate drafting forward"),
        (binding.StaleRow, packed(3), "cache", "law", "the cached row of token 2 of"),
        (ClaimsMore, packed(3), "cache", "law", "the session says that its cache holds"),
        (WrongAfterResuming, packed(3), "resumed", "law", "behind"),
        (binding.TrustsLength, packed(3), "requests", "determinism", "a session that has served another request"),
    ],
)
def test_every_part_can_fail(model64, two, kind, schedule, stage, symptom, words):
    layer = run(Planted(model64, kind), model64, schedule, two)
    assert layer.verdict == "FAULT"
    [finding] = layer.findings
    assert (finding.stage, finding.symptom) == (stage, symptom)
    assert words in finding.statement


def test_laws_that_are_not_those_of_the_logits(model64, two):
    class Flattened(Session):
        def _laws(self, logits, verifier_rows):
            return super()._laws(logits * 0.5 if self.temperature else -logits, verifier_rows)

    for temperature in (0.0, 1.0):
        layer = run(Planted(model64, Flattened), model64, packed(3), two, temperature=temperature)
        assert (layer.findings[0].stage, layer.findings[0].symptom) == ("calls", "law")
        assert "the law of verifier row 0 is not that of its logits" in layer.findings[0].statement


def test_logs_are_replayed(model64, two):
    name, prompt = two[0]
    good = generate(model64.session(), packed(3), prompt, Limits.of(16))
    steps = (good.steps[0]._replace(retained=good.steps[0].retained + 1), *good.steps[1:])
    log = TracedRequest(name, "packed", prompt, Limits.of(16), good._replace(steps=steps), 3, "algorithm")
    layer = run(model64, model64, packed(3), two, recorded=[log])
    assert [finding.stage for finding in layer.findings] == ["trace"]
    assert "ALG1.L10" in layer.findings[0].statement


def test_no_call_and_no_proposals_are_no_verdict(model64, two):
    assert run(model64, model64, packed(3), two, tokens=0).verdict == "NOT RUN"
    layer = run(model64, model64, linear(3), two, tokens=8, samples=1)  # of each run the last call alone, which verifies
    assert (layer.verdict, "no call with proposals" in layer.detail) == ("NOT RUN", True)


# --- masks: who may not be seen moves nothing, who must be seen moves something ---------------------------------------------


LAYOUTS = {
    "packed": Call((5, 6, 7, 8, 9), (10, 11), True, (0,), 3),
    "quadratic": Call((5, 6, 7, 8, 9), (10, 11), True, (0, 1, 2), 2),
    "wide": Call((5, 6, 7, 8, 9), (), True, (0,), 3, anchored=False),
    "linear, draft": Call((5, 6, 7, 8, 9), (), False, (0,), 3),
}


@torch.inference_mode()
def outputs_of_rows(model, call, padded, warm, perturbed=None):
    """Final hidden states of all rows of `call` behind `warm` cached rows; the embedding of one row made large and finite."""
    session = model.session(padded=padded)
    if warm:
        session.logits(Call(call.prefix[:warm], (), True, (), 0))
    hidden = []
    norm = model.network.model.norm.register_forward_hook(lambda module, given, out: hidden.append(out[0].clone()))
    embedding = None
    if perturbed is not None:

        def enlarge(module, given, out):
            out = out.clone()
            out[0, perturbed] = 3e4 * torch.sin(torch.arange(out.shape[-1]))
            return out

        embedding = model.network.model.embed_tokens.register_forward_hook(enlarge)
    try:
        session.logits(call)
    finally:
        norm.remove()
        if embedding:
            embedding.remove()
    return hidden[-1]


@pytest.mark.claim("LAYD1")
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_row_moves_exactly_the_rows_that_see_it(load_model, layout, warm, padded):
    """Bitwise, with large finite values, through all layers; also every cached row's tokens reach every row."""
    model, call = load_model("float32"), LAYOUTS[layout]
    rows = rows_of(call, warm, model.mask_token, padded)
    sees = attention(call, warm, rows.catch_up, padded)[:, warm:]
    reaches = sees.copy()
    for _ in range(len(sees)):  # through layers
        reaches = reaches | ((reaches.astype(int) @ sees.astype(int)) > 0)
    base = outputs_of_rows(model, call, padded, warm)
    for row in range(len(sees)):
        moved = (outputs_of_rows(model, call, padded, warm, row) != base).any(-1).numpy()
        assert (moved == reaches[:, row]).all(), (row, np.flatnonzero(moved != reaches[:, row]))


class SeesOneMore(binding._OtherMask):
    """One pair too many may see."""

    def _spoil(self, sees, cached, catch_up, first, call):
        sees[first : first + 1, cached + first - 1] = True


def test_the_mask_test_can_fail(load_model):
    model = Planted(load_model("float32"), SeesOneMore)
    with pytest.raises(AssertionError):
        test_a_row_moves_exactly_the_rows_that_see_it(lambda dtype: model, "packed", 3, True)


def test_mask_buffers_grow_without_hiding_a_column(load_model):
    """At every number of cached rows from 1 to 320, in steps as a run takes them, the mask is that of the layout."""
    model = load_model("float32")
    for padded in (True, False):
        session = model.session(padded=padded)
        for cached in [*range(1, 140), *range(140, 320, 7), 129, 60, 1]:
            call = Call((5,) * (cached + 1), (6, 7)[: cached % 3], True, (0,), 3)
            expected = session._additive(attention(call, cached, 0, padded))
            assert torch.equal(session._mask(call, cached, 0), expected), cached


# --- arithmetic, time, adapter ----------------------------------------------------------------------------------------------


class Narrow(TorchDispatchMode):
    """Collects the operations that touch a floating-point number narrower than float64."""

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        tensors = [t for t in (*args, out) if isinstance(t, torch.Tensor)]
        if any(t.is_floating_point() and t.dtype != torch.float64 for t in tensors):
            self.found.add(str(func))
        return out


def narrow_operations(model, prompt):
    with Narrow() as narrow:
        generate(model.session(), packed(3), prompt, Limits.of(4))
        causal_logits(model, prompt)
    return narrow.found


def test_a_float64_model_has_no_narrower_operation(model64, prompts):
    assert narrow_operations(model64, prompts[0][:12]) == set()
    converted = DualModeModel(load("embedded").network.double(), model64.tokenizer, model64.mask_token, "double")
    assert any("rsqrt" in name for name in narrow_operations(converted, prompts[0][:12]))  # the stock RMSNorm


@pytest.mark.parametrize("schedule", [ar("prompt"), linear(3), packed(3, "wide"), quadratic(3)], ids=lambda s: s.name)
def test_every_forward_is_in_the_model_time(schedule):
    """On a clock of its own: nfe forwards of known length, the compiling ones included."""
    device = Device()
    session = TimedModel(device).session(padded=True)
    nfe = generate(session, schedule, (2, 3, 4), Limits.of(9)).nfe
    assert nfe == device.forwards
    assert session.model_seconds == nfe * (LAUNCH + RUN) + 3 * COMPILE


@pytest.mark.claim("LORA")
def test_the_adapter_acts_on_proposal_rows_alone(model64, prompts):
    """Packed equals separate calls with it, the verifier is that of the base model, and rows are counted as in F.2."""
    adapted = with_random_adapter(model64, scale=0.3)
    t = prompts[0]
    for call in (
        Call(t[:40], t[40:44], True, (0,), 5),
        Call(t[:40], t[40:44], True, (0, 2, 4), 4),
        Call(t[:40], (), False, (0,), 4),
        Call(t[:40], (), True, (0,), 5, anchored=False),
    ):
        for warm in (0, 20, 39):
            assert max(packed_parity(adapted, call, warm)) < 1e-10
        rows, logits = adapted.session().logits(call)
        _, base = model64.session().logits(call)
        verifier = len(rows.verifier)
        assert (logits[:verifier] - base[:verifier]).abs().max() < 1e-10 if verifier else True
        assert (logits[verifier:] - base[verifier:]).abs().max() > 1e-2
    assert torch.equal(causal_logits(adapted, t), causal_logits(model64, t))


@pytest.mark.claim("LORA")
@pytest.mark.parametrize(("schedule", "rows"), [(packed(31), (64, 32)), (linear(31), (32, 32)), (quadratic(7), (72, 64))])
def test_adapter_rows_are_those_of_the_accounting(model64, prompts, schedule, rows):
    """T5: rows whose update is computed and rows that receive it, per iteration, counted where they are computed."""
    adapted = with_random_adapter(model64)
    session, width = adapted.session(padded=True), schedule.cycle[0].width
    t = prompts[2]
    session(Call(t[:31], (), True, (), 0))
    before = adapted.adapter.evaluated, adapted.adapter.selected
    draft = t[32 : 32 + width]
    calls = [Call(t[:32], draft * ask.verify, *ask) for ask in schedule.cycle]
    for call in calls:
        session(call)
    counted = adapted.adapter.evaluated - before[0], adapted.adapter.selected - before[1]
    assert counted == rows == adapter_rows(calls)


def test_copies_of_an_adapted_model_share_nothing(model64):
    one, other = with_random_adapter(model64), with_random_adapter(model64)
    assert one.adapter is not other.adapter
    assert copy.copy(one.network) is not other.network
    assert model64.adapter is None
