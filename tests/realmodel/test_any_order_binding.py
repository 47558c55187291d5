"""The packed any-order binding against passes that know no packing and no cache, in genuine float64 (LAYD2, PROPC1, TAB2)."""

import random
from functools import cache

import pytest

torch = pytest.importorskip("torch")

from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from realmodel.any_order.layout import fixed_attention, rows_of, shape_of  # noqa: E402
from realmodel.any_order.loading import load_any_order  # noqa: E402
from realmodel.any_order.reference import row_logits, serial_greedy, training_logits  # noqa: E402
from realmodel.any_order.session import AnyOrderModel  # noqa: E402
from realmodel.faults.any_order import KeepsStaleRows  # noqa: E402
from realmodel.layout import behind  # noqa: E402
from realmodel.precision import to_float64  # noqa: E402
from simulator import InvalidInput, Limits, generate  # noqa: E402
from simulator.any_order import Call, named  # noqa: E402
from simulator.chance import Sampled  # noqa: E402
from spec import any_order as spec  # noqa: E402

MASK, TOLERANCE = 1, 1e-10
PROMPT = (7, 3, 11, 5)
SCHEDULES = ("packed", "linear", "quadratic")


@cache
def random_model(seed=0, layers=2):
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=19, hidden_size=24, intermediate_size=32, num_hidden_layers=layers, num_attention_heads=2,
        num_key_value_heads=1, head_dim=12, max_position_embeddings=128, initializer_range=1.0, eos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, tie_word_embeddings=False,
    )  # fmt: skip
    return AnyOrderModel(to_float64(Qwen3ForCausalLM(config)).eval(), None, MASK, "random")


@pytest.fixture(scope="module")
def tiny():
    return random_model()


def random_call(dice, verify=True, branches=(0,), unread=1, gap=False):
    """A window with holes behind accepted pairs in a random order; some tokens draft nothing when `gap`."""
    positions = dice.sample(range(1, 13), 11)
    accepted = tuple((j, dice.randrange(2, 19)) for j in positions[:5])
    order = tuple(positions[5:])
    draft = tuple((j, dice.randrange(2, 19)) for r, j in enumerate(order) if not (gap and r in (3, 5)))
    return Call(PROMPT, accepted, order, draft, verify, branches, unread)


def warm(model, call, padded, session=None):
    """A session that has read all that the call has not been the first to be given."""
    session = session or model.session(padded=padded)
    before = call.accepted[: len(call.accepted) - call.unread]
    session.logits(Call(call.prompt, before, (), (), False, (), 0))
    return session


@pytest.mark.claim("LAYD2")
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("gap", [True, False])
def test_every_row_is_that_of_the_training_pass(tiny, padded, gap):
    """M rows against the one duplicate-mask pass over [prompt | accepted | draft], R rows of every branch against a pass of
    their own."""
    for seed in range(4):
        call = random_call(random.Random(seed), branches=(0, 1, 2, 6), gap=gap)
        rows, logits = warm(tiny, call, padded).logits(call)
        logits = logits.clone()
        logits[:, MASK] = -torch.inf
        drafts, before = call.draft[: call.kappa], len(call.accepted)
        wanted = [*training_logits(tiny.network, PROMPT, call.accepted + drafts, MASK)[before:]]
        if call.kappa < len(call.order):
            wanted.append(row_logits(tiny.network, PROMPT, call.accepted + drafts, call.order[call.kappa], MASK))
        for b in call.branches:
            if b <= call.kappa:
                pairs = call.accepted + call.draft[:b]
                wanted += [row_logits(tiny.network, PROMPT, pairs, j, MASK) for j in call.order[b:]]
        assert len(logits) == len(wanted)
        kept = [column for column in range(tiny.vocabulary) if column != MASK]
        assert (logits - torch.stack(wanted))[:, kept].abs().max() < TOLERANCE
        assert len(rows.tokens) == call.padded_rows or not padded
        # The free self-check: a verifier row without a draft before it is a proposal row of branch 0.
        assert (logits[0] - logits[len(rows.verifier)])[kept].abs().max() < TOLERANCE


@pytest.mark.claim("LAYD2")
def test_packed_is_separate_calls(tiny):
    for seed in range(4):
        call = random_call(random.Random(seed), branches=(0, 2))
        _, packed = warm(tiny, call, True).logits(call)
        _, verified = warm(tiny, call, True).logits(call._replace(branches=()))
        _, drafted = warm(tiny, call, True).logits(call._replace(verify=False, branches=(0,)))
        _, branch = tiny.session(padded=True).logits(
            call._replace(accepted=call.accepted + call.draft[:2], order=call.order[2:], draft=(), verify=False, branches=(0,))
        )
        separate = torch.cat([verified, drafted, branch])
        assert (packed - separate).abs().max() < TOLERANCE


@pytest.mark.parametrize("padded", [True, False])
def test_goes_on_after_a_crop_of_any_number_of_drafts(tiny, padded):
    """A call that accepts k drafts and a correction: the next one, on the cropped cache, equals one from an empty cache."""
    call = random_call(random.Random(5))
    for k in range(len(call.order) + 1):
        session = warm(tiny, call, padded)
        session.logits(call)
        correction = tuple((j, (token + 1) % 17 + 2) for j, token in call.draft[k : k + 1])
        left = call.order[k + 1 :] or (13, 14)
        after = Call(PROMPT, call.accepted + call.draft[:k] + correction, left, ((left[0], 4),), True, (0,), len(correction))
        rows, logits = session.logits(after)
        assert (rows.catch_up, rows.again) == (0, 0)
        fresh_rows, fresh = tiny.session(padded=padded).logits(after)
        assert (logits - fresh).abs().max() < TOLERANCE
        assert fresh_rows.catch_up == len(PROMPT) + len(after.accepted) - after.unread
        assert session.cached == tiny_ledger(after)
        assert session.cache.get_seq_length() == len(session.cached) + session.stale


def tiny_ledger(call):
    pairs = [*call.accepted, *call.draft[: call.kappa]]
    return (*enumerate(call.prompt), *((len(call.prompt) - 1 + j, token) for j, token in pairs))


@pytest.mark.parametrize("padded", [True, False])
def test_who_sees_whom_both_ways(padded):
    """Huge keys and values planted on one row: rows that may not see it stay bitwise the same, every other row moves."""
    model = random_model(layers=1)
    call = random_call(random.Random(2), branches=(0, 2), gap=padded)
    cached = len(PROMPT) + 4
    rows = rows_of(call, cached, MASK, padded)
    sees = behind(fixed_attention(shape_of(call, padded)), cached, 0)
    plain = every_row(model, call, padded, None)
    seen = unseen = 0
    for planted in range(len(rows.tokens)):
        moved = every_row(model, call, padded, planted)
        for row in range(len(rows.tokens)):
            if row == planted:
                continue
            if sees[row, cached + planted]:
                assert (moved[row] != plain[row]).any(), (row, planted)
                seen += 1
            else:
                assert torch.equal(moved[row], plain[row]), (row, planted)
                unseen += 1
    assert seen > 20
    assert unseen > 100


def every_row(model, call, padded, planted):
    """Logits of all rows of the call, one of which may have been given huge keys and values."""
    session = warm(model, call, padded)
    attention, network = model.network.model.layers[0].self_attn, model.network
    answers, full = [], network.forward

    def plant(module, inputs, output):
        output = output.clone()
        output[0, planted] = 1e12
        return output

    def forward(**options):
        options["logits_to_keep"] = 0
        answers.append(full(**options))
        return answers[-1]

    hooks = [] if planted is None else [m.register_forward_hook(plant) for m in (attention.k_norm, attention.v_proj)]
    network.forward = forward
    try:
        session.logits(call)
    finally:
        del network.forward
        for hook in hooks:
            hook.remove()
    return answers[0].logits[0]


@pytest.mark.claim("PROPC1")
@pytest.mark.parametrize("order", ["ltr", "rtl", "confidence", "random:3"])
@pytest.mark.parametrize("width", [8, 16])
def test_tokens_are_those_of_the_serial_reference_under_the_same_orders(tiny, order, width):
    accepted = 0
    for name in SCHEDULES:
        for padded in (True, False):
            limits = Limits.of(40, 4)
            run = generate(tiny.session(padded=padded), named(name, width, order), PROMPT, limits)
            groups = [step.order[: step.advance] for step in run.steps]
            pairs = serial_greedy(tiny.network, PROMPT, groups, MASK, 4)
            assert tuple(token for _, token in sorted(pairs)) == run.tokens, (name, padded)
            accepted += sum(step.accepted for step in run.steps)
    assert accepted


def test_ltr_outputs_do_not_depend_on_the_schedule(tiny):
    limits = Limits.of(30)
    outputs = {generate(tiny.session(), named(name, 8, "ltr"), PROMPT, limits).tokens for name in ("serial", *SCHEDULES)}
    assert len(outputs) == 1


@pytest.mark.parametrize("name", ["packed", "linear", "quadratic", "native", "serial"])
@pytest.mark.parametrize("start", ["algorithm", "prompt"])
def test_rows_are_those_of_table_2_in_every_call(tiny, name, start):
    """Padded: Reply.rows is Call.padded_rows, with the prompt, and what is encoded again, apart."""

    def answer(call):
        fed.clear()
        reply = session(call)
        assert reply.rows == call.padded_rows
        assert fed[0] == reply.rows + reply.again + (len(PROMPT) if first else 0)
        first.clear()
        return reply

    fed, first = [], [True]
    session, forward = tiny.session(padded=True), tiny.network.forward
    tiny.network.forward = lambda **options: fed.append(options["input_ids"].shape[1]) or forward(**options)
    try:
        run = generate(answer, named(name, 5, "confidence", start), PROMPT, Limits.of(30, 4))
    finally:
        del tiny.network.forward
    assert run.steps[0].rows == (0 if start == "prompt" else run.steps[0].rows)


# --- when E shrinks ---------------------------------------------------------------------------------------------------------


SHRINKING = ((0, 9), (8, 11), (10, 5))  # seed of the weights and EOS: it removes pairs that others, which stay, have seen


def spec_run(model, name, limits, width, order):
    @cache
    def answer(pairs, j):
        law = torch.softmax(row_logits(model.network, PROMPT, pairs, j, MASK), -1)
        return int(law.argmax()), float(law.max())

    orders = {"rtl": lambda active, state: active[::-1], "confidence": spec.confidence}
    given = spec.Given(PROMPT, width, limits.max_new_tokens, answer, answer, limits.eos, order=orders[order])
    return spec.run(name, given)


@pytest.mark.claim("LAYD2")
@pytest.mark.parametrize("name", SCHEDULES)
def test_what_saw_a_removed_pair_is_encoded_again(name):
    """Where E shrinks, tokens and calls are the spec's and the serial reference's; the rows that had to be read again are
    counted apart."""
    again = 0
    for seed, eos in SHRINKING:
        model, limits = random_model(seed), Limits.of(24, eos)
        run = generate(model.session(padded=True), named(name, 10, "rtl"), PROMPT, limits)
        wanted = spec_run(model, name, limits, 10, "rtl")
        assert run.tokens == wanted.P[len(PROMPT) :]
        assert run.nfe == len(wanted.records)
        again += sum(step.again for step in run.steps)
    assert again > 0


@pytest.mark.parametrize("name", SCHEDULES)
def test_keeping_stale_rows_differs_from_the_spec(name):
    """F41 on the same requests: the rows of pairs that saw what was removed change tokens."""
    different = 0
    for seed, eos in SHRINKING:
        model, limits = random_model(seed), Limits.of(24, eos)
        run = generate(KeepsStaleRows(model, 0.0, True), named(name, 10, "rtl"), PROMPT, limits)
        different += run.tokens != spec_run(model, name, limits, 10, "rtl").P[len(PROMPT) :]
    assert different > 0


@pytest.mark.claim("EQ8")
@pytest.mark.parametrize("name", [*SCHEDULES, "native"])
@pytest.mark.parametrize("order", ["rtl", "confidence"])
def test_calls_orders_and_tokens_are_the_spec_s(name, order):
    """Where the specification reads the model by forwards of single rows; with ends in the middle of windows."""
    removed = 0
    for seed, eos in (*SHRINKING, (2, None)):
        model, limits = random_model(seed), Limits.of(14, eos)
        run = generate(model.session(), named(name, 5, order), PROMPT, limits)
        wanted = spec_run(model, name, limits, 5, order)
        assert run.tokens == wanted.P[len(PROMPT) :]
        assert len(run.steps) == len(wanted.records)
        for step, record in zip(run.steps, wanted.records, strict=True):
            assert step.advance == len(record.C)
            assert step.accepted == record.h
            assert step.order == record.pi or name == "native"
        removed += sum(len(step.committed) < step.advance for step in run.steps)
    assert removed > 0 or order == "confidence"


# --- laws -------------------------------------------------------------------------------------------------------------------


def test_the_mask_has_no_probability_anywhere(tiny):
    call = random_call(random.Random(1), branches=(0, 1))
    reply = tiny.session(0.8)(call)
    _, logits = tiny.session().logits(call)
    laws = [*reply.target, *(law for block in reply.proposals for law in block)]
    kept = [column for column in range(tiny.vocabulary) if column != MASK]
    expected = torch.softmax(logits[:, kept] / 0.8, -1)
    for law, row in zip(laws, expected, strict=True):
        assert law.probability(MASK) == 0
        assert (law.probabilities[kept] - row).abs().max() < 1e-12
    peaks = tiny.session()(call)
    wanted = torch.softmax(logits[:, kept], -1).max(-1).values
    found = [law.confidence for law in (*peaks.target, *(law for block in peaks.proposals for law in block))]
    assert found == pytest.approx(wanted.tolist(), abs=1e-12)


def test_sampling_draws_with_stored_laws(tiny):
    runs = [
        generate(tiny.session(1.0, padded), named("packed", 6, "random:2"), PROMPT, Limits.of(20), Sampled(3, 0))
        for padded in (True, False)
    ]
    assert runs[0].tokens == runs[1].tokens
    assert len(runs[0].tokens) == 20


def test_what_cannot_run_is_said(tiny):
    with pytest.raises(InvalidInput, match="prompt of at least 1 token"):
        tiny.session()(Call((), (), (1,), (), True, (0,), 0))
    with pytest.raises(InvalidInput, match="branch 0 only"):
        tiny.session()(Call(PROMPT, (), (1, 2), (), False, (1,), 0))
    with pytest.raises(InvalidInput, match="outside the vocabulary"):
        tiny.session()(Call(PROMPT, ((1, 99),), (2,), (), True, (), 0))
    with pytest.raises(InvalidInput, match="129 positions"):
        tiny.check_prompt(PROMPT, 125, 16)
    tiny.check_prompt(PROMPT, 124, 16)
    with pytest.raises(InvalidInput, match="unknown any-order model"):
        load_any_order("nowhere")


def test_the_host_reads_from_the_device_once_a_greedy_call(tiny, monkeypatch):
    """Counted where a tensor becomes Python's: on a GPU each of them waits."""
    reads = []
    for name in ("tolist", "item", "__bool__", "__float__", "__int__", "numpy"):
        own = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda *a, own=own, name=name: reads.append(name) or own(*a))
    session, calls = tiny.session(padded=True), []

    def answer(call):
        before = len(reads)
        reply = session(call)
        calls.append(reads[before:])
        return reply

    generate(answer, named("quadratic", 5, "confidence"), PROMPT, Limits.of(20))
    assert set(map(tuple, calls)) == {("tolist",)}


def test_requests_do_not_leak(tiny):
    limits, schedule = Limits.of(16), named("packed", 5, "confidence")
    other = (3, 9, 9)
    first = generate(tiny.session(), schedule, PROMPT, limits).tokens
    second = generate(tiny.session(), schedule, other, limits).tokens
    session = tiny.session()
    assert generate(session, schedule, other, limits).tokens == second
    assert generate(session, schedule, PROMPT, limits).tokens == first
