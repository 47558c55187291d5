"""Every schedule emits the tokens of transformers' own greedy generate."""

from collections import Counter

import pytest

from realmodel.efficiency import GENERATE, Arm, Protocol, measure
from realmodel.reference import greedy_reference
from realmodel.validate import first_difference
from simulator import Limits, ar, branches, generate, linear, packed, quadratic


def _all(width, start="algorithm"):
    return [
        ar("prompt" if start == "prompt" else "algorithm"),
        linear(width, start),
        packed(width, start),
        quadratic(width, start),
        branches([0, 2], width, start),
    ]


def _measured(model, prompts, width, start, length):
    """Every record of every schedule, after comparing it with generate's: equal, or parted by a tie."""
    named = [(str(i), prompt) for i, prompt in enumerate(prompts)]
    compared = [Arm(None), *(Arm(schedule, width) for schedule in _all(width, start))]
    records = measure(model, named, Protocol(tuple(compared), Limits.of(length, model.eos))).records
    expected = {record.prompt: record.tokens for record in records if record.name == GENERATE}
    for record in records:
        if record.tokens != expected[record.prompt]:
            prompt = prompts[int(record.prompt)]
            found = first_difference(model, record.prompt, prompt, expected[record.prompt], record.tokens)
            assert found.tie, (record.name, found)
    return records


@pytest.mark.claim("COR-GREEDY")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("width", "start"), [(4, "algorithm"), (8, "sampled"), (6, "wide"), (3, "prompt")])
def test_schedules_equal_generate(load_model, prompts, dtype, width, start):
    records = _measured(load_model(dtype), prompts[:2], width, start, 32)
    calls, tokens = Counter(), Counter()
    for record in records:
        calls[record.name] += record.nfe
        tokens[record.name] += len(record.tokens)
        assert record.name == GENERATE or 0 < sum(record.model) < record.wall
    assert len(set(tokens.values())) == 1
    assert calls["ar"] == tokens["ar"] + (start == "prompt") * 2
    assert calls["packed"] < calls["ar"]  # drafts are accepted at all


@pytest.mark.claim("STOP")
@pytest.mark.parametrize("width", [4])
def test_stops_inside_blocks(model64, prompts, width):
    """Any token of the continuation declared EOS, and any length: cut there, as generate does."""
    prompt = prompts[0]
    full = greedy_reference(model64, prompt, Limits.of(16))
    for eos in sorted(set(full))[:6]:
        limits = Limits.of(16, [eos, model64.eos])
        expected = greedy_reference(model64, prompt, limits)
        assert expected == full[: full.index(eos) + 1]
        for schedule in _all(width)[1:]:
            run = generate(model64.session(), schedule, prompt, limits)
            assert (run.tokens, run.stop) == (expected, "eos" if eos in expected else "length")
    for length in range(8):
        run = generate(model64.session(), packed(width), prompt, Limits.of(length))
        assert run.tokens == full[:length]
        assert (run.nfe == 0) == (length == 0)


@pytest.mark.slow
@pytest.mark.claim("COR-GREEDY")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("width", [4, 8, 16])
def test_schedules_equal_generate_on_fifty_prompts(load_model, prompts, dtype, width):
    records = _measured(load_model(dtype), prompts[:50], width, "algorithm", 128)
    calls = Counter()
    for record in records:
        calls[record.name] += record.nfe
    assert calls["packed"] < calls["linear"]  # in aggregate; never promised per prompt


@pytest.mark.gpu
@pytest.mark.claim("COR-GREEDY")
def test_schedules_equal_generate_on_a_gpu(prompts):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from realmodel import load

    model = load("embedded", dtype="float32", device="cuda")
    assert len(_measured(model, prompts[:3], 8, "algorithm", 40)) == 3 * 6
