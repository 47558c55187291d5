"""The shipped any-order model: every schedule and order against the serial reference, in genuine float64."""

import pytest

torch = pytest.importorskip("torch")

from realmodel import held_out_prompts, load_any_order  # noqa: E402
from realmodel.any_order.reference import serial_greedy  # noqa: E402
from simulator import Limits, generate  # noqa: E402
from simulator.any_order import named  # noqa: E402

SCHEDULES = ("packed", "linear", "quadratic")


@pytest.fixture(scope="module")
def shipped():
    model = load_any_order(dtype="float64")
    return model, [tuple(model.tokenizer.encode(item.text).ids) for item in held_out_prompts(3)]


def check(model, prompt, width, order, tokens):
    outputs = set()
    for name in SCHEDULES:
        run = generate(model.session(), named(name, width, order), prompt, Limits.of(tokens, model.eos))
        groups = [step.order[: step.advance] for step in run.steps]
        pairs = serial_greedy(model.network, prompt, groups, model.mask_token, model.eos)
        assert tuple(token for _, token in sorted(pairs)) == run.tokens, (name, width, order)
        outputs.add(run.tokens)
    assert order != "ltr" or len(outputs) == 1


@pytest.mark.claim("PROPC1")
@pytest.mark.parametrize("order", ["ltr", "confidence"])
def test_tokens_are_the_serial_reference_s(shipped, order):
    check(shipped[0], shipped[1][0][-24:], 8, order, 16)


@pytest.mark.slow
@pytest.mark.claim("PROPC1")
@pytest.mark.parametrize("order", ["ltr", "rtl", "confidence", "random:1"])
@pytest.mark.parametrize("width", [8, 16])
def test_every_order_at_both_widths(shipped, order, width):
    for prompt in shipped[1]:
        check(shipped[0], prompt, width, order, 48)
