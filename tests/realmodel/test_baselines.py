"""transformers' own speculative decoders as rows of a table: the same tokens, calls counted, and refused when they differ."""

import pytest

torch = pytest.importorskip("torch")

from realmodel import baselines as module  # noqa: E402
from realmodel.baselines import Baseline, baselines, first_layers, run_baseline  # noqa: E402
from realmodel.efficiency import Arm, Protocol, arms, measure  # noqa: E402
from realmodel.reference import greedy_reference  # noqa: E402
from realmodel.validate import validate  # noqa: E402
from simulator import InvalidInput  # noqa: E402
from simulator.records import Limits  # noqa: E402

LIMITS = Limits.of(24, 0)


def test_they_emit_what_generate_does_in_fewer_calls(load_model, prompts):
    model = load_model("float32")
    lookup, assisted = baselines(model)
    assert [each.name for each in (lookup, assisted)] == ["prompt lookup", "first 1 layers"]
    calls = {lookup: 0, assisted: 0}
    for prompt in prompts[:3]:
        expected = greedy_reference(model, prompt, LIMITS)
        for each in calls:
            tokens, steps = run_baseline(model, each, 4, prompt, LIMITS)
            assert tokens == expected
            calls[each] += len(steps)
            assert all(1 <= step.rows <= 5 for step in steps)  # the prompt's rows are not counted
    assert calls[lookup] < 3 * 24
    assert run_baseline(model, lookup, 4, prompts[0], Limits.of(0)) == ((), ())


def test_a_whole_copy_as_assistant_is_always_right(load_model, prompts):
    model = load_model("float64")
    layers = model.network.config.num_hidden_layers
    tokens, steps = run_baseline(model, Baseline(layers), 4, prompts[0], Limits.of(20))
    assert tokens == greedy_reference(model, prompts[0], Limits.of(20))
    assert len(steps) == 4  # 5 tokens a call
    assert model.network.config.num_hidden_layers == layers


def test_first_layers_share_the_weights_and_leave_the_network_alone(load_model, prompts):
    network = load_model("float32").network
    layers, inputs = network.config.num_hidden_layers, torch.tensor([prompts[0]])
    with torch.inference_mode():
        before = network(inputs).logits
        cut = first_layers(network, 2)
        assert len(cut.model.layers) == cut.config.num_hidden_layers == 2
        assert cut.lm_head.weight is network.lm_head.weight
        assert cut.model.layers[1].mlp.up_proj.weight is network.model.layers[1].mlp.up_proj.weight
        hidden = network(inputs, output_hidden_states=True).hidden_states[2]
        torch.testing.assert_close(cut(inputs).logits, network.lm_head(network.model.norm(hidden)))
        assert len(network.model.layers) == network.config.num_hidden_layers == layers
        assert torch.equal(network(inputs).logits, before)
    for count in (0, layers + 1):
        with pytest.raises(InvalidInput, match=f"1 .. {layers} layers"):
            first_layers(network, count)


def test_records_count_their_calls(load_model, prompts):
    model = load_model("float32")
    protocol = Protocol((Arm(None), *(Arm(None, 4, each) for each in baselines(model))), LIMITS)
    generate, lookup, assisted = measure(model, [("a", prompts[0])], protocol).records
    assert generate.tokens == lookup.tokens == assisted.tokens
    assert generate.nfe == len(generate.tokens)
    assert lookup.key == ("prompt lookup", 4)
    assert lookup.nfe == len(lookup.steps) < generate.nfe < lookup.rows == sum(step.rows for step in lookup.steps)


@pytest.mark.parametrize("wrong", [False, True])
def test_one_that_emits_other_tokens_gets_no_figures(load_model, prompts, monkeypatch, wrong):
    model = load_model("float32")
    if wrong:
        right = module.run_baseline

        def spoiled(*arguments):
            tokens, steps = right(*arguments)
            return (*tokens[:-1], tokens[-1] ^ 1), steps

        monkeypatch.setattr("realmodel.efficiency.run_baseline", spoiled)
    protocol = Protocol(arms(["ar"], [4], baselines=[Baseline(0)]), Limits.of(12))
    result = validate(model, load_model("float64"), [("a", prompts[0]), ("b", prompts[1])], protocol, certified=1)
    row = result.summary.row(("prompt lookup", 4))
    assert row.verdict.words == ("DIFFERS" if wrong else "equal")
    assert row.refused is wrong
    assert result.equal(row.key) == (0 if wrong else 2)
    assert ("ar", 0) in [comparison.baseline for comparison in row.comparisons] or wrong


def test_they_are_greedy():
    with pytest.raises(InvalidInput, match="prompt lookup runs at temperature 0 only"):
        Protocol((Arm(None), Arm(None, 4, Baseline(0))), LIMITS, temperature=1.0)
