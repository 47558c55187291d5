"""From records to figures, on records made up by hand, and on the embedded model against a second count."""

import json

import pytest

from realmodel.adapter import with_random_adapter
from realmodel.decomposition import adapter_rows, chosen_widths, iteration_calls, per_iteration, timing_decomposition
from realmodel.efficiency import GENERATE, Protocol, Record, arms, measure_prompt
from realmodel.figures import Summary, Verdict, acceptance, summarise
from simulator import InvalidInput, Limits, generate, linear, packed, quadratic
from simulator.records import Step

EXACT = Verdict(True, "EXACT")


def step(verified=(), accepted=0, rows=1, predictions=(0,)):
    return Step(verified, predictions, accepted, accepted + 1, (0,) * (accepted + 1), None, 0, 0, None, rows, False)


def record(prompt, key, tokens, nfe, wall, repeat=0, model=0.0, steps=None, contended=False):
    """Each call takes the same share of `model` seconds."""
    steps = tuple(steps or (step() for _ in range(nfe)))
    return Record(prompt, repeat, *key, 0, (0,) * tokens, "length", steps, wall, (model / nfe,) * nfe, 1 << 20, contended)


LINEAR, PACKED = ("linear", 4), ("packed", 4)


def two_prompts(repeats=1, **of_packed):
    """Linear: 12 tokens, 6 calls, 3 s and 20 tokens, 8 calls, 8 s. Packed: 12, 4, 3 s and 20, 5, 5 s."""
    rows = []
    for repeat in range(repeats):
        rows += [record("a", LINEAR, 12, 6, 3.0, repeat), record("b", LINEAR, 20, 8, 8.0, repeat)]
        rows += [record("a", PACKED, 12, 4, 3.0, repeat, **of_packed), record("b", PACKED, 20, 5, 5.0, repeat, **of_packed)]
    return rows


def test_aggregates_by_hand():
    """Quotients of sums, not means of quotients: 32 tokens in 11 s are 2.909 a second, the mean of 4 and 2.5 would be 3.25.
    With two prompts the percentiles are the two where one prompt is drawn twice (probability 1/4 each)."""
    summary = summarise(two_prompts(), {LINEAR: EXACT, PACKED: EXACT})
    assert (summary.prompts, summary.repeats, summary.contended, summary.resamples) == (2, 1, False, 20_000)
    figures = summary.row(LINEAR).figures
    assert (figures.tokens, figures.nfe, figures.wall) == (32, 14, 11)
    assert figures.throughput == pytest.approx((32 / 11, 2.5, 4))
    assert figures.tokens_per_nfe == pytest.approx((32 / 14, 2, 2.5))
    assert figures.time_per_nfe == pytest.approx((11 / 14, 0.5, 1))
    [comparison] = summary.row(PACKED).comparisons
    assert comparison.baseline == LINEAR
    assert comparison.tokens_per_nfe == pytest.approx(((32 / 9) / (32 / 14), 1.5, 1.6))
    assert comparison.time_per_nfe == pytest.approx(((8 / 9) / (11 / 14), 1, 1.5))
    assert comparison.throughput == pytest.approx((11 / 8, 1, 1.6))
    assert comparison.nfe == pytest.approx((9 / 14, 5 / 8, 4 / 6))
    assert comparison.wall == pytest.approx((8 / 11, 5 / 8, 1))
    assert comparison.wall_difference == pytest.approx((-1.5, -3, 0))
    assert summary.row(LINEAR).comparisons == ()


def test_all_repeats_of_a_prompt_go_together():
    """The same answers three times are no more evidence than once."""
    verdicts = {LINEAR: EXACT, PACKED: EXACT}
    once, thrice = summarise(two_prompts(), verdicts), summarise(two_prompts(3), verdicts)
    assert thrice.repeats == 3
    assert thrice.row(PACKED).figures.responses == 6
    assert thrice.row(PACKED).figures.throughput == pytest.approx(once.row(PACKED).figures.throughput)
    for name, mine in once.row(PACKED).comparisons[0]._asdict().items():
        assert getattr(thrice.row(PACKED).comparisons[0], name) == pytest.approx(mine) if name != "baseline" else True


def test_who_is_not_certified_is_refused():
    """The faulty one is the fastest; it gets no number, and nobody is compared with it."""
    fault = Verdict(False, "FAULT at output token 7")
    summary = summarise(two_prompts(), {LINEAR: fault, PACKED: EXACT})
    refused, shown = summary.row(LINEAR), summary.row(PACKED)
    assert (refused.refused, refused.figures, refused.comparisons, refused.verdict) == (True, None, (), fault)
    assert not shown.refused
    assert shown.comparisons == ()
    text = json.dumps(summary.plain(), allow_nan=False)
    assert json.loads(text)["rows"][0] == {
        "name": "linear", "width": 4, "verdict": fault._asdict(), "figures": None, "comparisons": [], "refused": True,
    }  # fmt: skip
    unknown = summarise(two_prompts(), {LINEAR: EXACT}).row(PACKED)
    assert (unknown.refused, unknown.verdict.words) == (True, "not certified")
    nothing = [record(prompt, LINEAR, 0, 1, 1.0) for prompt in "ab"]
    assert summarise(nothing, {LINEAR: EXACT}).row(LINEAR).refused  # no token, no speed


def test_the_reference_needs_no_verdict_and_tells_no_model_time():
    generate = [record("a", (GENERATE, 0), 12, 1, 6.0)._replace(model=(), steps=())]
    summary = summarise([*generate, record("a", PACKED, 12, 4, 3.0)], {PACKED: EXACT})
    figures = summary.row((GENERATE, 0)).figures
    assert (figures.nfe, figures.rows, figures.model, figures.non_model) == (12, 12, None, None)
    assert summary.row(PACKED).comparisons[0].throughput == (2, None, None)  # one prompt: no interval
    with pytest.raises(KeyError):
        summary.row(LINEAR)


def test_baselines():
    """Linear of the same width, or the only one there is (B = 32 against Quadratic's B = 8), then AR, then generate."""
    keys = [("quadratic", 7), ("linear", 31), ("ar", 0), ("packed", 31)]

    def baselines(keys):  # fmt: skip
        summary = summarise([record("a", key, 4, 2, 1.0) for key in keys], dict.fromkeys(keys, EXACT))
        return {row.key: [c.baseline for c in row.comparisons] for row in summary.rows}

    assert baselines(keys) == {
        ("ar", 0): [("linear", 31)],
        ("quadratic", 7): [("linear", 31), ("ar", 0)],
        ("linear", 31): [("ar", 0)],
        ("packed", 31): [("linear", 31), ("ar", 0)],
    }
    assert baselines([*keys, ("linear", 7)])["quadratic", 7] == [("linear", 7), ("ar", 0)]
    assert list(baselines([*keys, ("linear", 7)])) == [
        ("ar", 0), ("linear", 7), ("quadratic", 7), ("linear", 31), ("packed", 31)
    ]  # fmt: skip


def test_what_cannot_be_paired():
    with pytest.raises(InvalidInput, match="packed at W = 4 was not run on every prompt 1 times"):
        summarise(two_prompts()[:-1], {})
    with pytest.raises(InvalidInput, match="no records"):
        summarise([], {})


def test_contended_times_are_called_so():
    assert summarise(two_prompts(contended=True), {}).contended


def test_acceptance_by_hand():
    """Of drafts 3, 3, 2 and 0 long, 1, 3, 0 and 0 tokens are accepted; a drafting call verifies nothing."""
    steps = [step((7, 7, 7), 1), step((7, 7, 7), 3), step(predictions=()), step((7, 7), 0), step()]
    assert acceptance(steps) == ((3, 2, 1), (2, 1, 1), (2, 1, 0, 1))
    summary = summarise([record("a", PACKED, 9, 5, 1.0, steps=steps)], {PACKED: EXACT})
    assert summary.row(PACKED).figures.acceptance == pytest.approx([2 / 3, 1 / 2, 1])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_acceptance_on_the_model(load_model, prompts, temperature):
    """Every draft token was either accepted, or the one that failed, or behind it; accepted tokens and one more per call are
    what was emitted, but for what the end cut off."""
    model = load_model("float32")
    protocol = Protocol(arms(["linear", "packed"], [4], reference=False), Limits.of(20), temperature=temperature)
    for run in measure_prompt(model, protocol, ("p", prompts[0][:60])):
        tested, accepted, lengths = acceptance(run.steps)
        assert len(tested) == len(accepted) == len(lengths) - 1 <= 4
        assert list(tested) == sorted(tested, reverse=True)
        assert sum(accepted) == sum(h * count for h, count in enumerate(lengths)) > 0
        assert list(accepted) == [sum(lengths[position:]) for position in range(1, len(lengths))]
        rejected = sum(step.accepted < len(step.verified) for step in run.steps)
        assert sum(tested) == sum(accepted) + rejected
        cut = sum(step.advance - len(step.committed) for step in run.steps)
        assert len(run.tokens) == sum(accepted) + sum(lengths) - cut


def test_adapter_rows_are_the_papers():
    """F.2: at B = 32 Packed computes 64 updates and applies 32, Linear 32 and 32 in its drafting call alone, Quadratic 72 and
    64 at B = 8. A layout without padding has fewer rows, the proposals among them the same."""
    computed = {
        schedule.name: [tuple(adapter_rows([call])) for call in iteration_calls(schedule)]
        for schedule in (packed(31), linear(31), quadratic(7))
    }
    assert computed == {"packed": [(64, 32)], "linear": [(32, 32), (0, 0)], "quadratic": [(72, 64)]}
    assert adapter_rows(iteration_calls(linear(31))) == (32, 32)
    assert adapter_rows(iteration_calls(packed(31)), padded=False) == (33, 32)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("schedule", [packed(5), linear(5), quadratic(3)], ids=lambda schedule: schedule.name)
def test_adapter_rows_are_what_an_adapter_computes(load_model, prompts, schedule, padded):
    """What its projections counted in a run; the prompt, which the first call brings along, is on top of the account."""
    model = with_random_adapter(load_model("float32"))
    session, calls = model.session(padded=padded), []
    generate(lambda call: (calls.append(call), session(call))[1], schedule, prompts[0][:20], Limits.of(16))
    rows = adapter_rows(calls, padded)
    assert (model.adapter.evaluated, model.adapter.selected) == (rows.evaluated + 19, rows.selected)
    if padded:
        last = adapter_rows(calls[-2:] if schedule.name == "linear" else calls[-1:])
        assert last == adapter_rows(iteration_calls(schedule))


def test_an_iteration_by_hand():
    """Two responses of 10 tokens in 4 and 5 calls; after the first ones 7 calls, 1/3 of them drafting, take 3 + 4 quarters of a
    second."""
    steps = [step(), step((7,), 1), step(), step((7,), 1)]
    runs = [record("a", PACKED, 10, 4, 9.0, model=1.0, steps=steps)]
    runs += [record("b", PACKED, 10, 5, 9.0, model=1.25, steps=[*steps, step(predictions=())])]
    figures = summarise(runs, {PACKED: EXACT}).row(PACKED).figures
    assert per_iteration(figures) == pytest.approx((18 / 6, 1.75 / 6, 3))
    single = summarise([record("a", PACKED, 1, 1, 1.0)], {PACKED: EXACT}).row(PACKED).figures
    with pytest.raises(InvalidInput, match="no run had an iteration"):
        per_iteration(single)


def task(*runs, verdict=EXACT) -> Summary:
    return summarise([record("a", *run[:4], model=run[4]) for run in runs], {LINEAR: EXACT, PACKED: verdict})


def test_decomposition_by_hand():
    """F.3: Packed takes (6 + 3) / 10 of Linear on a short task and (40 + 20) / 100 on a long one; each counts alike."""
    short = task((LINEAR, 9, 3, 10.0, 9.0), (PACKED, 9, 2, 9.0, 6.0))
    long = task((LINEAR, 90, 30, 100.0, 80.0), (PACKED, 90, 20, 60.0, 40.0))
    shares = timing_decomposition({"short": short, "long": long}, LINEAR)
    assert shares[PACKED] == pytest.approx(((0.6 + 0.4) / 2, (0.3 + 0.2) / 2))
    assert shares[PACKED].total == pytest.approx(0.75)
    assert shares[LINEAR] == pytest.approx((0.85, 0.15))
    refused = task((LINEAR, 9, 3, 10.0, 9.0), (PACKED, 9, 2, 9.0, 6.0), verdict=Verdict(False, "FAULT"))
    assert timing_decomposition({"short": short, "refused": refused}, LINEAR)[PACKED] is None
    with pytest.raises(InvalidInput, match="packed at W = 4 has no certified times on refused"):
        timing_decomposition({"short": short, "refused": refused}, PACKED)


def test_the_fastest_width_is_chosen():
    """F.1: by tokens per second, not per call; a refused width cannot win."""
    speeds = {
        ("packed", 4): 3.0,
        ("packed", 8): 2.0,
        ("packed", 16): 1.0,
        ("linear", 4): 4.0,
        ("linear", 8): 5.0,
        ("ar", 0): 1.0,
    }
    verdicts = {key: Verdict(key != ("packed", 16), "") for key in speeds}
    summary = summarise([record("a", key, 8, 9 - key[1] // 4, wall) for key, wall in speeds.items()], verdicts)
    assert {name: row.width for name, row in chosen_widths(summary).items()} == {"packed": 8, "linear": 4}
