"""The binding of Nemotron-Labs-Diffusion on a stand-in of a release: packed calls, exactness, adapter rows, planted traps."""

import copy
from functools import cache

import pytest
import torch
from torch import nn

from realmodel.certificate import certify
from realmodel.conformance import conformance
from realmodel.dualmode import Session
from realmodel.nemotron import checklist, load
from realmodel.nemotron import network as network_module
from realmodel.nemotron.conventions import conventions
from realmodel.nemotron.network import NemotronNetwork
from realmodel.numerics import Output
from realmodel.parity import packed_parity
from realmodel.reference import causal_logits, greedy_reference
from simulator import Limits, generate, linear, named, packed, quadratic
from simulator.errors import InvalidInput
from simulator.records import Call
from tests.realmodel.nemotron_stand_in import BOS, EOS, MASK, PROMPTS, WORDS, edited, home, native, trained, write

TOKENS, W = 24, 5
DRAFT = (25, 26, 27, 40, 41)  # the first three are what the words go on with
CALL = Call(PROMPTS[0], DRAFT, True, (0,), W)


@cache
def model(dtype="float64", suffix=""):
    return load(f"{trained()}{suffix}", dtype, trust_remote_code=True)


@cache
def untrained():
    """Another release: random, and its query scale for long contexts begins at position 16."""
    return write(home() / "untrained", original_max_position_embeddings=16, factor=2.0, max_position_embeddings=32 * 16)


# --- exactness --------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("COR-GREEDY")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_every_schedule_emits_what_the_class_itself_generates(dtype):
    bound, tested, accepted = model(dtype), 0, 0
    limits = Limits.of(TOKENS, bound.eos)
    for prompt in PROMPTS if dtype == "float64" else PROMPTS[1:2]:
        expected = bound.network.native.ar_generate(torch.tensor([prompt]), TOKENS)[0][0, len(prompt) :].tolist()
        assert greedy_reference(bound, prompt, limits) == tuple(expected)
        for name, start in [("ar", "algorithm"), ("ar", "prompt")] + [
            (name, start) for name in ("linear", "packed", "quadratic") for start in ("algorithm", "wide", "sampled", "prompt")
        ]:
            for padded in (False, True)[: 1 + (prompt == PROMPTS[1])]:
                run = generate(bound.session(padded=padded), named(name, W, start), prompt, limits)
                assert run.tokens == tuple(expected), (name, start, padded)
                tested += sum(len(step.verified) for step in run.steps)
                accepted += sum(step.accepted for step in run.steps if step.verified)
    assert 0.2 < accepted / tested < 0.99  # drafts are accepted, and rejected too


def test_an_end_token_inside_a_draft():
    bound, prompt = model(), (BOS, *WORDS[9], *WORDS[10][:3])
    limits = Limits.of(TOKENS, bound.eos)
    expected = (*WORDS[10][3:], EOS)
    assert greedy_reference(bound, prompt, limits) == expected
    runs = [generate(bound.session(), schedule, prompt, limits) for schedule in (packed(W), linear(W), quadratic(W))]
    assert {(run.tokens, run.stop) for run in runs} == {(expected, "eos")}
    # No end tokens asked for: the class would take that of its configuration.
    assert len(greedy_reference(bound, prompt, Limits.of(TOKENS, ()))) == TOKENS
    assert greedy_reference(bound, prompt, Limits.of(TOKENS, (EOS, WORDS[10][5]))) == expected[:3]


@pytest.mark.parametrize(("dtype", "suffix"), [("float32", ""), ("bfloat16", ":lora")])
def test_a_certificate(dtype, suffix):
    bound, reference, limits = model(dtype, suffix), model("float64", suffix), Limits.of(TOKENS, EOS)
    outputs = []
    for index, prompt in enumerate(PROMPTS[:2]):
        run = generate(bound.session(), packed(W), prompt, limits)
        outputs.append(Output(str(index), prompt, greedy_reference(bound, prompt, limits), run.tokens))
    found = certify(bound, reference, packed(W), outputs, limits, W)
    assert found.verdict in ("EXACT", "TIES")
    assert found.layer("conformance").verdict == "EXACT", found.layer("conformance").detail


def test_sampling_conforms():
    bound = model()
    found = conformance(
        bound, bound, packed(W, "sampled"), [("a", PROMPTS[0]), ("b", PROMPTS[1])], Limits.of(12, EOS), W, "sampled", 1.0, 7
    )
    assert found.verdict == "EXACT", found.detail


def test_released_linear_self_speculation_is_linear():
    """Its tokens, and its calls: 1 + 2 a round."""
    bound = model("float32")
    for prompt in PROMPTS:
        bound.network.set_mode()
        try:
            answer, nfe = bound.network.native.linear_spec_generate(torch.tensor([prompt]), TOKENS, block_length=W + 1)
        except ValueError as error:
            if "crop" not in str(error):
                raise
            pytest.skip("the released decoder crops its cache to a length, which this transformers refuses")
        run = generate(bound.session(), linear(W, "sampled"), prompt, Limits.of(TOKENS, EOS))
        assert tuple(answer[0, len(prompt) :].tolist())[: len(run.tokens)] == run.tokens
        assert nfe == len(run.steps)


# --- the packed call --------------------------------------------------------------------------------------------------------


@pytest.mark.claim("LAYD1")
@pytest.mark.claim("LAYQ")
@pytest.mark.parametrize(
    "call",
    [
        CALL,
        Call(PROMPTS[0], DRAFT[:2], True, (0,), W),
        Call(PROMPTS[0], DRAFT, True, (0, 1, 2, 3, 4, 5), W),
        Call(PROMPTS[0], (), False, (0,), W + 1, anchored=False),
        Call(PROMPTS[0], (), True, (0,), W),
    ],
    ids=["packed", "short draft", "quadratic", "wide", "no draft"],
)
@pytest.mark.parametrize("padded", [False, True])
def test_packed_rows_are_those_of_separate_calls(call, padded):
    for warm in (0, 6):
        assert max(packed_parity(model(), call, warm, padded)) < 1e-12


def test_packed_rows_are_those_of_the_released_calls():
    """Verify behind a cache with `use_causal_mask`; draft in diffusion mode, with no mask at all."""
    bound = model()
    network, last = bound.network, PROMPTS[0][-1]
    with torch.inference_mode():
        packed_logits = bound.session(padded=True).logits(CALL)[1]
        cache = network(torch.tensor([PROMPTS[0][:-1]]), use_cache=True).cache
        network.set_mode()
        hidden = network.native.encoder(
            input_ids=torch.tensor([[last, *DRAFT]]), past_key_values=cache, use_cache=True, use_causal_mask=True
        ).last_hidden_state
        verified = network.native.diffusion_head(hidden)[0]
        cache.crop(-(W + 1))
        drafted = network.draft(torch.tensor([[last] + [MASK] * W]), cache)[0, 1:]
    assert cache.get_seq_length() == len(PROMPTS[0]) - 1  # drafting leaves it as it is
    assert torch.allclose(packed_logits[: W + 1], verified, atol=1e-12, rtol=0)
    assert torch.allclose(packed_logits[W + 1 :], drafted, atol=1e-12, rtol=0)


def test_who_sees_whom_bit_for_bit():
    bound, size = model("float32"), W + 1

    def logits(call, mask=MASK):
        other = copy.copy(bound)
        other.mask_token = mask
        return other.session(padded=True).logits(call)[1]

    before = logits(CALL)
    for index in range(W):
        draft = (*DRAFT[:index], 77, *DRAFT[index + 1 :])
        after = logits(CALL._replace(draft=draft))
        assert torch.equal(before[size:], after[size:])
        assert torch.equal(before[: index + 1], after[: index + 1])
        assert not torch.equal(before[index + 1], after[index + 1])
    remasked = logits(CALL, mask=77)
    assert torch.equal(before[:size], remasked[:size])
    assert not (before[size:] == remasked[size:]).all(-1).any()


def test_positions_drive_the_query_scale_of_long_contexts():
    """Both halves stand at the same positions: the copy of the last token and its masks too."""
    bound = load(str(untrained()), "float64", trust_remote_code=True)
    call = Call(tuple(range(12, 60)), tuple(range(30, 35)), True, (0,), W)
    assert max(packed_parity(bound, call, 20, True)) < 1e-12
    encoder = bound.network.native.encoder
    forward = encoder.forward
    encoder.forward = lambda cache_position=None, **options: forward(**options)
    try:
        assert packed_parity(bound, call, 20, True).proposals > 1e-3
    finally:
        del encoder.forward


def test_the_mask_is_never_proposed():
    """A drafter whose likeliest token is the mask, on every masked row."""
    bound = _copy()
    head = bound.network.native.diffusion_head
    inputs = []
    head.register_forward_pre_hook(lambda module, arguments: inputs.append(arguments[0][0]))
    bound.session(padded=True).logits(CALL)
    with torch.no_grad():
        head.weight[MASK] = 10 * inputs[0][-1]  # the last proposal row's own direction
    raw = bound.session(padded=True).logits(CALL)[1]
    assert raw[-1].argmax() == MASK
    drafted = [law.certain for law in bound.session()(CALL).proposals[0]]
    assert MASK not in drafted
    assert drafted[-1] == raw[-1].index_fill(0, torch.tensor(MASK), -torch.inf).argmax()


# --- the adapter ------------------------------------------------------------------------------------------------------------


@pytest.mark.claim("LORA")
def test_the_adapter_acts_on_proposal_rows_alone():
    plain, adapted, size = model("float32"), model("float32", ":lora"), W + 1
    before, after = (bound.session(padded=True).logits(CALL)[1] for bound in (plain, adapted))
    assert torch.equal(before[:size], after[:size])
    assert not (before[size:] == after[size:]).all(-1).any()
    assert torch.equal(causal_logits(plain, PROMPTS[1]), causal_logits(adapted, PROMPTS[1]))
    assert greedy_reference(plain, PROMPTS[1], Limits.of(8, ())) == greedy_reference(adapted, PROMPTS[1], Limits.of(8, ()))


def test_adapted_proposals_are_those_of_merged_weights():
    """Against PEFT's formula, W + lora_alpha / r B A, on a drafting call of its own behind a cache of the plain weights."""
    from safetensors.torch import load_file

    bound = model("float64", ":lora")
    merged = copy.deepcopy(model().network)
    tensors = load_file(trained() / "linear_spec_lora" / "adapter_model.safetensors")
    for index, layer in enumerate(merged.model.layers):
        down, up = (tensors[f"base_model.model.encoder.layers.{index}.self_attn.o_proj.lora_{which}.weight"] for which in "AB")
        layer.self_attn.o_proj.weight.data += 4 * up.double() @ down.double()
    cache = model().network(torch.tensor([PROMPTS[0][:-1]]), use_cache=True).cache
    drafted = merged.draft(torch.tensor([[PROMPTS[0][-1]] + [MASK] * W]), cache)[0, 1:]
    ours = bound.session(padded=True).logits(CALL)[1][W + 1 :]
    assert torch.allclose(ours, drafted, atol=1e-12, rtol=0)


@pytest.mark.claim("LORA")
def test_adapter_rows_are_counted_as_in_the_paper():
    """Computed, applied: Packed 64, 32; Linear 32, 32 and its verifier none; Quadratic, B = 8, 72 and 64."""
    bound = model("bfloat16", ":lora")
    for call, counts in {
        Call(PROMPTS[0], tuple(range(30, 61)), True, (0,), 31): (64, 32),
        Call(PROMPTS[0], (), False, (0,), 31): (32, 32),
        Call(PROMPTS[0], tuple(range(30, 61)), True, (), 31): (0, 0),
        Call(PROMPTS[0], tuple(range(30, 37)), True, tuple(range(8)), 7): (72, 64),
    }.items():
        session = bound.session(padded=True)
        session.logits(Call(PROMPTS[0][:-1], (), False, (), 0))
        bound.adapter.evaluated = bound.adapter.selected = 0
        session.logits(call)
        assert (bound.adapter.evaluated, bound.adapter.selected) == counts
        assert bound.adapter.rows is None


# --- traps ------------------------------------------------------------------------------------------------------------------


def judged(bound):
    """The conformance of Packed-SS on one prompt, beside an untouched model."""
    return conformance(bound, model(), packed(W), [("a", PROMPTS[0])], Limits.of(10, EOS), W, "algorithm")


def _copy():
    bound = copy.copy(model())
    bound.network = copy.deepcopy(bound.network)
    return bound


def test_whatever_ran_before_leaves_nothing():
    """The class's decoders leave it in diffusion mode, or not: calls set it themselves."""
    bound = _copy()
    before = bound.session().logits(CALL)[1]
    bound.network.native.generate(torch.tensor([PROMPTS[1]]), 6, 6)
    assert all(layer.self_attn.diffusion_lm for layer in bound.network.model.layers)
    assert torch.equal(bound.session().logits(CALL)[1], before)
    assert judged(bound).verdict == "EXACT"


def test_a_leaked_mode_is_called():
    """As constructed, in diffusion mode, the class drops the mask: planted by a binding that never sets the mode."""
    bound = _copy()
    for layer in bound.network.model.layers:
        layer.self_attn.diffusion_lm = True
    bound.network.set_mode = lambda diffusion=False: None
    assert judged(bound).verdict == "FAULT"


def test_a_mask_without_its_switch_is_called():
    """Without `use_causal_mask` the class hands no mask down."""
    bound = _copy()
    encoder = bound.network.native.encoder
    forward = encoder.forward
    encoder.forward = lambda use_causal_mask=False, **options: forward(**options)
    assert judged(bound).verdict == "FAULT"


class Eager(Session):
    """A bool mask under eager attention is added as 0 and 1."""

    def __init__(self, bound, *arguments):
        super().__init__(bound, *arguments)
        bound.network.native.encoder.config._attn_implementation = "eager"


def test_eager_attention_is_refused_and_called():
    released = native(trained(), attn_implementation="eager")
    with pytest.raises(InvalidInput, match="need attn_implementation sdpa, got 'eager'"):
        NemotronNetwork(released)
    bound = _copy()
    bound.session = lambda *arguments: Eager(bound, 0.0, False)
    assert judged(bound).verdict == "FAULT"


class Foreign(nn.Module):
    """A projection with an adapter of whole calls, switched as PEFT's are; on when attached."""

    def __init__(self, base):
        super().__init__()
        self.base, self._disable_adapters = base, False

    @property
    def weight(self):
        return self.base.weight

    def forward(self, hidden):
        output = self.base(hidden)
        return output if self._disable_adapters else output + 0.3 * output.flip(-1)


def test_adapters_of_whole_calls_are_off():
    released = copy.deepcopy(model().network.native)
    for layer in released.encoder.layers:
        layer.self_attn.o_proj = Foreign(layer.self_attn.o_proj)
    bound = copy.copy(model())
    bound.network = NemotronNetwork(released)
    limits = Limits.of(TOKENS, EOS)
    assert greedy_reference(bound, PROMPTS[0], limits) == greedy_reference(model(), PROMPTS[0], limits)
    released._toggle_adapters(True)
    assert judged(bound).verdict == "EXACT"
    released._toggle_adapters(True)
    bound.network._foreign = []  # planted: nobody switches them off
    assert judged(bound).verdict == "FAULT"


def test_the_mask_builder_is_called_by_any_name():
    """A builder of each age of transformers 5, called as code of 5.0 calls it."""
    calls = []

    def oldest(config, input_embeds, attention_mask, cache_position, past_key_values, position_ids=None):
        calls.append((input_embeds, cache_position, past_key_values))

    def middle(config, inputs_embeds, attention_mask, cache_position=None, *, past_key_values, position_ids=None):
        calls.append((inputs_embeds, cache_position, past_key_values))

    def newest(config, inputs_embeds, attention_mask, cache, position_ids=None):
        calls.append((inputs_embeds, 2, cache))

    for builder in (oldest, middle, newest):
        for embeds, cached in (("input_embeds", "past_key_values"), ("inputs_embeds", "cache")):
            options = {embeds: 1, "cache_position": 2, cached: 3}
            network_module._any_keywords(builder)(config=None, attention_mask=None, **options)
    assert calls == [(1, 2, 3)] * 6
    with pytest.raises(TypeError, match="other"):
        network_module._any_keywords(newest)(config=None, attention_mask=None, input_embeds=1, cache=3, other=4)


def test_a_cache_is_cropped_by_the_number_of_rows_to_remove():
    """A positive count was a length in 5.0 and is refused in 5.24; the session crops in every version."""
    session = model("float32").session(padded=True)
    session.logits(CALL)
    size = len(PROMPTS[0])
    assert session.cache.get_seq_length() == size - 1 + 2 * (W + 1)
    session.logits(Call((*PROMPTS[0], 25, 26), (27,), True, (0,), W))
    again = model("float32").session(padded=True)
    again.logits(Call((*PROMPTS[0], 25), (), False, (), 0))
    expected = again.logits(Call((*PROMPTS[0], 25, 26), (27,), True, (0,), W))[1]
    assert session.cache.get_seq_length() == size + 1 + 2 * (W + 1)
    assert torch.allclose(session.logits(Call((*PROMPTS[0], 25, 26), (27,), True, (0,), W))[1], expected, atol=1e-5)


def test_calls_are_counted_in_every_convention():
    from realmodel.efficiency import Protocol, arms, measure

    for start, released in (("sampled", True), ("algorithm", False)):
        protocol = Protocol(arms(["ar", "linear", "packed"], [W], start), Limits.of(8, EOS))
        records = measure(model("float32"), [(str(i), prompt) for i, prompt in enumerate(PROMPTS[:2])], protocol).records
        for counts in conventions(records, start):
            runs = [record for record in records if record.key == (counts.name, counts.width)]
            assert counts.all == sum(record.nfe for record in runs)
            assert counts.decoding == counts.all - 2
            expected = {"linear": counts.all if released else None, "packed": None}.get(counts.name, counts.tokens)
            assert counts.released == expected


# --- the checklist ----------------------------------------------------------------------------------------------------------


def points(folder, dtype="float32"):
    return {item.name: item for item in checklist(str(folder), dtype, trust_remote_code=True)}


def test_the_checklist_passes_on_a_release():
    for dtype in ("float32", "float64"):
        found = points(trained(), dtype)
        missing = {name for name, item in found.items() if item.verdict == "NOT RUN"}
        assert {"shapes", "revision"} <= missing <= {"shapes", "revision", "released Linear-SS"}
        assert {name: str(item) for name, item in found.items() if item.verdict == "FAIL"} == {}
        assert len(found) == 13


BODY, HEAD = "modeling_ministral.py", "modeling_nemotron_labs_diffusion.py"
PLANTED = {
    "the mask is never handed down": (BODY, "if use_causal_mask:", "if use_causal_mask and attention_mask is None:"),
    "the mask is always dropped": (BODY, "if self.diffusion_lm:", "if True:"),
    "the mask becomes causal": (
        BODY,
        "attention_mask=attention_mask,\n                cache_position",
        "attention_mask=None,\n                cache_position",
    ),
    "no keywords of any version": (
        BODY,
        "position_ids=position_ids,\n            )",
        "position_ids=position_ids,\n                rows=4,\n            )",
    ),
    "the cache keeps one row of a call": (
        BODY,
        "past_key_values.update(key, value,",
        "past_key_values.update(key[:, :, -1:], value[:, :, -1:],",
    ),
    "drafting sees no cache": (BODY, "elif past_key_values is not None and", "elif False and"),
    "drafting is causal": (BODY, '{"is_causal": False}', '{"is_causal": True}'),
    "frequencies rounded": (
        BODY,
        'self.register_buffer("inv_freq", inv_freq,',
        'self.register_buffer("inv_freq", inv_freq.bfloat16(),',
    ),
    "thinking cannot be turned off": ("tokenizer_config.json", "enable_thinking", "thinking"),
    "two tokens of BOS": ("tokenizer_config.json", "{{ bos_token }}", "{{ bos_token }} {{ bos_token }}"),
    "another rank": ("linear_spec_lora/adapter_config.json", '"r": 4', '"r": 8'),
    "another mask": ("config.json", '"mask_token_id": 100', '"mask_token_id": 127'),
}
FAILED = {
    "the mask is never handed down": {"4D mask", "who sees whom", "packed = separate"},
    "the mask is always dropped": {"causal calls", "4D mask", "who sees whom", "packed = separate"},
    "the mask becomes causal": {"4D mask", "who sees whom", "packed = separate"},
    "no keywords of any version": {"causal calls", "mask builder", "4D mask", "who sees whom"},
    "the cache keeps one row of a call": {"cache"},
    "drafting sees no cache": {"packed = separate"},
    "drafting is causal": {"packed = separate"},
    "frequencies rounded": {"rotary embedding"},
    "thinking cannot be turned off": {"chat template"},
    "two tokens of BOS": {"chat template"},
    "another rank": {"adapter"},
    "another mask": {"special tokens"},
}


QUICK = {
    "the mask is always dropped",
    "the cache keeps one row of a call",
    "frequencies rounded",
    "thinking cannot be turned off",
}


@pytest.mark.parametrize(
    "fault", [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.slow) for fault in PLANTED]
)
def test_the_checklist_finds(fault, tmp_path):
    folder = edited(write(tmp_path / fault.replace(" ", "_")), *PLANTED[fault])
    if fault == "another mask":
        edited(folder, "tokenizer.json", '"t127": 127', '"t126": 126')
    found = points(folder)
    failed = {name for name, item in found.items() if item.verdict == "FAIL"}
    assert FAILED[fault] <= failed, failed
    assert all(len(str(item)) < 600 and "\n" not in str(item) for item in found.values())
