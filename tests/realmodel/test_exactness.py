"""Every schedule emits the tokens of transformers' own greedy generate."""

import pytest

from realmodel.reference import greedy_reference
from realmodel.validate import validate
from simulator import Limits, ar, branches, generate, linear, packed, quadratic


def _all(width, start="algorithm"):
    return [
        ar("prompt" if start == "prompt" else "algorithm"),
        linear(width, start),
        packed(width, start),
        quadratic(width, start),
        branches([0, 2], width, start),
    ]


@pytest.mark.claim("COR-GREEDY")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("width", "start"), [(4, "algorithm"), (8, "sampled"), (6, "wide"), (3, "prompt")])
def test_schedules_equal_generate(load_model, prompts, dtype, width, start):
    model = load_model(dtype)
    named = [(str(i), prompt) for i, prompt in enumerate(prompts[:2])]
    result = validate(model, named, _all(width, start), Limits.of(32, model.eos), width, start)
    for tally in result.schedules:
        assert tally.verdict in ("EXACT", "TIES"), tally.differences
        assert tally.exact + tally.ties == 2
        assert 0 < tally.model < tally.wall
    counts = {tally.name: tally.nfe for tally in result.schedules}
    assert counts["ar"] == result.reference.tokens + (start == "prompt") * 2
    assert counts["packed"] < counts["ar"]  # drafts are accepted at all


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
    model = load_model(dtype)
    named = [(str(i), prompt) for i, prompt in enumerate(prompts[:50])]
    result = validate(model, named, _all(width), Limits.of(128, model.eos), width, "algorithm")
    assert {tally.verdict for tally in result.schedules} <= {"EXACT", "TIES"}
    per_nfe = {tally.name: tally.tokens / tally.nfe for tally in result.schedules}
    assert per_nfe["packed"] > per_nfe["linear"]  # in aggregate; never promised per prompt


@pytest.mark.gpu
@pytest.mark.claim("COR-GREEDY")
def test_schedules_equal_generate_on_a_gpu(prompts):
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    from realmodel import load

    model = load("embedded", dtype="float32", device="cuda")
    named = [(str(i), prompt) for i, prompt in enumerate(prompts[:3])]
    result = validate(model, named, _all(8), Limits.of(40, model.eos), 8, "algorithm")
    assert {tally.verdict for tally in result.schedules} <= {"EXACT", "TIES"}
