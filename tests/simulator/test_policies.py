"""Widths that change between calls, resumption, stop sequences and the starts `wide` and `prompt`."""

from fractions import Fraction
from itertools import product

import pytest

from simulator import (
    InvalidInput,
    Limits,
    RationalLaw,
    Resumption,
    Sampled,
    ar,
    autoregressive_law,
    branches,
    decode,
    exact_law,
    generate,
    linear,
    packed,
    quadratic,
)
from simulator.oracles import ThresholdModel, random_tables
from simulator.records import Draft

WIDTHS = [(2, 0, 3), (0, 2), (3, 1)]


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("make", [linear, packed, quadratic, lambda w: branches([0, 1], w)])
def test_widths_that_change_between_calls_keep_the_law(make, widths):
    """C07: any draft length chosen before the draft is drawn, 0 included."""
    for seed, eos in product((0, 1), (None, 2)):
        tables, limits = random_tables(3, seed), Limits.of(4, eos)
        asked = set()
        law = exact_law(make(widths), tables, (), limits, observe=lambda step, asked=asked: asked.add(len(step.verified)))
        assert law.output == autoregressive_law(tables.target, (), limits)
        assert len(asked) > 1


def test_width_follows_the_cycle():
    steps = generate(ThresholdModel([0] * 40), packed((4, 0, 2)), (), Limits.of(12)).steps
    # Full acceptance: 1 token keeps 3 of 4; 4 tokens, W = 0 keeps none; 1 token, W = 2 keeps 1; 2 tokens, W = 4 keeps 2; ...
    assert [len(step.committed) for step in steps] == [1, 4, 1, 2, 3, 1]
    assert [step.retained for step in steps] == [3, 0, 1, 2, 0, 0]


@pytest.mark.parametrize("widths", [(), (0, 0), (2, -1)])
def test_bad_widths(widths):
    with pytest.raises(InvalidInput, match="widths"):
        packed(widths)


@pytest.mark.claim("THM3.3")
@pytest.mark.parametrize("make", [linear, packed, quadratic])
def test_a_resumed_request_is_the_same_request(make):
    """From any call on, resuming with the verified prefix, the draft and the call number gives the same steps."""
    tables, limits, coins, schedule = random_tables(3, 4), Limits.of(9), Sampled(5), make(3)
    state = schedule.init((1,), limits)
    whole = list(decode(tables, schedule, (1,), limits, coins))
    for calls in range(len(whole)):
        verify_next = schedule.request(state).verify
        if state.draft.tokens or not verify_next or make is not linear:  # Linear resumes where its draft or its cycle says
            again = schedule.resume((1,), state.prefix[1:], limits, state.draft)
            assert schedule.request(again) == schedule.request(state)
            rest = generate(tables, schedule, (), Limits.of(0), coins, Resumption(again, calls))
            assert list(rest.steps) == whole[calls:]
        call = schedule.request(state)
        state, _ = schedule.absorb(state, call, tables(call), coins.at(calls + 1))
    done = generate(tables, schedule, (1,), limits, coins, Resumption(state, len(whole)))
    assert (done.nfe, done.stop) == (0, "length")


def test_resuming_refuses_what_no_run_can_have_left():
    law = RationalLaw.weighted((1, 0))
    with pytest.raises(InvalidInput, match="token 1 cannot have been drawn"):
        packed(3).resume((), (0,), Limits.of(4), Draft((1,), (law,)))
    with pytest.raises(InvalidInput, match="after its token 1, where 'eos'"):
        packed(3).resume((), (2, 0), Limits.of(4, 2))


def test_resuming_needs_the_stored_laws():
    with pytest.raises(InvalidInput, match="one stored law per token"):
        packed(3).resume((), (), Limits.of(3), Draft((1, 2), ()))


@pytest.mark.claim("STOPSEQ")
@pytest.mark.parametrize("make", [lambda: ar(), lambda: linear(3), lambda: packed(3), lambda: quadratic(3)])
def test_stop_sequences_keep_the_law(make):
    """Markers that overlap blocks, share tokens and compete with EOS: the law is AR's under the same stopping rule."""
    for seed in range(3):
        tables = random_tables(3, seed)
        for limits in (Limits.of(5, stop=[(0, 1)]), Limits.of(5, eos=2, stop=[(0, 0), (1, 0, 1)])):
            law = exact_law(make(), tables, (0,), limits)
            assert law.output == autoregressive_law(tables.target, (0,), limits)
            stopped = {output for output in law.output if any(output[-len(marker) :] == marker for marker in limits.stop)}
            assert stopped


@pytest.mark.claim("STOPSEQ")
@pytest.mark.parametrize("first", range(8))
def test_a_marker_at_every_place_of_a_block(first):
    """The output ends with the marker's last token wherever a block begins or ends, and a prompt never completes it."""
    truth = [0] * 12
    truth[first : first + 2] = [1, 2]
    for make in (linear, packed, quadratic):
        model = ThresholdModel([0] * 12, truth, vocabulary=3)
        run = generate(model, make(4), (), Limits.of(12, stop=[(1, 2)]))
        assert (len(run.tokens), run.stop) == (first + 2, "stop")
    behind_prompt = ThresholdModel([0] * 12, [2, *[0] * 11], vocabulary=3, prompt_length=1)
    assert generate(behind_prompt, packed(4), (1,), Limits.of(5, stop=[(1, 2)])).stop == "length"


def test_which_stop_wins():
    """On one token EOS comes before a marker, a marker before the length; the earliest-ending marker ends the output."""
    model = ThresholdModel([0] * 6, [0, 1, 2, 1, 2, 0], vocabulary=3)
    assert generate(model, packed(4), (), Limits.of(3, eos=2, stop=[(1, 2)])).stop == "eos"
    assert generate(model, packed(4), (), Limits.of(3, stop=[(1, 2)])).stop == "stop"
    run = generate(model, packed(4), (), Limits.of(6, stop=[(0, 1, 2, 1), (2, 1, 2), (1, 2)]))
    assert run.tokens == (0, 1, 2)
    with pytest.raises(InvalidInput, match="at least 1 token"):
        Limits.of(3, stop=[()])


@pytest.mark.claim("INIT")
def test_calls_of_each_start():
    """A drafter that is always right, W = 4, L = 10: calls and commits by hand."""
    model = ThresholdModel([0] * 10)

    def commits(schedule):
        return [len(step.committed) for step in generate(model, schedule, (), Limits.of(10)).steps]

    assert commits(packed(4)) == [1, 4, 1, 4]
    assert commits(packed(4, "wide")) == [1, 5, 1, 3]  # five masks: four kept; then the packed alternation
    assert commits(packed(4, "sampled")) == [1, 0, 5, 1, 3]
    assert commits(packed(4, "prompt")) == [0, 1, 4, 1, 4]
    assert commits(linear(4)) == [0, 5, 0, 5]
    assert commits(linear(4, "wide")) == commits(linear(4, "sampled")) == [1, 0, 5, 0, 4]
    assert commits(linear(4, "prompt")) == [0, 0, 5, 0, 5]
    assert commits(quadratic(4, "wide")) == [1, 5, 4]
    assert commits(ar("prompt")) == [0, *[1] * 10]
    with pytest.raises(InvalidInput, match="only the starts algorithm and prompt"):
        ar("wide")


@pytest.mark.claim("INIT")
def test_rows_of_the_first_calls():
    """A first call of masks evaluates prefix[-1] and B = W + 1 masks; a call that only processes the prompt none."""
    model = ThresholdModel([0] * 10)
    rows = [step.rows for step in generate(model, packed(4, "wide"), (), Limits.of(10)).steps]
    assert rows[:2] == [6, 10]
    assert generate(model, packed(4, "prompt"), (), Limits.of(10)).steps[0].rows == 0


def test_probabilities_of_a_stop_are_fractions():
    law = exact_law(packed(2), random_tables(3, 0), (), Limits.of(3, stop=[(0, 1)]))
    assert all(isinstance(weight, Fraction) for weight in law.output.values())
